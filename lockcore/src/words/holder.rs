//! Whom a store names as holder, and what it shows of a lock.

use std::time::{Duration, SystemTime};

use crate::words::mode::Mode;
use crate::words::name::LockName;
use crate::words::token::FencingToken;

/// Who holds a lock, as far as the store tells. Labels only; nothing is decided by it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The label of the holder's manager.
    pub label: String,
    /// The first token of the grant; local hand-offs of the holder's process have larger ones.
    pub token: Option<FencingToken>,
    /// When it was granted, by the holder's wall clock.
    pub since: Option<SystemTime>,
    /// What the holder attached.
    pub metadata: Option<String>,
    /// How it holds.
    pub mode: Mode,
    /// How long its lease lasts without a renewal, or what is left of it where that is all that is known;
    /// [`Duration::MAX`] if it never ends by itself, as that of a foreign client may not.
    pub ttl: Option<Duration>,
    /// Whether it is no leasehold process: its entry in the store has no record that leasehold writes. Such a
    /// holder cannot be asked to release.
    pub foreign: bool,
}

impl Holder {
    /// A holder of which only the label is known; exclusive.
    pub fn new(label: impl Into<String>) -> Self {
        let (mode, foreign) = (Mode::EXCLUSIVE, false);
        Self { label: label.into(), token: None, since: None, metadata: None, mode, ttl: None, foreign }
    }

    /// The same holder, which is no leasehold process.
    #[must_use]
    pub fn of_foreign_client(self) -> Self {
        Self { foreign: true, ..self }
    }

    /// The same holder with its grant's counter as token.
    #[must_use]
    pub fn with_counter(mut self, counter: u64) -> Self {
        self.token = FencingToken::new(counter, 0);
        self
    }

    /// Whether both are one grant, as far as the store tells.
    pub(crate) fn is_same_grant(&self, other: &Self) -> bool {
        match (self.token, other.token) {
            (None, None) => {
                (&self.label, self.since, &self.metadata) == (&other.label, other.since, &other.metadata)
            }
            (ours, others) => ours == others,
        }
    }
}

/// What [`LockBackend::inspect`](crate::backend::LockBackend::inspect) shows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockState {
    /// The lock.
    pub name: LockName,
    /// Who holds it, in order of arrival; nobody, if it is free.
    pub holders: Vec<Holder>,
    /// How many wait in the store's queue, holders not counted.
    pub contenders: usize,
}

impl LockState {
    /// The state of `name`.
    pub fn new(name: LockName, holders: impl IntoIterator<Item = Holder>, contenders: usize) -> Self {
        Self { name, holders: holders.into_iter().collect(), contenders }
    }

    /// The holder that came first, if it is held; the only one of an exclusive lock.
    pub fn holder(&self) -> Option<&Holder> {
        self.holders.first()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By token where there is one; the holders of others by all that is told of them, but for what is
    /// left of a lease.
    #[test]
    fn a_grant_is_told_from_the_next() {
        let ours = Holder::new("a").with_counter(7);
        let moved =
            Holder { since: Some(SystemTime::UNIX_EPOCH), ttl: Some(Duration::from_secs(1)), ..ours.clone() };
        assert!(ours.is_same_grant(&moved));
        assert!(!ours.is_same_grant(&Holder::new("a").with_counter(8)));
        assert!(!ours.is_same_grant(&Holder::new("a")));
        let stranger = Holder::new("a");
        let later = Holder { since: Some(SystemTime::UNIX_EPOCH), ..stranger.clone() };
        let renewed = Holder { ttl: Some(Duration::from_secs(1)), ..stranger.clone() };
        assert!(stranger.is_same_grant(&renewed) && !stranger.is_same_grant(&later));
        assert!(!stranger.is_same_grant(&Holder::new("b")));
    }
}
