//! The guarantees of a store, as data: for display, for a check at the start, and for the choice of conformance
//! cases.

use std::fmt;

use crate::words::error::{Effect, Error, ErrorKind, Result};
use crate::words::mode::Mode;

bitflags::bitflags! {
    /// The promises of a store. Each flag is checked by conformance cases of that name; a store
    /// that lacks one is skipped there by name.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub struct Guarantees: u32 {
        /// Tokens of a name are unique and grow in grant order (G3).
        const FENCED = 1;
        /// First come, first served between processes (G7).
        const FIFO = 1 << 1;
        /// A hold ends a bounded time after its process died, was stopped, or lost the network
        /// (G6). A store without leases may still free the lock of a process that died.
        const LEASED = 1 << 2;
        /// Excludes other processes of one host.
        const CROSS_PROCESS = 1 << 3;
        /// Excludes processes of other hosts.
        const CROSS_HOST = 1 << 4;
        /// The loss of one server loses no acknowledged lock (G1 holds across fail-over).
        const SURVIVES_FAILOVER = 1 << 5;
        /// Tokens keep growing when every process and server of the store restarts.
        const SURVIVES_RESTART = 1 << 6;
        /// Every lock may have a ttl of its own.
        const PER_LOCK_TTL = 1 << 7;
        /// `release` completes at its first poll and needs no async runtime, so dropping a guard
        /// releases at once, on any thread.
        const RUNTIME_FREE = 1 << 8;
        /// Readers share a lock: [`Mode::SHARED`](crate::Mode::SHARED).
        const SHARED = 1 << 9;
        /// Several clients hold permits of a capacity: [`Mode::permits`](crate::Mode::permits).
        const PERMITS = 1 << 10;
    }
}

impl Guarantees {
    /// Every flag with one line for a reader, in the order of tables.
    pub const DESCRIBED: &[(Self, &'static str)] = &[
        (Self::FENCED, "tokens grow with every grant"),
        (Self::FIFO, "first come, first served between processes"),
        (Self::LEASED, "the lock of an unreachable holder expires"),
        (Self::CROSS_PROCESS, "excludes other processes of the host"),
        (Self::CROSS_HOST, "excludes other hosts"),
        (Self::SURVIVES_FAILOVER, "the loss of one server loses no lock"),
        (Self::SURVIVES_RESTART, "tokens grow across a restart of all servers and clients"),
        (Self::PER_LOCK_TTL, "a ttl per lock"),
        (Self::RUNTIME_FREE, "a dropped guard is released at once, without a runtime"),
        (Self::SHARED, "readers share a lock"),
        (Self::PERMITS, "several clients hold permits of a capacity"),
    ];

    /// Fails if `self` lacks a guarantee of `needed`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`], naming the missing guarantees.
    pub fn require(self, needed: Self) -> Result<()> {
        let missing = needed.difference(self);
        if missing.is_empty() {
            return Ok(());
        }
        // As options and the command take them.
        let words = |flags: Self| flags.to_string().to_ascii_lowercase().replace(" | ", ", ");
        let message = format!("this store does not promise {}; it promises {}", words(missing), words(self));
        Err(Error::new(ErrorKind::Unsupported, Effect::NotApplied, message))
    }
}

impl Mode {
    /// Returns the guarantee that it needs from a store.
    pub fn needs(self) -> Guarantees {
        match self {
            Self::EXCLUSIVE => Guarantees::empty(),
            Self::SHARED => Guarantees::SHARED,
            _ => Guarantees::PERMITS,
        }
    }
}

impl fmt::Display for Guarantees {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing");
        }
        bitflags::parser::to_writer(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table made from `DESCRIBED` forgets no flag and repeats none.
    #[test]
    fn every_flag_is_described_once() {
        let described: Vec<_> = Guarantees::DESCRIBED.iter().map(|(flag, _)| *flag).collect();
        assert_eq!(described, Guarantees::all().iter().collect::<Vec<_>>());
    }

    /// Moving to a weaker store fails loudly, and says what is missing.
    #[test]
    fn require_names_the_missing_promise() {
        let weak = Guarantees::LEASED;
        assert!(weak.require(Guarantees::LEASED).is_ok());
        let error = weak.require(Guarantees::FENCED | Guarantees::CROSS_HOST).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Unsupported);
        assert_eq!(error.to_string(), "this store does not promise fenced, cross_host; it promises leased");
    }
}
