//! Locks for the tests of a program that uses them: in memory, on tokio's clock.
//!
//! In a test with paused time a wait of hours takes no real time, and a lease ends when the test says so. The page
//! [Testing] has whole tests. The module adds no dependency, so it needs no Cargo feature.
//!
//! [Testing]: crate::guide::testing

use std::sync::Arc;

use crate::LockManager;
use crate::clock::TokioClock;
use crate::memory::MemoryConfig;

/// Opens a manager on a store of its own.
///
/// # Panics
///
/// Outside a tokio runtime with timers.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// #[tokio::main(flavor = "current_thread", start_paused = true)]
/// async fn main() -> leasehold::Result<()> {
///     let locks = leasehold::testing::manager().await;
///     let held = locks.lock("a")?.acquire().await?;
///     // An hour that takes no time; the lease is renewed meanwhile.
///     assert!(locks.lock("a")?.try_acquire_for(Duration::from_secs(3600)).await?.is_none());
///     held.release().await
/// }
/// ```
pub async fn manager() -> LockManager {
    manager_on(&MemoryConfig::private()).await
}

/// Opens a manager on a given store: another process for the test. [`MemoryConfig::store`] does to it what failing servers do.
///
/// # Panics
///
/// Outside a tokio runtime with timers.
pub async fn manager_on(store: &MemoryConfig) -> LockManager {
    let builder = LockManager::builder(store.clone()).clock(Arc::new(TokioClock::new()));
    builder.build().await.expect("the in-memory store opens in a tokio runtime with timers")
}
