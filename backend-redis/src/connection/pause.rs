//! Until when a server that has restarted or was promoted may have forgotten holders.
//!
//! A connection leads to one reign of the server as long as it lasts (redis.connection-1): a primary that is made a replica
//! refuses the next request, and whoever makes it one again has closed its connections. So the request is sent once for each
//! connection, before all others; the times from its reply are an argument of every script that goes over the connection.

use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_core::{Effect, Error, ErrorKind, Result};
use redis::RedisError;

use super::Connection;
use crate::config::PauseOption;
use crate::keys::Keys;
use crate::scripts::{self, ADMIT, Admission, ReignTimes, millis};

/// The request that a link with a pause sends over each of its connections.
#[derive(Debug)]
pub(crate) struct Pause {
    key: String,
    option: PauseOption,
}

impl Pause {
    pub(crate) fn new(keys: &Keys, option: PauseOption) -> Self {
        Self { key: keys.origin(), option }
    }

    /// What scripts are told over `connection`.
    ///
    /// # Errors
    ///
    /// As `failed` says, `Unavailable` for a replica among it; `Denied` without a right; `InvalidOption` if the other managers
    /// have other terms; `Unsupported` for a server that hides its reign.
    pub(super) async fn ask(
        &self,
        connection: &Connection,
        give_up_at: Moment,
        failed: fn(RedisError) -> Error,
    ) -> Result<ReignTimes> {
        let PauseOption { name, span, lag, .. } = self.option;
        let mut call = ADMIT.call(&[&self.key]);
        call.arg(written(&self.option));
        let answer = connection.run(&call, give_up_at, false).await;
        let answer = answer.map_err(|error| error.with_effect(Effect::NotApplied))?;
        let answer = answer.map_err(failed).map_err(|error| match error.kind() {
            ErrorKind::Denied => denied(name, error),
            _ => error,
        })?;
        match scripts::admission(&answer)? {
            Admission::Since(since) => {
                let after = |span| since.saturating_add(millis(span).saturating_mul(1000));
                Ok(ReignTimes { paused_until: after(span), lag_until: after(lag) })
            }
            Admission::OtherTerms(theirs) => {
                let (key, difference) = (&self.key, difference(&self.option, &theirs));
                Err(Error::invalid_option(format!(
                    "{difference}, as the other managers of the prefix have. To change that, stop all managers and \
                     delete the key {key:?}"
                )))
            }
            Admission::Unnamed => {
                let message = format!(
                    "cannot use `{name}`: the server does not show its run_id and master_replid in INFO"
                );
                Err(Error::not_applied(ErrorKind::Unsupported, message))
            }
        }
    }
}

/// The terms as the script notes them: in milliseconds, one behind the other.
fn written(option: &PauseOption) -> String {
    option.terms().iter().map(|(_, span)| millis(*span).to_string()).collect::<Vec<_>>().join("/")
}

/// The first of our terms that differs from what the others have noted.
fn difference(option: &PauseOption, noted: &str) -> String {
    let ours = option.terms();
    let theirs: Option<Vec<u64>> = noted.split('/').map(|millis| millis.parse().ok()).collect();
    let first = theirs
        .filter(|theirs| theirs.len() == ours.len())
        .and_then(|theirs| ours.iter().zip(theirs).find(|((_, ours), theirs)| millis(*ours) != *theirs));
    match first {
        Some(((name, ours), theirs)) => {
            format!("{name} {ours:?} is invalid: expected {:?}", Duration::from_millis(theirs))
        }
        // With sentinels there are more terms.
        None => {
            let (name, ours) = &ours[0];
            format!("{name} {ours:?} is invalid: expected the terms {noted:?}, in milliseconds")
        }
    }
}

fn denied(name: &str, error: Error) -> Error {
    let message =
        format!("cannot use `{name}`: grant +info, and load its script with `leasehold redis-scripts`");
    Error::not_applied(ErrorKind::Denied, message).with_source(format!("{error:#}"))
}
