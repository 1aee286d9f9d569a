//! Several locks at once, all of them or none.
//!
//! # Invariants
//! - **all-1** Locks are acquired in the order of their names, so two callers of `all` never wait for each other
//!   in a circle.
//! - **all-2** A guard is in the [`AllGuard`] from the instant it exists, so the end of the attempt releases it.
//! - **all-3** If an acquired lock is lost, the wait for the others ends.
//!
//! A caller that already holds a lock and then acquires others may wait in a circle.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, join_all, pending, select, select_all};

use crate::api::guard::LockGuard;
use crate::api::lock::Lock;
use crate::backend::env::Env;
use crate::words::error::{Error, Result};
use crate::words::loss::LostReason;
use crate::words::name::LockName;
use crate::words::token::FencingToken;

/// Returns several locks of one manager as one; each keeps its own options and mode.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leasehold_core::Result<()> {
/// # use leasehold_core::{LockManager, memory::MemoryConfig};
/// # let locks = LockManager::builder(MemoryConfig::private()).build().await?;
/// let from = locks.lock("account/7")?;
/// let to = locks.lock("account/9")?;
/// let both = leasehold_core::all([from, to]).acquire().await?;
/// both.ensure_held()?;
/// both.release().await
/// # }
/// ```
pub fn all(locks: impl IntoIterator<Item = Lock>) -> All {
    let mut locks: Vec<_> = locks.into_iter().collect();
    locks.sort_by(|a, b| a.name().cmp(b.name()));
    All { locks, wait: None }
}

/// Several locks that are acquired and held at the same time; see [`all`].
#[derive(Clone, Debug)]
#[must_use = "no lock is acquired before `acquire`"]
pub struct All {
    /// In order of their names.
    locks: Vec<Lock>,
    wait: Option<Duration>,
}

/// The guard of several locks, until it is released or dropped.
#[must_use = "dropping the guard releases the locks"]
#[derive(Debug)]
pub struct AllGuard {
    /// In order of their names.
    guards: Vec<LockGuard>,
}

impl All {
    /// Waits at most this long for all of them; a lock's own `wait` bounds its part.
    pub fn wait(mut self, total: Duration) -> Self {
        self.wait = Some(total);
        self
    }

    /// Acquires the locks one after the other, in the order of their names.
    ///
    /// # Errors
    ///
    /// - As [`Lock::acquire`], of the first lock that is not granted: no lock is held then.
    /// - [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption): there is no lock, one is named twice, they belong
    ///   to several managers, or an option is invalid; before any request.
    /// - [`ErrorKind::Lost`](crate::ErrorKind::Lost): an acquired lock was lost during the wait for others.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`]: acquired locks are released in the background.
    pub async fn acquire(&self) -> Result<AllGuard> {
        let env = self.checked()?;
        let until = self.wait.map(|wait| env.now() + wait);
        let mut held = self.none_yet();
        for lock in &self.locks {
            let left = until.map(|until| until.since(env.now()));
            let lock = lock.as_part(left);
            let granted = {
                let lost = async { if held.guards.is_empty() { pending().await } else { held.lost().await } };
                let (granted, lost) = (pin!(lock.acquire()), pin!(lost));
                // INVARIANT(all-3)
                match select(granted, lost).await {
                    Either::Left((granted, _)) => granted?,
                    Either::Right(((name, reason), _)) => {
                        return Err(Error::lost(reason).with_context("lock", &name));
                    }
                }
            };
            held.guards.push(granted);
        }
        self.complete(held)
    }

    /// Acquires the locks if none needs a wait, else returns `None`.
    ///
    /// Before `None` it releases the locks that it acquired, which takes as long as [`AllGuard::release`].
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire) and [`Lock::try_acquire`]; as [`AllGuard::release`], if the release of the acquired
    /// locks is not confirmed.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(&self) -> Result<Option<AllGuard>> {
        self.checked()?;
        let mut held = self.none_yet();
        for lock in &self.locks {
            match lock.as_part(None).try_acquire().await? {
                Some(guard) => held.guards.push(guard),
                None => {
                    return match held.release().await {
                        Err(error) if error.lost_reason().is_none() => Err(error),
                        _released_or_lost => Ok(None),
                    };
                }
            }
        }
        self.complete(held).map(Some)
    }

    /// All of them are granted.
    fn complete(&self, mut held: AllGuard) -> Result<AllGuard> {
        // No caller may have waited for a loss meanwhile, and timers, which report it, stop while the host is suspended.
        held.ensure_held()?;
        for (lock, guard) in self.locks.iter().zip(&mut held.guards) {
            lock.complete(guard);
        }
        Ok(held)
    }

    fn none_yet(&self) -> AllGuard {
        AllGuard { guards: Vec::with_capacity(self.locks.len()) }
    }

    /// The manager of all locks.
    fn checked(&self) -> Result<&Env> {
        let Some(first) = self.locks.first() else {
            return Err(Error::invalid_option("`all` needs at least one lock"));
        };
        if !self.locks.iter().all(|lock| Arc::ptr_eq(&lock.local.core, &first.local.core)) {
            return Err(Error::invalid_option(
                "`all` needs locks of one manager: acquire those of the other manager separately",
            ));
        }
        for lock in &self.locks {
            lock.check()?;
        }
        match self.locks.windows(2).find(|pair| pair[0].name() == pair[1].name()) {
            Some(twice) => {
                let name = twice[0].name().as_str();
                Err(Error::invalid_option(format!("`all` names the lock {name:?} twice: name it once")))
            }
            None => Ok(&first.local.core.context.env),
        }
    }
}

impl AllGuard {
    /// Returns the guards, in the order of their names.
    pub fn guards(&self) -> &[LockGuard] {
        &self.guards
    }

    /// Returns the token of one lock, for the resource that it protects.
    pub fn token(&self, name: &str) -> Option<FencingToken> {
        self.guards.iter().find(|guard| guard.name().as_str() == name).map(LockGuard::token)
    }

    /// Fails if one of the locks is not held; see [`LockGuard::ensure_held`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) when one is lost.
    pub fn ensure_held(&self) -> Result<()> {
        self.guards.iter().try_for_each(LockGuard::ensure_held)
    }

    /// Returns how long all of them are held without a renewal.
    pub fn remaining(&self) -> Duration {
        self.guards.iter().map(LockGuard::remaining).min().unwrap_or_default()
    }

    /// Waits until one of them is lost or released, and returns its name and the reason.
    pub fn lost(&self) -> impl Future<Output = (LockName, LostReason)> + Send + 'static + use<> {
        let named = |guard: &LockGuard| {
            let name = guard.name().clone();
            guard.lost().map(move |reason| (name, reason))
        };
        select_all(self.guards.iter().map(named)).map(|(first, ..)| first)
    }

    /// Releases all of them at the same time; returns the first error in the order of their names.
    ///
    /// # Errors
    ///
    /// As [`LockGuard::release`]; the other locks are released in any case.
    ///
    /// # Cancel safety
    ///
    /// As [`LockGuard::release`]: the releases continue in the background.
    pub async fn release(mut self) -> Result<()> {
        let guards = std::mem::take(&mut self.guards);
        join_all(guards.into_iter().map(LockGuard::release)).await.into_iter().collect()
    }
}

impl Drop for AllGuard {
    /// The last one first, so that a waiter for the first lock finds the others free.
    fn drop(&mut self) {
        while let Some(guard) = self.guards.pop() {
            drop(guard);
        }
    }
}
