//! The callers of one process: no runtime, panic or dropped future of one of them stops a name or harms another.

mod again;
mod faulty_store;
mod home;
mod parked;
mod races;
mod wakers;

use std::cell::RefCell;
use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use faulty_store::{Fault, FaultyStore};
use futures_util::FutureExt;
use leasehold::clock::{Clock, TokioClock};
use leasehold::memory::MemoryConfig;
use leasehold::{Error, ErrorKind, Guarantees, LockGuard, LockManager, LostReason, Revoke, connect};
use testbed::within;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinSet, yield_now};

async fn opened(store: &FaultyStore) -> LockManager {
    LockManager::builder(store.config()).build().await.expect("memory opens")
}

async fn virtually(store: &FaultyStore) -> (LockManager, TokioClock) {
    let clock = TokioClock::new();
    let builder = LockManager::builder(store.config()).clock(Arc::new(clock));
    (builder.build().await.expect("memory opens"), clock)
}

/// Another process on the same store, without its faults.
async fn beside(store: &FaultyStore) -> LockManager {
    let builder = LockManager::builder(store.memory.clone()).clock(Arc::new(TokioClock::new()));
    builder.build().await.expect("memory opens")
}

/// A runtime without a thread of its own, which ends before its tasks do.
fn short_lived() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("there is room for a runtime")
}

/// Before a lease ends.
const SOON: Duration = Duration::from_secs(10);

type Waiters = JoinSet<leasehold::Result<LockGuard>>;

/// `n` tasks that wait for `name`, in order.
async fn waiters(locks: &LockManager, name: &str, n: usize) -> Waiters {
    let mut waiters = JoinSet::new();
    for _ in 0..n {
        let lock = locks.lock(name).expect("a valid name");
        waiters.spawn(async move { lock.acquire().await });
        yield_now().await;
    }
    waiters
}

/// Waits for all waiters, each of which releases at once; none may have panicked.
async fn served(mut waiters: Waiters) -> Vec<leasehold::Result<()>> {
    let mut served = Vec::new();
    while let Some(waiter) = waiters.join_next().await {
        match waiter.expect("no waiter panics") {
            Ok(guard) => served.push(guard.release().await),
            Err(error) => served.push(Err(error)),
        }
    }
    served
}

fn kinds(served: Vec<leasehold::Result<()>>) -> Vec<Option<ErrorKind>> {
    served.into_iter().map(|answer| answer.err().map(|error| error.kind().clone())).collect()
}

#[test]
fn a_release_survives_the_runtime_that_polled_it() {
    let (store, home) = (FaultyStore::default(), Runtime::new().unwrap());
    let (lock, guard) = home.block_on(async {
        let builder = LockManager::builder(store.config()).ttl(Duration::from_secs(30));
        let locks = builder.op_timeout(Duration::from_millis(200)).build().await.unwrap();
        let lock = locks.lock("a").unwrap();
        let guard = lock.acquire().await.unwrap();
        (lock, guard)
    });
    store.releases.fail(Fault::NeverAnswer);
    let abroad = short_lived();
    abroad.block_on(async {
        let mut release = JoinSet::new();
        release.spawn(guard.release());
        yield_now().await;
        release.detach_all();
    });
    drop(abroad);
    // Long before the lease ends.
    let next = home.block_on(lock.wait(Duration::from_secs(10)).acquire());
    assert!(next.is_ok(), "{next:?}");
}

#[test]
fn waiters_survive_the_runtime_of_their_driver() {
    let (store, home) = (MemoryConfig::private(), Runtime::new().unwrap());
    let (locks, held) = home.block_on(async {
        let locks = LockManager::builder(store.clone()).build().await.unwrap();
        let others = LockManager::builder(store.clone()).build().await.unwrap();
        let held = others.lock("a").unwrap().acquire().await.unwrap();
        (locks, held)
    });
    let (abroad, driver) = (short_lived(), locks.lock("a").unwrap());
    abroad.block_on(async {
        let mut driving = JoinSet::new();
        driving.spawn(async move { driver.acquire().await });
        yield_now().await;
        driving.detach_all();
    });
    let (poke, poked) = watch::channel(false);
    let looked = Arc::new(AtomicUsize::new(0));
    let mut waiting = JoinSet::new();
    for _ in 0..3 {
        let (lock, mut poked, looked) = (locks.lock("a").unwrap(), poked.clone(), Arc::clone(&looked));
        let looks = async move {
            poked.wait_for(|poked| *poked).await.unwrap();
            looked.fetch_add(1, Relaxed);
        };
        let mut acquire = Box::pin(async move { lock.acquire().await });
        assert!(acquire.as_mut().now_or_never().is_none(), "it queues behind the driver");
        waiting.spawn_on(async move { tokio::join!(biased; acquire, looks).0 }, home.handle());
    }
    drop(abroad);
    poke.send(true).unwrap();
    let served = async {
        // Each has polled its acquisition again, behind the end of the other runtime.
        while looked.load(Relaxed) < 3 {
            yield_now().await;
        }
        held.release().await.unwrap();
        served(waiting).await
    };
    let served = home.block_on(within(SOON, "nobody is forgotten", served));
    assert_eq!(kinds(served), [None, None, None]);
}

#[tokio::test]
async fn a_panic_in_the_store_harms_nobody_else() {
    let (store, gate) = (FaultyStore::default(), Arc::new(Notify::new()));
    let locks = opened(&store).await;
    store.acquires.fail(Fault::PanicOn(Arc::clone(&gate)));
    let waiting = waiters(&locks, "a", 4).await;
    gate.notify_one();
    let mut kinds = kinds(served(waiting).await);
    kinds.sort_by_key(Option::is_none);
    assert_eq!(kinds, [Some(ErrorKind::Protocol), None, None, None]);

    store.tries.fail(Fault::Panic);
    let lock = locks.lock("a").unwrap();
    assert_eq!(*lock.try_acquire().await.unwrap_err().kind(), ErrorKind::Protocol);
    assert!(lock.try_acquire().await.unwrap().is_some());

    store.revokes.fail(Fault::Panic);
    assert_eq!(*locks.revoke("a", Revoke::AT_ONCE).await.unwrap_err().kind(), ErrorKind::Protocol);
}

/// The release is repeated.
#[tokio::test]
async fn a_panic_in_a_release_is_an_answer_that_did_not_come() {
    let store = FaultyStore::default();
    let locks = opened(&store).await;
    let lock = locks.lock("a").unwrap().handoff_limit(0);
    let guard = lock.acquire().await.unwrap();
    let waiting = waiters(&locks, "a", 2).await;
    store.releases.fail(Fault::Panic);
    guard.release().await.unwrap();
    assert_eq!(kinds(served(waiting).await), [None, None]);
}

/// The watchdog continues.
#[tokio::test(start_paused = true)]
async fn a_panic_in_a_renewal_is_an_answer_that_did_not_come() {
    let store = FaultyStore::default();
    let (locks, clock) = virtually(&store).await;
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    store.renewals.fail(Fault::Panic);
    clock.sleep_until(clock.now() + Duration::from_secs(60)).await;
    guard.ensure_held().unwrap();
}

/// After one request.
#[tokio::test(start_paused = true)]
async fn everybody_in_the_queue_hears_that_the_store_refuses() {
    use ErrorKind::{Denied, Protocol, Unavailable, Unsupported};
    for kind in [Unavailable, Denied, Protocol, Unsupported] {
        let store = FaultyStore::default();
        let (locks, clock) = virtually(&store).await;
        let began = clock.now();
        store.acquires.fail_times(50, &Fault::RefuseAfter(Duration::from_secs(1), kind.clone()));
        let heard = kinds(served(waiters(&locks, "a", 50).await).await);
        assert_eq!(heard, vec![Some(kind); 50]);
        assert_eq!((store.acquires.count(), clock.now().since(began).as_secs()), (1, 1));
    }
}

/// An error of one request says nothing about the store.
#[tokio::test(start_paused = true)]
async fn failed_request_does_not_end_other_waits() {
    let (store, kind) = (FaultyStore::default(), ErrorKind::InvalidOption);
    let (locks, _) = virtually(&store).await;
    store.acquires.fail(Fault::RefuseAfter(Duration::from_secs(1), kind.clone()));
    let mut heard = kinds(served(waiters(&locks, "a", 3).await).await);
    heard.sort_by_key(Option::is_none);
    assert_eq!(heard, [Some(kind), None, None]);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_has_the_last_error_of_the_store_as_its_cause() {
    let store = FaultyStore::default();
    let (locks, _) = virtually(&store).await;
    store.acquires.fail(Fault::Refuse(ErrorKind::Unavailable));
    let lock = locks.lock("a").unwrap().wait(Duration::from_secs(1));
    assert_eq!(*lock.acquire().await.unwrap_err().kind(), ErrorKind::Unavailable);
    store.acquires.fail(Fault::NeverAnswer);
    let error = lock.acquire().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Timeout { holder: None, .. }), "{error:?}");
    let cause = error.source().and_then(|source| source.downcast_ref::<Error>()).expect("a cause");
    assert_eq!(*cause.kind(), ErrorKind::Unavailable);

    // A grant is newer than the error.
    lock.acquire().await.unwrap().release().await.unwrap();
    store.acquires.fail(Fault::NeverAnswer);
    assert!(lock.acquire().await.unwrap_err().source().is_none());

    // So is the reply that the lock is held.
    let others = beside(&store).await;
    let _held = others.lock("a").unwrap().acquire().await.unwrap();
    store.acquires.fail(Fault::Refuse(ErrorKind::Unavailable));
    assert_eq!(*lock.acquire().await.unwrap_err().kind(), ErrorKind::Unavailable);
    let error = lock.wait(Duration::ZERO).acquire().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Timeout { holder: Some(_), .. }), "{error:?}");
    assert!(error.source().is_none(), "{error:#}");
}

/// It was called, and has not been polled since.
#[tokio::test]
async fn a_waiter_that_leaves_late_evicts_nobody() {
    let (store, gate) = (FaultyStore::default(), Arc::new(Notify::new()));
    let locks = opened(&store).await;
    store.acquires.fail(Fault::RefuseOn(Arc::clone(&gate), ErrorKind::Unavailable));
    let lock = locks.lock("a").unwrap();
    let (mut driver, mut late) = (Box::pin(lock.acquire()), Box::pin(lock.acquire()));
    assert!(driver.as_mut().now_or_never().is_none());
    assert!(late.as_mut().now_or_never().is_none());
    gate.notify_one();
    driver.await.unwrap_err();
    // So many names that idle ones are forgotten.
    for n in 0..20_000 {
        drop(locks.lock(format!("{n}")).unwrap().acquire().await.unwrap());
    }
    let held = lock.acquire().await.unwrap();
    let waiting = waiters(&locks, "a", 1).await;
    drop(late);
    held.release().await.unwrap();
    assert_eq!(kinds(served(waiting).await), [None]);
}

thread_local! {
    static LAST: RefCell<Vec<LockGuard>> = const { RefCell::new(Vec::new()) };
}

/// In place where the store needs no runtime, else by a task.
#[test]
fn a_guard_dropped_with_its_thread_is_released() {
    let (home, directory) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
    let mut stores = vec![
        (true, home.block_on(connect("memory://")).unwrap()),
        (false, home.block_on(opened(&FaultyStore::default()))),
    ];
    if cfg!(feature = "file") {
        let file = format!("file://{}", directory.path().display());
        stores.push((true, home.block_on(connect(&file)).unwrap()));
    }
    for (in_place, locks) in stores {
        assert_eq!(locks.guarantees().contains(Guarantees::RUNTIME_FREE), in_place);
        let (lock, handle) = (locks.lock("a").unwrap(), home.handle().clone());
        let thread = std::thread::spawn(move || {
            // First ours, then tokio's: the first is dropped last.
            LAST.with_borrow_mut(|last| assert!(last.is_empty()));
            let _entered = handle.enter();
            let guard = handle.block_on(lock.acquire()).unwrap();
            LAST.with_borrow_mut(|last| last.push(guard));
        });
        thread.join().unwrap();
        assert_eq!(locks.guards_dropped(), 1, "{locks:?}");
        let lock = locks.lock("a").unwrap();
        let again = if in_place {
            home.block_on(lock.try_acquire()).unwrap()
        } else {
            home.block_on(lock.wait(Duration::from_secs(10)).acquire()).ok()
        };
        assert!(again.is_some(), "{locks:?}");
    }
}

#[test]
fn a_runtime_without_timers_is_refused() {
    let timeless = Builder::new_current_thread().build().unwrap();
    let error = timeless.block_on(connect("memory://")).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Misuse);
    assert!(error.to_string().contains("enable_time"), "{error}");
}

/// The timers are the manager's.
#[test]
fn waiting_needs_no_runtime_of_the_callers() {
    let (store, home) = (MemoryConfig::private(), Runtime::new().unwrap());
    let (locks, held) = home.block_on(async {
        let locks = LockManager::builder(store.clone()).build().await.unwrap();
        let others = LockManager::builder(store.clone()).build().await.unwrap();
        (locks, others.lock("a").unwrap().acquire().await.unwrap())
    });
    let timeless = Builder::new_current_thread().build().unwrap();
    assert!(timeless.block_on(async { Handle::current().id() }) != home.handle().id());
    let lock = locks.lock("a").unwrap().wait(Duration::from_millis(50));
    let refused = timeless.block_on(lock.acquire()).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Timeout { .. }), "{refused:?}");
    drop(held);
    assert!(timeless.block_on(lock.acquire()).is_ok());
}

#[test]
fn a_store_is_polled_within_the_managers_runtime() {
    let (store, home) = (FaultyStore::default(), Runtime::new().unwrap());
    let lock = home.block_on(opened(&store)).lock("a").unwrap();
    let timeless = Builder::new_current_thread().build().unwrap();
    let late = || Fault::RefuseAfter(Duration::from_millis(10), ErrorKind::Unavailable);
    store.acquires.fail(late());
    store.tries.fail(late());
    assert_eq!(*timeless.block_on(lock.acquire()).unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(*timeless.block_on(lock.try_acquire()).unwrap_err().kind(), ErrorKind::Unavailable);
}

#[test]
fn nobody_waits_for_a_runtime_that_is_gone() {
    for fault in [Fault::NeverAnswer, Fault::Refuse(ErrorKind::Unavailable)] {
        let (store, home, abroad) = (FaultyStore::default(), Runtime::new().unwrap(), short_lived());
        let locks = home.block_on(opened(&store));
        let held = home.block_on(locks.lock("a").unwrap().acquire()).unwrap();
        for fault in [fault.clone(), Fault::NeverAnswer] {
            store.releases.fail(fault);
        }
        store.acquires.fail(Fault::NeverAnswer);
        store.tries.fail(Fault::NeverAnswer);
        let (b, c) = (locks.lock("b").unwrap(), locks.lock("c").unwrap());
        let b = b.wait(Duration::from_secs(3_600));
        let (mut release, mut acquire) = (Box::pin(held.release()), Box::pin(b.acquire()));
        let mut attempt = Box::pin(c.try_acquire());
        abroad.block_on(async {
            assert!((&mut release).now_or_never().is_none());
            assert!((&mut acquire).now_or_never().is_none());
            assert!((&mut attempt).now_or_never().is_none());
        });
        drop(home);
        let told = async { (release.await.is_err(), acquire.await.map(drop), attempt.await.map(drop)) };
        let (unreleased, acquired, tried) = abroad.block_on(within(SOON, "nobody waits", told));
        assert!(unreleased, "{fault:?}");
        for answer in [acquired, tried] {
            assert_eq!(*answer.unwrap_err().kind(), ErrorKind::Closed, "{fault:?}");
        }
    }
}

#[test]
fn a_hold_ends_with_a_runtime_that_never_ran_its_watchdog() {
    let (store, home) = (MemoryConfig::private(), short_lived());
    let guard = home.block_on(async {
        let locks = LockManager::builder(store.clone()).build().await.unwrap();
        locks.lock("a").unwrap().acquire().await.unwrap()
    });
    drop(home);
    assert_eq!(guard.ensure_held().unwrap_err().lost_reason(), Some(LostReason::RuntimeGone));
    assert!(store.store().is_empty());
}
