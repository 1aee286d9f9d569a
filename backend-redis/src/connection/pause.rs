//! Until when a server that has restarted may have forgotten holders.
//!
//! A connection leads to one run of the server as long as it lasts (redis.connection-1). So the request is sent once for each
//! connection, before all others; its reply is an argument of every script that goes over the connection.

use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_core::{Effect, Error, ErrorKind, Result};
use redis::RedisError;

use super::Connection;
use crate::keys::Keys;
use crate::scripts::{self, ADMIT, millis};

/// The request that a link with a pause sends over each of its connections.
#[derive(Debug)]
pub(crate) struct Pause {
    key: String,
    span: Duration,
}

impl Pause {
    pub(crate) fn new(keys: &Keys, span: Duration) -> Self {
        Self { key: keys.origin(), span }
    }

    /// Until when nothing is to be granted over `connection`, by the server's clock, in microseconds.
    ///
    /// # Errors
    ///
    /// As `failed` says; `Denied` without a right; `InvalidOption` if the other managers have another pause.
    pub(super) async fn ask(
        &self,
        connection: &Connection,
        give_up_at: Moment,
        failed: fn(RedisError) -> Error,
    ) -> Result<u64> {
        let mut call = ADMIT.call(&[&self.key]);
        call.arg(millis(self.span));
        let answer = connection.run(&call, give_up_at).await;
        let answer = answer.map_err(|error| error.with_effect(Effect::NotApplied))?;
        let answer = answer.map_err(failed).map_err(|error| match error.kind() {
            ErrorKind::Denied => denied(error),
            _ => error,
        })?;
        scripts::admitted(&answer)?.map_err(|other| {
            let (ours, theirs) = (self.span, Duration::from_millis(other));
            Error::invalid_option(format!(
                "`pause_after_restart` {ours:?} is invalid: expected {theirs:?}, as the other managers of the \
                 prefix have. To change the pause, stop all managers and delete the key {:?}",
                self.key
            ))
        })
    }
}

fn denied(error: Error) -> Error {
    let message =
        "cannot use `pause_after_restart`: grant +info, and load its script with `leasehold redis-scripts`";
    Error::not_applied(ErrorKind::Denied, message).with_source(format!("{error:#}"))
}
