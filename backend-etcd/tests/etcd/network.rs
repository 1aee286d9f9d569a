//! A network that stops, slows down or cuts connections between a process and the server.

use std::sync::Arc;
use std::time::Duration;

use lockcore::LostReason;
use testbed::{Direction, Mode, Port};

use crate::rig::{
    BOUND, Beside, EARLY, PREFIX, Rig, TTL, eventually, hold, hold_aside, now, open, open_with_ttl, trials,
    until, within,
};

trials![
    cut_off_both_ways_a_guard_is_lost_before_another_holds,
    cut_off_towards_the_server_a_guard_is_lost_before_another_holds,
    cut_off_from_the_server_a_guard_is_lost_before_another_holds,
    a_waiter_keeps_its_place_when_its_streams_are_cut,
    a_hand_off_while_the_streams_are_cut_is_not_missed,
    a_short_cut_loses_nothing,
    a_slow_network_loses_nothing,
    dead_endpoints_are_passed_over,
    an_endpoint_that_falls_silent_is_left,
    nobody_there_is_said_in_time,
    an_acquisition_that_is_not_polled_holds_nobody_up,
    an_opening_that_is_given_up_leaves_nothing,
    a_waiter_survives_the_loss_of_its_session_in_a_bad_network,
];

async fn cut_off_both_ways_a_guard_is_lost_before_another_holds() {
    cut_off(&Direction::BOTH).await;
}

async fn cut_off_towards_the_server_a_guard_is_lost_before_another_holds() {
    cut_off(&[Direction::ClientToServer]).await;
}

async fn cut_off_from_the_server_a_guard_is_lost_before_another_holds() {
    cut_off(&[Direction::ServerToClient]).await;
}

/// G2 and G6: nothing passes for longer than the ttl. The guard is no longer held at the very
/// instant at which another is, that instant comes in time, and no hold comes back after it.
async fn cut_off(directions: &[Direction]) {
    let rig = Rig::start().await;
    let proxy = rig.proxy(0);
    let (victim, other) = (rig.manager_behind(&proxy).await, rig.manager().await);
    let guard = Arc::new(hold(&victim, "n").await);
    let (lock, watched) = (other.lock("n").unwrap(), Arc::clone(&guard));
    let rival = Beside::start(async move {
        let next = lock.acquire().await.unwrap();
        (next, watched.ensure_held().is_ok())
    });
    rig.store.queued("n", 2).await;

    let cut = now();
    for &direction in directions {
        proxy.set(direction, Mode::Blackhole).await;
    }
    // Renewed at the latest just before, found out half a second late, and a second for the rest.
    let bound = TTL + Duration::from_millis(500) + Duration::from_secs(1);
    let (next, still_held) = rival.end_within(bound, "the other holds").await;
    println!("cut off {directions:?}: the other held after {:?}", now().since(cut));
    assert!(!still_held, "two hold");
    assert_eq!(within(BOUND, "it is lost", guard.lost()).await, LostReason::Expired);
    assert!(next.token() > guard.token());

    proxy.set_both(Mode::Pass).await;
    let again = hold_aside(&victim, "n");
    rig.store.queued("n", 2).await;
    assert!(guard.ensure_held().is_err());
    let token = next.token();
    next.ensure_held().unwrap();
    next.release().await.unwrap();
    let again = again.end("the victim holds again").await;
    assert!(again.token() > token);
    again.release().await.unwrap();
    eventually("nothing is left", async || rig.store.queue("n").await.is_empty()).await;
}

/// A queued acquisition survives any number of reconnects, with the key it had.
async fn a_waiter_keeps_its_place_when_its_streams_are_cut() {
    let rig = Rig::start().await;
    let proxy = rig.proxy(0);
    let (holder, waiter, later) =
        (rig.manager().await, rig.manager_behind(&proxy).await, rig.manager().await);
    let guard = hold(&holder, "n").await;
    let next = hold_aside(&waiter, "n");
    rig.store.queued("n", 2).await;
    let place = rig.store.queue("n").await.remove(1);
    let last = hold_aside(&later, "n");
    rig.store.queued("n", 3).await;

    for _ in 0..3 {
        proxy.reset().await;
        within(BOUND, "it connects again", proxy.connected(1)).await;
    }
    guard.release().await.unwrap();
    let next = next.end("the waiter holds").await;
    assert_eq!(rig.store.queue("n").await[0], place);
    assert_eq!(next.token().counter(), place.created.cast_unsigned());
    next.release().await.unwrap();
    last.end("the last one holds").await.release().await.unwrap();
}

/// The deletion that makes it our turn happens while nobody tells us.
async fn a_hand_off_while_the_streams_are_cut_is_not_missed() {
    let rig = Rig::start().await;
    let proxy = rig.proxy(0);
    let holder = rig.manager().await;
    // Too long for a look now and then to be the reason why it is found.
    let waiter = open_with_ttl(crate::rig::behind(&proxy), 4 * TTL).await.unwrap();
    let guard = hold(&holder, "n").await;
    let next = hold_aside(&waiter, "n");
    rig.store.queued("n", 2).await;

    proxy.refuse_new().await.unwrap();
    proxy.reset().await;
    guard.release().await.unwrap();
    rig.store.queued("n", 1).await;
    proxy.accept_new().await.unwrap();
    next.end_within(TTL, "the waiter holds").await.release().await.unwrap();
}

/// A cut that is over before the deadline is no loss.
async fn a_short_cut_loses_nothing() {
    let rig = Rig::start().await;
    let proxy = rig.proxy(0);
    let manager = open_with_ttl(crate::rig::behind(&proxy), 2 * TTL).await.unwrap();
    let guard = hold(&manager, "n").await;

    for _ in 0..2 {
        proxy.set_both(Mode::Blackhole).await;
        tokio::time::sleep(TTL / 2).await; // A quarter of the ttl.
        proxy.set_both(Mode::Pass).await;
        within(TTL, "a renewal", guard.renew()).await.unwrap();
        proxy.reset().await;
        within(TTL, "a renewal", until(async || guard.renew().await.is_ok())).await;
    }
    guard.release().await.unwrap();
    assert_eq!(rig.store.queue("n").await, []);
}

/// Round trips of a tenth of the ttl: everything works, only more slowly.
async fn a_slow_network_loses_nothing() {
    let rig = Rig::start().await;
    let proxy = rig.proxy(0);
    let (slow, fast) = (rig.manager_behind(&proxy).await, rig.manager().await);
    proxy.set_both(Mode::Delay { base: TTL / 20, jitter: TTL / 60, seed: 1 }).await;

    let guard = hold(&slow, "n").await;
    let next = hold_aside(&fast, "n");
    rig.store.queued("n", 2).await;
    tokio::time::sleep(2 * TTL).await; // Long enough for several renewals.
    guard.ensure_held().unwrap();
    guard.release().await.unwrap();
    let guard = next.end("the other holds").await;
    let next = hold_aside(&slow, "n");
    rig.store.queued("n", 2).await;
    guard.release().await.unwrap();
    next.end("the slow one holds").await.release().await.unwrap();
}

/// Of four endpoints two refuse and one is silent. Opening takes no longer than it may, and then
/// no request meets a dead one.
async fn dead_endpoints_are_passed_over() {
    let rig = Rig::start().await;
    let (refusing, refusing_too) = (Port::reserve().unwrap(), Port::reserve().unwrap());
    let silent = rig.proxy(0);
    silent.set_both(Mode::Blackhole).await;
    let endpoints = [refusing.addr(), silent.addr(), refusing_too.addr(), rig.etcd.addr(0)];
    let config = backend_etcd::EtcdConfig::new(endpoints.map(|addr| addr.to_string())).prefix(PREFIX);
    let manager = open(config).await;

    for _ in 0..100 {
        hold(&manager, "n").await.release().await.unwrap();
    }
}

/// The endpoint in use goes silent; holding, waiting and releasing go on at the other one before
/// the lease ends.
async fn an_endpoint_that_falls_silent_is_left() {
    let rig = Rig::start().await;
    let proxies = [rig.proxy(0), rig.proxy(0)];
    let endpoints = proxies.iter().map(|proxy| proxy.addr().to_string());
    let config = backend_etcd::EtcdConfig::new(endpoints).prefix(PREFIX);
    let ttl = 2 * TTL;
    let manager = open_with_ttl(config, ttl).await.unwrap();
    let other = rig.manager().await;

    let guard = hold(&manager, "n").await;
    let blocking = hold(&other, "m").await;
    let waiting = hold_aside(&manager, "m");
    rig.store.queued("m", 2).await;
    for silent in [0, 1, 0] {
        proxies[1 - silent].set_both(Mode::Pass).await;
        proxies[silent].set_both(Mode::Blackhole).await;
        within(ttl, "a renewal", until(async || guard.renew().await.is_ok())).await;
    }
    blocking.release().await.unwrap();
    waiting.end("the waiter holds").await.release().await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(rig.store.queue("n").await, []);
}

/// Connecting has its bound, whether refused or not answered.
async fn nobody_there_is_said_in_time() {
    let rig = Rig::start().await;
    let refusing = Port::reserve().unwrap();
    let silent = rig.proxy(0);
    silent.set_both(Mode::Blackhole).await;
    for addr in [refusing.addr(), silent.addr()] {
        let config = backend_etcd::EtcdConfig::new([addr.to_string()]);
        let opening = lockcore::LockManager::builder(config).connect_timeout(TTL / 3).build();
        let refused = within(TTL, "an answer", opening).await.unwrap_err();
        assert_eq!(*refused.kind(), lockcore::ErrorKind::Unavailable, "{refused}");
    }
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
    let rig = Rig::start().await;
    let proxy = rig.proxy(0);
    proxy.set_both(SLOW).await;
    // Much longer than the test waits.
    let opening = open_with_ttl(crate::rig::behind(&proxy), 10 * TTL);
    tokio::select! {
        _ = opening => panic!("it is opened already"),
        () = eventually("a lease", async || rig.store.leases().await == 1) => {}
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
