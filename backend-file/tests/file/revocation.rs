//! Taking locks from their holders, between sessions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::backend::{Attempt, Holder, Revocation, Revoke, StoreEvent};
use leasehold_core::{LockManager, LostReason};
use parking_lot::Mutex;
use testbed::{until, within};
use tokio::task::JoinSet;

use crate::fixture::{Fixture, Manager, acquired, name};

fn revoked(lock: &str, counter: u64) -> StoreEvent {
    StoreEvent::GrantLost { name: name(lock), counter, reason: LostReason::Revoked }
}

fn asked(lock: &str, counter: u64, within: Duration) -> StoreEvent {
    StoreEvent::RevocationRequested { name: name(lock), counter, within }
}

fn in_secs(secs: u64) -> Revoke {
    Revoke::Ask { grace: Duration::from_secs(secs) }
}

impl Manager {
    /// Whom a revocation found.
    async fn revoke(&self, lock: &str, how: Revoke) -> Option<Holder> {
        self.backend.revoke(&name(lock), how).await.unwrap().pop()
    }
}

#[tokio::test]
async fn a_request_to_a_hold_that_ended_is_removed() {
    let fixture = Fixture::new();
    let (mut a, b) = (fixture.open().await, fixture.open().await);
    let held = a.grant("a").await;
    b.revoke("a", in_secs(30)).await.unwrap();
    a.release(&held).await;
    assert_eq!(fixture.traces("revoke"), 1);
    let is_removed = until(async || fixture.traces("revoke") == 0);
    tokio::select! {
        told = a.event() => panic!("{told:?}"),
        () = within(b.env.timing().ttl, "the request is removed", is_removed) => {}
    }

    let held = a.grant("a").await;
    b.revoke("a", in_secs(30)).await.unwrap();
    a.release(&held).await;
    let (_later, other) = (a.grant("a").await, a.grant("b").await);
    b.revoke("b", in_secs(30)).await.unwrap();
    assert_eq!(a.event().await, asked("b", other.counter, Duration::from_secs(30)));
    assert_eq!(fixture.traces("revoke"), 0);
}

/// A holder that does not listen keeps its lock. What it was asked goes with its session: when that is
/// closed, or with the next sweep.
#[tokio::test]
async fn a_holder_that_does_not_listen_keeps_its_lock() {
    let fixture = Fixture::new();
    let admin = LockManager::builder(fixture.config()).build().await.unwrap();
    for closes in [true, false] {
        let a = fixture.open().await;
        let mut request = a.request("a");
        request.ttl = Duration::from_millis(50);
        let held = a.backend.try_acquire(&request).await.unwrap();
        assert!(matches!(held, Attempt::Granted(_)), "{held:?}");
        assert_eq!(admin.revoke("a", Revoke::AT_ONCE).await.unwrap(), Revocation::Unanswered);
        assert!(admin.inspect("a").await.unwrap().holder().is_some());
        assert_eq!(fixture.traces("revoke"), 1);
        if closes {
            a.backend.close().await.unwrap();
        } else {
            drop(a);
            fixture.config().sweep().await.unwrap();
        }
        assert_eq!(fixture.traces("revoke"), 0, "closed: {closes}");
        assert_eq!(admin.revoke("a", Revoke::AT_ONCE).await.unwrap(), Revocation::NotHeld);
    }
}

#[tokio::test]
async fn a_holder_that_hears_much_is_told_in_time() {
    let fixture = Fixture::new();
    let (mut a, b) = (fixture.open().await, fixture.open().await);
    let held = a.grant("a").await;
    b.grant("b").await;
    b.revoke("a", Revoke::AT_ONCE).await.unwrap();
    let (backend, request) = (Arc::clone(&a.backend), a.request("b"));
    let told_at_last = async {
        loop {
            // Each wait reports its holder.
            let told = tokio::select! {
                granted = backend.acquire(&request) => panic!("{granted:?}"),
                told = a.event() => told,
            };
            if told == asked("a", held.counter, Duration::ZERO) {
                break;
            }
            assert!(matches!(told, StoreEvent::Queued { .. }), "{told:?}");
        }
    };
    within(b.env.timing().ttl, "it is told", told_at_last).await;
}

#[tokio::test]
async fn force_does_not_wait_for_a_grace() {
    let fixture = Fixture::new();
    let (mut a, b) = (fixture.open().await, fixture.open().await);
    for is_heard in [false, true] {
        let held = a.grant("a").await;
        b.revoke("a", in_secs(30)).await.unwrap();
        if is_heard {
            assert_eq!(a.event().await, asked("a", held.counter, Duration::from_secs(30)));
        }
        b.revoke("a", Revoke::Force).await.unwrap();
        let taken = b.grant("a").await;
        assert_eq!(a.event().await, revoked("a", held.counter));
        assert_eq!(a.backend.release(&held).await.unwrap_err().lost_reason(), Some(LostReason::Gone));
        b.release(&taken).await;
    }
}

/// Somebody may have the lock and no record of it: a wait that nobody polls any more was given the file.
/// Force takes it, and the wait is lost.
#[tokio::test]
async fn force_takes_a_lock_that_was_given_to_nobody() {
    let fixture = Fixture::new();
    let (a, mut b) = (fixture.open().await, fixture.open().await);
    let held = a.grant("a").await;
    let (backend, request) = (Arc::clone(&b.backend), b.request("a"));
    let mut waiting = backend.acquire(&request);
    tokio::select! {
        granted = &mut waiting => panic!("{granted:?}"),
        () = b.queued() => {}
    }
    a.release(&held).await;
    // Until the kernel has given it to the thread that waits.
    while let Attempt::Granted(grant) = a.attempt("a").await.unwrap() {
        a.release(&grant).await;
    }
    let found = a.revoke("a", Revoke::Force).await.unwrap();
    assert_eq!((found.token, found.ttl), (None, None));
    let first = a.grant("a").await;
    a.release(&first).await;
    assert_eq!(waiting.await.unwrap_err().lost_reason(), Some(LostReason::Gone));
    assert!(b.cycle("a").await > first.counter);
    assert_eq!((fixture.traces("revoke"), fixture.traces("out")), (0, 0));
    // A file that exists and is not locked is not held.
    a.cycle("free").await;
    assert_eq!(a.revoke("free", Revoke::Force).await, None);
}

/// Cycles and sweeps all at once: one holder at a time, and, also beside force, no counter is ever given out twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_counter_is_given_out_twice() {
    for is_forced in [false, true] {
        let fixture = Fixture::new();
        let (counters, holders) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicU64::new(0)));
        let mut sessions = JoinSet::new();
        for _ in 0..4 {
            let Manager { backend, env, .. } = Manager::open_patient(&fixture.config()).await.unwrap();
            let (counters, holders) = (Arc::clone(&counters), Arc::clone(&holders));
            sessions.spawn(async move {
                for _ in 0..100 {
                    let grant = acquired(&*backend, &env, "a").await;
                    let others = holders.fetch_add(1, Ordering::SeqCst);
                    assert!(others == 0 || is_forced, "{others} others hold");
                    counters.lock().push(grant.counter);
                    tokio::task::yield_now().await;
                    holders.fetch_sub(1, Ordering::SeqCst);
                    let released = backend.release(&grant).await;
                    assert!(released.is_ok() || is_forced, "{released:?}");
                }
            });
        }
        let (admin, config) = (Manager::open_patient(&fixture.config()).await.unwrap(), fixture.config());
        while !sessions.is_empty() {
            if is_forced {
                admin.revoke("a", Revoke::Force).await;
            }
            config.sweep().await.unwrap();
            while let Some(session) = sessions.try_join_next() {
                session.unwrap();
            }
        }
        let mut counters = counters.lock().clone();
        assert_eq!(counters.len(), 400);
        counters.sort_unstable();
        counters.dedup();
        assert_eq!(counters.len(), 400, "some were given out twice");
    }
}
