//! A named lock that is not held, and the ways to hold it.

use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;

use crate::api::guard::LockGuard;
use crate::core::Core;
use crate::core::acquire::{Acquire, Acquired};
use crate::core::holds::{Hold, Name};
use crate::core::metrics::{self, Acquisition};
use crate::core::queue::{HandoffBudget, Wish};
use crate::words::error::{Error, Result};
use crate::words::guarantees::Guarantees;
use crate::words::mode::Mode;
use crate::words::name::LockName;
use crate::words::token::FencingToken;

/// A lock by name, with its options; made by [`LockManager::lock`](crate::LockManager::lock).
///
/// Not re-entrant: a task that waits for a lock it holds itself waits for ever, and a warning says
/// so after one to two ttls.
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
    core: Arc<Core>,
    /// Its name, as this process knows it.
    in_process: Arc<Name>,
    options: LockOptions,
    /// Why what was asked for cannot be; told when it is acquired, as of all options.
    refused: Option<Error>,
}

/// How one lock differs from its manager's defaults; checked when it is acquired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockOptions {
    /// How long to wait for the lock; `None` is without end. Zero is one attempt.
    pub wait: Option<Duration>,
    /// The ttl of this lock's lease, on stores with [`Guarantees::PER_LOCK_TTL`].
    pub ttl: Option<Duration>,
    /// How many times in a row the lock may pass within this process; see
    /// [`Timing::handoff_limit`](crate::Timing::handoff_limit).
    pub handoff_limit: Option<u16>,
    /// How long one guard may hold the lock, which it loses then ([`LostReason::MaxHold`](crate::LostReason::MaxHold));
    /// `None` is without end.
    pub max_hold: Option<Duration>,
    /// What `inspect` shows of the holder, at most [`LockOptions::MAX_METADATA_BYTES`].
    pub metadata: Option<String>,
    /// How it is to be held: exclusively, if not said otherwise. Stores promise the other modes by
    /// [`Guarantees::SHARED`] and [`Guarantees::PERMITS`].
    pub mode: Mode,
}

impl LockOptions {
    /// The longest metadata, in bytes.
    pub const MAX_METADATA_BYTES: usize = 1024;
}

impl Lock {
    pub(crate) fn new(core: Arc<Core>, in_process: Arc<Name>) -> Self {
        Self { core, in_process, options: LockOptions::default(), refused: None }
    }

    /// The name of the lock.
    pub fn name(&self) -> &LockName {
        self.in_process.lock_name()
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

    /// Lets the lock pass within this process at most `limit` times in a row.
    pub fn handoff_limit(mut self, limit: u16) -> Self {
        self.options.handoff_limit = Some(limit);
        self
    }

    /// Lets a guard hold the lock for at most `span`, above zero: then it is lost, as
    /// [`LostReason::MaxHold`](crate::LostReason::MaxHold), and released. Counted from when it is acquired.
    ///
    /// A backstop for work that hangs while its lease is renewed.
    pub fn max_hold(mut self, span: Duration) -> Self {
        self.options.max_hold = Some(span);
        self
    }

    /// Shows `metadata` to whoever inspects the lock.
    pub fn metadata(mut self, metadata: impl Into<String>) -> Self {
        self.options.metadata = Some(metadata.into());
        self
    }

    /// Shares the lock with all who do, as readers: on stores with [`Guarantees::SHARED`].
    ///
    /// First come, first served: who shares waits for an exclusive lock that came before, also while that waits. Not
    /// re-entrant either: who holds a share and asks for another may wait behind a writer that waits for the first.
    ///
    /// Within a process a share is joined without a request, within the budget of hand-offs; one with a
    /// [`max_hold`](Self::max_hold) is not.
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

    /// Takes `weight` of `capacity` permits, on stores with [`Guarantees::PERMITS`]; 1 of 1 is the exclusive lock.
    ///
    /// Nothing is stored of the capacity: where those who hold or wait in front disagree, the smallest counts. First
    /// come, first served, so a request that does not fit yet is not overtaken by one that would.
    ///
    /// Checked when it is acquired: the weight is above zero and not above the capacity, and that below [`u32::MAX`].
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

    /// Waits its turn and takes the lock.
    ///
    /// A place in the store's queue that was lost, or a grant that is over when it arrives, does not end the
    /// wait: the store is asked again, with pauses that grow up to the bound of a request. Once the store has
    /// queued the request, neither does a store that is down.
    ///
    /// Of the callers of one process, the one that asks the store decides the entry's ttl and
    /// metadata, and how often it passes on within the process; local hand-offs keep that, and so does who
    /// goes on with its wait when it leaves.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) with the holder as last heard, and what the store refused last
    /// as its source; [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) when the
    /// store cannot be reached before it has queued the request, which is never how a busy lock looks, and which all hear who wait in this process; [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption)
    /// and [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) (a ttl of its own, or a mode) before any request; [`ErrorKind::Closed`](crate::ErrorKind::Closed) after
    /// or during a shutdown;
    /// [`ErrorKind::Protocol`](crate::ErrorKind::Protocol) when the store's counter went back; [`ErrorKind::Denied`](crate::ErrorKind::Denied).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future at any point gives up the place in the queue, leaves nothing behind, and
    /// passes on whatever it had been given (G8). Should other tasks of this process wait for the
    /// same name, the process keeps its place at the store, for the next of them. A future that is
    /// neither dropped nor polled keeps its place among them, and the lock once it is granted; what the
    /// store refuses they hear all the same.
    pub async fn acquire(&self) -> Result<LockGuard> {
        let wanted = self.wanted()?;
        let span = tracing::debug_span!("acquire", lock = %self.name());
        let acquisition = Acquisition::begin(self.core.env());
        let granted = self.core.acquire(&wanted).instrument(span).await;
        acquisition.ended(metrics::outcome(&granted));
        granted.map(|held| self.guard(held))
    }

    /// Takes the lock if that needs no waiting for a holder: `None` when it is held by somebody that it does not
    /// go beside, or when somebody is ahead.
    ///
    /// One round trip when the lock is free, on ZooKeeper two, for permits on etcd two or more; none when this process
    /// holds it. A release by this process that is on its way is waited for. On ZooKeeper the server of the session
    /// answers: it may refuse a lock whose release another server has confirmed a moment ago.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), `Timeout` apart; [`ErrorKind::Lost`](crate::ErrorKind::Lost) when the
    /// grant was over as it arrived. Nobody held the lock then, and it is not asked for again here.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(&self) -> Result<Option<LockGuard>> {
        let wanted = self.wanted()?;
        let span = tracing::debug_span!("try_acquire", lock = %self.name());
        let acquisition = Acquisition::begin(self.core.env());
        let tried = self.core.try_acquire(&wanted).instrument(span).await;
        acquisition.ended(match &tried {
            Ok(Acquired::Busy(_)) => metrics::BUSY,
            tried => metrics::outcome(tried),
        });
        match tried? {
            Acquired::Held(held) => Ok(Some(self.guard(held))),
            Acquired::Busy(_) => Ok(None),
        }
    }

    /// Runs `work` under the lock, stops it when the lock is lost, and releases the lock behind it.
    ///
    /// `Ok` if and only if the lock was held when the work finished; trouble with the release after
    /// that is an event, not an error. A panic in `work` releases as dropping the guard does.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire); [`ErrorKind::Lost`](crate::ErrorKind::Lost) when the lock was lost meanwhile: the work
    /// was dropped at its next await point, after a suspend of the host too.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work and releases in the background.
    pub async fn with<T>(&self, work: impl AsyncFnOnce(&LockGuard) -> T) -> Result<T> {
        let guard = self.acquire().await?;
        let done = {
            let (mut lost, mut work) = (guard.lost(), pin!(work(&guard)));
            let while_held = poll_fn(|cx| {
                // Woken by `lost`, decided by the clock: timers stand still while a host is suspended.
                let _told = Pin::new(&mut lost).poll(cx);
                guard.ensure_held()?;
                work.as_mut().poll(cx).map(Ok)
            });
            while_held.await?
        };
        guard.ensure_held()?;
        if let Err(error) = guard.release().await {
            let error = format!("{error:#}");
            tracing::warn!(lock = %self.name(), ?error, "lock not released cleanly after the work");
        }
        Ok(done)
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Whether what is asked for can be.
    pub(crate) fn check(&self) -> Result<()> {
        self.wanted().map(drop).map_err(|error| error.with_context("lock", self.name()))
    }

    /// The same lock, which waits no longer than `left` either.
    pub(crate) fn within(&self, left: Option<Duration>) -> Self {
        let mut lock = self.clone();
        lock.options.wait = lock.options.wait.into_iter().chain(left).min();
        lock
    }

    fn guard(&self, held: Hold) -> LockGuard {
        let guard = LockGuard::new(held);
        if let Some(span) = self.options.max_hold {
            guard.hold_at_most(span);
        }
        guard
    }

    fn wanted(&self) -> Result<Acquire> {
        let timing = self.core.env().timing();
        let LockOptions { wait, ttl, handoff_limit, max_hold, metadata, mode } = &self.options;
        if let Some(refused) = &self.refused {
            return Err(refused.clone());
        }
        if *mode != Mode::EXCLUSIVE {
            self.promised(mode.needs(), "mode")?;
        }
        if max_hold.is_some_and(|span| span.is_zero()) {
            return Err(Error::invalid_option("`max_hold` is zero: expected a longer time"));
        }
        if let Some(ttl) = *ttl {
            self.promised(Guarantees::PER_LOCK_TTL, "ttl")?;
            timing.validate_ttl(ttl, self.core.min_ttl)?;
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
        Ok(Acquire {
            name: Arc::clone(&self.in_process),
            // Only shares are joined by others, and one with a bound is not.
            wish: Wish { mode: *mode, alone: *mode == Mode::SHARED && max_hold.is_some() },
            ttl: ttl.unwrap_or(timing.ttl),
            wait: *wait,
            budget: HandoffBudget { limit, window: timing.handoff_window },
            metadata: metadata.as_deref().map(Arc::from),
        })
    }
}

impl Lock {
    fn promised(&self, needed: Guarantees, option: &'static str) -> Result<()> {
        let promised = self.core.backend().guarantees().require(needed);
        promised.map_err(|error| error.with_context("option", option))
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("name", self.name()).field("options", &self.options).finish()
    }
}
