//! A future that is neither polled nor dropped delays no other caller, except by a lock that it was granted.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use leasehold::clock::Clock;
use leasehold::memory::MemoryConfig;
use leasehold::{ErrorKind, Lock, LockGuard, LockManager, Result};
use testbed::within;
use tokio::runtime::Runtime;
use tokio::sync::Notify;

use crate::faulty_store::{Fault, FaultyStore};
use crate::{SOON, opened, short_lived, virtually};

/// Polls `future` once; it stays where it is from then on.
fn parked<F: Future>(future: F) -> Pin<Box<F>>
where
    F::Output: std::fmt::Debug,
{
    let mut future = Box::pin(future);
    let answer = future.as_mut().now_or_never();
    assert!(answer.is_none(), "nothing to wait for: {answer:?}");
    future
}

/// `waiting` polled on, elsewhere than where the manager lives.
fn heard<T>(waiting: impl Future<Output = T>) -> T {
    short_lived().block_on(within(SOON, "nobody waits for a future that is parked", waiting))
}

/// A manager, and a lock of it.
async fn elsewhere(store: &MemoryConfig) -> (LockManager, Lock) {
    let locks = LockManager::builder(store.clone()).build().await.expect("memory opens");
    let lock = locks.lock("a").expect("a valid name");
    (locks, lock)
}

/// A manager, a lock of it, and a guard of another process that holds that.
async fn held_elsewhere(store: &MemoryConfig) -> (LockManager, Lock, LockGuard) {
    let ((locks, lock), (_, other)) = (elsewhere(store).await, elsewhere(store).await);
    let held = other.acquire().await.expect("memory grants");
    (locks, lock, held)
}

async fn queued(locks: &LockManager) -> usize {
    locks.inspect("a").await.expect("memory answers").contenders
}

#[test]
fn waiters_hear_what_the_store_says_to_a_parked_caller() {
    let (store, home, gate) = (FaultyStore::default(), Runtime::new().unwrap(), Arc::new(Notify::new()));
    let lock = home.block_on(opened(&store)).lock("a").unwrap();
    store.acquires.fail(Fault::RefuseOn(Arc::clone(&gate), ErrorKind::Unavailable));
    let (first, second) = (parked(lock.acquire()), parked(lock.acquire()));
    gate.notify_one();
    assert_eq!(*heard(second).unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(store.acquires.count(), 1);
    // The first caller gets the same error later.
    assert_eq!(*heard(first).unwrap_err().kind(), ErrorKind::Unavailable);
}

/// Its time was over, but it was not polled.
#[tokio::test(start_paused = true)]
async fn waiters_get_the_reply_to_a_caller_that_timed_out() {
    let (store, gate) = (FaultyStore::default(), Arc::new(Notify::new()));
    let (locks, clock) = virtually(&store).await;
    store.acquires.fail(Fault::RefuseOn(Arc::clone(&gate), ErrorKind::Unavailable));
    let lock = locks.lock("a").unwrap();
    let (hasty, patient) = (lock.clone().wait(Duration::from_secs(1)), lock.wait(SOON));
    let (first, second) = (parked(hasty.acquire()), parked(patient.acquire()));
    clock.sleep_until(clock.now() + Duration::from_secs(2)).await;
    gate.notify_one();
    assert_eq!(*second.await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(store.acquires.count(), 1);
    drop(first);
}

#[test]
fn waiters_are_not_held_up_by_a_parked_try() {
    let (store, home, gate) = (FaultyStore::default(), Runtime::new().unwrap(), Arc::new(Notify::new()));
    let lock = home.block_on(opened(&store)).lock("a").unwrap();
    store.tries.fail(Fault::RefuseOn(Arc::clone(&gate), ErrorKind::Unavailable));
    let tried = parked(lock.try_acquire());
    let second = parked(lock.acquire());
    gate.notify_one();
    assert!(heard(second).is_ok());
    assert_eq!(*heard(tried).unwrap_err().kind(), ErrorKind::Unavailable);
}

/// Whether they came before or after it.
#[test]
fn a_parked_release_ends_for_those_who_wait() {
    for waits_before in [false, true] {
        let (store, home, gate) = (FaultyStore::default(), Runtime::new().unwrap(), Arc::new(Notify::new()));
        let lock = home.block_on(opened(&store)).lock("a").unwrap().handoff_limit(0);
        let guard = home.block_on(lock.acquire()).unwrap();
        store.releases.fail(Fault::RefuseOn(Arc::clone(&gate), ErrorKind::Unavailable));
        let before = waits_before.then(|| parked(lock.acquire()));
        let release = parked(guard.release());
        let waiting = before.unwrap_or_else(|| parked(lock.acquire()));
        gate.notify_one();
        let guard = heard(waiting).unwrap();
        heard(release).unwrap();
        assert!(guard.ensure_held().is_ok());
    }
}

#[test]
fn grant_of_a_parked_caller_passes_on_when_dropped() {
    let (store, home) = (MemoryConfig::private(), Runtime::new().unwrap());
    let (locks, lock, held) = home.block_on(held_elsewhere(&store));
    let (first, second) = (parked(lock.acquire()), parked(lock.acquire()));
    home.block_on(held.release()).unwrap();
    home.block_on(async {
        // The process has it: it has no waiter at the store.
        while queued(&locks).await > 0 {
            tokio::task::yield_now().await;
        }
    });
    drop(first);
    assert!(heard(second).is_ok());
}

/// At once, also if a task was polling it.
#[tokio::test(start_paused = true)]
async fn a_request_that_nobody_waits_for_any_more_is_abandoned() {
    let store = MemoryConfig::private();
    for first_leaves_first in [false, true] {
        let (locks, lock, held) = held_elsewhere(&store).await;
        let (first, second) = (parked(lock.acquire()), parked(lock.acquire()));
        tokio::task::yield_now().await;
        assert_eq!(queued(&locks).await, 1);
        if first_leaves_first {
            drop(first);
            assert_eq!(queued(&locks).await, 1, "it keeps the place of its process");
            drop(second);
        } else {
            drop((second, first));
        }
        assert_eq!(queued(&locks).await, 0);
        held.release().await.unwrap();
        lock.try_acquire().await.unwrap().expect("nobody is ahead").release().await.unwrap();
        locks.shutdown().await.expect("no task is left");
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_for_parked_callers() {
    let store = FaultyStore::default();
    let (locks, clock) = virtually(&store).await;
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    let gate = Arc::new(Notify::new());
    store.releases.fail(Fault::RefuseOn(Arc::clone(&gate), ErrorKind::Unavailable));
    let release = parked(guard.release());
    store.acquires.fail(Fault::NeverAnswer);
    let lock = locks.lock("b").unwrap();
    let (first, second) = (parked(lock.acquire()), parked(lock.acquire()));
    gate.notify_one();
    let began = clock.now();
    locks.shutdown().await.unwrap();
    assert!(clock.now().since(began) < Duration::from_secs(1), "{:?}", clock.now().since(began));
    release.await.unwrap();
    let closed = |answer: Result<LockGuard>| *answer.unwrap_err().kind() == ErrorKind::Closed;
    assert!(closed(first.await) && closed(second.await));
}

/// The store has granted that share meanwhile.
#[test]
fn a_parked_release_ends_for_those_behind_another_share() {
    let (store, home, gate) = (FaultyStore::default(), Runtime::new().unwrap(), Arc::new(Notify::new()));
    let lock = home.block_on(opened(&store)).lock("a").unwrap().handoff_limit(0);
    let reader = home.block_on(lock.clone().shared().acquire()).unwrap();
    store.releases.fail(Fault::PassOn(Arc::clone(&gate)));
    let release = parked(reader.release());
    let another = heard(lock.clone().shared().acquire()).unwrap();
    let writer = parked(lock.acquire());
    heard(another.release()).unwrap();
    gate.notify_one();
    assert!(heard(writer).is_ok());
    heard(release).unwrap();
}

/// A place in the store's queue belongs to the process, whatever the bound of its holds.
#[tokio::test(start_paused = true)]
async fn leaving_caller_keeps_its_place_for_a_longer_hold() {
    let store = MemoryConfig::private();
    for bounded_first in [true, false] {
        let (_locks, lock, held) = held_elsewhere(&store).await;
        let (_others, rival) = elsewhere(&store).await;
        let bounded = lock.clone().max_hold(SOON);
        let (first, second) = if bounded_first { (&bounded, &lock) } else { (&lock, &bounded) };
        let (first, second) = (parked(first.acquire()), parked(second.acquire()));
        let rival = parked(rival.acquire());
        drop(first);
        held.release().await.unwrap();
        let second = within(SOON, "it has lost its place", second).await.unwrap();
        second.release().await.unwrap();
        within(SOON, "the rival is next", rival).await.unwrap().release().await.unwrap();
    }
}
