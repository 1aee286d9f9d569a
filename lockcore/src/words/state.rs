//! The state of a lock, as a store shows it.

use crate::words::holder::Holder;
use crate::words::name::LockName;

/// The state of a lock; see [`LockBackend::inspect`](crate::backend::LockBackend::inspect).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockState {
    /// The lock.
    pub name: LockName,
    /// The holders, in order of arrival; empty if the lock is free.
    pub holders: Vec<Holder>,
    /// The number of waiters in the store's queue, without the holders.
    pub contenders: usize,
}

impl LockState {
    /// Creates the state of `name`.
    pub fn new(name: LockName, holders: impl IntoIterator<Item = Holder>, contenders: usize) -> Self {
        Self { name, holders: holders.into_iter().collect(), contenders }
    }

    /// Returns the first holder in order of arrival, the only one of an exclusive lock.
    pub fn holder(&self) -> Option<&Holder> {
        self.holders.first()
    }
}
