//! Work under the lock that borrows nothing, and a wait with a limit that is no error.

use std::future::{Future, pending};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use leasehold::memory::MemoryConfig;
use leasehold::{Change, ErrorKind, GuardState, HeldRef, Lock, LockManager, LostReason, connect};
use testbed::Beside;
use tokio::sync::oneshot;

/// Any work that can be spawned: the closure's type is the caller's.
fn spawned<F, Fut>(lock: Lock, work: F) -> Beside<leasehold::Result<Fut::Output>>
where
    F: FnOnce(HeldRef) -> Fut + Send + 'static,
    Fut: Future<Output: Send> + Send + 'static,
{
    Beside::start(lock.run(work))
}

/// After the work its handle says so, though the next local waiter has the same grant by then.
#[tokio::test]
async fn handle_ends_with_the_work_of_a_spawned_task() {
    let locks = connect("memory://").await.unwrap();
    let lock = locks.lock("a").unwrap();
    let (go, gone) = oneshot::channel::<()>();
    let (started, start) = oneshot::channel();
    let running = spawned(lock.clone(), move |held| async move {
        held.ensure_held().unwrap();
        started.send(held.clone()).unwrap();
        gone.await.unwrap();
        held.token()
    });
    let held = start.await.unwrap();
    assert_eq!((held.name(), held.mode(), held.state()), (lock.name(), Default::default(), GuardState::Held));
    assert!(held.remaining() > Duration::ZERO && held.revocation_requested().now_or_never().is_none());
    let next = Beside::start(async move { lock.acquire().await });
    let lost = held.lost();
    held.renew().await.unwrap();
    assert_eq!(held.revocation_deadline(), None);
    let changes = held.changes();
    go.send(()).unwrap();
    assert_eq!(running.await.unwrap(), held.token());
    let next = next.await.unwrap();
    assert_eq!(next.token().counter(), held.token().counter(), "passed on within the process");
    assert_eq!(held.ensure_held().unwrap_err().lost_reason(), Some(LostReason::Released));
    assert_eq!(held.state(), GuardState::Lost(LostReason::Released));
    assert_eq!((held.remaining(), lost.await), (Duration::ZERO, LostReason::Released));
    assert_eq!(held.revocation_requested().await, None);
    let ended = [Change::State(GuardState::Lost(LostReason::Released))];
    assert_eq!(changes.collect::<Vec<_>>().await, ended);
    assert_eq!(held.renew().await.unwrap_err().lost_reason(), Some(LostReason::Released));
    next.ensure_held().unwrap();
}

/// The work is dropped when its future is, and the lock is free then.
#[tokio::test]
async fn dropped_run_drops_its_work() {
    let locks = connect("memory://").await.unwrap();
    let lock = locks.lock("a").unwrap();
    let (alive, dropped) = oneshot::channel::<()>();
    let running = spawned(lock.clone(), move |_held| async move {
        let _alive = alive;
        pending::<()>().await;
    });
    let mut holders = locks.watch("a").unwrap();
    while holders.next().await.unwrap().unwrap().holder().is_none() {}
    assert!(lock.try_acquire_for(Duration::from_millis(1)).await.unwrap().is_none());
    drop(running);
    dropped.await.unwrap_err();
    lock.try_acquire_for(Duration::MAX).await.unwrap().unwrap().release().await.unwrap();
    locks.shutdown().await.unwrap();
    let closed = lock.try_acquire_for(Duration::from_secs(1)).await.unwrap_err();
    assert_eq!(*closed.kind(), ErrorKind::Closed);
}

/// Work that blocks in a poll keeps the lock from others, and a shutdown waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_waits_for_work_that_blocks() {
    let store = MemoryConfig::private();
    let open = async || LockManager::builder(store.clone()).build().await.unwrap();
    let (here, there) = (open().await, open().await);
    let (started, start) = oneshot::channel();
    let (unblock, blocked) = std::sync::mpsc::channel::<()>();
    let running = spawned(here.lock("a").unwrap(), move |held| async move {
        started.send(held).unwrap();
        blocked.recv().unwrap();
    });
    let held = start.await.unwrap();
    let mut down = Box::pin(here.shutdown());
    assert!(down.as_mut().now_or_never().is_none());
    assert_eq!(held.lost().await, LostReason::Shutdown);
    assert!(there.lock("a").unwrap().try_acquire().await.unwrap().is_none(), "held by two");
    unblock.send(()).unwrap();
    assert_eq!(running.await.unwrap_err().lost_reason(), Some(LostReason::Shutdown));
    down.await.unwrap();
    assert!(there.lock("a").unwrap().try_acquire().await.unwrap().is_some());
}

/// A panic in the work is the caller's, and releases the lock in the background.
#[tokio::test]
async fn panic_in_the_work_releases_the_lock() {
    let locks = connect("memory://").await.unwrap();
    let lock = locks.lock("a").unwrap();
    let mut died = tokio::task::JoinSet::new();
    died.spawn(lock.clone().run(async |_held| panic!("the work fails")));
    assert!(died.join_next().await.unwrap().unwrap_err().is_panic());
    lock.acquire().await.unwrap().release().await.unwrap();
    locks.shutdown().await.unwrap();
}
