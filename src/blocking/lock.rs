//! A named lock, and its guard, for programs that are not async.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;

use super::{Home, refuse_inside};
use crate::clock::Deadline;
use crate::{Change, FencingToken, GuardState, LockName, LockOptions, Mode, Result};

/// A named lock with its options; see [`leasehold::Lock`](crate::Lock).
#[derive(Clone)]
#[must_use = "a lock is held only after `acquire`"]
pub struct Lock {
    pub(super) lock: crate::Lock,
    pub(super) home: Arc<Home>,
}

impl Lock {
    pub(super) fn new(lock: crate::Lock, home: &Arc<Home>) -> Self {
        Self { lock, home: Arc::clone(home) }
    }

    fn with_options(self, change: impl FnOnce(crate::Lock) -> crate::Lock) -> Self {
        Self { lock: change(self.lock), home: self.home }
    }

    /// Returns the name of the lock.
    pub fn name(&self) -> &LockName {
        self.lock.name()
    }

    /// Waits at most `wait` for the lock. Zero is one attempt.
    pub fn wait(self, wait: Duration) -> Self {
        self.with_options(|lock| lock.wait(wait))
    }

    /// Gives this lock a ttl of its own; see [`leasehold::Lock::ttl`](crate::Lock::ttl).
    pub fn ttl(self, ttl: Duration) -> Self {
        self.with_options(|lock| lock.ttl(ttl))
    }

    /// Allows at most `limit` successive local hand-offs.
    pub fn handoff_limit(self, limit: u16) -> Self {
        self.with_options(|lock| lock.handoff_limit(limit))
    }

    /// Bounds the hold of a guard; see [`leasehold::Lock::max_hold`](crate::Lock::max_hold).
    pub fn max_hold(self, span: Duration) -> Self {
        self.with_options(|lock| lock.max_hold(span))
    }

    /// Keeps the name held for at least `span`; see [`leasehold::Lock::hold_at_least`](crate::Lock::hold_at_least).
    pub fn hold_at_least(self, span: Duration) -> Self {
        self.with_options(|lock| lock.hold_at_least(span))
    }

    /// Sets the text that `inspect` shows while the lock is held.
    pub fn metadata(self, metadata: impl Into<String>) -> Self {
        self.with_options(|lock| lock.metadata(metadata))
    }

    /// Holds the lock as a reader; see [`leasehold::Lock::shared`](crate::Lock::shared).
    pub fn shared(self) -> Self {
        self.with_options(crate::Lock::shared)
    }

    /// Acquires `weight` of `capacity` permits; see [`leasehold::Lock::permits`](crate::Lock::permits).
    pub fn permits(self, weight: u32, capacity: u32) -> Self {
        self.with_options(|lock| lock.permits(weight, capacity))
    }

    /// Replaces all options.
    pub fn options(self, options: LockOptions) -> Self {
        self.with_options(|lock| lock.options(options))
    }

    /// Waits for the lock.
    ///
    /// # Errors
    ///
    /// As [`leasehold::Lock::acquire`](crate::Lock::acquire).
    pub fn acquire(&self) -> Result<LockGuard> {
        self.home.wait(self.lock.acquire()).map(|guard| self.guard(guard))
    }

    /// Acquires the lock if that needs no wait; returns `None` if a holder or an earlier waiter blocks it.
    ///
    /// # Errors
    ///
    /// As [`leasehold::Lock::try_acquire`](crate::Lock::try_acquire).
    pub fn try_acquire(&self) -> Result<Option<LockGuard>> {
        Ok(self.home.wait(self.lock.try_acquire())?.map(|guard| self.guard(guard)))
    }

    /// Waits for the lock for at most `wait`; returns `None` if it was not granted by then.
    ///
    /// # Errors
    ///
    /// As [`leasehold::Lock::try_acquire_for`](crate::Lock::try_acquire_for).
    pub fn try_acquire_for(&self, wait: Duration) -> Result<Option<LockGuard>> {
        Ok(self.home.wait(self.lock.try_acquire_for(wait))?.map(|guard| self.guard(guard)))
    }

    /// Runs `work` under the lock, and releases it at its end.
    ///
    /// Returns `Ok` if and only if the lock was held when the work finished. Work that blocks cannot be dropped when the lock
    /// is lost: it calls [`LockGuard::ensure_held`] before each step, and gives the token to the resource. A failed release
    /// after the work is logged.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire); [`ErrorKind::Lost`](crate::ErrorKind::Lost) if the lock was lost meanwhile.
    pub fn with<T>(&self, work: impl FnOnce(&LockGuard) -> T) -> Result<T> {
        let guard = self.acquire()?;
        let done = work(&guard);
        guard.ensure_held()?;
        if let Err(error) = guard.release() {
            let error = format!("{error:#}");
            tracing::warn!(lock = %self.name(), ?error, "lock not released cleanly after the work");
        }
        Ok(done)
    }

    fn guard(&self, guard: crate::LockGuard) -> LockGuard {
        LockGuard { guard, home: Arc::clone(&self.home) }
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.lock, f)
    }
}

/// A held lock, until it is released, dropped or lost; see [`leasehold::LockGuard`](crate::LockGuard).
///
/// Dropping it releases the lock in the background, without blocking and without a result.
#[must_use = "a guard that is dropped at once releases the lock"]
pub struct LockGuard {
    /// Dropped before its thread may end.
    guard: crate::LockGuard,
    home: Arc<Home>,
}

impl LockGuard {
    /// Returns the name of the lock.
    pub fn name(&self) -> &LockName {
        self.guard.name()
    }

    /// Returns how the lock is held.
    pub fn mode(&self) -> Mode {
        self.guard.mode()
    }

    /// Returns the fencing token (G3); give it to the resource.
    pub fn token(&self) -> FencingToken {
        self.guard.token()
    }

    /// Returns the time until the present deadline; see [`leasehold::LockGuard::remaining`](crate::LockGuard::remaining).
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// Fails if the lock is not held at this instant (G2): one clock read and one atomic load, no I/O. It works anywhere.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost): the lock is lost, or its deadline has passed.
    pub fn ensure_held(&self) -> Result<()> {
        self.guard.ensure_held()
    }

    /// Returns the present state of the guard.
    pub fn state(&self) -> GuardState {
        self.guard.state()
    }

    /// Returns the deadline of a requested revocation, if there is one: release the lock before it.
    pub fn revocation_deadline(&self) -> Option<Deadline> {
        self.guard.revocation_deadline()
    }

    /// Returns the changes of this guard: the present state, and each new one, for which the iterator waits. It ends after
    /// the last state. For a thread beside the work.
    ///
    /// The only error is [`ErrorKind::Misuse`](crate::ErrorKind::Misuse), once, inside a tokio runtime.
    pub fn changes(&self) -> GuardChanges {
        GuardChanges { changes: Some(self.guard.changes()), home: Arc::clone(&self.home) }
    }

    /// Renews the lease now, in addition to the manager's thread.
    ///
    /// # Errors
    ///
    /// As [`leasehold::LockGuard::renew`](crate::LockGuard::renew).
    pub fn renew(&self) -> Result<()> {
        self.home.wait(self.guard.renew())
    }

    /// Releases the lock, and returns whether that is confirmed.
    ///
    /// # Errors
    ///
    /// As [`leasehold::LockGuard::release`](crate::LockGuard::release). Refused inside a tokio runtime, it is released in the
    /// background.
    pub fn release(self) -> Result<()> {
        self.home.wait(self.guard.release())
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.guard, f)
    }
}

/// The changes of a guard; see [`LockGuard::changes`].
#[derive(Debug)]
#[must_use = "an iterator does nothing until it is asked"]
pub struct GuardChanges {
    /// Nothing after the refusal to block.
    changes: Option<crate::Changes>,
    home: Arc<Home>,
}

impl Iterator for GuardChanges {
    type Item = Result<Change>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Err(inside) = refuse_inside() {
            return self.changes.take().map(|_| Err(inside));
        }
        let changes = self.changes.as_mut()?;
        self.home.wait(async { Ok(changes.next().await) }).transpose()
    }
}
