//! The holders of a lock, as a store shows them.

use std::time::{Duration, SystemTime};

use crate::words::mode::Mode;
use crate::words::token::FencingToken;

/// A holder of a lock, as the store shows it. It is for display: no decision depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The label of the holder's manager.
    pub label: String,
    /// The first token of the grant; local hand-offs of the holder's process have larger ones.
    pub token: Option<FencingToken>,
    /// When it was granted, by the holder's wall clock. A store that writes nothing when it grants the lock to a waiter
    /// shows when the holder joined the queue, by the store's clock, or `None`.
    pub since: Option<SystemTime>,
    /// The metadata of the holder.
    pub metadata: Option<String>,
    /// The mode of the hold.
    pub mode: Mode,
    /// How long its lease lasts without a renewal, or the rest of it if the store knows only that;
    /// [`Duration::MAX`] if it never expires, as the lock of a foreign client may.
    pub ttl: Option<Duration>,
    /// Whether it is a foreign client: its entry in the store has no record of leasehold. Such a holder
    /// cannot be notified of a revocation.
    pub foreign: bool,
}

impl Holder {
    /// Creates an exclusive holder with this label.
    pub fn new(label: impl Into<String>) -> Self {
        let (mode, foreign) = (Mode::EXCLUSIVE, false);
        Self { label: label.into(), token: None, since: None, metadata: None, mode, ttl: None, foreign }
    }

    /// Marks the holder as a foreign client.
    #[must_use]
    pub fn of_foreign_client(self) -> Self {
        Self { foreign: true, ..self }
    }

    /// Sets the counter of its grant as token.
    #[must_use]
    pub fn with_counter(mut self, counter: u64) -> Self {
        self.token = FencingToken::new(counter, 0);
        self
    }

    /// Returns whether both are one grant, as far as the store shows.
    pub(crate) fn is_same_grant(&self, other: &Self) -> bool {
        match (self.token, other.token) {
            (None, None) => {
                (&self.label, self.since, &self.metadata) == (&other.label, other.since, &other.metadata)
            }
            (ours, others) => ours == others,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Grants are told apart by token; those of foreign clients by all that the store shows, the rest of the lease
    /// apart.
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
