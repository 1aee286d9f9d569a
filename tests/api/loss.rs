//! A holder learns that its lock is gone, by its own clock and before anybody else can hold it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use leasehold::clock::{Clock, ManualClock, TokioClock};
use leasehold::memory::MemoryConfig;
use leasehold::{Change, GuardState, LockManager, LockName, LostReason};

const TTL: Duration = Duration::from_secs(15);

async fn open(store: &MemoryConfig, clock: impl Clock) -> LockManager {
    let builder = LockManager::builder(store.clone()).ttl(TTL).clock(Arc::new(clock));
    builder.build().await.expect("memory opens")
}

/// A host that was suspended past the deadline: the first look at the guard says so, though no
/// timer has fired yet, and for ever after.
#[tokio::test]
async fn a_clock_jump_ends_the_hold_at_once() {
    let (store, clock) = (MemoryConfig::private(), ManualClock::new());
    let locks = open(&store, clock.clone()).await;
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    let lost = guard.lost();
    clock.suspend(TTL);
    assert!(!locks.holds("a"));
    let error = guard.ensure_held().unwrap_err();
    assert_eq!(error.lost_reason(), Some(LostReason::Expired));
    assert_eq!(guard.state(), GuardState::Lost(LostReason::Expired));
    assert_eq!(guard.remaining(), Duration::ZERO);
    assert_eq!(lost.now_or_never(), Some(LostReason::Expired));
    assert_eq!(guard.renew().await.unwrap_err().lost_reason(), Some(LostReason::Expired));
    let error = guard.release().await.unwrap_err();
    assert_eq!(error.lost_reason(), Some(LostReason::Expired));
}

/// Work that wakes in a host that was suspended past the deadline is not run on, though no timer has
/// fired yet.
#[tokio::test]
async fn work_is_not_run_on_after_a_suspend() {
    let (store, clock) = (MemoryConfig::private(), ManualClock::new());
    let lock = open(&store, clock.clone()).await.lock("a").unwrap();
    let mut steps = 0;
    let work = lock.with(async |_held| {
        for _ in 0..5 {
            // The first time until the watchdog sleeps.
            tokio::task::yield_now().await;
            steps += 1;
            clock.suspend(TTL);
        }
    });
    assert_eq!(work.await.unwrap_err().lost_reason(), Some(LostReason::Expired));
    assert_eq!(steps, 1);
}

/// As of `with`, so of `run`.
#[tokio::test]
async fn spawned_work_is_not_run_on_after_a_suspend() {
    let (store, clock) = (MemoryConfig::private(), ManualClock::new());
    let lock = open(&store, clock.clone()).await.lock("a").unwrap();
    let work = lock.run(move |held| async move {
        tokio::task::yield_now().await;
        clock.suspend(TTL);
        assert!(held.ensure_held().is_err());
        tokio::task::yield_now().await;
        unreachable!("it is polled after the loss");
    });
    assert_eq!(work.await.map(|(): ()| ()).unwrap_err().lost_reason(), Some(LostReason::Expired));
}

/// Work whose last step outlasts the lease was not done under the lock.
#[tokio::test]
async fn work_that_ends_after_the_deadline_is_lost() {
    let (store, clock) = (MemoryConfig::private(), ManualClock::new());
    let lock = open(&store, clock.clone()).await.lock("a").unwrap();
    let done = lock.with(async |_held| clock.suspend(TTL)).await;
    assert_eq!(done.unwrap_err().lost_reason(), Some(LostReason::Expired));
    assert!(lock.with(async |_held| ()).await.is_ok());
}

#[tokio::test]
async fn a_loss_is_told_as_often_as_it_is_asked_for() {
    let locks = leasehold::connect("memory://").await.unwrap();
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    let mut lost = guard.lost();
    assert_eq!((&mut lost).now_or_never(), None);
    guard.release().await.unwrap();
    for _ in 0..3 {
        assert_eq!((&mut lost).now_or_never(), Some(LostReason::Released));
    }
    assert_eq!(lost.clone().await, LostReason::Released);
}

/// A store that says the entry is gone ends the hold before the deadline; the stream of states ends
/// with it.
#[tokio::test(start_paused = true)]
async fn a_loss_that_the_store_tells_is_passed_on() {
    let (store, clock) = (MemoryConfig::private(), TokioClock::new());
    let locks = open(&store, clock).await;
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    let mut changes = guard.changes();
    assert_eq!(changes.next().await, Some(Change::State(GuardState::Held)));
    let before = clock.now();
    assert!(store.store().evict(&LockName::new("a").unwrap(), &clock, true));
    assert_eq!(guard.lost().await, LostReason::Gone);
    assert_eq!(clock.now(), before);
    assert_eq!(changes.next().await, Some(Change::State(GuardState::Lost(LostReason::Gone))));
    for _ in 0..2 {
        assert_eq!(changes.next().await, None);
    }
    let mut late = guard.changes();
    assert_eq!(late.next().await, Some(Change::State(GuardState::Lost(LostReason::Gone))));
    assert_eq!(late.next().await, None);
    assert!(guard.release().await.is_err());
}

/// A store that lost the entry without telling is found out by the next renewal, a third of the
/// ttl later at most.
#[tokio::test(start_paused = true)]
async fn a_loss_that_nobody_tells_is_found_by_the_next_renewal() {
    let (store, clock) = (MemoryConfig::private(), TokioClock::new());
    let locks = open(&store, clock).await;
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    let before = clock.now();
    store.store().forget(&clock);
    assert_eq!(guard.lost().await, LostReason::Gone);
    assert!(clock.now().since(before) <= TTL / 3);
}
