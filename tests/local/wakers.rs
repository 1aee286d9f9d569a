//! Wakers are code of the callers: one may read the lock, and one that panics does not keep others from being woken.
//!
//! Not promised: of several waiters for the loss of one guard, or for the end of one manager, that the others are woken.
//! They share one channel, which decides what a panic of a waker does.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, mpsc};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::FutureExt;
use leasehold::memory::MemoryConfig;
use leasehold::{ErrorKind, LockGuard, LockManager, LostReason, Result, Timing};
use testbed::pass;
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::task::yield_now;

use crate::faulty_store::{Fault, FaultyStore};
use crate::{SOON, opened, virtually};

/// Panics when it is woken.
#[derive(Default)]
struct Hysteric {
    was_told: AtomicBool,
}

impl Wake for Hysteric {
    fn wake(self: Arc<Self>) {
        self.was_told.store(true, Relaxed);
        panic!("a waker");
    }
}

type Waiting<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A future that was polled once, and its waker.
fn parked<T>(future: impl Future<Output = T> + Send + 'static) -> (Waiting<T>, Arc<Hysteric>) {
    let (mut future, waker): (Waiting<T>, _) = (Box::pin(future), Arc::new(Hysteric::default()));
    let polled = future.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(&waker))));
    assert!(matches!(polled, Poll::Pending));
    (future, waker)
}

/// `n` waiters for a lock of `locks`, shared or not, each with a waker that panics.
fn hysterics(
    locks: &LockManager,
    shared: bool,
    n: usize,
) -> Vec<(Waiting<Result<LockGuard>>, Arc<Hysteric>)> {
    let waits = |_| {
        let lock = locks.lock("a").expect("a valid name");
        let lock = if shared { lock.shared() } else { lock };
        parked(async move { lock.acquire().await })
    };
    (0..n).map(waits).collect()
}

/// The results of futures that were all woken.
fn told(waiting: Vec<(Waiting<Result<LockGuard>>, Arc<Hysteric>)>) -> Vec<Result<LockGuard>> {
    let told = |(future, waker): (Waiting<_>, Arc<Hysteric>)| {
        assert!(waker.was_told.load(Relaxed), "nobody has told it");
        future.now_or_never().expect("it was told")
    };
    waiting.into_iter().map(told).collect()
}

fn kinds(answers: Vec<Result<LockGuard>>) -> Vec<ErrorKind> {
    answers.into_iter().map(|answer| answer.expect_err("it is refused").kind().clone()).collect()
}

/// Before it returns.
#[test]
fn a_waker_may_look_at_the_guard_that_it_is_told_of() {
    struct Looks(OnceLock<Arc<LockGuard>>);
    impl Wake for Looks {
        fn wake(self: Arc<Self>) {
            self.0.get().expect("set before it is used").state();
        }
    }
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || {
        Runtime::new().unwrap().block_on(async {
            let locks = LockManager::builder(MemoryConfig::private()).build().await.unwrap();
            let guard = Arc::new(locks.lock("a").unwrap().acquire().await.unwrap());
            let looks = Arc::new(Looks(OnceLock::new()));
            looks.0.set(Arc::clone(&guard)).expect("it is set once");
            let mut lost = Box::pin(guard.lost());
            let told = lost.as_mut().poll(&mut Context::from_waker(&Waker::from(looks)));
            assert!(told.is_pending());
            locks.shutdown().await.unwrap();
            done.send(lost.await).unwrap();
        });
    });
    let told = ended.recv_timeout(SOON);
    assert_eq!(told.expect("it does not wait for itself"), LostReason::Shutdown);
}

/// A waker that panics harms neither the releasing caller nor the next waiter.
#[tokio::test]
async fn a_release_tells_everybody_whose_turn_it_is() {
    let locks = opened(&FaultyStore::default()).await;
    for (shared, n) in [(true, 3), (false, 1)] {
        let held = locks.lock("a").unwrap().acquire().await.unwrap();
        let waiting = hysterics(&locks, shared, n);
        held.release().await.unwrap();
        if shared {
            // One of them asks the store, and the others join it then.
            let mut waiting = waiting.into_iter();
            let first = told(waiting.by_ref().take(1).collect());
            assert!(first.iter().chain(&told(waiting.collect())).all(Result::is_ok));
        } else {
            assert!(told(waiting).iter().all(Result::is_ok));
        }
    }
    locks.lock("a").unwrap().acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_refusal_is_told_to_all() {
    let (store, gate) = (FaultyStore::default(), Arc::new(Notify::new()));
    let locks = opened(&store).await;
    store.acquires.fail(Fault::RefuseOn(Arc::clone(&gate), ErrorKind::Denied));
    let lock = locks.lock("a").unwrap();
    let mut asks = Box::pin(lock.acquire());
    assert!(asks.as_mut().now_or_never().is_none());
    let waiting = hysterics(&locks, false, 3);
    gate.notify_one();
    assert_eq!(*asks.await.unwrap_err().kind(), ErrorKind::Denied);
    assert_eq!(kinds(told(waiting)), [ErrorKind::Denied, ErrorKind::Denied, ErrorKind::Denied]);
}

/// The shutdown ends, too.
#[tokio::test]
async fn a_shutdown_is_told_to_all() {
    let locks = opened(&FaultyStore::default()).await;
    let held = locks.lock("a").unwrap().acquire().await.unwrap();
    let waiting = hysterics(&locks, false, 3);
    locks.shutdown().await.unwrap();
    assert_eq!(held.ensure_held().unwrap_err().lost_reason(), Some(LostReason::Shutdown));
    assert_eq!(kinds(told(waiting)), [ErrorKind::Closed, ErrorKind::Closed, ErrorKind::Closed]);
}

/// The watchdog continues.
#[tokio::test(start_paused = true)]
async fn a_loss_is_told_to_every_guard() {
    let store = FaultyStore::default();
    let (locks, clock) = virtually(&store).await;
    let lock = locks.lock("a").unwrap().shared();
    let other = locks.lock("b").unwrap().acquire().await.unwrap();
    let (first, second) = (lock.acquire().await.unwrap(), lock.acquire().await.unwrap());
    let listening = [parked(first.lost()), parked(second.lost())];
    store.memory.store().evict(lock.name(), &clock, true);
    while first.ensure_held().is_ok() {
        yield_now().await;
    }
    for (lost, waker) in listening {
        assert!(waker.was_told.load(Relaxed), "nobody has told it");
        assert_eq!(lost.now_or_never(), Some(LostReason::Gone));
    }
    let renewals = store.renewals.count();
    pass(Timing::DEFAULT_TTL * 2).await;
    assert!(store.renewals.count() > renewals);
    other.ensure_held().unwrap();
}

/// The in-memory store polls no waiter itself.
#[tokio::test]
async fn the_store_tells_everybody_whom_it_admits() {
    let store = MemoryConfig::private();
    let open = async || LockManager::builder(store.clone()).build().await.unwrap();
    let held = open().await.lock("a").unwrap().acquire().await.unwrap();
    let others = [open().await, open().await, open().await];
    let waiting = others.iter().flat_map(|locks| hysterics(locks, true, 1)).collect();
    held.release().await.unwrap();
    assert!(told(waiting).iter().all(Result::is_ok));
}
