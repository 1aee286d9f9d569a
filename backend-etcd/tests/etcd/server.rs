//! One server: nearly full, of several versions, behind a proxy of its own.

use std::path::PathBuf;

use futures_util::StreamExt;
use futures_util::future::join_all;
use leasehold_core::backend::{Finding, Severity, StoreConfig, StoreEvent};
use leasehold_core::{Env, ErrorKind, Timing};
use leasehold_etcd::EtcdConfig;
use testbed::etcd::{Setup, current};
use testbed::{Launch, Port, Scratch};
use tokio::net::TcpStream;

use crate::fixture::{BOUND, EARLY, Fixture, PREFIX, TTL, eventually, open_with_ttl, trials, until, within};

trials![
    entry_refused_by_a_full_server_is_removed,
    a_version_with_known_bugs_is_named,
    a_proxy_of_etcd_is_refused_by_name,
];

/// A server that is about to be full applies requests that it answers with NOSPACE. None of their entries stays.
async fn entry_refused_by_a_full_server_is_removed() {
    const TASKS: usize = 192;
    for program in [None, current()] {
        let mut put = 0;
        // It happens in a moment that may be missed.
        for _ in 0..5 {
            put += refused_and_put(TASKS, program.as_ref()).await;
            if put > 0 {
                break;
            }
        }
        assert!(put > 0, "nothing that was refused had been put: this shows nothing");
    }
}

/// Fills a server; returns how many refused entries it had put. All of them are removed.
async fn refused_and_put(tasks: usize, program: Option<&PathBuf>) -> usize {
    // It counts what is written with every write, so that it is full while requests are under way.
    let setup = Setup::new().quota(4 << 20).arg("--backend-batch-limit=1");
    let fixture = Fixture::on(program.into_iter().fold(setup, |setup, program| setup.program(program))).await;
    // So long that no entry ends with a lease.
    let manager = open_with_ttl(fixture.config(), 20 * TTL).await.unwrap();
    let diary = fixture.store.diary(&format!("{PREFIX}/full")).await;
    // Each takes one lock after the other until it is refused.
    let taking = join_all((0..tasks).map(async |task| {
        let mut held = Vec::new();
        loop {
            let name = format!("full{task}-{}", held.len());
            match manager.lock(&name).unwrap().metadata("x".repeat(1_000)).acquire().await {
                Ok(guard) => held.push(guard),
                Err(refused) => return (held, name, refused),
            }
        }
    }));
    let outcomes = within(BOUND, "all are refused", taking).await;
    for (_, name, refused) in &outcomes {
        assert_eq!(*refused.kind(), ErrorKind::Unavailable, "{refused}");
        within(EARLY, "its entry goes", until(async || fixture.store.queue(name).await.is_empty())).await;
    }
    let names = outcomes.iter().map(|(_, name, _)| format!("{PREFIX}/{name}/"));
    let diary = diary.entries();
    let put = names.filter(|name| diary.iter().any(|entry| entry.key.starts_with(name))).count();
    println!("{put} of {tasks} that were refused had been put");
    put
}

/// The installed 3.4.23 has bugs that end leases early: that is reported when a session is opened, and by a diagnosis.
async fn a_version_with_known_bugs_is_named() {
    let fixture = Fixture::start().await;
    let warning = first_warning(&fixture).await.expect("3.4.23 is warned of");
    assert!(warning.contains("3.4.23") && warning.contains("15247"), "{warning}");

    let findings = fixture.manager().await.diagnose().await.unwrap();
    let is_named = |finding: &Finding| finding.severity > Severity::Ok && finding.detail.contains("3.4.23");
    assert!(findings.iter().any(is_named), "{findings:?}");
}

async fn first_warning(fixture: &Fixture) -> Option<String> {
    let env = Env::new(Timing::for_ttl(TTL)).unwrap();
    let backend = fixture.config().open(env).await.unwrap();
    let mut events = backend.events();
    let warned = async {
        while let Some(event) = events.next().await {
            if let StoreEvent::Condition(warning) = event {
                return Some(warning.into_owned());
            }
        }
        None
    };
    let warned = async { tokio::time::timeout(TTL, warned).await.unwrap_or(None) }.await;
    backend.close().await.unwrap();
    warned
}

/// `etcd grpc-proxy` numbers watches itself and answers renewals early: opening returns an error that names it, and nothing
/// is left behind.
async fn a_proxy_of_etcd_is_refused_by_name() {
    let fixture = Fixture::start().await;
    let (port, scratch) = (Port::reserve().unwrap(), Scratch::new("grpc-proxy").unwrap());
    let listen = port.addr();
    let mut launch = Launch::new("setpriv", scratch.path()).args(["--pdeathsig=KILL", "--", "etcd"]).args([
        "grpc-proxy".to_owned(),
        "start".to_owned(),
        format!("--endpoints={}", fixture.etcd.endpoints().join(",")),
        format!("--listen-addr={listen}"),
        format!("--advertise-client-url={listen}"),
        format!("--data-dir={}", scratch.path().join("data").display()),
    ]);
    let _proxy = launch.spawn().unwrap();
    eventually("the proxy listens", async || TcpStream::connect(listen).await.is_ok()).await;

    let config = EtcdConfig::new([listen.to_string()]).prefix(PREFIX);
    let refused = within(BOUND, "an answer", open_with_ttl(config, 5 * TTL)).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Unsupported, "{refused:?}");
    assert!(refused.to_string().contains("grpc-proxy"), "{refused}");
    within(EARLY, "no lease stays", until(async || fixture.store.leases().await == 0)).await;
}
