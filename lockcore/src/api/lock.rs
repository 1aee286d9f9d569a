//! A named lock with its options, and the ways to acquire it.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;

use crate::api::guard::LockGuard;
use crate::api::held::{GuardHandle, HeldRef};
use crate::api::options::LockOptions;
use crate::core::acquire::{Acquire, acquire, try_acquire};
use crate::core::holds::{Acquired, Hold, LocalLock};
use crate::core::metrics::{self, Acquisition};
use crate::core::queue::{HandoffBudget, Wish};
use crate::words::error::{Error, ErrorKind, Result};
use crate::words::guarantees::Guarantees;
use crate::words::mode::Mode;
use crate::words::name::LockName;
use crate::words::token::FencingToken;

/// A named lock with its options, created by [`LockManager::lock`](crate::LockManager::lock).
///
/// Locks are not re-entrant: a task that waits for its own lock waits without end. A warning is logged
/// after one to two ttls.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leasehold_core::Result<()> {
/// use std::time::Duration;
/// # use leasehold_core::{LockManager, memory::MemoryConfig};
/// # let locks = LockManager::builder(MemoryConfig::private()).build().await?;
/// let lock = locks.lock("invoice/42")?;
/// let guard = lock.clone().wait(Duration::from_secs(5)).acquire().await?;
/// assert!(lock.try_acquire().await?.is_none());
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a lock is held only after `acquire`"]
pub struct Lock {
    pub(super) local: LocalLock,
    options: LockOptions,
    /// Why an option is invalid; returned by `acquire`.
    refused: Option<Error>,
    /// It is acquired together with others, and free at once if one of them is not granted.
    is_part: bool,
}

impl Lock {
    pub(crate) fn new(local: LocalLock) -> Self {
        Self { local, options: LockOptions::default(), refused: None, is_part: false }
    }

    /// Returns the name of the lock.
    pub fn name(&self) -> &LockName {
        &self.local.name.lock_name
    }

    /// Waits at most `wait` for the lock. Zero is one attempt.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.options.wait = Some(wait);
        self
    }

    /// Gives this lock a ttl of its own, on stores with [`Guarantees::PER_LOCK_TTL`].
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.options.ttl = Some(ttl);
        self
    }

    /// Allows at most `limit` successive local hand-offs.
    pub fn handoff_limit(mut self, limit: u16) -> Self {
        self.options.handoff_limit = Some(limit);
        self
    }

    /// Bounds the hold of a guard by `span`, above zero, counted from its grant.
    ///
    /// Then the guard is lost ([`LostReason::MaxHold`](crate::LostReason::MaxHold)) and released. It ends a
    /// hold whose work hangs while its lease is renewed.
    pub fn max_hold(mut self, span: Duration) -> Self {
        self.options.max_hold = Some(span);
        self
    }

    /// Keeps the name held for at least `span`, counted from its grant, for work that may run once per period.
    ///
    /// A release or a drop of the guard before that returns at once, the guard is done, and the name stays held, renewed in the
    /// background, until `span` is over. [`LockManager::shutdown`](crate::LockManager::shutdown) waits for that, and
    /// [`LockManager::shutdown_now`](crate::LockManager::shutdown_now) leaves the name to its lease.
    ///
    /// Give a `span` that is longer than the clocks of the hosts differ, and shorter than the period. A revocation, a lost lease
    /// and the end of the process or its runtime end the hold earlier. `span` must not be longer than a
    /// [`max_hold`](Self::max_hold). A share with it is not joined.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> leasehold_core::Result<()> {
    /// # use leasehold_core::{LockManager, memory::MemoryConfig};
    /// use std::time::Duration;
    /// # let locks = LockManager::builder(MemoryConfig::private()).build().await?;
    /// let hourly = locks.lock("report/hourly")?.hold_at_least(Duration::from_secs(60));
    /// if let Some(guard) = hourly.try_acquire().await? {
    ///     // A host whose clock is behind comes later, and finds the name held.
    ///     guard.release().await?;
    /// }
    /// assert!(hourly.try_acquire().await?.is_none());
    /// # locks.shutdown_now().await
    /// # }
    /// ```
    pub fn hold_at_least(mut self, span: Duration) -> Self {
        self.options.hold_at_least = Some(span);
        self
    }

    /// Sets the text that `inspect` shows while the lock is held.
    pub fn metadata(mut self, metadata: impl Into<String>) -> Self {
        self.options.metadata = Some(metadata.into());
        self
    }

    /// Holds the lock as a reader, together with other readers, on stores with [`Guarantees::SHARED`].
    ///
    /// The queue is served in order: a reader waits for an earlier writer, even while that writer waits. Shares
    /// are not re-entrant: a holder that acquires another share may wait behind a writer that waits for the first.
    ///
    /// Callers of one process join its share without a request, within the limit of local hand-offs. A share
    /// with a [`max_hold`](Self::max_hold) is not joined.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> leasehold_core::Result<()> {
    /// # use leasehold_core::{LockManager, memory::MemoryConfig};
    /// # let locks = LockManager::builder(MemoryConfig::private()).build().await?;
    /// let reader = locks.lock("ledger")?.shared().acquire().await?;
    /// let another = locks.lock("ledger")?.shared().acquire().await?;
    /// assert!(locks.lock("ledger")?.try_acquire().await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn shared(mut self) -> Self {
        (self.options.mode, self.refused) = (Mode::SHARED, None);
        self
    }

    /// Acquires `weight` of `capacity` permits, on stores with [`Guarantees::PERMITS`]; 1 of 1 is exclusive.
    ///
    /// The store keeps no capacity: of the holders and the earlier waiters the smallest capacity counts. The queue
    /// is served in order, so a later request that fits does not pass an earlier one that does not fit yet.
    ///
    /// `acquire` checks both: `0 < weight <= capacity < u32::MAX`.
    pub fn permits(mut self, weight: u32, capacity: u32) -> Self {
        match Mode::permits(weight, capacity) {
            Ok(mode) => (self.options.mode, self.refused) = (mode, None),
            Err(error) => self.refused = Some(error),
        }
        self
    }

    /// Replaces all options.
    pub fn options(mut self, options: LockOptions) -> Self {
        (self.options, self.refused) = (options, None);
        self
    }

    /// Waits for the lock.
    ///
    /// A lost place in the store's queue, or a grant that expires on its way, does not end the wait: the
    /// request is repeated, with pauses that grow up to the bound of a request. Once the store has queued the
    /// request, an unavailable store does not end the wait either.
    ///
    /// The caller that sends the request for all local waiters sets the entry's ttl, metadata and limit of local
    /// hand-offs. A hand-off keeps them, and so does the waiter that continues the wait when this caller leaves.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Timeout`](crate::ErrorKind::Timeout): not granted in time; with the last known holder, and
    ///   the store's last refusal as its source.
    /// - [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable): the store was not reachable before it queued
    ///   the request. Every waiter of this process gets this error. A contended lock never returns it.
    /// - [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption): an option is invalid; before any request.
    /// - [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported): the store has no ttl per lock, or not this
    ///   mode; before any request.
    /// - [`ErrorKind::Closed`](crate::ErrorKind::Closed): the manager is shut down.
    /// - [`ErrorKind::Protocol`](crate::ErrorKind::Protocol): the store's counter went back.
    /// - [`ErrorKind::Denied`](crate::ErrorKind::Denied): the store denies access.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future at any point leaves the queue and releases a grant that it already has (G8). If other
    /// tasks of this process wait for the name, the process keeps its place at the store for the next of them. A
    /// future that is neither dropped nor polled keeps its place and a granted lock; it does not delay errors to
    /// the callers behind it.
    pub async fn acquire(&self) -> Result<LockGuard> {
        let wanted = self.wanted()?;
        let span = tracing::debug_span!("acquire", lock = %self.name());
        let acquisition = Acquisition::begin(&self.local.core.context.env);
        let granted = acquire(&wanted).instrument(span).await;
        acquisition.ended(metrics::outcome(&granted));
        granted.map(|held| self.guard(held))
    }

    /// Acquires the lock if that needs no wait; returns `None` if a holder or an earlier waiter blocks it.
    ///
    /// A free lock takes one round trip, on ZooKeeper two, for permits on etcd two or more; a lock that this process
    /// holds takes none. A pending release of this process is waited for. On ZooKeeper the server of the session
    /// answers: it may refuse a lock whose release another server has just confirmed.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), without `Timeout`; [`ErrorKind::Lost`](crate::ErrorKind::Lost) if the
    /// grant expired on its way. It is not retried here.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(&self) -> Result<Option<LockGuard>> {
        let wanted = self.wanted()?;
        let span = tracing::debug_span!("try_acquire", lock = %self.name());
        let acquisition = Acquisition::begin(&self.local.core.context.env);
        let tried = try_acquire(&wanted).instrument(span).await;
        acquisition.ended(match &tried {
            Ok(Acquired::Busy(_)) => metrics::BUSY,
            tried => metrics::outcome(tried),
        });
        match tried? {
            Acquired::Held(held) => Ok(Some(self.guard(held))),
            Acquired::Busy(_) => Ok(None),
        }
    }

    /// Waits for the lock for at most `wait`, whatever the option says; returns `None` if it was not granted by then.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), without a `Timeout` of a lock that is held. A `Timeout` with a source is returned: the
    /// store failed while the caller waited, so this proves nothing about the lock.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> leasehold_core::Result<()> {
    /// # use leasehold_core::{LockManager, memory::MemoryConfig};
    /// use std::time::Duration;
    /// # let locks = LockManager::builder(MemoryConfig::private()).build().await?;
    /// let lock = locks.lock("customer/42")?;
    /// match lock.try_acquire_for(Duration::from_secs(3)).await? {
    ///     Some(guard) => guard.release().await?,
    ///     None => println!("busy"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_acquire_for(&self, wait: Duration) -> Result<Option<LockGuard>> {
        match self.clone().wait(wait).acquire().await {
            Err(error) if is_contended(&error) => Ok(None),
            acquired => acquired.map(Some),
        }
    }

    /// Runs `work` under the lock, drops it when the lock is lost, and releases the lock at its end.
    ///
    /// Returns `Ok` if and only if the lock was held when the work finished. A failed release after that is
    /// logged and is no error. A panic in `work` releases the lock as dropping the guard does.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire); [`ErrorKind::Lost`](crate::ErrorKind::Lost) if the lock was lost meanwhile. The work
    /// is dropped at its next await point, also after a suspend of the host. After a shutdown, a revocation and a `max_hold`
    /// the lock is released when the work has been dropped, or when the lease or a ttl has ended before that: work that blocks
    /// for longer may overlap the next holder's.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work and releases the lock in the background.
    pub async fn with<T>(&self, work: impl AsyncFnOnce(&LockGuard) -> T) -> Result<T> {
        let guard = self.acquire().await?;
        let done = guard.while_held(|| work(&guard)).await?;
        guard.release_after_work().await;
        Ok(done)
    }

    /// Runs `work` under the lock as [`with`](Self::with), for work that borrows nothing.
    ///
    /// The future can be spawned, also by a function that is generic over `work`.
    ///
    /// # Errors
    ///
    /// As [`with`](Self::with).
    ///
    /// # Cancel safety
    ///
    /// As [`with`](Self::with).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> leasehold_core::Result<()> {
    /// # use leasehold_core::{LockManager, memory::MemoryConfig};
    /// # let locks = LockManager::builder(MemoryConfig::private()).build().await?;
    /// let lock = locks.lock("report")?;
    /// let report = tokio::spawn(lock.run(async |held| format!("written with token {}", held.token())));
    /// println!("{}", report.await.expect("the work does not panic")?);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<T, F, Fut>(self, work: F) -> Result<T>
    where
        T: Send,
        F: FnOnce(HeldRef) -> Fut + Send,
        Fut: Future<Output = T> + Send + 'static,
    {
        let guard = self.acquire().await?;
        let handle = GuardHandle::new(&guard);
        let done = guard.while_held(|| work(handle.held())).await?;
        drop(handle);
        guard.release_after_work().await;
        Ok(done)
    }

    /// Checks the options.
    pub(crate) fn check(&self) -> Result<()> {
        self.wanted().map(drop).map_err(|error| error.with_context("lock", self.name()))
    }

    /// The same lock as one of several, with a wait of at most `left`, and free again at once if another is not granted.
    pub(crate) fn as_part(&self, left: Option<Duration>) -> Self {
        let mut lock = self.clone();
        lock.options.wait = lock.options.wait.into_iter().chain(left).min();
        lock.is_part = true;
        lock
    }

    /// From now on its release is put off: what [`as_part`](Self::as_part) leaves to the caller.
    pub(crate) fn complete(&self, guard: &mut LockGuard) {
        if let Some(span) = self.options.hold_at_least {
            guard.hold_at_least(span);
        }
    }

    fn guard(&self, held: Hold) -> LockGuard {
        if let Some(span) = self.options.max_hold {
            held.hold_at_most(span);
        }
        let mut guard = LockGuard::new(held);
        if !self.is_part {
            self.complete(&mut guard);
        }
        guard
    }

    fn wanted(&self) -> Result<Acquire> {
        let timing = self.local.core.context.env.timing();
        let LockOptions { wait, ttl, handoff_limit, max_hold, hold_at_least, metadata, mode } = &self.options;
        if let Some(refused) = &self.refused {
            return Err(refused.clone());
        }
        if *mode != Mode::EXCLUSIVE {
            self.promised(mode.needs(), "mode")?;
        }
        if max_hold.is_some_and(|span| span.is_zero()) {
            return Err(Error::invalid_option("`max_hold` is zero: expected a longer time"));
        }
        if let (Some(longest), Some(shortest)) = (*max_hold, *hold_at_least)
            && longest < shortest
        {
            return Err(Error::invalid_option(format!(
                "`hold_at_least` {shortest:?} is longer than `max_hold` {longest:?}"
            )));
        }
        if let Some(ttl) = *ttl {
            self.promised(Guarantees::PER_LOCK_TTL, "ttl")?;
            timing.validate_ttl(ttl, self.local.core.context.min_ttl)?;
        }
        let limit = handoff_limit.unwrap_or(timing.handoff_limit);
        if limit > FencingToken::MAX_INDEX {
            return Err(Error::invalid_option(format!(
                "`handoff_limit` {limit} is invalid: expected at most {}",
                FencingToken::MAX_INDEX
            )));
        }
        let longest = LockOptions::MAX_METADATA_BYTES;
        if let Some(metadata) = metadata.as_deref().filter(|metadata| metadata.len() > longest) {
            return Err(Error::invalid_option(format!(
                "`metadata` of {} bytes is too long: expected at most {longest} bytes",
                metadata.len()
            )));
        }
        let is_bounded = max_hold.is_some() || hold_at_least.is_some();
        Ok(Acquire {
            lock: self.local.clone(),
            // Only shares are joined by others, and one with a bound is not.
            wish: Wish { mode: *mode, alone: *mode == Mode::SHARED && is_bounded },
            ttl: ttl.unwrap_or(timing.ttl),
            wait: *wait,
            budget: HandoffBudget { limit, window: timing.handoff_window },
            metadata: metadata.as_deref().map(Arc::from),
        })
    }
}

impl Lock {
    fn promised(&self, needed: Guarantees, option: &'static str) -> Result<()> {
        let promised = self.local.core.context.backend.guarantees().require(needed);
        promised.map_err(|error| error.with_context("option", option))
    }
}

/// Whether a wait ended because others hold the lock, as far as the store's answers say.
fn is_contended(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Timeout { .. }) && std::error::Error::source(error).is_none()
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("name", self.name()).field("options", &self.options).finish()
    }
}
