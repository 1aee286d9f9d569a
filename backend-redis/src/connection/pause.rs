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
        let name = self.option.name;
        let mut call = ADMIT.call(&[&self.key]);
        call.arg(written(&self.option));
        let answer = connection.run(&call, give_up_at, false).await;
        let answer = answer.map_err(|error| error.with_effect(Effect::NotApplied))?;
        let answer = answer.map_err(failed).map_err(|error| match error.kind() {
            ErrorKind::Denied => denied(name, error),
            _ => error,
        })?;
        self.times(&scripts::admission(&answer)?)
    }

    fn times(&self, admission: &Admission) -> Result<ReignTimes> {
        let PauseOption { name, span, lag, .. } = self.option;
        match admission {
            Admission::Since(since) => {
                let after = |span| since.saturating_add(millis(span).saturating_mul(1000));
                Ok(ReignTimes { paused_until: after(span), lag_until: after(lag) })
            }
            Admission::OtherTerms(theirs) => {
                let (key, difference) = (&self.key, difference(&self.option, theirs));
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The term that differs is named, whatever the others have noted, and a server that hides its reign cannot pause.
    #[test]
    fn term_that_differs_is_named() {
        let seconds = Duration::from_secs;
        let watched = PauseOption {
            name: "pause_after_failover",
            span: seconds(72),
            lag: seconds(12),
            max_ttl: Some(seconds(60)),
        };
        let alone =
            PauseOption { name: "pause_after_restart", lag: Duration::ZERO, max_ttl: None, ..watched };
        assert_eq!([watched, alone].map(|option| written(&option)), ["72000/12000/60000", "72000"]);
        let keys = Keys::new("p", None).unwrap();
        for (option, theirs, words) in [
            (watched, "73000/12000/60000", "`pause_after_failover` 72s is invalid: expected 73s"),
            (watched, "72000/0/60000", "`failover_lag` and `replicas` 12s is invalid: expected 0ns"),
            (watched, "72000/12000/59000", "`max_ttl` 60s is invalid: expected 59s"),
            (watched, "72000", "`pause_after_failover` 72s is invalid: expected the terms \"72000\""),
            (alone, "5000", "`pause_after_restart` 72s is invalid: expected 5s"),
            (alone, "72000/12000/60000", "expected the terms"),
            (alone, "soon", "expected the terms \"soon\""),
        ] {
            let refused =
                Pause::new(&keys, option).times(&Admission::OtherTerms(theirs.to_owned())).unwrap_err();
            assert_eq!((refused.kind(), refused.effect()), (&ErrorKind::InvalidOption, Effect::NotApplied));
            assert!(
                refused.to_string().contains(words) && refused.to_string().contains("p:{%origin}"),
                "{refused}"
            );
        }
        let hidden = Pause::new(&keys, alone).times(&Admission::Unnamed).unwrap_err();
        assert_eq!((hidden.kind(), hidden.effect()), (&ErrorKind::Unsupported, Effect::NotApplied));
        let times = Pause::new(&keys, watched).times(&Admission::Since(5)).unwrap();
        assert_eq!((times.paused_until, times.lag_until), (72_000_005, 12_000_005));
    }
}
