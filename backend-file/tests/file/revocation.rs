//! Taking locks from their holders, between sessions.

use std::sync::Arc;
use std::time::Duration;

use lockcore::backend::{AcquireRequest, Attempt, Revocation, Revoke, StoreEvent};
use lockcore::{LockManager, LostReason};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::rig::{Beside, Manager, Rig, name};

fn revoked(lock: &str, counter: u64) -> StoreEvent {
    StoreEvent::GrantLost { name: name(lock), counter, reason: LostReason::Revoked }
}

/// The holder is told, and whoever asked hears that it has let go; other holds go on.
#[tokio::test]
async fn a_holder_that_is_asked_lets_go() {
    let rig = Rig::new();
    let (mut a, b) = (rig.open().await, rig.open().await);
    let (held, other) = (a.grant("a").await, a.grant("b").await);
    let asked = Arc::clone(&b.backend);
    let answer = Beside::start(async move { asked.revoke(&name("a"), Revoke::AT_ONCE).await.unwrap() });
    assert_eq!(a.event().await, revoked("a", held.counter));
    a.release(&held).await;
    assert_eq!(answer.end().await, Revocation::Released);
    assert_eq!(rig.traces("revoke"), 0);
    a.release(&other).await;
    assert_eq!(b.backend.revoke(&name("a"), Revoke::AT_ONCE).await.unwrap(), Revocation::NotHeld);
    assert_eq!(b.backend.revoke(&name("new"), Revoke::Force).await.unwrap(), Revocation::NotHeld);
}

/// A holder that does not listen keeps its lock, and nothing is left of the question.
#[tokio::test]
async fn a_holder_that_does_not_listen_keeps_its_lock() {
    let rig = Rig::new();
    let (a, b) = (rig.open().await, rig.open().await);
    let mut request = a.request("a");
    request.ttl = Duration::from_millis(50);
    let held = a.backend.try_acquire(&request).await.unwrap();
    assert_eq!(b.backend.revoke(&name("a"), Revoke::AT_ONCE).await.unwrap(), Revocation::Unanswered);
    assert_eq!(rig.traces("revoke"), 0);
    assert!(b.refusal("a").await.is_some(), "{held:?}");
}

/// By force the next one holds at once, waiters included, with a larger counter; the former holder
/// hears of it, and its release changes nothing.
#[tokio::test]
async fn force_takes_the_lock_at_once() {
    let rig = Rig::new();
    let (mut a, b, mut c) = (rig.open().await, rig.open().await, rig.open().await);
    b.cycle("a").await;
    let held = a.grant("a").await;
    let waiter = c.waiter("a").await;
    assert_eq!(b.backend.revoke(&name("a"), Revoke::Force).await.unwrap(), Revocation::Released);
    let taken = waiter.end().await.unwrap();
    assert!(taken.counter > held.counter);

    assert_eq!(a.event().await, revoked("a", held.counter));
    assert_eq!(a.backend.release(&held).await.unwrap_err().lost_reason(), Some(LostReason::Gone));
    assert!(b.refusal("a").await.is_some());
    c.release(&taken).await;
    assert!(b.cycle("a").await > taken.counter);
    assert_eq!((rig.traces("revoke"), rig.traces("out")), (0, 0));
}

/// Somebody may have the lock and no record of it: a wait that nobody polls any more was given the file.
/// Force takes it, and the wait goes on with whoever is next.
#[tokio::test]
async fn force_takes_a_lock_that_was_given_to_nobody() {
    let rig = Rig::new();
    let (a, mut b) = (rig.open().await, rig.open().await);
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
    assert_eq!(a.backend.revoke(&name("a"), Revoke::Force).await.unwrap(), Revocation::Released);
    let first = a.grant("a").await;
    a.release(&first).await;
    assert!(waiting.await.unwrap().counter > first.counter);
    assert_eq!((rig.traces("revoke"), rig.traces("out")), (0, 0));
    // A file that is there, and nobody has, is not held.
    a.cycle("free").await;
    assert_eq!(a.backend.revoke(&name("free"), Revoke::Force).await.unwrap(), Revocation::NotHeld);
}

/// Through the core: the guard is lost, and its manager releases.
#[tokio::test]
async fn a_guard_is_lost_when_it_is_revoked() {
    let rig = Rig::new();
    let locks = LockManager::builder(rig.config()).build().await.unwrap();
    let admin = LockManager::builder(rig.config()).build().await.unwrap();
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    assert_eq!(admin.revoke("a", Revoke::AT_ONCE).await.unwrap(), Revocation::Released);
    assert_eq!(guard.lost().await, LostReason::Revoked);
    let next = admin.lock("a").unwrap().try_acquire().await.unwrap().unwrap();
    assert!(next.token() > guard.token());
}

/// Cycles, force and sweeps all at once: no counter is ever given out twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_counter_is_given_out_twice() {
    let rig = Rig::new();
    let counters = Arc::new(Mutex::new(Vec::new()));
    let mut sessions = JoinSet::new();
    for _ in 0..4 {
        let Manager { backend, env, .. } = Manager::open_patient(&rig.config()).await.unwrap();
        let counters = Arc::clone(&counters);
        sessions.spawn(async move {
            for _ in 0..100 {
                let request = AcquireRequest::new(name("a"), env.owner_id(), env.timing().ttl);
                let grant = backend.acquire(&request).await.unwrap();
                counters.lock().push(grant.counter);
                tokio::task::yield_now().await;
                // Lost, if it was taken away meanwhile.
                let _ = backend.release(&grant).await;
            }
        });
    }
    let (admin, config) = (Manager::open_patient(&rig.config()).await.unwrap(), rig.config());
    while !sessions.is_empty() {
        admin.backend.revoke(&name("a"), Revoke::Force).await.unwrap();
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
