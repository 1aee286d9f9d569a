//! What all who lock with the same servers have to agree on.
//!
//! It is written to each server when that is told what it may have forgotten, and whoever differs is refused: with another
//! quorum there are two holders, and a pause that is shorter than a lease lets in a second one after a restart.

use std::fmt;
use std::time::Duration;

use leasehold_core::{Error, Result};

use super::protocol::Size;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    pub(crate) size: Size,
    /// How long a server gives no vote after it came up.
    pub(crate) pause: Duration,
    /// Whether a server that came up with its data knows all that it ever did.
    pub(crate) trusts_disks: bool,
}

impl Agreed {
    /// Whether a server that came up again does no harm: one that is trusted may still come up without its data.
    pub(crate) fn survives_restarts(self) -> bool {
        !self.pause.is_zero()
    }

    /// Whether a lease of `ttl` is over when a server that has forgotten it votes again.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`](leasehold_core::ErrorKind::InvalidOption).
    pub(crate) fn admits(self, ttl: Duration) -> Result<()> {
        if ttl <= self.pause || self.pause.is_zero() {
            return Ok(());
        }
        Err(Error::invalid_option(format!(
            "a server that has come up votes again after {pause:?}, so no lock has a longer ttl, as {ttl:?} is: \
             set pause_after_restart to the longest ttl in use",
            pause = self.pause
        )))
    }
}

/// As servers keep it, and errors say it.
impl fmt::Display for Agreed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { size: Size { servers, quorum }, pause, trusts_disks } = self;
        write!(f, "{servers} servers, quorum={quorum}, ")?;
        write!(f, "pause_after_restart={}ms, fsync_always={trusts_disks}", pause.as_millis())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agreed(pause: u64, trusts_disks: bool) -> Agreed {
        Agreed { size: Size { servers: 3, quorum: 2 }, pause: Duration::from_secs(pause), trusts_disks }
    }

    /// No lease is longer than the pause, unless there is none: a disk that is trusted may be lost.
    #[test]
    fn a_lease_is_over_when_a_server_votes_again() {
        let (ttl, second) = (Duration::from_secs(10), Duration::from_secs(1));
        assert!(agreed(10, false).admits(ttl).is_ok());
        let refused = agreed(10, false).admits(ttl + second).unwrap_err();
        assert!(refused.to_string().contains("pause_after_restart"), "{refused}");
        assert!(agreed(0, false).admits(ttl).is_ok());
        assert!(agreed(1, true).admits(ttl).is_err());
    }

    /// A restart that forgets is survived by a pause only.
    #[test]
    fn a_restart_is_survived_by_a_pause() {
        assert!(agreed(10, false).survives_restarts());
        assert!(!agreed(0, false).survives_restarts());
        assert!(!agreed(0, true).survives_restarts());
    }

    /// Whatever differs is told apart.
    #[test]
    fn agreed_terms_are_written() {
        let text = "3 servers, quorum=2, pause_after_restart=10000ms, fsync_always=false";
        assert_eq!(agreed(10, false).to_string(), text);
    }
}
