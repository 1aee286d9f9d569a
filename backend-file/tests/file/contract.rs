//! The contract between sessions of one process, where files make a difference.

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use leasehold_core::backend::{Grant, Renewal};
use leasehold_core::clock::Deadline;
use leasehold_core::{ErrorKind, Guarantees, LockManager, LostReason, OwnerId, Registry};
use testbed::{Beside, eventually, within};

use crate::rig::Rig;

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
