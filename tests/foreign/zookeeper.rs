//! Curator's `InterProcessMutex`, go-zookeeper's `Lock`, and kazoo's, which needs a pattern for our names.

use std::path::{Path, PathBuf};
use std::time::Duration;

use contender_protocol::now;
use futures_util::StreamExt;
use leasehold::backend::{AcquireRequest, Attempt, Env, StoreEvent};
use leasehold::{LockName, Mode, Revocation, Revoke, Timing};
use libtest_mimic::Trial;
use testbed::zookeeper::Server;
use testbed::{Beside, Server as _, eventually, pass, peers};

use crate::queue::{
    NAME, NAMESPACE, Peer, SESSION, each_is_shown_and_forced_out, each_waits_its_turn, in_queue, open, take,
    waits,
};
use crate::setup::SHORT;

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        testbed::trial("curator::a_holder_is_asked_in_its_own_words", a_holder_is_asked_in_its_own_words),
        testbed::trial("kazoo::default_names_are_waited_for_and_warned_of", default_names_are_waited_for),
    ];
    for (library, program, pattern, is_told) in LIBRARIES {
        trials.push(testbed::trial(format!("{library}::in_one_queue_with_ours"), async move || {
            let Some(program) = program() else { return };
            let server = start().await;
            let mut pair = [peer(&program, &server, pattern).await, peer(&program, &server, pattern).await];
            each_waits_its_turn(&server, &mut pair, &[Mode::EXCLUSIVE, Mode::SHARED]).await;
            each_is_shown_and_forced_out(&server, &mut pair[0], true).await;
        }));
        if let Some(is_told) = is_told {
            let name = format!("{library}::a_holder_that_is_cut_off_says_that_it_holds");
            trials.push(testbed::trial(name, move || a_cut_holder_says_that_it_holds(program, is_told)));
        }
    }
    trials
}

/// How a library's program is started; `None`, and said so, where it is not installed.
type Program = fn() -> Option<Vec<String>>;

/// Each with the pattern that it needs for our names, and with whether its holder is told at last that it was cut off for
/// too long, if it says that at all.
const LIBRARIES: [(&str, Program, &str, Option<bool>); 3] = [
    ("curator", curator, "", Some(true)),
    ("kazoo", kazoo, " -lock-", Some(false)),
    ("go-zookeeper", go_zookeeper, "", None),
];

fn curator() -> Option<Vec<String>> {
    let jars = JARS.map(|jar| Path::new("/usr/share/java").join(format!("{jar}.jar")));
    if let Some(missing) = jars.iter().find(|jar| !jar.exists()) {
        peers::skip("Curator", &format!("{} is missing; `make tools` installs it", missing.display()));
        return None;
    }
    let class_path = jars.map(|jar| jar.display().to_string()).join(":");
    let words = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", &class_path];
    Some(words.map(str::to_owned).into_iter().chain([source("CuratorPeer.java")]).collect())
}

/// The JAR files of Curator's recipes.
const JARS: [&str; 7] = [
    "curator-recipes",
    "curator-framework",
    "curator-client",
    "zookeeper",
    "guava",
    "slf4j-api",
    "slf4j-nop",
];

fn kazoo() -> Option<Vec<String>> {
    let Some(python) = peers::python() else {
        peers::skip("kazoo", "there is no Python with it; `make tools` installs it");
        return None;
    };
    Some(vec![python.display().to_string(), source("kazoo_peer.py")])
}

fn go_zookeeper() -> Option<Vec<String>> {
    let program: PathBuf = peers::tools().join("go-zookeeper/peer");
    if !program.exists() {
        peers::skip("go-zookeeper", &format!("{} is missing; `make tools` builds it", program.display()));
        return None;
    }
    Some(vec![program.display().to_string()])
}

fn source(file: &str) -> String {
    format!("{}/tests/foreign/zookeeper/{file}", env!("CARGO_MANIFEST_DIR"))
}

async fn start() -> Server {
    <Server as testbed::Server>::start().await.unwrap_or_else(|error| panic!("{error}"))
}

fn directory() -> String {
    format!("/{NAMESPACE}/leasehold/{NAME}")
}

async fn peer(program: &[String], server: &Server, pattern: &str) -> Peer {
    Peer::start(program, server.addr(), SESSION, &(directory() + pattern)).await
}

/// A revocable holder of Curator releases when we request it, another one holds on; neither a try nor a release of theirs
/// touches our lock.
async fn a_holder_is_asked_in_its_own_words() {
    let Some(program) = curator() else { return };
    let server = start().await;
    let mut curator = peer(&program, &server, "").await;
    let (locks, admin) = (open(&server, SESSION).await, open(&server, SHORT).await);
    let guard = take(&locks, Mode::EXCLUSIVE).await;
    assert_eq!(curator.ask(&format!("try {} 200", directory())).await, "busy");
    assert!(curator.ask("release").await.starts_with("refused"));
    in_queue(&locks, 1).await;
    guard.ensure_held().unwrap();
    guard.release().await.unwrap();

    assert_eq!(curator.ask(&format!("revocable {}", directory())).await, "held");
    let waiting = waits(&locks, Mode::EXCLUSIVE, 2).await;
    let asking = admin.clone();
    let revoking = Beside::start(async move { asking.revoke(NAME, Revoke::AT_ONCE).await.unwrap() });
    assert_eq!(curator.ask("asked").await, "asked");
    assert!(!waiting.is_finished() && !revoking.is_finished());
    curator.releases().await;
    assert_eq!(revoking.end("an answer").await, Revocation::Released);
    waiting.end("it holds").await.release().await.unwrap();

    curator.asks().await;
    curator.holds().await;
    assert_eq!(admin.revoke(NAME, Revoke::AT_ONCE).await.unwrap(), Revocation::Unanswered);
    assert_eq!(curator.ask("state").await, "acquired CONNECTED");
}

/// By its default names kazoo sees no other client, only with our names as its pattern. We wait for it, and warn once for
/// each lock.
async fn default_names_are_waited_for() {
    let Some(program) = kazoo() else { return };
    let server = start().await;
    let mut kazoo = Peer::start(&program, server.addr(), SESSION, &directory()).await;
    let env = Env::new(Timing::for_ttl(SESSION)).unwrap();
    let config =
        leasehold::registry().store(&<Server as testbed::Server>::url(server.addr(), NAMESPACE, "")).unwrap();
    let store = config.open(env.clone()).await.unwrap();
    let request = || AcquireRequest::new(LockName::new(NAME).unwrap(), env.owner_id(), SESSION);
    kazoo.asks().await;
    kazoo.holds().await;
    for _ in 0..2 {
        let attempt = store.try_acquire(&request()).await.unwrap();
        assert!(matches!(attempt, Attempt::Held { holder: Some(_) }), "{attempt:?}");
    }
    let next = request();
    let mut waiting = store.acquire(&next);
    assert!(futures_util::poll!(&mut waiting).is_pending());
    in_queue(&open(&server, SESSION).await, 2).await;
    kazoo.releases().await;
    let grant = waiting.await.unwrap();
    assert_eq!(kazoo.ask(&format!("try {} -lock-", directory())).await, "busy");
    // It does not wait for us.
    assert_eq!(kazoo.ask(&format!("try {}", directory())).await, "held");
    store.release(&grant).await.unwrap();
    let events = store.events();
    store.close().await.unwrap();
    drop(store);
    let warnings = events.filter(|event| std::future::ready(matches!(event, StoreEvent::Warning(_))));
    let warnings: Vec<_> = warnings.collect().await;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let warning = format!("{:?}", warnings[0]);
    assert!(warning.contains("__lock__") && warning.contains("wait"), "{warning}");
}

/// Cut off for longer than its session, it says that it holds when ours does: kazoo says so for as long as it is cut off,
/// Curator reports LOST later. We report the loss before another client holds (`tests/servers`).
async fn a_cut_holder_says_that_it_holds(program: Program, is_told: bool) {
    let Some(program) = program() else { return };
    let server = start().await;
    let proxy = server.proxy().unwrap();
    let mut holder = Peer::start(&program, proxy.addr(), SHORT, &directory()).await;
    holder.asks().await;
    holder.holds().await;
    let rival = open(&server, SHORT).await;
    let waiting = waits(&rival, Mode::EXCLUSIVE, 2).await;
    proxy.set_both(testbed::Mode::Blackhole).await;
    let cut = now();
    let since = || Duration::from_nanos(now() - cut);
    let _next = waiting.end("it holds").await;
    let mut state = holder.ask("state").await;
    println!("cut off from a session of {SHORT:?}: after {:?} ours holds, and it says {state:?}", since());
    assert!(state.starts_with("acquired") && !state.ends_with("LOST"), "{state}");
    if is_told {
        eventually("it reports the loss", async || {
            state = holder.ask("state").await;
            state.ends_with("LOST")
        })
        .await;
    } else {
        pass(SHORT).await;
        state = holder.ask("state").await;
        assert!(state.starts_with("acquired"), "{state}");
    }
    println!("after {:?}: {state:?}", since());
}
