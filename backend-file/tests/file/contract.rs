//! What every store does, here between sessions of one process, each with files of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use leasehold_core::backend::{AcquireRequest, Attempt, Grant, Renewal};
use leasehold_core::clock::Deadline;
use leasehold_core::{ErrorKind, Guarantees, LockManager, LostReason, OwnerId, Registry};
use testbed::{Beside, eventually, within};
use tokio::task::JoinSet;

use crate::rig::{Manager, Rig, name};

/// One holder at a time; the next has a larger counter; the holder is named to who comes second.
#[tokio::test]
async fn two_sessions_exclude_each_other() {
    let rig = Rig::new();
    let (a, b) = (rig.open().await, rig.open().await);
    let mut request = a.request("invoice/42");
    request.metadata = Some("why".into());
    let Attempt::Granted(first) = a.backend.try_acquire(&request).await.unwrap() else {
        panic!("the lock is free")
    };
    assert_eq!(first.lease.deadline, Deadline::Never);

    let holder = b.refusal("invoice/42").await.unwrap();
    assert_eq!((holder.label.as_str(), holder.metadata.as_deref()), ("here", Some("why")));
    assert_eq!(holder.token.unwrap().counter(), first.counter);
    assert!(holder.since.is_some());
    assert_eq!(b.backend.inspect(&name("invoice/42")).await.unwrap().holders.pop(), Some(holder));

    a.release(&first).await;
    assert_eq!(b.backend.inspect(&name("invoice/42")).await.unwrap().holders.pop(), None);
    let second = b.grant("invoice/42").await;
    assert!(second.counter > first.counter);
}

/// A waiter holds as soon as the holder has let go, and nothing tells of the wait afterwards.
#[tokio::test]
async fn a_release_wakes_a_waiter() {
    let rig = Rig::new();
    let (a, mut b) = (rig.open().await, rig.open().await);
    let held = a.grant("a").await;
    let waiter = b.waiter("a").await;
    assert_eq!(a.contenders("a").await, 1);
    a.release(&held).await;
    let granted = waiter.end("the wait").await.unwrap();
    assert!(granted.counter > held.counter);
    assert_eq!((a.contenders("a").await, rig.traces("waiting")), (0, 0));
}

/// A wait is shown to others when it lasts; a short one costs no file.
#[tokio::test]
async fn a_wait_is_shown_when_it_lasts() {
    let rig = Rig::new();
    let (a, mut b) = (rig.open().await, rig.open().await);
    let _held = a.grant("a").await;
    let (backend, request) = (Arc::clone(&b.backend), b.request("a"));
    let mut waiting = backend.acquire(&request);
    assert!((&mut waiting).now_or_never().is_none());
    assert_eq!(rig.traces("waiting"), 0);
    tokio::select! {
        granted = &mut waiting => panic!("{granted:?}"),
        () = b.queued() => {}
    }
    assert_eq!((a.contenders("a").await, rig.traces("waiting")), (1, 1));
}

/// An acquisition that is dropped while it waits leaves nothing: the lock is free once released, and
/// the same session can wait again.
#[tokio::test]
async fn a_dropped_wait_leaves_nothing() {
    let rig = Rig::new();
    let (a, mut b, c) = (rig.open().await, rig.open().await, rig.open().await);
    for _ in 0..20 {
        let held = a.grant("a").await;
        for _ in 0..3 {
            let (backend, request) = (Arc::clone(&b.backend), b.request("a"));
            tokio::select! {
                granted = backend.acquire(&request) => panic!("{granted:?}"),
                () = b.queued() => {}
            }
            assert_eq!(a.contenders("a").await, 0);
        }
        a.release(&held).await;
        c.cycle("a").await;
    }
    let held = a.grant("a").await;
    let waiter = b.waiter("a").await;
    a.release(&held).await;
    waiter.end("the wait").await.unwrap();
}

/// A second release, and one by another owner, of another counter or of another session, change
/// nothing.
#[tokio::test]
async fn a_stale_release_changes_nothing() {
    let rig = Rig::new();
    let (a, b) = (rig.open().await, rig.open().await);
    let stale = a.grant("a").await;
    a.release(&stale).await;
    let held = a.grant("a").await;
    let of = |owner, counter| Grant::new(held.name.clone(), owner, held.lease, counter);
    let strangers = [
        (&a, stale.clone()),
        (&a, of(OwnerId::from_random([7; 16]), held.counter)),
        (&a, of(held.owner, held.counter + 1)),
        (&b, held.clone()),
    ];
    for (manager, grant) in strangers {
        let error = manager.backend.release(&grant).await.unwrap_err();
        assert_eq!(error.lost_reason(), Some(LostReason::Gone));
    }
    assert!(b.refusal("a").await.is_some());
    let renewals = a.backend.renew(&[held.lease.id, stale.lease.id]).await;
    assert!(matches!(renewals[..], [Renewal::Until(Deadline::Never), Renewal::Gone(LostReason::Gone)]));
    // Whatever the core makes of its deadline, it is the same grant.
    let mut late = held;
    late.lease.deadline = Deadline::At(a.env.now());
    a.release(&late).await;
}

/// Closing frees what is held, ends what waits, and refuses everything after.
#[tokio::test]
async fn closing_frees_everything() {
    let rig = Rig::new();
    let (a, mut b) = (rig.open().await, rig.open().await);
    let held = a.grant("a").await;
    b.grant("b").await;
    let waiter = b.waiter("a").await;
    b.backend.close().await.unwrap();
    assert_eq!(*waiter.end("the wait").await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(*b.attempt("c").await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(*b.backend.list("").await.unwrap_err().kind(), ErrorKind::Closed);
    a.cycle("b").await;
    a.release(&held).await;
    a.cycle("a").await;
    assert_eq!(rig.traces("sessions"), 1);
}

/// A backend that is dropped without a word frees what it holds, whoever still listens.
#[tokio::test]
async fn dropping_the_backend_frees_its_locks() {
    let rig = Rig::new();
    let (a, b) = (rig.open().await, rig.open().await);
    a.grant("a").await;
    let mut events = a.events;
    drop(a.backend);
    b.cycle("a").await;
    assert_eq!(events.next().await, None);
    assert_eq!(rig.traces("sessions"), 1);
}

/// A release needs one poll and no runtime.
#[test]
fn a_release_needs_no_runtime() {
    let rig = Rig::new();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let first = runtime();
    let (a, held) = first.block_on(async {
        let a = rig.open().await;
        let held = a.grant("a").await;
        (a, held)
    });
    drop(first);
    let mut release = a.backend.release(&held);
    let polled = release.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_ready());
    runtime().block_on(async { rig.open().await.cycle("a").await });
}

/// A runtime ends at once while a wait is blocked in the kernel.
#[test]
fn a_blocked_wait_does_not_hold_up_the_runtime() {
    let rig = Rig::new();
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_time().build().unwrap();
    let outer = runtime();
    let (a, held) = outer.block_on(async {
        let a = rig.open().await;
        let held = a.grant("a").await;
        (a, held)
    });
    let inner = runtime();
    let mut b = inner.block_on(rig.open());
    let waiter = inner.block_on(async { Some(b.waiter("a").await) });
    // Dropping a runtime waits for its pool of blocking threads; here it would never end.
    drop((b, inner, waiter));
    outer.block_on(async {
        a.release(&held).await;
        a.cycle("a").await;
    });
}

/// Nobody moves the locks of a directory while they are in use.
#[tokio::test]
async fn there_is_no_ledger() {
    let rig = Rig::new();
    assert!(rig.open().await.backend.ledger().is_none());
}

/// Names are independent, and those in use are listed in order.
#[tokio::test]
async fn names_in_use_are_listed() {
    let rig = Rig::new();
    let (a, b) = (rig.open().await, rig.open().await);
    let long = format!("a/{}", "Ä".repeat(200));
    for lock in ["b", "a/b", "a", "ab", ".", "..", "A", &long] {
        a.grant(lock).await;
    }
    b.cycle("a/free").await;
    let listed = async |prefix: &str| {
        let states = b.backend.list(prefix).await.unwrap();
        states.iter().map(|state| state.name.as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(listed("").await, [".", "..", "A", "a", "a/b", &long, "ab", "b"]);
    assert_eq!(listed("a/").await, ["a/b", &long]);
    assert!(listed("c").await.is_empty());
}

/// Four sessions add to a number that nothing else protects: none is lost, and counters grow.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_unprotected_number_is_counted_exactly() {
    const CYCLES: u64 = 50;
    let rig = Rig::new();
    let (number, largest) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut sessions = JoinSet::new();
    for _ in 0..4 {
        let Manager { backend, env, .. } = rig.open().await;
        let (number, largest) = (Arc::clone(&number), Arc::clone(&largest));
        sessions.spawn(async move {
            for _ in 0..CYCLES {
                let request = AcquireRequest::new(name("a"), env.owner_id(), env.timing().ttl);
                let grant = backend.acquire(&request).await.unwrap();
                assert!(largest.swap(grant.counter, Ordering::Relaxed) < grant.counter);
                let read = number.load(Ordering::Relaxed);
                tokio::task::yield_now().await;
                number.store(read + 1, Ordering::Relaxed);
                backend.release(&grant).await.unwrap();
            }
        });
    }
    while let Some(session) = sessions.join_next().await {
        session.unwrap();
    }
    assert_eq!(number.load(Ordering::Relaxed), 4 * CYCLES);
}

/// The core on this store, from a URL: hand-off within the process, guards without an end, a
/// shutdown that waits for nobody.
#[tokio::test]
async fn managers_work_on_a_directory() {
    let rig = Rig::new();
    let mut registry = Registry::new();
    registry.register("file", |url| Ok(Box::new(leasehold_file::FileConfig::from_url(url)?)));
    let url = format!("file://{}?keep=10", rig.path().display());
    let locks = registry.connect(&url).await.unwrap();
    let promised = Guarantees::FENCED | Guarantees::CROSS_PROCESS | Guarantees::RUNTIME_FREE;
    locks.require(promised).unwrap();
    assert!(!locks.guarantees().intersects(Guarantees::LEASED | Guarantees::FIFO));

    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    assert_eq!(guard.remaining(), Duration::MAX);
    let other = LockManager::builder(rig.config()).build().await.unwrap();
    let error = other.lock("a").unwrap().wait(Duration::from_millis(50)).acquire().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Timeout { holder: Some(_), .. }), "{error}");
    let first = guard.token();
    drop(guard);
    let guard = other.lock("a").unwrap().try_acquire().await.unwrap().unwrap();
    assert!(guard.token() > first);

    let waiting = locks.lock("a").unwrap();
    let waiter = Beside::start(async move { waiting.acquire().await.map(drop) });
    eventually("a contender", async || locks.inspect("a").await.unwrap().contenders > 0).await;
    let bound = Duration::from_secs(5);
    within(bound, "a shutdown waits for nothing but releases", locks.shutdown()).await.unwrap();
    assert_eq!(*waiter.end("the wait").await.unwrap_err().kind(), ErrorKind::Closed);
}
