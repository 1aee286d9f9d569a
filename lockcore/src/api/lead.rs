//! Leadership: a lock that is held for as long as the process lives, through losses and outages of the store.
//!
//! # Invariants
//! - **lead-1** The work of a term is polled only while its guard is held, and is dropped before the guard is. The works of
//!   two terms of one `run` never exist at the same time. Those of two processes do only once the lease of the earlier one, or
//!   a ttl after its loss, has ended (release-6).
//! - **lead-2** A campaign ends with the work, with a shutdown, or with an error that no wait mends. After a loss, and
//!   while the store is unavailable, it begins again, after a pause that grows up to the bound of a request.
//!
//! Checked by `tests/api/lead.rs`, and the conformance case `g6::leadership_passes_on`.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::BoxStream;

use crate::api::held::HeldRef;
use crate::api::lock::Lock;
use crate::api::watch::{Watched, watch};
use crate::backend::{Backoff, LockState};
use crate::words::error::{Error, ErrorKind, Result};
use crate::words::name::LockName;

/// A candidate for a leadership, created by [`LockManager::lead`](crate::LockManager::lead).
///
/// The leader holds the lock of that name. After each term the other processes come first: candidates of one process
/// do not pass leadership among themselves.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leasehold_core::Result<()> {
/// # use leasehold_core::{LockManager, memory::MemoryConfig};
/// # let locks = LockManager::builder(MemoryConfig::private()).build().await?;
/// let candidate = locks.lead("billing/leader")?.metadata("10.0.0.7:8080");
/// let last = candidate.run(async |leadership| leadership.token()).await?;
/// println!("the last term was {last:?}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a candidate campaigns in `run`"]
pub struct Candidate {
    lock: Lock,
    watched: Arc<Watched>,
}

impl Candidate {
    pub(super) fn new(lock: Lock, watched: Arc<Watched>) -> Self {
        Self { lock: lock.handoff_limit(0), watched }
    }

    /// Returns the name of the leadership.
    pub fn name(&self) -> &LockName {
        self.lock.name()
    }

    /// Sets the text that [`changes`](Self::changes) and `inspect` show of the leader, such as its address.
    pub fn metadata(mut self, metadata: impl Into<String>) -> Self {
        self.lock = self.lock.metadata(metadata);
        self
    }

    /// Gives the leadership a ttl of its own, as [`Lock::ttl`].
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.lock = self.lock.ttl(ttl);
        self
    }

    /// Returns a stream of who leads: the present state, and a new one after each change; see
    /// [`LockManager::watch`](crate::LockManager::watch).
    pub fn changes(&self) -> BoxStream<'static, Result<LockState>> {
        watch(&self.watched, &self.lock.local.core, self.name().clone())
    }

    /// Campaigns, and runs `work` as the leader: once in each term, until it returns.
    ///
    /// The work of a term is dropped at its next await point when leadership is lost, also after a suspend of the host. After a
    /// shutdown or a revocation no other process leads before that, for as long as the lease lasts; after the end of the lease
    /// one may: give the [token](HeldRef::token) to what the work writes to. Then the candidate campaigns again. While the store is unavailable, it goes on for as long as that takes. A panic
    /// in `work` is this future's, and releases the leadership.
    ///
    /// Returns the result of the term in which the work ended by itself, while it led; the leadership is released then. A
    /// result that comes after a loss is dropped, and the candidate campaigns again. Returns `None` once the manager is
    /// shut down.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`], without `Timeout`, `Unavailable` and `Closed`: what an administrator has to mend.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work, and releases the leadership in the background or leaves the queue.
    pub async fn run<T, F, Fut>(&self, mut work: F) -> Result<Option<T>>
    where
        T: Send,
        F: FnMut(HeldRef) -> Fut + Send,
        Fut: Future<Output = T> + Send + 'static,
    {
        let context = &self.lock.local.core.context;
        let (env, mut pauses, mut is_away) = (&context.env, Backoff::of_requests(&context.env), false);
        loop {
            let began = env.now();
            let error = match self.lock.clone().run(&mut work).await {
                Ok(done) => return Ok(Some(done)),
                Err(error) => error,
            };
            // INVARIANT(lead-2)
            match error.kind() {
                ErrorKind::Closed => return Ok(None),
                ErrorKind::Lost { reason } => {
                    tracing::info!(lock = %self.name(), %reason, "leadership lost; campaigning again");
                }
                ErrorKind::Unavailable => self.note_outage(&error, std::mem::replace(&mut is_away, true)),
                _ => return Err(error),
            }
            is_away &= *error.kind() == ErrorKind::Unavailable;
            pauses.went_on(env.now().since(began), env);
            let paused = context.until_closed(async {
                pauses.pause(env).await;
                Ok(())
            });
            if paused.await.is_err() {
                return Ok(None);
            }
        }
    }

    /// Warns at the begin of an outage only: it may be long.
    fn note_outage(&self, error: &Error, is_known: bool) {
        let error = format!("{error:#}");
        if is_known {
            tracing::debug!(lock = %self.name(), ?error, "store unavailable; retrying the campaign");
        } else {
            tracing::warn!(lock = %self.name(), ?error, "store unavailable; campaigning again when it is back");
        }
    }
}
