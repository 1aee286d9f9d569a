//! The manager's runtime ends while a caller waits in another one: the wait ends, also once a shutdown has begun.

use std::future::Future;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use futures_util::FutureExt;
use leasehold::{ErrorKind, LockManager, LostReason, Revoke};
use testbed::{pass, within};
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::task::yield_now;

use crate::faulty_store::{Fault, FaultyStore};
use crate::{SOON, opened, short_lived, virtually};

/// Runs `work` in a thread and a runtime of its own; returns where its result arrives.
fn abroad<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> Receiver<T> {
    let (done, ended) = channel();
    std::thread::spawn(move || done.send(short_lived().block_on(work)));
    ended
}

fn told<T>(ended: &Receiver<T>) -> T {
    ended.recv_timeout(SOON).expect("nobody waits for what is gone, or panics")
}

/// Waits until `happened`, which another thread brings about.
fn until(happened: impl Fn() -> bool) {
    while !happened() {
        std::thread::yield_now();
    }
}

fn home() -> (FaultyStore, Runtime, LockManager) {
    let (store, home) = (FaultyStore::default(), Runtime::new().expect("there is room for a runtime"));
    let locks = home.block_on(opened(&store));
    (store, home, locks)
}

#[test]
fn a_shutdown_ends_with_the_runtime_of_its_manager() {
    let (store, home, locks) = home();
    store.closes.fail(Fault::NeverAnswer);
    let down = abroad(async move { locks.shutdown().await });
    until(|| store.closes.count() == 1);
    drop(home);
    assert_eq!(*told(&down).unwrap_err().kind(), ErrorKind::Closed);
}

/// The release is not polled any more.
#[test]
fn a_shutdown_waits_for_no_release_without_a_runtime() {
    let (store, home, locks) = home();
    let guard = home.block_on(locks.lock("a").unwrap().acquire()).unwrap();
    store.releases.fail(Fault::NeverAnswer);
    let mut unpolled = Box::pin(guard.release());
    assert!(unpolled.as_mut().now_or_never().is_none());
    let (begun, started) = channel();
    let down = abroad(async move {
        let mut down = Box::pin(locks.shutdown());
        assert!((&mut down).now_or_never().is_none());
        begun.send(()).unwrap();
        down.await
    });
    started.recv().unwrap();
    drop(home);
    told(&down).unwrap_err();
}

#[test]
fn a_release_in_a_shutdown_ends_with_the_runtime_of_its_manager() {
    let (store, home, locks) = home();
    let guard = home.block_on(locks.lock("a").unwrap().acquire()).unwrap();
    store.releases.fail(Fault::NeverAnswer);
    let release = abroad(guard.release());
    until(|| store.releases.count() == 1);
    let mut down = Box::pin(locks.shutdown());
    home.block_on(async { assert!((&mut down).now_or_never().is_none()) });
    drop(home);
    assert_eq!(*told(&release).unwrap_err().kind(), ErrorKind::Closed);
}

/// The session ends with the last handle at the latest.
#[tokio::test(start_paused = true)]
async fn a_shutdown_that_was_given_up_leaves_no_session() {
    for waits_for_close in [false, true] {
        let store = FaultyStore::default();
        let (locks, _) = virtually(&store).await;
        let guard = locks.lock("a").unwrap().acquire().await.unwrap();
        if waits_for_close {
            store.closes.fail(Fault::NeverAnswer);
        } else {
            store.releases.fail(Fault::NeverAnswer);
        }
        let given_up = tokio::time::timeout(Duration::from_millis(1), locks.shutdown()).await;
        assert!(given_up.is_err());
        assert_eq!(store.closes.count(), usize::from(waits_for_close));
        drop((guard, locks));
        within(SOON, "the session is closed", async {
            while store.closes.count() == usize::from(waits_for_close) {
                pass(Duration::from_millis(1)).await;
            }
        })
        .await;
    }
}

#[test]
fn a_revocation_ends_with_its_manager() {
    for by_shutdown in [true, false] {
        let (store, home, locks) = home();
        store.revokes.fail(Fault::NeverAnswer);
        let asks = locks.clone();
        let revoke = abroad(async move { asks.revoke("a", Revoke::AT_ONCE).await });
        until(|| store.revokes.count() == 1);
        if by_shutdown {
            home.block_on(locks.shutdown()).unwrap();
        } else {
            drop(home);
        }
        assert_eq!(*told(&revoke).unwrap_err().kind(), ErrorKind::Closed, "shutdown: {by_shutdown}");
    }
}

/// Holds, renewals and timers continue.
#[tokio::test]
async fn a_panic_in_the_events_ends_nothing_else() {
    let (store, gate) = (FaultyStore::default(), Arc::new(Notify::new()));
    store.panic_in_events(&gate);
    let builder = LockManager::builder(store.config()).ttl(Duration::from_secs(3));
    let locks = builder.build().await.unwrap();
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    let mut lost = guard.lost();
    gate.notify_one();
    while Arc::strong_count(&gate) > 1 {
        yield_now().await;
    }
    let renewed = store.renewals.count();
    while store.renewals.count() == renewed {
        assert_eq!((&mut lost).now_or_never(), None::<LostReason>);
        yield_now().await;
    }
    guard.ensure_held().unwrap();
    // An answer that takes a second try needs a timer.
    store.releases.fail(Fault::Refuse(ErrorKind::Unavailable));
    guard.release().await.unwrap();
    locks.shutdown().await.unwrap();
}

/// One of them is lost while another is requested.
#[tokio::test(start_paused = true)]
async fn several_that_are_tried_are_held_together_or_lost() {
    let (store, gate) = (FaultyStore::default(), Arc::new(Notify::new()));
    let (locks, clock) = virtually(&store).await;
    store.tries.fail(Fault::None);
    store.tries.fail(Fault::PassOn(Arc::clone(&gate)));
    let (a, b) = (locks.lock("a").unwrap(), locks.lock("b").unwrap());
    let name = a.name().clone();
    let both = leasehold::all([a, b]);
    let mut tried = Box::pin(both.try_acquire());
    assert!(tried.as_mut().now_or_never().is_none());
    store.memory.store().evict(&name, &clock, true);
    for _ in 0..20 {
        yield_now().await;
    }
    gate.notify_one();
    let error = tried.await.map(|held| held.unwrap().ensure_held()).expect_err("one of them is lost");
    assert_eq!(error.lost_reason(), Some(LostReason::Gone));
}
