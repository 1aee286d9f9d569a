//! One lock with Curator's `InterProcessMutex`, go-zookeeper's `Lock`, and kazoo's, which needs a pattern for our names.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use leasehold_core::backend::{AcquireRequest, Attempt, Revocation, Revoke, StoreConfig, StoreEvent};
use leasehold_core::clock::{BootClock, Clock};
use leasehold_core::{Env, ErrorKind, LockGuard, LockManager, LockName, LostReason, Mode, Timing};
use zookeeper_client::{Acls, CreateMode};

use crate::fixture::{BOUND, Beside, Fixture, hold_aside, milliseconds, now};
use crate::peer::Peer;

/// The session timeout of the peers, so long that no wake-up comes from the end of a session.
const SESSION: Duration = BOUND;

pub(crate) async fn curator_and_we_exclude_each_other(fixture: Arc<Fixture>) {
    let space = fixture.space().await;
    let Some(mut curator) = Peer::curator(&space.hosts(), SESSION).await else { return };
    let locks = space.manager().await;
    let path = space.directory("a");
    for _ in 0..3 {
        let guard = locks.lock("a").unwrap().acquire().await.unwrap();
        assert_eq!(curator.ask(&format!("try {path} 200")).await, "busy");
        guard.release().await.unwrap();
        assert_eq!(curator.ask(&format!("acquire {path}")).await, "held");
        assert!(locks.lock("a").unwrap().try_acquire().await.unwrap().is_none());
        let late = locks.lock("a").unwrap().wait(Duration::from_millis(200)).acquire().await.unwrap_err();
        assert!(matches!(late.kind(), ErrorKind::Timeout { .. }), "{late:?}");
        assert_eq!(curator.ask("release").await, "released");
    }
    // Neither leaves anything in the queue.
    space.outside().await.has(&path, 0).await;
}

/// A watch reports each release, in either direction, without polling and without the end of a session.
pub(crate) async fn a_release_wakes_curator_and_us_at_once(fixture: Arc<Fixture>) {
    const ROUNDS: usize = 5;
    let space = fixture.space().await;
    let Some(mut curator) = Peer::curator(&space.hosts(), SESSION).await else { return };
    let locks = space.manager_with(|builder| builder.ttl(SESSION)).await;
    let (path, outside) = (space.directory("a"), space.outside().await);
    let (mut to_curator, mut to_us) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let guard = locks.lock("a").unwrap().acquire().await.unwrap();
        curator.order(&format!("acquire {path}")).await;
        outside.has(&path, 2).await;
        let began = now();
        guard.release().await.unwrap();
        assert_eq!(curator.answer().await, "held");
        to_curator.push(milliseconds(began));

        let waiting = hold_aside(&locks, "a");
        outside.has(&path, 2).await;
        let began = now();
        curator.order("release").await;
        let guard = waiting.end("it holds").await;
        to_us.push(milliseconds(began));
        assert_eq!(curator.answer().await, "released");
        guard.release().await.unwrap();
    }
    println!(
        "milliseconds from release to hold: Curator after us {to_curator:?}, we after Curator {to_us:?}"
    );
    let bound = SESSION.as_millis() / 6;
    assert!(to_curator.iter().chain(&to_us).all(|taken| *taken < bound), "{to_curator:?} {to_us:?}");
}

pub(crate) async fn nobody_releases_what_belongs_to_another(fixture: Arc<Fixture>) {
    let space = fixture.space().await;
    let Some(mut curator) = Peer::curator(&space.hosts(), SESSION).await else { return };
    let locks = space.manager().await;
    let (path, outside) = (space.directory("a"), space.outside().await);
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    assert_eq!(curator.ask(&format!("try {path} 1")).await, "busy");
    assert!(curator.ask("release").await.starts_with("refused"));
    guard.ensure_held().unwrap();

    // Our node is deleted, so Curator holds, and our release finds no node.
    curator.order(&format!("acquire {path}")).await;
    let nodes = outside.has(&path, 2).await;
    outside.client.delete(&format!("{path}/{}", nodes[0]), None).await.unwrap();
    assert_eq!(curator.answer().await, "held");
    let error = guard.release().await.expect_err("it is Curator's");
    assert!(error.lost_reason().is_some(), "{error:?}");
    assert_eq!(outside.children(&path).await, nodes[1..]);
    assert_eq!(curator.ask("release").await, "released");
}

/// A revocable holder of Curator releases when we request it; another one holds on.
pub(crate) async fn curators_holder_is_asked_in_its_own_words(fixture: Arc<Fixture>) {
    let space = fixture.space().await;
    let Some(mut curator) = Peer::curator(&space.hosts(), SESSION).await else { return };
    let locks = space.manager().await;
    let path = space.directory("a");
    assert_eq!(curator.ask(&format!("revocable {path}")).await, "held");
    let waiting = hold_aside(&locks, "a");
    space.outside().await.has(&path, 2).await;
    let other = locks.clone();
    let revoking = Beside::start(async move { other.revoke("a", Revoke::AT_ONCE).await.unwrap() });
    assert_eq!(curator.ask("asked").await, "asked");
    assert!(!waiting.is_finished() && !revoking.is_finished());
    assert_eq!(curator.ask("release").await, "released");
    assert_eq!(revoking.end("an answer").await, Revocation::Released);
    waiting.end("it holds").await.release().await.unwrap();

    assert_eq!(curator.ask(&format!("acquire {path}")).await, "held");
    assert_eq!(locks.revoke("a", Revoke::AT_ONCE).await.unwrap(), Revocation::Unanswered);
    assert_eq!(curator.ask("state").await, "acquired CONNECTED");
}

/// Nothing is written to the nodes of Curator's other recipes.
pub(crate) async fn other_recipes_keep_their_data(fixture: Arc<Fixture>) {
    let space = fixture.space().await;
    let (locks, outside) = (space.manager().await, space.outside().await);
    locks.lock("a").unwrap().acquire().await.unwrap().release().await.unwrap();
    let latch = format!("{}/_c_51e3f9c4-2c4c-4d0e-9c0e-8f3c1a5b7d21-latch-", space.directory("a"));
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let (_, number) = outside.client.create(&latch, b"theirs", &options).await.unwrap();
    assert_eq!(locks.revoke("a", Revoke::AT_ONCE).await.unwrap(), Revocation::Foreign);
    let (data, _) = outside.client.get_data(&format!("{latch}{number}")).await.unwrap();
    assert_eq!(data, b"theirs");
}

/// By its default names kazoo sees no other client. We wait for it, and warn once for each lock.
pub(crate) async fn kazoo_is_waited_for_and_warned_of(fixture: Arc<Fixture>) {
    let space = fixture.space().await;
    let Some(mut kazoo) = Peer::kazoo(&space.hosts(), SESSION).await else { return };
    let path = space.directory("a");
    let env = Env::new(Timing::for_ttl(SESSION)).unwrap();
    let store = space.config().open(env.clone()).await.unwrap();
    let request = || AcquireRequest::new(LockName::new("a").unwrap(), env.owner_id(), SESSION);
    assert_eq!(kazoo.ask(&format!("try {path}")).await, "held");
    for _ in 0..2 {
        let attempt = store.try_acquire(&request()).await.unwrap();
        assert!(matches!(attempt, Attempt::Held { holder: Some(_) }), "{attempt:?}");
    }
    let next = request();
    let mut waiting = store.acquire(&next);
    assert!(futures_util::poll!(&mut waiting).is_pending());
    space.outside().await.has(&path, 2).await;
    assert_eq!(kazoo.ask("release").await, "released");
    let grant = waiting.await.unwrap();
    // It does not wait for us.
    assert_eq!(kazoo.ask(&format!("try {path}")).await, "held");
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

/// A share with its own grant each time.
async fn share(locks: &LockManager) -> LockGuard {
    locks.lock("a").unwrap().shared().handoff_limit(0).acquire().await.unwrap()
}

fn share_aside(locks: &LockManager) -> Beside<LockGuard> {
    let lock = locks.lock("a").unwrap().shared().handoff_limit(0);
    Beside::start(async move { lock.acquire().await.unwrap() })
}

/// Curator waits for all shares before it. Its release admits every reader up to the next writer, by their watches.
pub(crate) async fn curator_and_those_who_share_wait_for_each_other(fixture: Arc<Fixture>) {
    let space = fixture.space().await;
    let Some(mut curator) = Peer::curator(&space.hosts(), SESSION).await else { return };
    let Some(mut next) = Peer::curator(&space.hosts(), SESSION).await else { return };
    let patient = async || space.manager_with(|builder| builder.ttl(SESSION)).await;
    let (one, other) = (patient().await, patient().await);
    let (third, writer) = (patient().await, patient().await);
    let (path, outside) = (space.directory("a"), space.outside().await);
    let (first, second) = (share(&one).await, share(&other).await);
    assert_eq!(curator.ask(&format!("try {path} 200")).await, "busy");
    curator.order(&format!("acquire {path}")).await;
    outside.has(&path, 3).await;
    // No reader passes a waiting writer, not even one that holds already.
    assert!(one.lock("a").unwrap().shared().handoff_limit(0).try_acquire().await.unwrap().is_none());
    let behind = [share_aside(&one), share_aside(&third)];
    outside.has(&path, 5).await;
    next.order(&format!("acquire {path}")).await;
    outside.has(&path, 6).await;
    let writing = hold_aside(&writer, "a");
    outside.has(&path, 7).await;
    let last = share_aside(&other);
    outside.has(&path, 8).await;

    second.release().await.unwrap();
    curator.is_silent().await;
    first.release().await.unwrap();
    assert_eq!(curator.answer().await, "held");
    assert!(behind.iter().all(|reader| !reader.is_finished()), "a reader beside Curator");
    let began = now();
    assert_eq!(curator.ask("release").await, "released");
    let mut readers = Vec::new();
    for reader in behind {
        readers.push(reader.end("it shares the lock").await);
    }
    assert!(milliseconds(began) < SESSION.as_millis() / 6, "not by a watch");
    for reader in readers {
        next.is_silent().await;
        reader.release().await.unwrap();
    }
    assert_eq!(next.answer().await, "held");
    assert!(!writing.is_finished() && !last.is_finished());
    assert_eq!(next.ask("release").await, "released");
    let written = writing.end("we write").await;
    assert!(!last.is_finished(), "a reader beside a writer");
    written.release().await.unwrap();
    last.end("the last one reads").await.release().await.unwrap();
    outside.has(&path, 0).await;
}

/// With our names as its pattern kazoo waits for us, exclusive or shared, as we do for kazoo.
pub(crate) async fn kazoo_with_the_pattern_and_we_exclude_each_other(fixture: Arc<Fixture>) {
    let space = fixture.space().await;
    let Some(mut kazoo) = Peer::kazoo(&space.hosts(), SESSION).await else { return };
    let (one, other) = (space.manager().await, space.manager().await);
    let (path, outside) = (space.directory("a"), space.outside().await);
    for shares in [false, true] {
        let held = if shares {
            vec![share(&one).await, share(&other).await]
        } else {
            vec![one.lock("a").unwrap().acquire().await.unwrap()]
        };
        assert_eq!(kazoo.ask(&format!("try {path} -lock-")).await, "busy");
        kazoo.order(&format!("acquire {path} -lock-")).await;
        outside.has(&path, held.len() + 1).await;
        let behind =
            if shares { vec![share_aside(&one), share_aside(&other)] } else { vec![hold_aside(&other, "a")] };
        outside.has(&path, held.len() + 1 + behind.len()).await;
        for guard in held {
            kazoo.is_silent().await;
            guard.release().await.unwrap();
        }
        assert_eq!(kazoo.answer().await, "held");
        assert!(behind.iter().all(|waiting| !waiting.is_finished()), "it holds beside kazoo");
        assert!(one.lock("a").unwrap().try_acquire().await.unwrap().is_none());
        assert_eq!(kazoo.ask("release").await, "released");
        for waiting in behind {
            waiting.end("it holds").await.release().await.unwrap();
        }
    }
    outside.has(&path, 0).await;
}

/// go-zookeeper waits for every older node in the directory, ours of either kind included.
pub(crate) async fn go_zookeeper_and_we_wait_for_each_other(fixture: Arc<Fixture>) {
    let space = fixture.space().await;
    let Some(mut peer) = Peer::go(&space.hosts(), SESSION).await else { return };
    let (one, other, third) = (space.manager().await, space.manager().await, space.manager().await);
    let (path, outside) = (space.directory("a"), space.outside().await);
    for _ in 0..3 {
        let (first, second) = (share(&one).await, share(&other).await);
        peer.order(&format!("acquire {path}")).await;
        outside.has(&path, 3).await;
        let reading = share_aside(&third);
        outside.has(&path, 4).await;
        first.release().await.unwrap();
        peer.is_silent().await;
        second.release().await.unwrap();
        assert_eq!(peer.answer().await, "held");
        assert!(!reading.is_finished(), "a reader beside go-zookeeper");
        assert!(one.lock("a").unwrap().try_acquire().await.unwrap().is_none());
        assert_eq!(peer.ask("release").await, "released");
        let read = reading.end("we read").await;
        let writing = hold_aside(&one, "a");
        outside.has(&path, 2).await;
        peer.order(&format!("acquire {path}")).await;
        outside.has(&path, 3).await;
        read.release().await.unwrap();
        let written = writing.end("we write").await;
        peer.is_silent().await;
        // go-zookeeper takes the pass for a change and lists.
        written.release().await.unwrap();
        assert_eq!(peer.answer().await, "held");
        assert_eq!(peer.ask("release").await, "released");
    }
    outside.has(&path, 0).await;
}

/// Holders are shown with their modes and times, Curator's included. Each sharer gets the request, and Curator's hold
/// can be ended by force.
pub(crate) async fn those_who_share_are_shown_beside_curator(fixture: Arc<Fixture>) {
    let space = fixture.space().await;
    let Some(mut curator) = Peer::curator(&space.hosts(), SESSION).await else { return };
    let (one, other, admin) = (space.manager().await, space.manager().await, space.manager().await);
    let (path, outside) = (space.directory("a"), space.outside().await);
    let before = BootClock::new().wall_time();
    let guards = [share(&one).await, share(&other).await];
    curator.order(&format!("acquire {path}")).await;
    outside.has(&path, 3).await;
    let shown = async || {
        let state = admin.inspect("a").await.unwrap();
        (state.holders.iter().map(|holder| holder.mode).collect::<Vec<_>>(), state.contenders)
    };
    assert_eq!(shown().await, (vec![Mode::SHARED; 2], 1));
    let since = admin.inspect("a").await.unwrap().holders[1].since;
    // ZooKeeper counts milliseconds.
    let (earliest, latest) = (before - Duration::from_millis(1), BootClock::new().wall_time());
    assert!((Some(earliest)..=Some(latest)).contains(&since), "{earliest:?} {since:?} {latest:?}");
    assert_eq!(admin.revoke("a", Revoke::AT_ONCE).await.unwrap(), Revocation::Released);
    for guard in guards {
        assert_eq!(guard.lost().await, LostReason::Revoked);
    }
    assert_eq!(curator.answer().await, "held");
    let reading = share_aside(&one);
    outside.has(&path, 2).await;
    assert_eq!(shown().await, (vec![Mode::EXCLUSIVE], 1));
    let of_curator = admin.list("").await.unwrap().pop().expect("Curator holds").holders.pop().unwrap();
    assert!(of_curator.since > since, "{of_curator:?}");
    assert_eq!(admin.revoke("a", Revoke::Force).await.unwrap(), Revocation::Released);
    reading.end("it reads").await.release().await.unwrap();
}

/// Foreign nodes count as writers, also those of Curator's read-write lock and names that only look like ours.
pub(crate) async fn whatever_is_not_ours_is_waited_for_as_a_writer(fixture: Arc<Fixture>) {
    const UUID: &str = "51e3f9c4-2c4c-4d0e-9c0e-8f3c1a5b7d21";
    let space = fixture.space().await;
    let (locks, other, outside) = (space.manager().await, space.manager().await, space.outside().await);
    let mut curator = Peer::curator(&space.hosts(), SESSION).await;
    let path = space.directory("a");
    share(&locks).await.release().await.unwrap();
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    for stem in [
        // Curator's other recipes, the locks of kazoo and go-zookeeper, ZooKeeper's own recipe.
        format!("_c_{UUID}-__READ__"),
        format!("_c_{UUID}-__WRIT__"),
        format!("{}__lock__", UUID.replace('-', "")),
        format!("_c_{}-lock-", UUID.replace('-', "")),
        "x-72057594037927936-".to_owned(),
        // As we give them, almost.
        format!("_c_{}-shared-lock-", UUID.replace('-', "")),
        format!("_c_{}-shared-lock-", UUID.to_uppercase()),
        format!("{UUID}-shared-lock-"),
        format!("_c_{UUID}-2of8-lock-"),
        format!("_c_{UUID}-shared-lock--"),
    ] {
        let node = format!("{path}/{stem}");
        let (_, number) = outside.client.create(&node, b"", &options).await.unwrap();
        if let Some(curator) = curator.as_mut().filter(|_| stem.contains("-__")) {
            assert_eq!(
                curator.ask(&format!("acquire {path}")).await,
                "held",
                "it waits for its read-write lock"
            );
            assert_eq!(curator.ask("release").await, "released");
        }
        assert!(locks.lock("a").unwrap().shared().try_acquire().await.unwrap().is_none(), "{stem}");
        let waiting = [share_aside(&locks), share_aside(&other)];
        outside.has(&path, 3).await;
        assert!(waiting.iter().all(|reader| !reader.is_finished()), "beside {stem}");
        outside.client.delete(&format!("{node}{number}"), None).await.unwrap();
        let mut guards = Vec::new();
        for reader in waiting {
            guards.push(reader.end(&stem).await);
        }
        for guard in guards {
            guard.release().await.unwrap();
        }
    }
    outside.has(&path, 0).await;
}
