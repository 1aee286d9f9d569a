//! One lock with Curator's `InterProcessMutex`, and with kazoo's `Lock`, which has to be told of us.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use leasehold_core::backend::{AcquireRequest, Attempt, Revocation, Revoke, StoreConfig, StoreEvent};
use leasehold_core::clock::{BootClock, Clock};
use leasehold_core::{Env, ErrorKind, LockName, LostReason, Timing};
use zookeeper_client::{Acls, CreateMode};

use crate::peer::Peer;
use crate::rig::{BOUND, Beside, Rig, hold_aside, milliseconds, now};

/// Of the peers: so long that no wake-up can come from a session that ended.
const SESSION: Duration = BOUND;

/// Whoever of the two holds, the other does not.
pub(crate) async fn curator_and_we_exclude_each_other(rig: Arc<Rig>) {
    let space = rig.space().await;
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

/// One queue: whoever came first is served first, whichever library it uses.
pub(crate) async fn curator_and_we_queue_in_order(rig: Arc<Rig>) {
    let space = rig.space().await;
    let Some(mut second) = Peer::curator(&space.hosts(), SESSION).await else { return };
    let Some(mut fourth) = Peer::curator(&space.hosts(), SESSION).await else { return };
    let (first, third) = (space.manager().await, space.manager().await);
    let (path, outside) = (space.directory("a"), space.outside().await);
    let first = first.lock("a").unwrap().acquire().await.unwrap();
    second.order(&format!("acquire {path}")).await;
    outside.has(&path, 2).await;
    let third = hold_aside(&third, "a");
    outside.has(&path, 3).await;
    fourth.order(&format!("acquire {path}")).await;
    outside.has(&path, 4).await;

    first.release().await.unwrap();
    assert_eq!(second.answer().await, "held");
    assert!(!third.is_finished());
    assert_eq!(second.ask("release").await, "released");
    let third = third.end("it holds").await;
    fourth.is_silent().await;
    third.release().await.unwrap();
    assert_eq!(fourth.answer().await, "held");
}

/// A release is heard by a watch, in either direction; nobody waits for a session to end or looks
/// now and then.
pub(crate) async fn a_release_wakes_curator_and_us_at_once(rig: Arc<Rig>) {
    const ROUNDS: usize = 5;
    let space = rig.space().await;
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

/// A release by whoever does not hold is refused, and the holder holds on.
pub(crate) async fn nobody_releases_what_belongs_to_another(rig: Arc<Rig>) {
    let space = rig.space().await;
    let Some(mut curator) = Peer::curator(&space.hosts(), SESSION).await else { return };
    let locks = space.manager().await;
    let (path, outside) = (space.directory("a"), space.outside().await);
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    assert_eq!(curator.ask(&format!("try {path} 1")).await, "busy");
    assert!(curator.ask("release").await.starts_with("refused"));
    guard.ensure_held().unwrap();

    // Ours is taken away, so that Curator holds: our release finds nothing of ours.
    curator.order(&format!("acquire {path}")).await;
    let nodes = outside.has(&path, 2).await;
    outside.client.delete(&format!("{path}/{}", nodes[0]), None).await.unwrap();
    assert_eq!(curator.answer().await, "held");
    let error = guard.release().await.expect_err("it is Curator's");
    assert!(error.lost_reason().is_some(), "{error:?}");
    assert_eq!(outside.children(&path).await, nodes[1..]);
    assert_eq!(curator.ask("release").await, "released");
}

/// `inspect` and `list` show a hold of Curator's, and `revoke --force` ends it.
pub(crate) async fn curators_hold_is_shown(rig: Arc<Rig>) {
    let space = rig.space().await;
    let Some(mut curator) = Peer::curator(&space.hosts(), SESSION).await else { return };
    let locks = space.manager().await;
    let path = space.directory("a");
    assert_eq!(curator.ask(&format!("acquire {path}")).await, "held");
    let state = locks.inspect("a").await.unwrap();
    let holder = state.holder().expect("Curator holds");
    println!("Curator's hold is shown as {holder:?}");
    assert_eq!(state.contenders, 0);
    let names: Vec<_> = locks.list("").await.unwrap().iter().map(|state| state.name.to_string()).collect();
    assert_eq!(names, ["a"]);

    assert_eq!(locks.revoke("a", Revoke::Force).await.unwrap(), Revocation::Released);
    let guard = locks.lock("a").unwrap().try_acquire().await.unwrap().expect("it was taken from Curator");
    assert!(holder.token.is_none_or(|token| guard.token() > token));
}

/// A holder of Curator's that can be asked lets go when we ask; one that cannot holds on.
pub(crate) async fn curators_holder_is_asked_in_its_own_words(rig: Arc<Rig>) {
    let space = rig.space().await;
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

/// Into the nodes of Curator's other recipes nothing is written: their data is their own.
pub(crate) async fn other_recipes_keep_their_data(rig: Arc<Rig>) {
    let space = rig.space().await;
    let (locks, outside) = (space.manager().await, space.outside().await);
    locks.lock("a").unwrap().acquire().await.unwrap().release().await.unwrap();
    let latch = format!("{}/_c_51e3f9c4-2c4c-4d0e-9c0e-8f3c1a5b7d21-latch-", space.directory("a"));
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let (_, number) = outside.client.create(&latch, b"theirs", &options).await.unwrap();
    assert_eq!(locks.revoke("a", Revoke::AT_ONCE).await.unwrap(), Revocation::Unanswered);
    let (data, _) = outside.client.get_data(&format!("{latch}{number}")).await.unwrap();
    assert_eq!(data, b"theirs");
}

/// Curator's `Revoker` may not write into our nodes: the hold stands, and so do those who wait.
pub(crate) async fn curators_revoker_is_not_heard(rig: Arc<Rig>) {
    let space = rig.space().await;
    let Some(mut curator) = Peer::curator(&space.hosts(), SESSION).await else { return };
    let (locks, other) = (space.manager().await, space.manager().await);
    let path = space.directory("a");
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    let waiting = hold_aside(&other, "a");
    let nodes = space.outside().await.has(&path, 2).await;
    assert_eq!(curator.ask(&format!("revoke {path}/{}", nodes[0])).await, "refused");
    guard.renew().await.unwrap();
    guard.ensure_held().unwrap();
    assert!(!waiting.is_finished());
    // Ours is heard all the same.
    assert_eq!(other.revoke("a", Revoke::AT_ONCE).await.unwrap(), Revocation::Released);
    assert_eq!(guard.lost().await, LostReason::Revoked);
    waiting.end("it holds").await.release().await.unwrap();
}

/// `inspect` says since when a holder's node is there, ours or Curator's.
pub(crate) async fn holders_are_shown_since_they_came(rig: Arc<Rig>) {
    let space = rig.space().await;
    let locks = space.manager().await;
    let before = BootClock::new().wall_time();
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    let since =
        locks.inspect("a").await.unwrap().holders.pop().unwrap().since.expect("the server's time is shown");
    // ZooKeeper counts milliseconds.
    let (earliest, latest) = (before - Duration::from_millis(1), BootClock::new().wall_time());
    assert!((earliest..=latest).contains(&since), "{earliest:?} {since:?} {latest:?}");
    guard.release().await.unwrap();
    let Some(mut curator) = Peer::curator(&space.hosts(), SESSION).await else { return };
    assert_eq!(curator.ask(&format!("acquire {}", space.directory("a"))).await, "held");
    let of_curator = locks.inspect("a").await.unwrap().holders.pop().unwrap().since;
    assert!(of_curator > Some(since), "{of_curator:?}");
}

/// What kazoo's default names mean: it sees nobody, and we wait for it and say so, once for each lock.
pub(crate) async fn kazoo_is_waited_for_and_warned_of(rig: Arc<Rig>) {
    let space = rig.space().await;
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

/// With our names as its pattern kazoo waits for us, as we do for kazoo.
pub(crate) async fn kazoo_with_the_pattern_and_we_exclude_each_other(rig: Arc<Rig>) {
    let space = rig.space().await;
    let Some(mut kazoo) = Peer::kazoo(&space.hosts(), SESSION).await else { return };
    let locks = space.manager().await;
    let (path, outside) = (space.directory("a"), space.outside().await);
    for _ in 0..3 {
        let guard = locks.lock("a").unwrap().acquire().await.unwrap();
        assert_eq!(kazoo.ask(&format!("try {path} -lock-")).await, "busy");
        kazoo.order(&format!("acquire {path} -lock-")).await;
        outside.has(&path, 2).await;
        guard.release().await.unwrap();
        assert_eq!(kazoo.answer().await, "held");
        assert!(locks.lock("a").unwrap().try_acquire().await.unwrap().is_none());
        let waiting = hold_aside(&locks, "a");
        outside.has(&path, 2).await;
        assert_eq!(kazoo.ask("release").await, "released");
        waiting.end("it holds").await.release().await.unwrap();
    }
    outside.has(&path, 0).await;
}
