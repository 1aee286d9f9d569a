//! Two things happen at the same time, brought about step by step on a faulty store.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use leasehold::backend::StoreEvent;
use leasehold::clock::{Clock, ManualClock, TokioClock};
use leasehold::memory::MemoryConfig;
use leasehold::{Effect, ErrorKind, LockManager, LockName, LostReason, Timing};
use tokio::sync::Notify;
use tokio::task::{JoinSet, yield_now};

use crate::faulty_store::{Fault, FaultyStore};
use crate::{beside, opened, virtually};

/// A process on the faulty store and one beside it.
async fn two(store: &FaultyStore) -> (LockManager, LockManager, TokioClock) {
    let (locks, clock) = virtually(store).await;
    (locks, beside(store).await, clock)
}

#[tokio::test]
async fn a_try_that_is_answered_after_the_shutdown_is_refused() {
    let store = FaultyStore::default();
    let (locks, others, _) = two(&store).await;
    let lock = locks.lock("a").unwrap();
    let gate = Arc::new(Notify::new());
    store.tries.fail(Fault::AnswerOn(Arc::clone(&gate)));
    let mut late = Box::pin(lock.try_acquire());
    assert!(late.as_mut().now_or_never().is_none());
    locks.shutdown().await.unwrap();
    let other = others.lock("a").unwrap().acquire().await.unwrap();
    gate.notify_one();
    assert!(late.await.is_err());
    other.ensure_held().unwrap();
}

/// The grant is there in the poll that sees the shutdown.
#[tokio::test(start_paused = true)]
async fn a_grant_that_meets_the_shutdown_is_refused() {
    let store = FaultyStore::default();
    let (locks, others, _) = two(&store).await;
    let first = others.lock("a").unwrap().acquire().await.unwrap();
    let lock = locks.lock("a").unwrap();
    let mut waiting = Box::pin(lock.acquire());
    assert!(waiting.as_mut().now_or_never().is_none());
    let mut down = Box::pin(locks.shutdown());
    assert!(down.as_mut().now_or_never().is_none());
    first.release().await.unwrap();
    assert!(waiting.await.is_err());
    down.await.unwrap();
    assert!(store.memory.store().is_empty());
}

/// Two processes never hold at the same time.
#[tokio::test]
async fn a_loss_between_a_drop_and_its_release_is_heard() {
    let store = FaultyStore::default();
    let (locks, others, clock) = two(&store).await;
    let lock = locks.lock("a").unwrap();
    let guard = lock.acquire().await.unwrap();
    yield_now().await;
    assert!(store.memory.store().evict(guard.name(), &clock, true));
    let mut next = JoinSet::new();
    next.spawn(async move { lock.acquire().await });
    drop(guard);
    let next = next.join_next().await.unwrap().unwrap().unwrap();
    let other = others.lock("a").unwrap().try_acquire().await.unwrap();
    assert!(next.ensure_held().is_err() || other.is_none(), "two held guards: {next:?} {other:?}");
}

/// The store confirms it within that time.
#[tokio::test(start_paused = true)]
async fn a_release_is_repeated_for_a_ttl_while_its_session_lives() {
    let store = FaultyStore::with_session();
    let (locks, others, clock) = two(&store).await;
    let other = locks.lock("b").unwrap().acquire().await.unwrap();
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    store.fail_releases(Some((ErrorKind::Unavailable, Effect::Unknown)));
    let mut release = JoinSet::new();
    release.spawn(guard.release());
    clock.sleep_until(clock.now() + Timing::DEFAULT_TTL * 4 / 5).await;
    store.fail_releases(None);
    let next = others.lock("a").unwrap().wait(Timing::DEFAULT_TTL).acquire().await;
    assert!(next.is_ok(), "{next:?}");
    release.join_next().await.unwrap().unwrap().unwrap();
    other.ensure_held().unwrap();
    assert_eq!(store.ended_sessions(), 0);
}

/// After a ttl the session is ended, which ends the lock, and is not renewed any more.
#[tokio::test(start_paused = true)]
async fn a_release_that_is_never_confirmed_ends_with_its_session() {
    let store = FaultyStore::with_session();
    let (locks, others, clock) = two(&store).await;
    let other = locks.lock("b").unwrap().acquire().await.unwrap();
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    store.fail_releases(Some((ErrorKind::Unavailable, Effect::Unknown)));
    let began = clock.now();
    let release = tokio::time::timeout(Timing::DEFAULT_TTL * 2, guard.release()).await;
    let error = release.expect("it ends").unwrap_err();
    assert_eq!((error.kind(), error.effect()), (&ErrorKind::Unavailable, Effect::Unknown));
    let took = clock.now().since(began);
    assert!(took <= Timing::DEFAULT_TTL + Timing::for_ttl(Timing::DEFAULT_TTL).op_timeout, "{took:?}");
    assert_eq!(other.ensure_held().unwrap_err().lost_reason(), Some(LostReason::SessionLost));
    assert_eq!(store.ended_sessions(), 1);
    let renewed = store.renewals.count();
    let next = others.lock("a").unwrap().wait(Timing::DEFAULT_TTL * 2).acquire().await;
    assert!(next.is_ok(), "{next:?}");
    assert_eq!(store.renewals.count(), renewed, "a session that was given up is not renewed");
}

/// In a session it ends at once, with the session. A lease of its own ends the lock, so the release is repeated until
/// then.
#[tokio::test(start_paused = true)]
async fn denied_release_ends_with_its_session_or_lease() {
    for (has_session, kind, effect) in [
        (true, ErrorKind::Denied, Effect::NotApplied),
        (true, ErrorKind::Denied, Effect::Unknown),
        (true, ErrorKind::Unsupported, Effect::NotApplied),
        (false, ErrorKind::Denied, Effect::NotApplied),
    ] {
        let store = if has_session { FaultyStore::with_session() } else { FaultyStore::default() };
        let (locks, clock) = virtually(&store).await;
        let other = locks.lock("b").unwrap().acquire().await.unwrap();
        let guard = locks.lock("a").unwrap().acquire().await.unwrap();
        store.fail_releases(Some((kind.clone(), effect)));
        let (began, deadline) = (clock.now(), clock.now() + guard.remaining());
        let error = guard.release().await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (&kind, effect));
        let (releases, lost) = (store.releases.count(), other.ensure_held().err());
        if has_session {
            assert_eq!((clock.now(), releases, store.ended_sessions()), (began, 1, 1));
            assert_eq!(lost.and_then(|error| error.lost_reason()), Some(LostReason::SessionLost));
        } else {
            assert_eq!((clock.now(), store.ended_sessions()), (deadline, 0));
            assert!(releases > 1 && lost.is_none(), "it may have passed meanwhile");
        }
    }
}

/// The entry may have ended with its lease as well as by the earlier, unconfirmed release.
#[tokio::test]
async fn release_that_finds_nothing_after_the_deadline_is_unconfirmed() {
    let (store, clock) = (FaultyStore::default(), ManualClock::new());
    let builder = LockManager::builder(store.config()).clock(Arc::new(clock.clone()));
    let locks = builder.build().await.unwrap();
    for late in [false, true] {
        let guard = locks.lock("a").unwrap().acquire().await.unwrap();
        let (asked, left) = (store.releases.count(), guard.remaining());
        store.fail_releases(Some((ErrorKind::Unavailable, Effect::Unknown)));
        let mut release = Box::pin(guard.release());
        assert!(release.as_mut().now_or_never().is_none());
        assert_eq!(store.releases.count(), asked + 1);
        store.memory.store().evict(&LockName::new("a").unwrap(), &clock, false);
        let gate = Arc::new(Notify::new());
        store.releases.fail(Fault::PassOn(Arc::clone(&gate)));
        store.fail_releases(None);
        clock.advance(left / 2);
        assert!(release.as_mut().now_or_never().is_none());
        assert_eq!(store.releases.count(), asked + 2, "asked again before the deadline");
        // Answered before it, or after it; within the bound of a request the test's clock stands.
        clock.suspend(if late { left } else { Duration::ZERO });
        gate.notify_one();
        let answer = release.now_or_never().expect("answered");
        let reason = answer.as_ref().err().and_then(leasehold::Error::lost_reason);
        assert_eq!(reason, late.then_some(LostReason::Gone), "{answer:?}");
    }
}

/// The entry may still be in the store.
#[tokio::test(start_paused = true)]
async fn a_session_that_is_lost_confirms_no_release() {
    let store = FaultyStore::with_session();
    let (locks, _, clock) = two(&store).await;
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    store.fail_releases(Some((ErrorKind::Unavailable, Effect::Unknown)));
    let mut release = Box::pin(guard.release());
    assert!(release.as_mut().now_or_never().is_none());
    let reason = LostReason::SessionLost;
    store.fail_releases(Some((ErrorKind::Lost { reason }, Effect::NotApplied)));
    let began = clock.now();
    let error = release.await.unwrap_err();
    assert_eq!((error.lost_reason(), error.effect()), (Some(reason), Effect::Unknown));
    assert!(clock.now().since(began) < Timing::DEFAULT_TTL / 2, "nothing more is to be heard");
    assert!(!store.memory.store().is_empty());
}

/// When the last handle and guard are dropped.
#[tokio::test]
async fn a_forgotten_manager_closes_its_session() {
    let store = FaultyStore::default();
    let locks = opened(&store).await;
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    drop(locks);
    yield_now().await;
    assert_eq!(store.closes.count(), 0, "a guard lives");
    guard.release().await.unwrap();
    tokio::time::timeout(Duration::from_secs(10), async {
        while store.closes.count() == 0 {
            yield_now().await;
        }
    })
    .await
    .expect("the session is closed");
}

/// Of losses that come before their grant, the one of that grant counts, not the last.
#[tokio::test]
async fn event_of_an_earlier_grant_does_not_reach_the_next() {
    for is_lost in [true, false] {
        let store = FaultyStore::default();
        let (locks, others, _) = two(&store).await;
        let lock = locks.lock("a").unwrap();
        let stale = lock.acquire().await.unwrap().token().counter();
        yield_now().await;
        let held = others.lock("a").unwrap().acquire().await.unwrap();
        let to_come = held.token().counter() + 1;
        let mut waiting = Box::pin(lock.acquire());
        assert!(waiting.as_mut().now_or_never().is_none());
        if is_lost {
            held.release().await.unwrap();
            told(&store, [lost(to_come), lost(stale)]).await;
            let next = waiting.await.unwrap().token().counter();
            assert!(to_come < next, "what was lost before it arrived is held: {next}");
        } else {
            told(&store, [asked(stale), lost(stale)]).await;
            held.release().await.unwrap();
            let guard = waiting.await.unwrap();
            assert_eq!((guard.token().counter(), guard.revocation_deadline()), (to_come, None));
            guard.release().await.unwrap();
        }
    }
}

#[tokio::test]
async fn event_of_an_earlier_grant_does_not_reach_a_held_one() {
    let store = FaultyStore::default();
    let (locks, _, _) = two(&store).await;
    let lock = locks.lock("a").unwrap();
    let earlier = lock.acquire().await.unwrap();
    let counter = earlier.token().counter();
    earlier.release().await.unwrap();
    let guard = lock.acquire().await.unwrap();
    assert!(counter < guard.token().counter());
    told(&store, [asked(counter), lost(counter)]).await;
    yield_now().await;
    guard.ensure_held().unwrap();
    assert_eq!(guard.revocation_deadline(), None);
    guard.release().await.unwrap();
}

fn name() -> LockName {
    LockName::new("a").expect("it is a name")
}

fn lost(counter: u64) -> StoreEvent {
    StoreEvent::GrantLost { name: name(), counter, reason: LostReason::Revoked }
}

fn asked(counter: u64) -> StoreEvent {
    StoreEvent::RevocationRequested { name: name(), counter, within: Duration::from_secs(1) }
}

/// Sends the events, and waits until the watchdog has read them.
async fn told(store: &FaultyStore, events: [StoreEvent; 2]) {
    events.into_iter().for_each(|event| store.tell(event));
    while store.events_unread() > 0 {
        yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_gone_before_its_grant_arrived_stays_gone() {
    let store = FaultyStore::default();
    let (locks, others, clock) = two(&store).await;
    let first = others.lock("a").unwrap().acquire().await.unwrap();
    let lock = locks.lock("a").unwrap();
    let mut waiting = Box::pin(lock.acquire());
    assert!(waiting.as_mut().now_or_never().is_none());
    first.release().await.unwrap();
    store.memory.store().evict(&LockName::new("a").unwrap(), &clock, false);
    clock.sleep_until(clock.now() + Duration::from_secs(6)).await;
    assert!(store.renewals.count() > 0, "the watchdog has asked");
    let other = others.lock("a").unwrap().try_acquire().await.unwrap().expect("nobody holds it");
    assert!(waiting.as_mut().now_or_never().is_none(), "held twice");
    let counter = other.token().counter();
    other.release().await.unwrap();
    let next = waiting.await.unwrap();
    assert!(counter < next.token().counter(), "{next:?}");
}

/// Nor other tasks: both come before the last event is read.
#[tokio::test]
async fn a_flood_of_events_delays_no_renewal() {
    let (store, clock) = (FaultyStore::default(), ManualClock::new());
    let flood = store.flood(100_000);
    let locks = LockManager::builder(store.config()).clock(Arc::new(clock.clone())).build().await.unwrap();
    let _guard = locks.lock("a").unwrap().acquire().await.unwrap();
    // Until the watchdog sleeps.
    yield_now().await;
    flood.notify_one();
    clock.advance(Timing::DEFAULT_TTL / 3);
    while store.renewals.count() == 0 && store.events_unread() > 0 {
        yield_now().await;
    }
    assert!(store.events_unread() > 0, "{} renewals, and every event is read", store.renewals.count());
}

/// It has used up its budget with the runtime.
#[tokio::test]
async fn a_busy_task_releases_at_once_all_the_same() {
    let store = MemoryConfig::private();
    let locks = LockManager::builder(store.clone()).build().await.unwrap();
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    while tokio::task::consume_budget().now_or_never().is_some() {}
    drop(guard);
    assert!(store.store().is_empty());
}

/// Nor the release of the last as its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn next_holder_gets_no_revocation_of_the_last() {
    const CYCLES: u32 = 10_000;
    let store = FaultyStore::default();
    let builder = LockManager::builder(store.config());
    let builder = builder.handoff_window(Duration::from_secs(3600)).handoff_limit(1023);
    let locks = builder.build().await.unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let lock = locks.lock("a").unwrap();
        tasks.spawn(async move {
            for _ in 0..CYCLES {
                let guard = lock.acquire().await.unwrap();
                let lost = guard.lost();
                // Time for the other thread, which is in the middle of a release.
                (0..200).for_each(|_| std::hint::spin_loop());
                let told = lost.now_or_never();
                assert!(told.is_none() || guard.ensure_held().is_err(), "told {told:?}, but held");
            }
        });
    }
    tasks.join_all().await;
}
