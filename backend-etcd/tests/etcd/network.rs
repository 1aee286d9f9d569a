//! What this store does when the network fails; what every store does is in `tests/servers` of the workspace.

use std::time::Duration;

use testbed::Mode;

use crate::rig::{
    BOUND, EARLY, PREFIX, Rig, TTL, eventually, hold, hold_aside, open_with_ttl, trials, until, within,
};

trials![
    an_endpoint_that_falls_silent_is_left,
    a_place_outlasts_an_outage_that_begins_before_it_is_told,
    an_acquisition_that_is_not_polled_holds_nobody_up,
    an_opening_that_is_given_up_leaves_nothing,
    an_opening_that_is_given_up_at_its_end_leaves_nothing,
    a_waiter_survives_the_loss_of_its_session_in_a_bad_network,
];

/// The endpoint in use goes silent; holding, waiting and releasing go on at the other one before
/// the lease ends.
async fn an_endpoint_that_falls_silent_is_left() {
    let rig = Rig::start().await;
    let proxies = [rig.proxy(0), rig.proxy(0)];
    let endpoints = proxies.iter().map(|proxy| proxy.addr().to_string());
    let config = leasehold_etcd::EtcdConfig::new(endpoints).prefix(PREFIX);
    let ttl = 2 * TTL;
    let manager = open_with_ttl(config, ttl).await.unwrap();
    let other = rig.manager().await;

    let guard = hold(&manager, "n").await;
    let blocking = hold(&other, "m").await;
    let waiting = hold_aside(&manager, "m");
    rig.store.queued("m", 2).await;
    // Answered on the way that the waiter uses, after it: so that has heard that it is queued.
    manager.inspect("m").await.unwrap();
    for silent in [0, 1, 0] {
        proxies[1 - silent].set_both(Mode::Pass).await;
        proxies[silent].set_both(Mode::Blackhole).await;
        eventually("a renewal", async || guard.renew().await.is_ok()).await;
    }
    blocking.release().await.unwrap();
    waiting.end("the waiter holds").await.release().await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(rig.store.queue("n").await, []);
}

/// The store is down from when it has queued a waiter, who was not told behind whom: the place is kept.
async fn a_place_outlasts_an_outage_that_begins_before_it_is_told() {
    let rig = Rig::start().await;
    let proxy = rig.proxy(0);
    let (holder, ttl) = (rig.manager().await, 2 * TTL);
    let manager = open_with_ttl(crate::rig::behind(&proxy), ttl).await.unwrap();
    let guard = hold(&holder, "n").await;
    let waiting = hold_aside(&manager, "n");
    rig.store.queued("n", 2).await;
    let place = rig.store.queue("n").await;
    // Answered on the way that the waiter uses, after it: so that has heard that it is queued.
    manager.inspect("m").await.unwrap();
    proxy.set_both(Mode::Blackhole).await;
    tokio::time::sleep(ttl / 2).await; // Longer than a request may last.
    proxy.set_both(Mode::Pass).await;
    proxy.reset().await;

    manager.inspect("m").await.unwrap();
    assert_eq!(rig.store.queue("n").await, place);
    guard.release().await.unwrap();
    waiting.end("the waiter holds").await.release().await.unwrap();
}

/// Slow enough to be seen in the middle of something.
const SLOW: Mode = Mode::Delay { base: Duration::from_millis(150), jitter: Duration::ZERO, seed: 1 };

/// A session ends, and whoever opens the next one is polled no more: others get theirs all the same.
async fn an_acquisition_that_is_not_polled_holds_nobody_up() {
    let rig = Rig::start().await;
    let proxy = rig.proxy(0);
    let (holder, manager) = (rig.manager().await, rig.manager_behind(&proxy).await);
    let guard = hold(&holder, "n").await;
    let lock = manager.lock("n").unwrap();
    let mut waiting = std::pin::pin!(lock.acquire());
    tokio::select! {
        _ = &mut waiting => panic!("another holds it"),
        () = rig.store.queued("n", 2) => {}
    }
    proxy.set_both(SLOW).await;
    rig.store.revoke(rig.store.queue("n").await[1].lease).await;
    // The answer that says so is still on its way.
    let is_opening = eventually("another session", async || rig.store.leases().await == 2);
    tokio::select! {
        _ = &mut waiting => panic!("another holds it"),
        () = is_opening => {}
    }
    hold(&manager, "m").await.release().await.unwrap();

    guard.release().await.unwrap();
    within(BOUND, "it holds", waiting).await.unwrap().release().await.unwrap();
}

/// Connecting is given up in the middle: no lease stays, and no connection.
async fn an_opening_that_is_given_up_leaves_nothing() {
    given_up_once("a lease", async |rig| rig.store.leases().await == 1).await;
}

/// The same when all that is missing is the answer to the last request: the session begins, and nobody takes it.
async fn an_opening_that_is_given_up_at_its_end_leaves_nothing() {
    let is_put = async |rig: &Rig| !rig.store.keys(&format!("{PREFIX}/%session/")).await.is_empty();
    given_up_once("the session's key", is_put).await;
}

/// Connecting is given up once `there` is.
async fn given_up_once(what: &str, there: impl AsyncFn(&Rig) -> bool) {
    let rig = Rig::start().await;
    let proxy = rig.proxy(0);
    proxy.set_both(SLOW).await;
    // Much longer than the test waits.
    let opening = open_with_ttl(crate::rig::behind(&proxy), 10 * TTL);
    tokio::select! {
        _ = opening => panic!("it is opened already"),
        () = eventually(what, async || there(&rig).await) => {}
    }
    within(EARLY, "the lease ends", until(async || rig.store.leases().await == 0)).await;
    within(BOUND, "no connection stays", proxy.idle()).await;
}

/// The session of a waiter ends, and the answer to its next entry never comes: it waits on.
async fn a_waiter_survives_the_loss_of_its_session_in_a_bad_network() {
    let rig = Rig::start().await;
    let proxy = rig.proxy(0);
    let (holder, waiter) = (rig.manager().await, rig.manager_behind(&proxy).await);
    let guard = hold(&holder, "n").await;
    let next = hold_aside(&waiter, "n");
    rig.store.queued("n", 2).await;
    let lost = rig.store.queue("n").await.remove(1);
    proxy.set_both(SLOW).await;
    rig.store.revoke(lost.lease).await;
    eventually("the waiter queues again", async || {
        let queue = rig.store.queue("n").await;
        queue.len() == 2 && queue[1].lease != lost.lease
    })
    .await;
    proxy.set_both(Mode::Blackhole).await;
    tokio::time::sleep(TTL * 2 / 3).await; // Longer than a request may last.
    proxy.set_both(Mode::Pass).await;
    proxy.reset().await;
    guard.release().await.unwrap();
    next.end("the waiter holds").await.release().await.unwrap();
}
