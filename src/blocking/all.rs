//! Several locks at once, for programs that are not async.

use std::sync::Arc;
use std::time::Duration;

use super::Home;
use super::lock::Lock;
use crate::{FencingToken, Result};

/// Returns several locks of one manager as one; see [`leasehold::all`](crate::all).
///
/// # Examples
///
/// ```
/// # fn main() -> leasehold::Result<()> {
/// # let locks = leasehold::blocking::connect("memory://")?;
/// let accounts = [locks.lock("account/7")?, locks.lock("account/9")?];
/// let both = leasehold::blocking::all(accounts).acquire()?;
/// both.ensure_held()?;
/// both.release()
/// # }
/// ```
pub fn all(locks: impl IntoIterator<Item = Lock>) -> All {
    let mut home = None;
    let locks = locks.into_iter().map(|lock| {
        home.get_or_insert(lock.home);
        lock.lock
    });
    let all = crate::all(locks);
    All { all, home }
}

/// Several locks that are acquired and held at the same time; see [`all`].
#[derive(Clone, Debug)]
#[must_use = "no lock is acquired before `acquire`"]
pub struct All {
    all: crate::All,
    /// Nothing of no lock, which is refused.
    home: Option<Arc<Home>>,
}

/// The guard of several locks, until it is released or dropped.
#[must_use = "dropping the guard releases the locks"]
#[derive(Debug)]
pub struct AllGuard {
    guard: crate::AllGuard,
    home: Arc<Home>,
}

impl All {
    /// Waits at most this long for all of them; a lock's own `wait` bounds its part.
    pub fn wait(self, total: Duration) -> Self {
        Self { all: self.all.wait(total), home: self.home }
    }

    /// Acquires the locks one after the other, in the order of their names.
    ///
    /// # Errors
    ///
    /// As [`leasehold::All::acquire`](crate::All::acquire).
    pub fn acquire(&self) -> Result<AllGuard> {
        let home = self.home()?;
        Ok(AllGuard { guard: home.wait(self.all.acquire())?, home })
    }

    /// Acquires the locks if none needs a wait, else returns `None`.
    ///
    /// # Errors
    ///
    /// As [`leasehold::All::try_acquire`](crate::All::try_acquire).
    pub fn try_acquire(&self) -> Result<Option<AllGuard>> {
        let home = self.home()?;
        Ok(home.wait(self.all.try_acquire())?.map(|guard| AllGuard { guard, home }))
    }

    fn home(&self) -> Result<Arc<Home>> {
        let none = || crate::Error::invalid_option("`all` needs at least one lock");
        self.home.clone().ok_or_else(none)
    }
}

impl AllGuard {
    /// Returns the token of one lock, for the resource that it protects.
    pub fn token(&self, name: &str) -> Option<FencingToken> {
        self.guard.token(name)
    }

    /// Fails if one of the locks is not held; see [`LockGuard::ensure_held`](super::LockGuard::ensure_held).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) when one is lost.
    pub fn ensure_held(&self) -> Result<()> {
        self.guard.ensure_held()
    }

    /// Returns how long all of them are held without a renewal.
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// Releases all of them at the same time; returns the first error in the order of their names.
    ///
    /// # Errors
    ///
    /// As [`leasehold::AllGuard::release`](crate::AllGuard::release).
    pub fn release(self) -> Result<()> {
        self.home.wait(self.guard.release())
    }
}
