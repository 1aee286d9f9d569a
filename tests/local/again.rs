//! A lost place in the store's queue does not end a wait: the store is asked again, for the caller and for those behind
//! it, until the wait ends, the manager closes, or the error is final.

use std::collections::BTreeSet;
use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use leasehold::backend::{Holder, StoreEvent};
use leasehold::clock::Clock;
use leasehold::{Effect, Error, ErrorKind, LockGuard, LockName, LostReason, Timing};
use testbed::{pass, within};
use tokio::sync::Notify;
use tokio::task::{JoinSet, yield_now};

use crate::faulty_store::{Fault, FaultyStore};
use crate::{SOON, beside, kinds, served, virtually, waiters};

const LOST: ErrorKind = ErrorKind::Lost { reason: LostReason::Gone };

fn name() -> LockName {
    LockName::new("a").expect("it is a name")
}

/// A guard of another process that holds `a`.
async fn held_elsewhere(store: &FaultyStore) -> LockGuard {
    beside(store).await.lock("a").expect("it is a name").acquire().await.expect("memory grants")
}

/// Waits until the store got so many acquisitions, and for their effects.
async fn asked(store: &FaultyStore, acquires: usize) {
    within(SOON, "the store is asked", async {
        while store.acquires.count() < acquires {
            pass(Duration::from_millis(1)).await;
        }
    })
    .await;
    pass(Duration::from_millis(1)).await;
}

/// Asserts that the process has no entry at the store.
async fn is_free(store: &FaultyStore) {
    let free =
        beside(store).await.lock("a").expect("it is a name").try_acquire().await.expect("memory answers");
    free.expect("nobody holds it, or waits").release().await.expect("memory releases");
}

/// The cause of an error of a wait that ended.
fn cause(error: &Error) -> &Error {
    assert!(matches!(error.kind(), ErrorKind::Timeout { .. }), "{error:#}");
    assert_eq!(error.effect(), Effect::NotApplied);
    error.source().and_then(|source| source.downcast_ref()).expect("a cause")
}

/// A server that stood still for longer than a ttl grants a lease that has ended.
#[tokio::test(start_paused = true)]
async fn grant_that_ended_on_arrival_is_released_and_retried() {
    let store = FaultyStore::default();
    let (locks, _) = virtually(&store).await;
    store.acquires.fail_times(3, &Fault::GrantLate);
    let guard = within(SOON, "the store is asked again", locks.lock("a").unwrap().acquire()).await.unwrap();
    guard.ensure_held().unwrap();
    assert_eq!((store.acquires.count(), store.releases.count()), (4, 3));
    guard.release().await.unwrap();
    is_free(&store).await;
}

/// Whatever the reason is; every acquisition has an owner id of its own.
#[tokio::test(start_paused = true)]
async fn a_wait_whose_place_was_lost_goes_on() {
    use LostReason::{Expired, Gone, Revoked, SessionLost};
    let store = FaultyStore::default();
    let (locks, _) = virtually(&store).await;
    for reason in [Gone, Expired, SessionLost, Revoked] {
        store.acquires.fail(Fault::Refuse(ErrorKind::Lost { reason }));
    }
    let guard = within(SOON, "the store is asked again", locks.lock("a").unwrap().acquire()).await.unwrap();
    assert_eq!(store.acquires.count(), 5);
    assert_eq!(store.owners().into_iter().collect::<BTreeSet<_>>().len(), 5, "an owner id is used once");
    guard.release().await.unwrap();
}

/// Also the waiters behind it.
#[tokio::test(start_paused = true)]
async fn queued_waiter_outlasts_an_outage() {
    for (first, refusals) in [(ErrorKind::Unavailable, 9), (LOST, 9), (LOST, 0)] {
        let (store, gate) = (FaultyStore::default(), Arc::new(Notify::new()));
        let held = held_elsewhere(&store).await;
        let (locks, _) = virtually(&store).await;
        store.acquires.fail(Fault::RefuseQueued(Arc::clone(&gate), first));
        store.acquires.fail_times(refusals, &Fault::Refuse(ErrorKind::Unavailable));
        let waiting = waiters(&locks, "a", 3).await;
        asked(&store, 1).await;
        gate.notify_one();
        pass(Duration::from_secs(60)).await;
        assert_eq!(store.acquires.count(), 2 + refusals);
        held.release().await.unwrap();
        assert_eq!(kinds(served(waiting).await), vec![None; 3]);
    }
}

/// An event counts before a later reply, whichever is handled first.
#[tokio::test(start_paused = true)]
async fn refused_entry_had_a_place() {
    let store = FaultyStore::default();
    let (locks, _) = virtually(&store).await;
    store.acquires.fail(Fault::QueueAndRefuse(ErrorKind::Unavailable));
    store.acquires.fail(Fault::Refuse(ErrorKind::Unavailable));
    let guard = within(SOON, "the store is asked again", locks.lock("a").unwrap().acquire()).await.unwrap();
    assert_eq!(store.acquires.count(), 3);
    guard.release().await.unwrap();
}

/// A place belongs to one wait: the next one gets the error at once, also when the event of the earlier place is late.
#[tokio::test(start_paused = true)]
async fn a_place_that_another_had_does_not_count() {
    let store = FaultyStore::default();
    let held = held_elsewhere(&store).await;
    let (locks, _) = virtually(&store).await;
    let waiting = waiters(&locks, "a", 1).await;
    asked(&store, 1).await;
    held.release().await.unwrap();
    assert_eq!(kinds(served(waiting).await), vec![None]);
    for asks in [2, 3] {
        store.acquires.fail(Fault::Refuse(ErrorKind::Unavailable));
        let refused = locks.lock("a").unwrap().acquire().await.unwrap_err();
        assert_eq!((refused.kind(), store.acquires.count()), (&ErrorKind::Unavailable, asks));
        store.tell(StoreEvent::Queued { name: name(), holder: Holder::new("another") });
        // Until it is taken in.
        pass(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn final_error_ends_all_waits() {
    use ErrorKind::{Denied, Protocol, Unsupported};
    for kind in [Denied, Protocol, Unsupported] {
        let (store, gate) = (FaultyStore::default(), Arc::new(Notify::new()));
        let _held = held_elsewhere(&store).await;
        let (locks, _) = virtually(&store).await;
        store.acquires.fail(Fault::RefuseQueued(Arc::clone(&gate), ErrorKind::Unavailable));
        store.acquires.fail(Fault::Refuse(kind.clone()));
        let waiting = waiters(&locks, "a", 3).await;
        asked(&store, 1).await;
        gate.notify_one();
        assert_eq!(kinds(served(waiting).await), vec![Some(kind); 3]);
        assert_eq!(store.acquires.count(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_names_the_last_refusal() {
    for kind in [ErrorKind::Unavailable, LOST] {
        let (store, gate) = (FaultyStore::default(), Arc::new(Notify::new()));
        let held = held_elsewhere(&store).await;
        let (locks, clock) = virtually(&store).await;
        store.acquires.fail(Fault::RefuseQueued(Arc::clone(&gate), ErrorKind::Unavailable));
        store.acquires.fail_times(100, &Fault::Refuse(kind.clone()));
        let (lock, began) = (locks.lock("a").unwrap().wait(Duration::from_secs(30)), clock.now());
        let refused = async {
            asked(&store, 1).await;
            gate.notify_one();
        };
        let (ended, ()) = tokio::join!(lock.acquire(), refused);
        let error = ended.unwrap_err();
        assert_eq!(clock.now().since(began).as_secs(), 30);
        assert_eq!(*cause(&error).kind(), kind);
        held.release().await.unwrap();
        is_free(&store).await;
    }
}

/// The store is asked at growing intervals, whether or not it queues the request: in a minute at most once in half of a
/// request's bound.
#[tokio::test(start_paused = true)]
async fn a_store_that_always_says_lost_is_not_hammered() {
    let queues_first = || {
        let gate = Arc::new(Notify::new());
        gate.notify_one();
        Fault::RefuseQueued(gate, LOST)
    };
    let faults: [&dyn Fn() -> Fault; 3] = [&|| Fault::Refuse(LOST), &queues_first, &|| Fault::GrantLate];
    for fault in faults {
        let store = FaultyStore::default();
        let held = held_elsewhere(&store).await;
        let (locks, _) = virtually(&store).await;
        for _ in 0..1_000 {
            store.acquires.fail(fault());
        }
        if matches!(fault(), Fault::GrantLate) {
            held.release().await.unwrap();
        }
        let lock = locks.lock("a").unwrap().wait(Duration::from_secs(60));
        assert!(lock.acquire().await.is_err());
        let asked = store.acquires.count();
        // Pauses grow to four times the bound of a request.
        assert!((12..=30).contains(&asked), "asked {asked} times");
    }
}

/// And at a random time, as many may have lost their places at the same time.
#[tokio::test(start_paused = true)]
async fn a_long_wait_that_was_lost_asks_again_soon() {
    let gate = Arc::new(Notify::new());
    let mut pauses = BTreeSet::new();
    for _ in 0..8 {
        let store = FaultyStore::default();
        let _held = held_elsewhere(&store).await;
        let (locks, clock) = virtually(&store).await;
        store.acquires.fail(Fault::RefuseQueued(Arc::clone(&gate), LOST));
        let _waiting = waiters(&locks, "a", 1).await;
        pass(Duration::from_secs(60)).await;
        let lost_at = clock.now();
        gate.notify_one();
        asked(&store, 2).await;
        let pause = clock.now().since(lost_at);
        // Timers count in milliseconds, and three are waited for.
        assert!(pause <= Timing::for_ttl(Timing::DEFAULT_TTL).op_timeout / 32 + Duration::from_millis(3));
        pauses.insert(pause);
    }
    assert!(pauses.len() > 1, "all of them after {pauses:?}");
}

/// However long the pauses have become.
#[tokio::test(start_paused = true)]
async fn pauses_begin_anew_after_a_long_wait() {
    let (store, gate) = (FaultyStore::default(), Arc::new(Notify::new()));
    let _held = held_elsewhere(&store).await;
    let (locks, clock) = virtually(&store).await;
    store.acquires.fail_times(9, &Fault::Refuse(LOST));
    store.acquires.fail(Fault::RefuseQueued(Arc::clone(&gate), LOST));
    store.acquires.fail(Fault::Refuse(LOST));
    let _waiting = waiters(&locks, "a", 1).await;
    pass(Duration::from_secs(60)).await;
    assert_eq!(store.acquires.count(), 10);
    gate.notify_one();
    asked(&store, 11).await;
    let lost_at = clock.now();
    asked(&store, 12).await;
    let op_timeout = Timing::for_ttl(Timing::DEFAULT_TTL).op_timeout;
    assert!(clock.now().since(lost_at) < op_timeout / 4, "{:?}", clock.now().since(lost_at));
}

/// A retry is part of one wait: the first waiter keeps its turn, and the others their order.
#[tokio::test(start_paused = true)]
async fn those_who_wait_keep_their_order() {
    for fault in [Fault::Refuse(LOST), Fault::GrantLate] {
        let store = FaultyStore::default();
        let (locks, _) = virtually(&store).await;
        store.acquires.fail_times(3, &fault);
        let mut waiting = JoinSet::new();
        let (served, order) = std::sync::mpsc::channel();
        for place in 0..5 {
            let (lock, served) = (locks.lock("a").unwrap(), served.clone());
            waiting.spawn(async move {
                let guard = lock.acquire().await.unwrap();
                served.send(place).unwrap();
                guard.release().await.unwrap();
            });
            yield_now().await;
        }
        waiting.join_all().await;
        drop(served);
        assert_eq!(order.iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        is_free(&store).await;
    }
}

/// Between two requests, or during the release of a late grant; no request is added.
#[tokio::test(start_paused = true)]
async fn leader_leaving_during_a_retry_passes_the_wait() {
    let (store, gate) = (FaultyStore::default(), Arc::new(Notify::new()));
    let (locks, _) = virtually(&store).await;
    let lock = locks.lock("a").unwrap();
    store.acquires.fail(Fault::Refuse(LOST));
    store.acquires.fail(Fault::GrantLate);
    store.releases.fail(Fault::PassOn(Arc::clone(&gate)));
    let (mut first, mut second) = (Box::pin(lock.acquire()), Box::pin(lock.acquire()));
    let mut third = Box::pin(lock.acquire());
    assert!(first.as_mut().now_or_never().is_none(), "it pauses");
    assert!(second.as_mut().now_or_never().is_none());
    assert!(third.as_mut().now_or_never().is_none());
    drop(first);
    asked(&store, 2).await;
    assert_eq!(store.releases.count(), 1, "the late grant is being given back");
    assert!(second.as_mut().now_or_never().is_none());
    drop(second);
    gate.notify_one();
    let guard = within(SOON, "the third one's turn", third).await.unwrap();
    assert_eq!(store.acquires.count(), 3);
    guard.release().await.unwrap();
    is_free(&store).await;
}

/// The options of the request stay, also in a retry.
#[tokio::test(start_paused = true)]
async fn leader_decides_for_callers_that_join() {
    let (store, ttl) = (FaultyStore::default(), Timing::DEFAULT_TTL * 2);
    let (locks, _) = virtually(&store).await;
    store.acquires.fail(Fault::Refuse(LOST));
    let lock = locks.lock("a").unwrap();
    let asks = lock.clone().ttl(ttl).metadata("first");
    let mut first = Box::pin(asks.acquire());
    assert!(first.as_mut().now_or_never().is_none(), "it pauses");
    let mut second = Box::pin(lock.acquire());
    assert!(second.as_mut().now_or_never().is_none());
    drop(first);
    let guard = within(SOON, "the store is asked again", second).await.unwrap();
    let holder = locks.inspect("a").await.unwrap().holders.pop().expect("it is held");
    assert_eq!((holder.ttl, holder.metadata.as_deref()), (Some(ttl), Some("first")));
    assert_eq!(store.acquires.count(), 2);
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn grant_with_a_lower_counter_is_released_before_others_try() {
    let (store, gate) = (FaultyStore::default(), Arc::new(Notify::new()));
    let (locks, clock) = virtually(&store).await;
    let lock = locks.lock("a").unwrap();
    for _ in 0..3 {
        lock.acquire().await.unwrap().release().await.unwrap();
    }
    store.memory.store().forget(&clock);
    store.releases.fail(Fault::PassOn(Arc::clone(&gate)));
    let waiting = waiters(&locks, "a", 2).await;
    asked(&store, 4).await;
    assert_eq!(
        (store.acquires.count(), store.releases.count()),
        (4, 4),
        "the second one waits for the release"
    );
    gate.notify_one();
    assert_eq!(kinds(served(waiting).await), vec![Some(ErrorKind::Protocol); 2]);
    is_free(&store).await;
}

/// Without another waiter a pending request is cancelled when its caller leaves, or its late grant released.
#[tokio::test(start_paused = true)]
async fn grant_during_a_retry_is_released_before_others_try() {
    for (pauses, is_try) in [(true, false), (false, false), (false, true)] {
        let (store, gate) = (FaultyStore::default(), Arc::new(Notify::new()));
        let (locks, _) = virtually(&store).await;
        let lock = locks.lock("a").unwrap();
        if pauses {
            store.acquires.fail(Fault::Refuse(LOST));
        } else {
            store.acquires.fail(Fault::GrantLate);
            store.releases.fail(Fault::PassOn(Arc::clone(&gate)));
        }
        assert!(lock.acquire().now_or_never().is_none());
        let mut next = Box::pin(async {
            if is_try {
                lock.try_acquire().await.map(|held| held.expect("it is free"))
            } else {
                lock.acquire().await
            }
        });
        assert_eq!(next.as_mut().now_or_never().is_some(), pauses, "a late grant is released first");
        if !pauses {
            assert_eq!((store.acquires.count(), store.releases.count()), (1, 1));
            gate.notify_one();
            within(SOON, "the next one's turn", next).await.unwrap().release().await.unwrap();
        }
        assert_eq!(store.acquires.count() + store.tries.count(), 2);
    }
}

/// At once, and the waits behind it.
#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_asking_again() {
    for fault in [Fault::Refuse(LOST), Fault::GrantLate] {
        let store = FaultyStore::default();
        let (locks, clock) = virtually(&store).await;
        store.acquires.fail_times(100, &fault);
        let waiting = waiters(&locks, "a", 3).await;
        pass(Duration::from_secs(20)).await;
        let (closed_at, asked) = (clock.now(), store.acquires.count());
        locks.shutdown().await.unwrap();
        assert_eq!(kinds(served(waiting).await), vec![Some(ErrorKind::Closed); 3]);
        assert_eq!((clock.now(), store.acquires.count()), (closed_at, asked));
        is_free(&store).await;
    }
}

/// Only the shutdown waits for the release.
#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_a_wait_whose_late_grant_is_given_back() {
    let (store, gate) = (FaultyStore::default(), Arc::new(Notify::new()));
    let (locks, clock) = virtually(&store).await;
    store.acquires.fail(Fault::GrantLate);
    store.releases.fail(Fault::PassOn(Arc::clone(&gate)));
    let waiting = waiters(&locks, "a", 3).await;
    asked(&store, 1).await;
    assert_eq!(store.releases.count(), 1);
    let closed_at = clock.now();
    let mut shutdown = Box::pin(locks.shutdown());
    assert!(shutdown.as_mut().now_or_never().is_none(), "the release is under way");
    assert_eq!(kinds(served(waiting).await), vec![Some(ErrorKind::Closed); 3]);
    assert_eq!((clock.now(), store.acquires.count()), (closed_at, 1));
    gate.notify_one();
    shutdown.await.unwrap();
    is_free(&store).await;
}

/// A late grant is released; with a wait of zero the error is a timeout.
#[tokio::test(start_paused = true)]
async fn a_try_does_not_ask_again() {
    for fault in [Fault::Refuse(LOST), Fault::GrantLate] {
        let store = FaultyStore::default();
        let (locks, _) = virtually(&store).await;
        let lock = locks.lock("a").unwrap();
        store.tries.fail(fault.clone());
        let error = lock.try_acquire().await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Lost { .. }), "{error:#}");
        assert_eq!(store.tries.count(), 1);
        // It waits for the request of its own process.
        let guard = lock.try_acquire().await.unwrap().expect("nobody holds it");
        guard.release().await.unwrap();
        store.tries.fail(fault.clone());
        let error = lock.clone().wait(Duration::ZERO).acquire().await.unwrap_err();
        assert!(cause(&error).lost_reason().is_some(), "{error:#}");
        // This is not how a lock looks that others hold.
        store.tries.fail(fault);
        let error = lock.try_acquire_for(Duration::ZERO).await.unwrap_err();
        assert!(cause(&error).lost_reason().is_some(), "{error:#}");
        assert_eq!((store.tries.count(), store.acquires.count()), (4, 0));
        lock.acquire().await.unwrap().release().await.unwrap();
        is_free(&store).await;
    }
}
