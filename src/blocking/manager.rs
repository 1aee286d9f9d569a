//! The manager of a program that is not async.

use std::fmt;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;

use super::lock::Lock;
use super::{Home, refuse_inside};
use crate::backend::LockState;
use crate::{Builder, Guarantees, Result, Revocation, Revoke};

/// The locks of one store; see [`leasehold::LockManager`](crate::LockManager).
///
/// When the last clone, lock and guard are dropped, its thread shuts it down in the background. A program that ends before
/// that leaves its locks to their leases: call [`shutdown`](Self::shutdown) at the end.
#[derive(Clone)]
pub struct LockManager {
    locks: crate::LockManager,
    home: Arc<Home>,
}

impl LockManager {
    /// Opens the store of a configuration, which [`leasehold::LockManager::builder`](crate::LockManager::builder) begins.
    ///
    /// # Errors
    ///
    /// As [`Builder::build`]; [`ErrorKind::Misuse`](crate::ErrorKind::Misuse) inside a tokio runtime.
    pub fn open(builder: Builder) -> Result<Self> {
        let (locks, home) = Home::start(builder)?;
        Ok(Self { locks, home })
    }

    /// Returns the lock `name`, without a request.
    ///
    /// # Errors
    ///
    /// As [`leasehold::LockManager::lock`](crate::LockManager::lock).
    pub fn lock(&self, name: impl AsRef<str>) -> Result<Lock> {
        Ok(Lock::new(self.locks.lock(name)?, &self.home))
    }

    /// Returns the guarantees of this store.
    pub fn guarantees(&self) -> Guarantees {
        self.locks.guarantees()
    }

    /// Fails if this store lacks a guarantee that the program needs; call it at the start.
    ///
    /// # Errors
    ///
    /// As [`leasehold::LockManager::require`](crate::LockManager::require).
    pub fn require(&self, needed: Guarantees) -> Result<()> {
        self.locks.require(needed)
    }

    /// Returns whether this manager holds `name`, without a request.
    pub fn holds(&self, name: impl AsRef<str>) -> bool {
        self.locks.holds(name)
    }

    /// Returns the holders of `name` and the number of waiting clients.
    ///
    /// # Errors
    ///
    /// As [`leasehold::LockManager::inspect`](crate::LockManager::inspect).
    pub fn inspect(&self, name: impl AsRef<str>) -> Result<LockState> {
        self.home.wait(self.locks.inspect(name))
    }

    /// Returns the names with this prefix that are held or waited for.
    ///
    /// # Errors
    ///
    /// As [`leasehold::LockManager::list`](crate::LockManager::list).
    pub fn list(&self, prefix: &str) -> Result<Vec<LockState>> {
        self.home.wait(self.locks.list(prefix))
    }

    /// Returns the states of `name`: the present one, and a new one after each change, for which the iterator waits.
    ///
    /// It ends when the manager is shut down.
    ///
    /// # Errors
    ///
    /// As [`leasehold::LockManager::watch`](crate::LockManager::watch).
    pub fn watch(&self, name: impl AsRef<str>) -> Result<States> {
        Ok(States { states: Some(self.locks.watch(name)?), home: Arc::clone(&self.home) })
    }

    /// Requests the release of `name` from its holder, and waits at most for the grace period and the ttl.
    ///
    /// # Errors
    ///
    /// As [`leasehold::LockManager::revoke`](crate::LockManager::revoke).
    pub fn revoke(&self, name: impl AsRef<str>, how: Revoke) -> Result<Revocation> {
        self.home.wait(self.locks.revoke(name, how))
    }

    /// Closes the session for all clones and waits for that.
    ///
    /// # Errors
    ///
    /// As [`leasehold::LockManager::shutdown`](crate::LockManager::shutdown).
    pub fn shutdown(&self) -> Result<()> {
        self.home.wait(self.locks.shutdown())
    }

    /// As [`shutdown`](Self::shutdown), without waiting for a [`hold_at_least`](Lock::hold_at_least).
    ///
    /// # Errors
    ///
    /// As [`leasehold::LockManager::shutdown_now`](crate::LockManager::shutdown_now).
    pub fn shutdown_now(&self) -> Result<()> {
        self.home.wait(self.locks.shutdown_now())
    }
}

impl fmt::Debug for LockManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.locks, f)
    }
}

/// The states of a lock; see [`LockManager::watch`].
#[must_use = "an iterator does nothing until it is asked"]
pub struct States {
    /// Nothing after the refusal to block.
    states: Option<BoxStream<'static, Result<LockState>>>,
    home: Arc<Home>,
}

impl Iterator for States {
    type Item = Result<LockState>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Err(inside) = refuse_inside() {
            return self.states.take().map(|_| Err(inside));
        }
        let states = self.states.as_mut()?;
        self.home.wait(async { states.next().await.transpose() }).transpose()
    }
}

impl fmt::Debug for States {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("States").finish_non_exhaustive()
    }
}
