//! The options that all managers of the same servers must share.
//!
//! They are written to each server, and a manager with others is refused: with another quorum there are two holders, and after
//! a restart a pause that is shorter than a lease lets in a second one.

use std::fmt;
use std::time::Duration;

use leasehold_core::{Error, Result};

use super::protocol::Size;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    pub(crate) size: Size,
    /// How long a server that came up gives no vote.
    pub(crate) pause: Duration,
    /// Whether a server that came up with its data has forgotten nothing.
    pub(crate) trusts_disks: bool,
}

impl Agreed {
    /// Whether a restart leads to no second holder. Without a pause it may, as a trusted disk may be lost.
    pub(crate) fn survives_restarts(self) -> bool {
        !self.pause.is_zero()
    }

    /// Refuses a `ttl` whose lease may last when a server that has forgotten it votes again.
    pub(crate) fn admits(self, ttl: Duration) -> Result<()> {
        if ttl <= self.pause || self.pause.is_zero() {
            return Ok(());
        }
        Err(Error::invalid_option(format!(
            "`ttl` {ttl:?} is longer than pause_after_restart={pause:?}, after which a restarted server \
             votes again: set pause_after_restart to the longest ttl in use",
            pause = self.pause
        )))
    }
}

/// As servers and errors have it.
impl fmt::Display for Agreed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { size: Size { servers, quorum }, pause, trusts_disks } = self;
        write!(f, "{servers} servers, quorum={quorum}, ")?;
        write!(f, "pause_after_restart={}ms, fsync_always={trusts_disks}", pause.as_millis())
    }
}
