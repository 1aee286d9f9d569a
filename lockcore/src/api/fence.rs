//! Fencing at a resource that lives in this process.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::words::token::FencingToken;

/// Remembers the largest token it has seen and refuses smaller ones.
///
/// Every protected resource needs such a check; a database does it with `UPDATE … WHERE fence <= ?` (see
/// the example `fenced_write`). A writer that does not know of its loss has a smaller token than its
/// successor, so it is refused once the successor has written (G3).
///
/// The check and the act it guards must be one step for the resource: check inside the resource's
/// own mutex or transaction.
///
/// # Examples
///
/// ```
/// # use leasehold_core::{FenceGate, FencingToken};
/// let gate = FenceGate::new();
/// let (old, new) = (FencingToken::new(1, 0).unwrap(), FencingToken::new(2, 0).unwrap());
/// assert!(gate.admit(old).is_ok());
/// assert!(gate.admit(new).is_ok());
/// assert_eq!(gate.admit(old).unwrap_err().largest_seen, new.get());
/// ```
#[derive(Debug, Default)]
pub struct FenceGate {
    largest: AtomicU64,
}

/// The refusal of a token below the largest seen: its holder has lost the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fenced {
    /// The refused token.
    pub token: FencingToken,
    /// The largest number seen, [`FencingToken::get`] of a later holder.
    pub largest_seen: u64,
}

impl FenceGate {
    /// Creates a gate that has seen no token.
    pub const fn new() -> Self {
        Self { largest: AtomicU64::new(0) }
    }

    /// Creates a gate that has seen `largest`, the token that the resource has stored.
    pub const fn resumed(largest: u64) -> Self {
        Self { largest: AtomicU64::new(largest) }
    }

    /// Admits `token` if none larger was admitted before.
    ///
    /// # Errors
    ///
    /// [`Fenced`] otherwise.
    pub fn admit(&self, token: FencingToken) -> Result<(), Fenced> {
        // ORDERING: one atomic maximum decides; acquire-release orders what the admitted do.
        let largest_seen = self.largest.fetch_max(token.get(), Ordering::AcqRel);
        if token.get() < largest_seen { Err(Fenced { token, largest_seen }) } else { Ok(()) }
    }

    /// Admits a reader, of a [shared](crate::Lock::shared) lock, if no writer with a larger token was admitted
    /// before. Readers hold at the same time, so a reader's token is not remembered.
    ///
    /// # Errors
    ///
    /// [`Fenced`] otherwise: the reader's lock no longer protects the data.
    pub fn admit_read(&self, token: FencingToken) -> Result<(), Fenced> {
        // ORDERING: pairs with the release of the writer it sees.
        let largest_seen = self.largest.load(Ordering::Acquire);
        if token.get() < largest_seen { Err(Fenced { token, largest_seen }) } else { Ok(()) }
    }
}

impl std::fmt::Display for Fenced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "token {} is stale: a later holder has already written with token {}",
            self.token, self.largest_seen
        )
    }
}

impl std::error::Error for Fenced {}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same token may write again; a smaller one may not, whatever the order of arrival.
    #[test]
    fn a_smaller_token_is_refused() {
        let token = |counter| FencingToken::new(counter, 0).unwrap();
        let gate = FenceGate::resumed(token(5).get());
        assert!(gate.admit(token(4)).is_err());
        assert!(gate.admit(token(5)).is_ok());
        assert!(gate.admit(token(6)).is_ok());
        assert!(gate.admit(token(6)).is_ok());
        assert!(gate.admit(token(5)).is_err());
    }

    /// Readers pass in any order, until a later writer has; none keeps another out, nor a writer.
    #[test]
    fn a_reader_is_refused_behind_a_later_writer_alone() {
        let token = |counter, index| FencingToken::new(counter, index).unwrap();
        let gate = FenceGate::resumed(token(5, 0).get());
        for reader in [token(6, 1), token(6, 0), token(9, 0), token(5, 1)] {
            gate.admit_read(reader).unwrap();
        }
        gate.admit(token(7, 0)).unwrap();
        gate.admit_read(token(7, 0)).unwrap();
        gate.admit_read(token(9, 0)).unwrap();
        assert_eq!(gate.admit_read(token(6, 1)).unwrap_err().largest_seen, token(7, 0).get());
    }
}
