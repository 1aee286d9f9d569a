//! Until when a server that has restarted or was promoted may have forgotten holders.
//!
//! A connection leads to one reign of the server as long as it lasts (redis.connection-1): a primary that is made a replica
//! refuses the next request, and whoever makes it one again has closed its connections. So the request is sent once for each
//! connection, before all others; the times from its reply are an argument of every script that goes over the connection.
//!
//! In a cluster that is so of each slot: see `slot_pause`.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::clock::Moment;
use leasehold_core::{Effect, Error, ErrorKind, Result};
use redis::{RedisError, RedisResult, Value};

use super::Connection;
use super::connected::Times;
use super::slot_pause::SlotPause;
use crate::config::PauseOption;
use crate::keys::Keys;
use crate::scripts::{self, ADMIT, Admission, Call, KnownReign, ReignTimes, millis};

/// The questions of a link with a pause over each of its connections, and of one that agrees with the others on none.
#[derive(Clone, Debug)]
pub(crate) enum Pause {
    Server(ServerPause),
    Slots(Arc<SlotPause>),
}

impl Pause {
    /// The arguments for scripts over `connection`.
    ///
    /// # Errors
    ///
    /// As [`ServerPause::ask`].
    pub(super) async fn ask(
        &self,
        connection: &Connection,
        give_up_at: Moment,
        failed: fn(RedisError) -> Error,
    ) -> Result<Times> {
        Ok(match self {
            Self::Server(pause) => {
                let times = pause.ask(connection, give_up_at, failed).await?;
                if pause.terms.is_off() { Times::Unasked } else { Times::Server(times) }
            }
            Self::Slots(pause) => Times::Slots(pause.ask(connection, give_up_at, failed).await?),
        })
    }
}

/// The request about a server that has all locks.
#[derive(Clone, Debug)]
pub(crate) struct ServerPause {
    key: String,
    terms: Terms,
}

impl ServerPause {
    pub(crate) fn new(keys: &Keys, option: PauseOption) -> Self {
        Self { key: keys.origin(), terms: Terms(option) }
    }

    /// The arguments for scripts over `connection`.
    ///
    /// # Errors
    ///
    /// As `failed` says, `Unavailable` for a replica among it, and as [`Terms::read`].
    async fn ask(
        &self,
        connection: &Connection,
        give_up_at: Moment,
        failed: fn(RedisError) -> Error,
    ) -> Result<ReignTimes> {
        let answer = connection.run_with(&self.terms.call(&self.key), None, give_up_at, false).await;
        let answer = answer.map_err(|error| error.with_effect(Effect::NotApplied))?;
        let known = self.terms.read(&self.key, answer.extract_error(), failed)?;
        Ok(ReignTimes {
            paused_until: self.terms.paused_until(&known),
            lag_until: self.terms.lag_until(&known),
        })
    }
}

/// The pause that the managers of a prefix agree on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms(pub(super) PauseOption);

impl Terms {
    pub(super) fn is_off(self) -> bool {
        self.0.span.is_zero()
    }

    /// As the script notes them: in milliseconds, one behind the other.
    fn written(self) -> String {
        self.0.terms().iter().map(|(_, span)| millis(*span).to_string()).collect::<Vec<_>>().join("/")
    }

    /// The first of our terms that differs from what the others have noted.
    fn difference(self, noted: &str) -> String {
        let ours = self.0.terms();
        let theirs: Option<Vec<u64>> = noted.split('/').map(|millis| millis.parse().ok()).collect();
        let first = theirs
            .and_then(|theirs| ours.iter().zip(theirs).find(|((_, ours), theirs)| millis(*ours) != *theirs));
        match first {
            Some(((name, ours), theirs)) => {
                format!("{name} {ours:?} is invalid: expected {:?}", Duration::from_millis(theirs))
            }
            // With sentinels and in a cluster there are more terms.
            None => {
                let (name, ours) = &ours[0];
                format!("{name} {ours:?} is invalid: expected the terms {noted:?}, in milliseconds")
            }
        }
    }

    /// The request about the origin in `key`.
    pub(super) fn call(self, key: &str) -> Call {
        let mut call = ADMIT.call(&[key]);
        call.arg(self.written());
        call
    }

    /// Reads the answer of that request.
    ///
    /// # Errors
    ///
    /// As `failed` says; `Denied` without a right; `InvalidOption` if the other managers have other terms; `Unsupported` for a
    /// server that hides its reign.
    pub(super) fn read(
        self,
        key: &str,
        answer: RedisResult<Value>,
        failed: fn(RedisError) -> Error,
    ) -> Result<KnownReign> {
        let name = self.0.name;
        let answer = answer.map_err(failed).map_err(|error| match error.kind() {
            ErrorKind::Denied => denied(name, error),
            _ => error,
        })?;
        self.of(key, scripts::admission(&answer)?)
    }

    fn of(self, key: &str, admission: Admission) -> Result<KnownReign> {
        let name = self.0.name;
        match admission {
            Admission::Known(known) => Ok(known),
            // Nobody can pause there.
            Admission::Unnamed if self.is_off() => Ok(KnownReign::default()),
            Admission::OtherTerms(theirs) => Err(Error::invalid_option(format!(
                "{}, as the other managers of the prefix have. To change that, stop all managers and delete the key {key:?}",
                self.difference(&theirs)
            ))),
            Admission::Unnamed => {
                let message = format!(
                    "cannot use `{name}`: the server does not show its run_id and master_replid in INFO"
                );
                Err(Error::not_applied(ErrorKind::Unsupported, message))
            }
        }
    }

    /// Until when a reign may have forgotten holders, by the clock of its server.
    pub(super) fn paused_until(self, known: &KnownReign) -> u64 {
        known.since.saturating_add(micros(self.0.span))
    }

    /// Until when the primary before may go on, by the clock of the server.
    pub(super) fn lag_until(self, known: &KnownReign) -> u64 {
        known.since.saturating_add(micros(self.0.lag))
    }
}

/// A span as servers count time.
pub(super) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
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
        assert_eq!([watched, alone].map(|option| Terms(option).written()), ["72000/12000/60000", "72000"]);
        let of = |option, admission| Terms(option).of("p:{%origin}", admission);
        for (option, theirs, words) in [
            (watched, "73000/12000/60000", "`pause_after_failover` 72s is invalid: expected 73s"),
            (watched, "72000/0/60000", "`failover_lag` and `replicas` 12s is invalid: expected 0ns"),
            (watched, "72000/12000/59000", "`max_ttl` 60s is invalid: expected 59s"),
            (watched, "72000", "`pause_after_failover` 72s is invalid: expected the terms \"72000\""),
            (watched, "0", "`pause_after_failover` 72s is invalid: expected 0ns"),
            (PauseOption::OFF, "72000/12000/60000", "`pause_after_failover` 0ns is invalid: expected 72s"),
            (alone, "5000", "`pause_after_restart` 72s is invalid: expected 5s"),
            (alone, "72000/12000/60000", "expected the terms"),
            (alone, "soon", "expected the terms \"soon\""),
        ] {
            let refused = of(option, Admission::OtherTerms(theirs.to_owned())).unwrap_err();
            assert_eq!((refused.kind(), refused.effect()), (&ErrorKind::InvalidOption, Effect::NotApplied));
            assert!(
                refused.to_string().contains(words) && refused.to_string().contains("p:{%origin}"),
                "{refused}"
            );
        }
        let hidden = of(alone, Admission::Unnamed).unwrap_err();
        assert_eq!((hidden.kind(), hidden.effect()), (&ErrorKind::Unsupported, Effect::NotApplied));
        of(PauseOption::OFF, Admission::Unnamed).unwrap();
        let reign = || KnownReign { since: 5, now: 5, reign: String::new(), slots: String::new() };
        let known = of(watched, Admission::Known(reign())).unwrap();
        let times = (Terms(watched).paused_until(&known), Terms(watched).lag_until(&known));
        assert_eq!(times, (72_000_005, 12_000_005));
    }
}
