//! The network between a process and the server is cut, broken, or slow.

use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::{Effect, ErrorKind, LockManager, LostReason, connect};
use testbed::{BOUND, Beside, Direction, Mode, Port, Server, eventually, within};

use crate::fixture::{
    EARLY, LONG, NAME, Scene, hold, is_left_alone, options, outlives_its_lease, queued, steady, warm,
};
use crate::store::Several;

pub(crate) async fn a_cut_of_requests_ends_the_hold_first<S: Server>(scene: Scene<S>) {
    cut_off(scene, &[Direction::ClientToServer]).await;
}

pub(crate) async fn a_cut_of_replies_ends_the_hold_first<S: Server>(scene: Scene<S>) {
    cut_off(scene, &[Direction::ServerToClient]).await;
}

pub(crate) async fn a_cut_of_both_ends_the_hold_first<S: Server>(scene: Scene<S>) {
    cut_off(scene, &Direction::BOTH).await;
}

/// G2 and G6: nothing passes for longer than the ttl. The guard is no longer held at the very instant at
/// which another is, `lost` returns, that instant comes in time, and no hold comes back after it;
/// the process that was cut off works again by itself.
async fn cut_off<S: Server>(scene: Scene<S>, directions: &[Direction]) {
    let proxy = scene.proxy().await;
    let (victim, other) = (scene.behind(&proxy, S::TTL).await, scene.direct(LONG).await);
    let guard = Arc::new(hold(&victim).await);
    let (lost, clock) = (guard.lost(), BootClock::new());
    let told = Beside::start(async move { (lost.await, BootClock::new().now()) });
    let (lock, watched) = (other.lock(NAME).unwrap(), Arc::clone(&guard));
    let rival = Beside::start(async move {
        let next = lock.acquire().await.unwrap();
        (next, watched.ensure_held().is_ok())
    });
    eventually("it queues", async || contenders(&other).await == 1).await;

    for direction in directions {
        proxy.set(*direction, Mode::Blackhole).await;
    }
    let began = clock.now();
    // Renewed at the latest just before; and as long again, as the machine may be busy.
    let deaf = if directions == [Direction::ServerToClient] { S::HEARS_THE_DEAF_FOR } else { Duration::ZERO };
    let bound = 2 * S::TTL + S::NOTICES_WITHIN + deaf;
    let (next, still_held) = rival.end_within(bound, "the other holds").await;
    assert!(!still_held, "two hold");
    let (reason, told) = told.end("it is told").await;
    assert_eq!(reason, LostReason::Expired);
    println!(
        "{}, {directions:?} cut, a lease of {:?}: told after {:?}, the next holds after {:?}",
        S::NAME,
        S::TTL,
        told.since(began),
        clock.now().since(began)
    );
    assert!(next.token() > guard.token());

    proxy.set_both(Mode::Pass).await;
    let again = queued(&victim, 0, &other).await;
    guard.ensure_held().unwrap_err();
    next.ensure_held().unwrap();
    let token = next.token();
    next.release().await.unwrap();
    let again = again.end("the victim holds again").await;
    assert!(again.token() > token);
    let guard = Arc::into_inner(guard).expect("nobody else has it");
    guard.release().await.expect_err("it was lost");
    drop(again);
    eventually("nothing is left", async || is_left_alone(&other).await).await;
}

async fn contenders(locks: &LockManager) -> usize {
    locks.inspect(NAME).await.unwrap().contenders
}

pub(crate) async fn a_reset_costs_neither_hold_nor_place<S: Server>(scene: Scene<S>) {
    let proxy = scene.proxy().await;
    let (a, b) = (scene.behind(&proxy, steady::<S>()).await, scene.behind(&proxy, steady::<S>()).await);
    let later = scene.direct(LONG).await;
    let guard = hold(&a).await;
    let waiting = queued(&b, 0, &later).await;
    let last = queued(&later, 1, &later).await;
    for _ in 0..5 {
        proxy.connected(2).await;
        proxy.reset().await;
        eventually("the lease is served again", async || guard.renew().await.is_ok()).await;
    }
    proxy.set_both(Mode::Blackhole).await;
    guard.renew().await.unwrap_err();
    proxy.set_both(Mode::Pass).await;
    eventually("the lease is served again", async || guard.renew().await.is_ok()).await;
    outlives_its_lease(&guard).await;
    assert!(!waiting.is_finished());
    guard.release().await.unwrap();
    let next = waiting.end("the first in line holds").await;
    assert!(!last.is_finished(), "two hold");
    next.release().await.unwrap();
    last.end("the last in line holds").await.release().await.unwrap();
}

/// The waiter whose turn comes with a release gets no message of it. The next message arrives on the new connection.
pub(crate) async fn a_hand_off_during_a_reset_is_not_missed<S: Server>(scene: Scene<S>) {
    let proxy = scene.proxy().await;
    // So long that no look now and then is the reason why it is found.
    let (holder, waiter) = (scene.direct(LONG).await, scene.behind(&proxy, LONG).await);
    let guard = hold(&holder).await;
    let waiting = queued(&waiter, 0, &holder).await;
    proxy.refuse_new().await.unwrap();
    proxy.reset().await;
    let token = guard.token();
    guard.release().await.unwrap();
    proxy.accept_new().await.unwrap();
    let next = waiting.end_within(EARLY, "the waiter holds").await;
    assert!(next.token() > token);
    next.release().await.unwrap();

    let guard = hold(&holder).await;
    let waiting = queued(&waiter, 0, &holder).await;
    let token = guard.token();
    guard.release().await.unwrap();
    let next = waiting.end_within(EARLY, "the waiter holds again").await;
    assert!(next.token() > token);
    next.release().await.unwrap();
}

/// Round trips of a fifteenth of the ttl: everything works, only more slowly.
pub(crate) async fn a_slow_network_loses_nothing<S: Server>(scene: Scene<S>) {
    let proxy = scene.proxy().await;
    let ttl = steady::<S>();
    let (a, b) = (scene.behind(&proxy, ttl).await, scene.behind(&proxy, ttl).await);
    let near = warm(scene.direct(LONG).await).await;
    proxy.set_both(Mode::Delay { base: ttl / 30, jitter: ttl / 90, seed: 7 }).await;
    let guard = hold(&a).await;
    let waiting = queued(&b, 0, &near).await;
    outlives_its_lease(&guard).await;
    assert!(!waiting.is_finished());
    guard.release().await.unwrap();
    let guard = waiting.end("the other holds").await;
    let waiting = queued(&near, 0, &near).await;
    guard.release().await.unwrap();
    let guard = waiting.end("the near one holds").await;
    let waiting = queued(&a, 0, &near).await;
    guard.release().await.unwrap();
    waiting.end("the first holds again").await.release().await.unwrap();
}

pub(crate) async fn a_network_slower_than_the_lease_grants_nothing<S: Server>(scene: Scene<S>) {
    let proxy = scene.proxy().await;
    let (a, b) = (scene.behind(&proxy, S::TTL).await, scene.direct(LONG).await);
    proxy.set(Direction::ServerToClient, Mode::delay(S::TTL * 5 / 4)).await;
    let late = a.lock(NAME).unwrap().wait(2 * S::TTL).acquire().await;
    assert!(late.is_err(), "{late:?}");
    proxy.set(Direction::ServerToClient, Mode::Pass).await;
    hold(&b).await.release().await.unwrap();
    eventually("nothing is left", async || is_left_alone(&b).await).await;
}

/// A waiter that is cut off for longer than its lease is passed over, and delays no other waiter after that. When the network
/// is back, it queues again by itself.
pub(crate) async fn a_contender_that_was_cut_off_queues_again<S: Server>(scene: Scene<S>) {
    let proxy = scene.proxy().await;
    let (a, b) = (scene.direct(LONG).await, scene.behind(&proxy, S::TTL).await);
    let c = scene.direct(LONG).await;
    let guard = hold(&a).await;
    let cut = queued(&b, 0, &a).await;
    let waiting = queued(&c, 1, &a).await;

    proxy.set_both(Mode::Blackhole).await;
    eventually("its entry has ended", async || contenders(&a).await == 1).await;
    guard.release().await.unwrap();
    let next = waiting.end("the one behind it holds").await;
    proxy.set_both(Mode::Pass).await;
    eventually("it is in the queue again", async || contenders(&a).await == 1).await;
    assert!(!cut.is_finished());
    next.release().await.unwrap();
    drop(cut.end("it holds").await);
}

/// Silence is never taken for a holder: a try ends within the bound of a request, as unavailable, whether the request has
/// arrived or not. A grant that it does not hear of is released.
pub(crate) async fn silence_is_unavailable_and_not_busy<S: Server>(scene: Scene<S>) {
    let proxy = scene.proxy().await;
    let locks = warm(scene.behind(&proxy, S::TTL).await).await;
    for directions in [&Direction::BOTH[..], &[Direction::ServerToClient]] {
        for direction in directions {
            proxy.set(*direction, Mode::Blackhole).await;
        }
        let lock = locks.lock(NAME).unwrap();
        let error = within(BOUND, "an answer", lock.try_acquire()).await.expect_err("nobody has answered");
        assert_eq!((error.kind(), error.effect()), (&ErrorKind::Unavailable, Effect::Unknown), "{error:?}");
        proxy.set_both(Mode::Pass).await;
        hold(&locks).await.release().await.unwrap();
        eventually("nothing is left", async || is_left_alone(&locks).await).await;
    }
}

pub(crate) async fn nobody_there_is_said_in_time<S: Server>(scene: Scene<S>) {
    const PATIENCE: Duration = Duration::from_secs(1);
    let refusing = Port::reserve().unwrap();
    let silent = scene.proxy().await;
    silent.set_both(Mode::Blackhole).await;
    for (addr, least) in [(refusing.addr(), Duration::ZERO), (silent.addr(), PATIENCE)] {
        let url = S::url(addr, "nobody", "connect_timeout=1s");
        let clock = BootClock::new();
        let began = clock.now();
        let refused = within(EARLY, "an answer", connect(&url)).await.unwrap_err();
        assert_eq!(*refused.kind(), ErrorKind::Unavailable, "{refused}");
        assert!(clock.now().since(began) >= least, "given up early");
    }
}

/// Of several servers one refuses connections and one takes them and is silent: no session is left without the third.
pub(crate) async fn dead_servers_are_passed_over<S: Several>(scene: Scene<S>) {
    let (refusing, silent) = (Port::reserve().unwrap(), scene.proxy().await);
    silent.set_both(Mode::Blackhole).await;
    let hosts = format!("{},{},{}", refusing.addr(), silent.addr(), scene.server().await.addr());
    let url = S::url(hosts, scene.namespace(), &options(steady::<S>()));
    for _ in 0..S::ORDERS {
        let locks = within(EARLY, "a session", connect(&url)).await.unwrap();
        for _ in 0..10 {
            hold(&locks).await.release().await.unwrap();
        }
        locks.shutdown().await.unwrap();
    }
}
