//! The entry point: one store, its session, and the locks of this process in it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use futures_util::stream::BoxStream;
use parking_lot::Mutex;

use crate::api::lead::Candidate;
use crate::api::lock::Lock;
use crate::api::state::{answered, with_own};
use crate::api::watch::{Watched, watch};
use crate::backend::env::Env;
use crate::backend::{Finding, LockState, Severity, TokenBase};
use crate::core::context::Context;
use crate::core::holds::{LocalLock, NameState};
use crate::core::revocation::revoke;
use crate::core::{Core, shutdown};
use crate::words::error::{Effect, Result};
use crate::words::guarantees::Guarantees;
use crate::words::name::LockName;
use crate::words::revoke::{Revocation, Revoke};
use crate::words::token::FencingToken;

/// The locks of one store. Cheap to clone; clones share everything.
///
/// Opened by [`Registry::connect`](crate::Registry::connect) from a URL, or by
/// [`LockManager::builder`] from a typed configuration. The session ends in the background when the last
/// clone, lock and guard are dropped; [`shutdown`](Self::shutdown) ends it and waits for that.
#[derive(Clone)]
pub struct LockManager {
    core: Arc<Core>,
    /// Begun by the first call. Every caller polls it: a caller that is not polled delays no other.
    shutdown: Arc<Mutex<Option<Shutdown>>>,
    watched: Arc<Watched>,
}

type Shutdown = Shared<BoxFuture<'static, Result<()>>>;

impl LockManager {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core, shutdown: Arc::default(), watched: Arc::default() }
    }

    /// Returns the lock `name`, without a request.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidName`](crate::ErrorKind::InvalidName), see [`LockName`].
    pub fn lock(&self, name: impl AsRef<str>) -> Result<Lock> {
        let name = LockName::new(name)?;
        Ok(Lock::new(LocalLock { core: Arc::clone(&self.core), name: self.core.names.of(&name) }))
    }

    /// Returns a candidate for the leadership of `name`, without a request; [`Candidate::run`] campaigns.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidName`](crate::ErrorKind::InvalidName), see [`LockName`].
    pub fn lead(&self, name: impl AsRef<str>) -> Result<Candidate> {
        Ok(Candidate::new(self.lock(name)?, Arc::clone(&self.watched)))
    }

    /// Returns the guarantees of this store.
    pub fn guarantees(&self) -> Guarantees {
        self.core.context.backend.guarantees()
    }

    /// Fails if this store lacks a guarantee that the program needs; call it at the start.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported), naming what is missing.
    pub fn require(&self, needed: Guarantees) -> Result<()> {
        self.guarantees().require(needed)
    }

    /// Returns the holders of `name` and the number of waiting clients. A lock of this process has the token of
    /// its present guard. A property of a holder that the store does not know is `None`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidName`](crate::ErrorKind::InvalidName), or the store's.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect on the store.
    pub async fn inspect(&self, name: impl AsRef<str>) -> Result<LockState> {
        let name = LockName::new(name)?;
        let state = answered(&self.core, self.core.context.backend.inspect(&name)).await;
        with_own(&self.core, &name, state)
    }

    /// Returns a stream of the states of `name`: the present one, and a new one after each change of its holders.
    ///
    /// Only the latest state is shown, not the changes between two reads. A watch does not acquire the lock, and its
    /// items are no proof of a hold.
    ///
    /// The store is read while a stream is polled, four times per [`op_timeout`](crate::Timing::op_timeout) for any
    /// number of streams of this manager for the name. A stream that is opened later adds one request. A hold that
    /// is longer than an `op_timeout` is shown within that time, as long as the store is reachable. While it is
    /// not, one item is the error, and the next item is the state after that.
    ///
    /// The first item is no older than the stream. On ZooKeeper later items may be as old as the session's server is
    /// behind its leader.
    ///
    /// The stream ends when the manager is shut down. It keeps the manager's session open until it is dropped.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidName`](crate::ErrorKind::InvalidName).
    ///
    /// # Cancel safety
    ///
    /// The next call returns an item that was not awaited to its end. Dropping the future has no effect on the store.
    pub fn watch(&self, name: impl AsRef<str>) -> Result<BoxStream<'static, Result<LockState>>> {
        Ok(watch(&self.watched, &self.core, LockName::new(name)?))
    }

    /// Returns whether this manager holds `name`, without a request.
    pub fn holds(&self, name: impl AsRef<str>) -> bool {
        let now = self.core.context.env.now();
        let held = |state: &mut NameState| state.queue.held().any(|(ownership, _)| ownership.is_held(now));
        LockName::new(name)
            .is_ok_and(|name| self.core.names.known(&name).is_some_and(|known| known.with(held)))
    }

    /// Returns the names with this prefix that are held or waited for.
    ///
    /// # Errors
    ///
    /// The store's.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect on the store.
    pub async fn list(&self, prefix: &str) -> Result<Vec<LockState>> {
        answered(&self.core, self.core.context.backend.list(prefix)).await
    }

    /// Requests the release of `name` from its holder, and waits at most for the grace period and the ttl.
    ///
    /// A foreign client cannot be notified; that is returned at once. With [`Revoke::Force`] the store's entry
    /// is deleted at once. Until the former holder is notified, only its smaller fencing token protects the
    /// resource.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidName`](crate::ErrorKind::InvalidName); [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) for a grace above [`Revoke::MAX_GRACE`];
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed) once the manager is shut down or its runtime is
    /// gone; or the store's.
    ///
    /// # Cancel safety
    ///
    /// The holder may be notified already.
    pub async fn revoke(&self, name: impl AsRef<str>, how: Revoke) -> Result<Revocation> {
        let name = LockName::new(name)?;
        self.core.context.refuse_closed()?;
        let core = &self.core;
        tokio::select! {
            biased;
            answer = revoke(&core.context, &name, how) => answer.map_err(|error| core.context.error_about(&name, error)),
            () = core.context.closing.cancelled() => Err(Context::closed_error().with_effect(Effect::Unknown)),
            () = core.context.env.gone() => Err(Env::gone_error()),
        }
    }

    /// Returns the findings about this store, for its administrator.
    ///
    /// # Errors
    ///
    /// The store's.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect on the store.
    pub async fn diagnose(&self) -> Result<Vec<Finding>> {
        let mut findings = answered(&self.core, self.core.context.backend.diagnose()).await?;
        if let Ok(TokenBase { base, floor, .. }) = self.token_base().await {
            let detail = format!(
                "tokens are the store's own numbers plus {base}; those numbers are above {floor} \
                     from now on"
            );
            findings.push(Finding::new(Severity::Ok, "token base", detail));
        }
        Ok(findings)
    }

    /// Returns the findings about one lock: its holders, and its key in the store if that is not its name.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidName`](crate::ErrorKind::InvalidName), or the store's.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect on the store.
    pub async fn diagnose_lock(&self, name: impl AsRef<str>) -> Result<Vec<Finding>> {
        let name = LockName::new(name)?;
        let findings = answered(&self.core, self.core.context.backend.diagnose_lock(&name)).await;
        findings.map_err(|error| error.with_context("lock", &name))
    }

    /// Returns the token base, which the namespace adds to the numbers of its store.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) on a store without one, or the store's.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect on the store.
    pub async fn token_base(&self) -> Result<TokenBase> {
        answered(&self.core, self.core.context.backend.token_base()).await
    }

    /// Raises the token base so that the tokens of every later session are larger than `token`.
    ///
    /// `token` may be the largest token that a resource has seen from another store. The base is never lowered.
    /// Open sessions, also this one, keep the base that they have read. End them first, or a resource that has
    /// seen a larger token refuses their grants.
    ///
    /// # Errors
    ///
    /// As [`token_base`](Self::token_base); [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) when no room for tokens would be left.
    ///
    /// # Cancel safety
    ///
    /// The base may have been raised; raising it again changes nothing.
    pub async fn raise_token_base(&self, token: FencingToken) -> Result<()> {
        let at_least = self.token_base().await?.above(token)?;
        answered(&self.core, self.core.context.backend.raise_token_base(at_least)).await
    }

    /// Returns how many guards were dropped instead of released. Each is released in the background, or its
    /// lease ends it.
    pub fn guards_dropped(&self) -> u64 {
        self.core.guards_dropped.load(Ordering::Relaxed)
    }

    /// Closes the session for all clones and waits for that.
    ///
    /// New and waiting acquisitions fail with [`ErrorKind::Closed`](crate::ErrorKind::Closed). Guards are lost
    /// ([`LostReason::Shutdown`](crate::LostReason::Shutdown)) and released, those of [`Lock::with`], [`Lock::run`] and
    /// [`lead`](Self::lead) once their work is dropped. This waits at most one ttl for such work, another one for pending
    /// releases, and for as long as a [`hold_at_least`](Lock::hold_at_least) takes. A future of `run` that is neither polled nor
    /// dropped meanwhile takes that ttl. Later calls wait for the first;
    /// a call after an error tries again.
    ///
    /// # Errors
    ///
    /// The store's, if it did not confirm the end of the session; its lease ends it then.
    ///
    /// # Cancel safety
    ///
    /// Releases continue, and the session ends with the last handle; call it again to wait for that.
    pub async fn shutdown(&self) -> Result<()> {
        let shutdown = {
            let mut present = self.shutdown.lock();
            let begun = present.take().filter(|begun| !matches!(begun.peek(), Some(Err(_))));
            let begin = || shutdown(Arc::clone(&self.core)).boxed().shared();
            present.insert(begun.unwrap_or_else(begin)).clone()
        };
        shutdown.await
    }

    /// As [`shutdown`](Self::shutdown), without waiting for a [`hold_at_least`](Lock::hold_at_least); a shutdown that waits
    /// for one goes on.
    ///
    /// Such a name stays held until its lease ends, a ttl after its last renewal, or with the runtime. Then the session ends, in
    /// the background.
    ///
    /// # Errors
    ///
    /// As [`shutdown`](Self::shutdown).
    ///
    /// # Cancel safety
    ///
    /// As [`shutdown`](Self::shutdown).
    pub async fn shutdown_now(&self) -> Result<()> {
        self.core.context.hurries.cancel();
        self.shutdown().await
    }
}

impl fmt::Debug for LockManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The store's data, such as the names of locks, is not for logs.
        f.debug_struct("LockManager").field("guarantees", &self.guarantees()).finish_non_exhaustive()
    }
}
