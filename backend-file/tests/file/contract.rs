//! The contract between sessions of one process, where files make a difference.

use std::sync::Arc;

use futures_util::FutureExt;
use leasehold_core::backend::{Grant, Renewal, StoreEvent};
use leasehold_core::clock::Deadline;
use leasehold_core::{FencingToken, LostReason, OwnerId};

use crate::fixture::Fixture;

/// A wait is shown to others when it lasts; a short one costs no file. One that lasts hears of each holder.
#[tokio::test]
async fn a_wait_is_shown_when_it_lasts() {
    let fixture = Fixture::new();
    let (a, mut b, mut c) = (fixture.open().await, fixture.open().await, fixture.open().await);
    let held = a.grant("a").await;
    let (backend, request) = (Arc::clone(&b.backend), b.request("a"));
    let mut waiting = backend.acquire(&request);
    assert!((&mut waiting).now_or_never().is_none());
    assert_eq!(fixture.traces("waiting"), 0);
    tokio::select! {
        granted = &mut waiting => panic!("{granted:?}"),
        () = b.queued() => {}
    }
    assert_eq!((a.contenders("a").await, fixture.traces("waiting")), (1, 1));
    let _last = c.waiter("a").await;
    a.release(&held).await;
    let next = waiting.await.unwrap();
    let StoreEvent::Queued { holder, .. } = c.event().await else { panic!("it has another holder") };
    assert_eq!(holder.token.map(FencingToken::counter), Some(next.counter));
}

/// A second release, and one by another owner, of another counter or of another session, change
/// nothing.
#[tokio::test]
async fn a_stale_release_changes_nothing() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.open().await, fixture.open().await);
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

/// A runtime ends at once while a wait is blocked in the kernel.
#[test]
fn a_blocked_wait_does_not_hold_up_the_runtime() {
    let fixture = Fixture::new();
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_time().build().unwrap();
    let outer = runtime();
    let (a, held) = outer.block_on(async {
        let a = fixture.open().await;
        let held = a.grant("a").await;
        (a, held)
    });
    let inner = runtime();
    let mut b = inner.block_on(fixture.open());
    let waiter = inner.block_on(async { Some(b.waiter("a").await) });
    // Dropping a runtime waits for its pool of blocking threads; here it would never end.
    drop((b, inner, waiter));
    outer.block_on(async {
        a.release(&held).await;
        a.cycle("a").await;
    });
}
