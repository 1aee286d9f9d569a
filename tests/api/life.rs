//! Guards and managers at the edges of their lives: dropped, panicked, shut down, without runtime.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use leasehold::clock::TokioClock;
use leasehold::memory::MemoryConfig;
use leasehold::{
    Error, ErrorKind, FenceGate, Guarantees, Lock, LockGuard, LockManager, Lost, LostReason, Registry,
    connect,
};
use tokio::runtime::Runtime;

async fn open(store: &MemoryConfig) -> LockManager {
    let builder = LockManager::builder(store.clone()).owner_label("here");
    builder.build().await.expect("memory opens")
}

/// A guard that outlives the runtime of its manager is lost, because it is not renewed; what it held
/// is released on the spot, and dropping it is quiet.
#[test]
fn a_guard_without_its_runtime_is_lost_and_released() {
    let store = MemoryConfig::private();
    let runtime = Runtime::new().unwrap();
    let (locks, guard) = runtime.block_on(async {
        let locks = open(&store).await;
        let guard = locks.lock("a").unwrap().acquire().await.unwrap();
        (locks, guard)
    });
    guard.ensure_held().unwrap();
    drop(runtime);
    assert_eq!(guard.ensure_held().unwrap_err().lost_reason(), Some(LostReason::RuntimeGone));
    assert!(store.store().is_empty());
    drop(guard);
    let again = locks.lock("a").unwrap();
    let refused = again.acquire().now_or_never().expect("refused at once");
    assert_eq!(*refused.unwrap_err().kind(), ErrorKind::Closed);
}

/// A timeout names the holder as the store named it, without another request.
#[tokio::test(start_paused = true)]
async fn a_timeout_names_the_holder_it_heard_of() {
    let store = MemoryConfig::private();
    let clock = Arc::new(TokioClock::new());
    let locks = LockManager::builder(store.clone()).clock(clock).build().await.unwrap();
    let others = open(&store).await;
    let guard = others.lock("a").unwrap().metadata("month-end").acquire().await.unwrap();
    let lock = locks.lock("a").unwrap().wait(Duration::from_secs(1));
    let error = lock.acquire().await.unwrap_err();
    let ErrorKind::Timeout { waited, holder: Some(holder) } = error.kind() else { panic!("{error:?}") };
    assert_eq!(*waited, Duration::from_secs(1));
    assert_eq!(holder.metadata.as_deref(), Some("month-end"));
    assert_eq!(holder.token, Some(guard.token()));
    // The same wait, where it is no error.
    assert!(lock.wait(Duration::MAX).try_acquire_for(Duration::from_secs(1)).await.unwrap().is_none());
}

#[tokio::test]
async fn instances_are_shared_by_name() {
    let (a, b) = (connect("memory://one").await.unwrap(), connect("memory://one").await.unwrap());
    let (c, d) = (connect("memory://one/p").await.unwrap(), connect("memory://").await.unwrap());
    let _held = a.lock("x").unwrap().acquire().await.unwrap();
    assert!(b.lock("x").unwrap().try_acquire().await.unwrap().is_none());
    assert!(c.lock("x").unwrap().try_acquire().await.unwrap().is_some());
    assert!(d.lock("x").unwrap().try_acquire().await.unwrap().is_some());
}

/// Moving to a weaker store fails at start-up, by name.
#[tokio::test]
async fn require_refuses_what_the_store_does_not_promise() {
    let locks = connect("memory://").await.unwrap();
    locks.require(Guarantees::FENCED | Guarantees::FIFO).unwrap();
    let error = locks.require(Guarantees::FENCED | Guarantees::CROSS_HOST).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("cross_host"));
}

#[test]
fn handles_are_send_and_sync() {
    const fn shared<T: Send + Sync + 'static>() {}
    shared::<(LockManager, Lock, LockGuard, Lost, Error, FenceGate, Registry)>();
}

#[tokio::test]
async fn debug_of_a_manager_shows_no_names() {
    let locks = connect("memory://").await.unwrap();
    let _guard = locks.lock("a-secret-project").unwrap().acquire().await.unwrap();
    let shown = format!("{locks:?}");
    assert!(shown.contains("FENCED") && !shown.contains("secret"), "{shown}");
}

/// A lock that was handed on within the process is shown with the token of its present guard: the store
/// knows the first one only.
#[tokio::test(start_paused = true)]
async fn a_lock_that_was_handed_on_is_shown_with_its_present_token() {
    let store = MemoryConfig::private();
    let locks = open(&store).await;
    let lock = locks.lock("a").unwrap();
    let first = lock.acquire().await.unwrap();
    let second = lock.acquire();
    tokio::pin!(second);
    assert!((&mut second).now_or_never().is_none());
    first.release().await.unwrap();
    let second = second.await.unwrap();
    let shown = locks.inspect("a").await.unwrap().holders.pop().and_then(|holder| holder.token);
    assert_eq!(shown, Some(second.token()));
    assert!(
        shown > open(&store).await.inspect("a").await.unwrap().holders.pop().and_then(|holder| holder.token)
    );
}

/// A manager knows its own holds, also beside other sharers; it does not count the holds of others.
#[tokio::test(start_paused = true)]
async fn a_manager_knows_what_it_holds() {
    let store = MemoryConfig::private();
    let (locks, others) = (open(&store).await, open(&store).await);
    let held = || ["a", "b", "c", "", "d"].map(|name| locks.holds(name));
    let exclusive = locks.lock("a").unwrap().acquire().await.unwrap();
    let shares = [&locks, &others].map(|locks| locks.lock("b").unwrap().shared());
    let shares = [shares[0].acquire().await.unwrap(), shares[1].acquire().await.unwrap()];
    let theirs = others.lock("c").unwrap().acquire().await.unwrap();
    let wanted = locks.lock("c").unwrap();
    let waiting = wanted.acquire();
    tokio::pin!(waiting);
    assert!((&mut waiting).now_or_never().is_none());
    assert_eq!(held(), [true, true, false, false, false]);
    theirs.release().await.unwrap();
    let third = waiting.await.unwrap();
    assert_eq!(held(), [true, true, true, false, false]);
    for guard in [exclusive, third].into_iter().chain(shares) {
        guard.release().await.unwrap();
    }
    assert_eq!(held(), [false; 5]);
}
