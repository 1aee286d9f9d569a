//! Whoever waits is not told that its place was lost: the store is asked again, for the caller and for those
//! behind it, until the wait ends, the manager closes, or the store says what asking again cannot change.

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

/// Until so many acquisitions were asked of the store, and whatever they cause is done.
async fn asked(store: &FaultyStore, acquires: usize) {
    within(SOON, "the store is asked", async {
        while store.acquires.count() < acquires {
            pass(Duration::from_millis(1)).await;
        }
    })
    .await;
    pass(Duration::from_millis(1)).await;
}

/// Nothing of ours is left at the store: another process gets the lock at once.
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

/// A server that stood still for longer than a ttl grants a lease that is over: it is given back, and the
/// caller waits on.
#[tokio::test(start_paused = true)]
async fn grant_that_ended_on_arrival_is_released_and_retried() {
    let store = FaultyStore::default();
    let (locks, _) = virtually(&store).await;
    for _ in 0..3 {
        store.acquires.fail(Fault::GrantLate);
    }
    let guard = within(SOON, "the store is asked again", locks.lock("a").unwrap().acquire()).await.unwrap();
    guard.ensure_held().unwrap();
    assert_eq!((store.acquires.count(), store.releases.count()), (4, 3));
    guard.release().await.unwrap();
    is_free(&store).await;
}

/// A lost place costs the place, whoever lost it and why, and every acquisition has an owner id of its own.
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

/// A store that is down when it is first asked says so to all who wait; who has waited in its queue waits on,
/// and those behind it.
#[tokio::test(start_paused = true)]
async fn queued_waiter_outlasts_an_outage() {
    for (first, refusals) in [(ErrorKind::Unavailable, 9), (LOST, 9), (LOST, 0)] {
        let (store, gate) = (FaultyStore::default(), Arc::new(Notify::new()));
        let held = held_elsewhere(&store).await;
        let (locks, _) = virtually(&store).await;
        store.acquires.fail(Fault::RefuseQueued(Arc::clone(&gate), first));
        for _ in 0..refusals {
            store.acquires.fail(Fault::Refuse(ErrorKind::Unavailable));
        }
        let waiting = waiters(&locks, "a", 3).await;
        asked(&store, 1).await;
        gate.notify_one();
        pass(Duration::from_secs(60)).await;
        assert_eq!(store.acquires.count(), 2 + refusals);
        held.release().await.unwrap();
        assert_eq!(kinds(served(waiting).await), vec![None; 3]);
    }
}

/// What a store tells counts before what it answers after that, whichever comes first.
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

/// A place is that of one wait: the next one hears at once that the store is down, also when it is told late of
/// a place that was another's.
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

/// What asking again cannot change ends the wait of everybody, queued before or not.
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

/// A wait that ends while the store refuses names what it said last.
#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_names_the_last_refusal() {
    for kind in [ErrorKind::Unavailable, LOST] {
        let (store, gate) = (FaultyStore::default(), Arc::new(Notify::new()));
        let held = held_elsewhere(&store).await;
        let (locks, clock) = virtually(&store).await;
        store.acquires.fail(Fault::RefuseQueued(Arc::clone(&gate), ErrorKind::Unavailable));
        for _ in 0..100 {
            store.acquires.fail(Fault::Refuse(kind.clone()));
        }
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

/// A store that never lets anybody wait is asked at growing intervals, whatever it says and whether or not it
/// queues who asks; for a minute of that, at most once in half of a request's bound.
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

/// Who has waited for longer than a request may take asks again soon; many who lost their places together do not
/// come back together.
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

/// However long the pauses have become, they begin anew after a wait that was longer than a request may take.
#[tokio::test(start_paused = true)]
async fn pauses_begin_anew_after_a_long_wait() {
    let (store, gate) = (FaultyStore::default(), Arc::new(Notify::new()));
    let _held = held_elsewhere(&store).await;
    let (locks, clock) = virtually(&store).await;
    for _ in 0..9 {
        store.acquires.fail(Fault::Refuse(LOST));
    }
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

/// Asking again is part of one wait: it is the first's turn still, and the others' in the order they came.
#[tokio::test(start_paused = true)]
async fn those_who_wait_keep_their_order() {
    for fault in [Fault::Refuse(LOST), Fault::GrantLate] {
        let store = FaultyStore::default();
        let (locks, _) = virtually(&store).await;
        for _ in 0..3 {
            store.acquires.fail(fault.clone());
        }
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

/// Whoever leaves between two acquisitions, or while a late grant is given back, leaves that to the next one,
/// who asks no more than it would have.
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

/// What was asked for by whoever has left is what the next one gets, asked for again or not.
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

/// What is given back as it came with a counter that went back is given back before the next one asks.
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

/// Nobody else waits: what is under way when the caller leaves is given up, or given back, and the next one
/// asks after that.
#[tokio::test(start_paused = true)]
async fn grant_during_a_retry_is_released_before_others_try() {
    for pauses in [true, false] {
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
        let mut next = Box::pin(lock.acquire());
        assert_eq!(next.as_mut().now_or_never().is_some(), pauses, "a late grant is given back first");
        if !pauses {
            assert_eq!((store.acquires.count(), store.releases.count()), (1, 1));
            gate.notify_one();
            within(SOON, "the next one's turn", next).await.unwrap().release().await.unwrap();
        }
        assert_eq!(store.acquires.count(), 2);
    }
}

/// A `try` waits for a late grant to be given back, as for every release of its own process.
#[tokio::test(start_paused = true)]
async fn a_try_waits_for_a_late_grant_that_is_given_back() {
    let (store, gate) = (FaultyStore::default(), Arc::new(Notify::new()));
    let (locks, _) = virtually(&store).await;
    let lock = locks.lock("a").unwrap();
    store.acquires.fail(Fault::GrantLate);
    store.releases.fail(Fault::PassOn(Arc::clone(&gate)));
    assert!(lock.acquire().now_or_never().is_none());
    let mut next = Box::pin(lock.try_acquire());
    assert!(next.as_mut().now_or_never().is_none(), "the release is under way");
    gate.notify_one();
    let guard = within(SOON, "the release", next).await.unwrap().expect("nobody else wants it");
    guard.release().await.unwrap();
}

/// A shutdown ends the wait of who is about to ask again, at once, and of those behind it.
#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_asking_again() {
    for fault in [Fault::Refuse(LOST), Fault::GrantLate] {
        let store = FaultyStore::default();
        let (locks, clock) = virtually(&store).await;
        for _ in 0..100 {
            store.acquires.fail(fault.clone());
        }
        let waiting = waiters(&locks, "a", 3).await;
        pass(Duration::from_secs(20)).await;
        let (closed_at, asked) = (clock.now(), store.acquires.count());
        locks.shutdown().await.unwrap();
        assert_eq!(kinds(served(waiting).await), vec![Some(ErrorKind::Closed); 3]);
        assert_eq!((clock.now(), store.acquires.count()), (closed_at, asked));
        is_free(&store).await;
    }
}

/// A shutdown does not leave those who wait to a release that nobody answers; it waits for that itself.
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

/// Who only tries is told, after one request, and what came late is given back; a wait of no time says so as
/// a timeout.
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
        // It waits for what its own process has sent.
        let guard = lock.try_acquire().await.unwrap().expect("nobody holds it");
        guard.release().await.unwrap();
        store.tries.fail(fault);
        let error = lock.clone().wait(Duration::ZERO).acquire().await.unwrap_err();
        assert!(cause(&error).lost_reason().is_some(), "{error:#}");
        assert_eq!((store.tries.count(), store.acquires.count()), (3, 0));
        lock.acquire().await.unwrap().release().await.unwrap();
        is_free(&store).await;
    }
}
