//! What two processes that are not async do with one store, each of which a test opens.

#![allow(clippy::unwrap_used, reason = "test binary")]

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use leasehold::backend::LockState;
use leasehold::blocking::{LockManager, all};
use leasehold::clock::{BootClock, Clock};
use leasehold::{Change, ErrorKind, Guarantees, GuardState, LostReason, Revocation, Revoke};

const MOMENT: Duration = Duration::from_millis(20);

/// Longer than any of it takes.
const BOUND: Duration = Duration::from_secs(60);

/// Waits until some wait, or none.
fn until_contended(locks: &LockManager, is_contended: bool) {
    let clock = BootClock::new();
    let began = clock.now();
    while (locks.inspect("a").unwrap().contenders > 0) != is_contended {
        assert!(clock.now().since(began) < BOUND, "contended is not {is_contended}");
        thread::yield_now();
    }
}

/// Threads of two processes exclude each other, each served once, with tokens that grow (G1, G3).
pub(crate) fn threads_of_two_managers_exclude_each_other(managers: [LockManager; 2], rounds: u32) {
    let (held, last) = (AtomicU32::new(0), AtomicU32::new(0));
    let work = |locks: &LockManager| {
        for _ in 0..rounds {
            let lock = locks.lock("a").unwrap();
            lock.with(|guard| {
                assert_eq!(held.fetch_add(1, Relaxed), 0);
                last.fetch_add(1, Relaxed);
                guard.ensure_held().unwrap();
                held.fetch_sub(1, Relaxed);
            })
            .unwrap();
        }
    };
    thread::scope(|scope| {
        for locks in managers.iter().cycle().take(4) {
            scope.spawn(|| work(locks));
        }
    });
    assert_eq!(last.into_inner(), 4 * rounds);
    let [one, other] = managers;
    let first = one.lock("a").unwrap().acquire().unwrap();
    let token = first.token();
    first.release().unwrap();
    assert!(token < other.lock("a").unwrap().acquire().unwrap().token());
    // Dropped: released in the background (G6).
    one.lock("a").unwrap().wait(BOUND).acquire().unwrap().release().unwrap();
}

/// Waits end in time, in order, with a loss or with a shutdown (G2, G6, G7, G8, G9).
pub(crate) fn waits_and_holds_end_as_those_of_the_async_api([one, other]: [LockManager; 2]) {
    let (lock, rival) = (one.lock("a").unwrap(), other.lock("a").unwrap());
    let guard = lock.clone().metadata("here").acquire().unwrap();
    assert!(one.holds("a") && rival.try_acquire().unwrap().is_none());
    assert!(rival.try_acquire_for(MOMENT).unwrap().is_none());
    let timeout = rival.clone().wait(MOMENT).acquire().unwrap_err();
    assert!(matches!(timeout.kind(), ErrorKind::Timeout { .. }), "{timeout}");
    // On a server it leaves in the background.
    until_contended(&one, false);
    guard.renew().unwrap();
    thread::scope(|scope| {
        let changes = scope.spawn(|| guard.changes().collect::<leasehold::Result<Vec<_>>>().unwrap());
        let next = scope.spawn(|| rival.acquire());
        until_contended(&one, true);
        assert_eq!(other.revoke("a", Revoke::AT_ONCE).unwrap(), Revocation::Released);
        let next = next.join().unwrap().unwrap();
        assert_eq!(
            changes.join().unwrap().last(),
            Some(&Change::State(GuardState::Lost(LostReason::Revoked)))
        );
        assert_eq!(guard.ensure_held().unwrap_err().lost_reason(), Some(LostReason::Revoked));
        next.ensure_held().unwrap();
        assert!(!other.list("").unwrap().is_empty());
        let refused = scope.spawn(|| lock.acquire().map(drop));
        until_contended(&other, true);
        one.shutdown().unwrap();
        assert_eq!(*refused.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
    });
    one.require(Guarantees::FENCED).unwrap();
}

/// An iterator waits for changes, and ends with the manager.
pub(crate) fn watch_is_an_iterator([one, other]: [LockManager; 2]) {
    let holder = |state: LockState| state.holder().and_then(|holder| holder.metadata.clone());
    let mut states = other.watch("a").unwrap();
    assert_eq!(holder(states.next().unwrap().unwrap()), None);
    let guard = one.lock("a").unwrap().metadata("here").shared().acquire().unwrap();
    assert_eq!(holder(states.next().unwrap().unwrap()).as_deref(), Some("here"));
    drop(guard);
    assert_eq!(holder(states.next().unwrap().unwrap()), None);
    other.shutdown().unwrap();
    assert!(states.next().is_none());
}

/// All or none.
pub(crate) fn several_locks_are_acquired_without_async([one, other]: [LockManager; 2]) {
    let both = all([one.lock("b").unwrap(), one.lock("a").unwrap()]);
    let held = both.acquire().unwrap();
    held.ensure_held().unwrap();
    assert!(held.remaining() > Duration::ZERO && held.token("a").is_some());
    assert!(other.lock("b").unwrap().try_acquire().unwrap().is_none());
    held.release().unwrap();
    let held = other.lock("b").unwrap().acquire().unwrap();
    assert!(both.try_acquire().unwrap().is_none());
    both.clone().wait(MOMENT).acquire().unwrap_err();
    drop(held);
    assert_eq!(*all([]).acquire().unwrap_err().kind(), ErrorKind::InvalidOption);
}
