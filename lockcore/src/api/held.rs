//! A handle to a held lock, for work that cannot borrow the guard.
//!
//! # Invariants
//! - **held-1** Once the guard's release has begun, its handles say that the lock is lost. The ownership may be another
//!   guard's by then, so it is not read any more.
//!
//! Checked by `tests/api/run.rs`.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use crate::api::guard::{Changes, LockGuard, Lost, revocation_requested};
use crate::clock::Deadline;
use crate::core::holds::LocalLock;
use crate::core::ownership::{Ownership, Standing};
use crate::words::error::{Error, Result};
use crate::words::loss::{GuardState, LostReason};
use crate::words::mode::Mode;
use crate::words::name::LockName;
use crate::words::token::FencingToken;

/// A held lock, as the work of [`Lock::run`](crate::Lock::run) has it. Clones are the same hold.
///
/// It reads the lock like a [`LockGuard`], and does not keep it: the guard ends with the work. After that it says
/// [`LostReason::Released`]. It keeps the manager's session open until it is dropped.
#[derive(Clone)]
pub struct HeldRef {
    view: Arc<HeldView>,
}

struct HeldView {
    lock: LocalLock,
    ownership: Arc<Ownership>,
    token: FencingToken,
    /// Made while the guard is held, so that its release is reported here.
    standings: watch::Receiver<Standing>,
    /// INVARIANT(held-1)
    is_over: AtomicBool,
}

/// The handle of one guard: it ends all of its clones when it is dropped, before the guard.
pub(super) struct GuardHandle(HeldRef);

impl GuardHandle {
    pub(super) fn new(guard: &LockGuard) -> Self {
        let (hold, standings) = (guard.hold(), guard.watch());
        let (lock, ownership) = (hold.lock.clone(), Arc::clone(&hold.ownership));
        let view =
            HeldView { lock, ownership, token: hold.token, standings, is_over: AtomicBool::new(false) };
        Self(HeldRef { view: Arc::new(view) })
    }

    pub(super) fn held(&self) -> HeldRef {
        self.0.clone()
    }
}

impl Drop for GuardHandle {
    fn drop(&mut self) {
        self.0.view.is_over.store(true, Ordering::SeqCst);
    }
}

impl HeldRef {
    /// Returns the name of the lock.
    pub fn name(&self) -> &LockName {
        &self.view.ownership.grant.name
    }

    /// Returns how the lock is held.
    pub fn mode(&self) -> Mode {
        self.view.ownership.mode
    }

    /// Returns the fencing token (G3); see [`LockGuard::token`].
    pub fn token(&self) -> FencingToken {
        self.view.token
    }

    /// Returns the time until the present deadline; see [`LockGuard::remaining`].
    pub fn remaining(&self) -> Duration {
        self.present().map_or(Duration::ZERO, |ownership| ownership.remaining(self.view.lock.now()))
    }

    /// Fails if the lock is not held at this instant (G2); see [`LockGuard::ensure_held`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost): the lock is lost, its deadline has passed, or its guard is done.
    pub fn ensure_held(&self) -> Result<()> {
        let Some(ownership) = self.present() else {
            return Err(Error::lost(LostReason::Released).with_context("lock", self.name()));
        };
        let lock = &self.view.lock;
        if ownership.is_held(lock.now()) {
            return Ok(());
        }
        Err(lock.found_lost(ownership, LostReason::Expired))
    }

    /// Returns the present state of the hold.
    pub fn state(&self) -> GuardState {
        let released = GuardState::Lost(LostReason::Released);
        self.present().map_or(released, |ownership| ownership.state(self.view.lock.now()))
    }

    /// Returns a future that ends when the lock is no longer held; see [`LockGuard::lost`].
    pub fn lost(&self) -> Lost {
        Lost::new(self.view.standings.clone())
    }

    /// Returns a stream of the changes of the hold; see [`LockGuard::changes`].
    pub fn changes(&self) -> Changes {
        Changes::new(self.view.standings.clone())
    }

    /// Renews the lease now, in addition to the watchdog; see [`LockGuard::renew`].
    ///
    /// # Errors
    ///
    /// As [`LockGuard::renew`]; [`ErrorKind::Lost`](crate::ErrorKind::Lost) once the guard is done.
    ///
    /// # Cancel safety
    ///
    /// As [`LockGuard::renew`].
    pub async fn renew(&self) -> Result<()> {
        self.ensure_held()?;
        // If the guard ends meanwhile, this renews what may be the next guard's, which does no harm.
        self.view.lock.renew_now(&self.view.ownership).await?;
        self.ensure_held()
    }

    /// Returns the deadline of a requested revocation, if there is one; see [`LockGuard::revocation_deadline`].
    pub fn revocation_deadline(&self) -> Option<Deadline> {
        self.view.standings.borrow().revocation_deadline.map(Deadline::At)
    }

    /// Waits for the first request to revoke the lock; see [`LockGuard::revocation_requested`].
    ///
    /// # Cancel safety
    ///
    /// A future made later returns the same.
    pub fn revocation_requested(&self) -> impl Future<Output = Option<Deadline>> + Send + 'static + use<> {
        revocation_requested(self.view.standings.clone())
    }

    /// The ownership, while it is this guard's.
    fn present(&self) -> Option<&Arc<Ownership>> {
        (!self.view.is_over.load(Ordering::SeqCst)).then_some(&self.view.ownership)
    }
}

impl fmt::Debug for HeldRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("HeldRef");
        shown.field("name", self.name()).field("token", &self.token()).field("state", &self.state()).finish()
    }
}
