//! The times of a manager, and the one place that checks how they relate.

use std::time::Duration;

use crate::words::error::{Error, Result};
use crate::words::token::FencingToken;

/// Times and bounds of a [`LockManager`](crate::LockManager), checked by the builder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long a lease lasts without renewal. Default 15 s.
    pub ttl: Duration,
    /// Bound of one request to the store. Default 2 s, or a third of a shorter ttl.
    pub op_timeout: Duration,
    /// Bound of one attempt to open the store. Default 5 s.
    pub connect_timeout: Duration,
    /// How much earlier than the store this process counts a lease as ended; `None` is [`Timing::margin`]'s default.
    pub drift_margin: Option<Duration>,
    /// How many times in a row a lock may pass within this process before it goes back to the
    /// store. Default 256, at most 1023; 0 turns local hand-off off.
    pub handoff_limit: u16,
    /// How long after the store's grant a lock may still pass within this process. Default 100 ms.
    pub handoff_window: Duration,
}

impl Timing {
    /// The default ttl.
    pub const DEFAULT_TTL: Duration = Duration::from_secs(15);
    /// The longest ttl of any store.
    pub const MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);
    /// The default bound of a request.
    pub const DEFAULT_OP_TIMEOUT: Duration = Duration::from_secs(2);
    /// The default bound of opening a store.
    pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
    /// The default of [`Timing::handoff_limit`].
    pub const DEFAULT_HANDOFF_LIMIT: u16 = 256;
    /// The default of [`Timing::handoff_window`].
    pub const DEFAULT_HANDOFF_WINDOW: Duration = Duration::from_millis(100);

    /// The defaults for leases of `ttl`.
    pub fn for_ttl(ttl: Duration) -> Self {
        Self {
            ttl,
            op_timeout: Self::DEFAULT_OP_TIMEOUT.min(ttl / 3),
            connect_timeout: Self::DEFAULT_CONNECT_TIMEOUT,
            drift_margin: None,
            handoff_limit: Self::DEFAULT_HANDOFF_LIMIT,
            handoff_window: Self::DEFAULT_HANDOFF_WINDOW,
        }
    }

    /// How much is taken off a lease of `ttl`: the drift margin, by default 1 % of the ttl plus 10 ms (A1 with ρ = 1 %).
    pub fn margin(&self, ttl: Duration) -> Duration {
        self.drift_margin.unwrap_or_else(|| ttl / 100 + Duration::from_millis(10))
    }

    /// Checks every bound and relation.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption), naming the value, the rule, and the value to set instead.
    pub fn validate(&self, min_ttl: Duration) -> Result<()> {
        self.validate_ttl(self.ttl, min_ttl)?;
        if self.op_timeout.is_zero() || self.connect_timeout.is_zero() {
            return Err(Error::invalid_option("`op_timeout` and `connect_timeout` must be longer than 0s"));
        }
        if self.handoff_limit > FencingToken::MAX_INDEX {
            return Err(Error::invalid_option(format!(
                "`handoff_limit` {} is invalid: expected at most {}",
                self.handoff_limit,
                FencingToken::MAX_INDEX
            )));
        }
        Ok(())
    }

    /// Checks a ttl, the manager's or one lock's, against the store's minimum and the other times.
    ///
    /// # Errors
    ///
    /// As [`Timing::validate`].
    pub fn validate_ttl(&self, ttl: Duration, min_ttl: Duration) -> Result<()> {
        if ttl.is_zero() {
            return Err(Error::invalid_option("`ttl` must be longer than 0s"));
        }
        if ttl < min_ttl {
            return Err(Error::invalid_option(format!(
                "`ttl` {ttl:?} is too short: this store needs at least {min_ttl:?}"
            )));
        }
        if ttl > Self::MAX_TTL {
            return Err(Error::invalid_option(format!("`ttl` {ttl:?} is too long: expected at most 24h")));
        }
        if ttl < self.op_timeout.saturating_mul(3) {
            return Err(Error::invalid_option(format!(
                "`ttl` {ttl:?} is shorter than 3 × `op_timeout` ({:?}), so a renewal could not be repeated \
                 in time: raise `ttl` to {:?} or lower `op_timeout` to {:?}",
                self.op_timeout,
                self.op_timeout.saturating_mul(3),
                ttl / 3,
            )));
        }
        let margin = self.margin(ttl);
        if margin.saturating_mul(2) > ttl {
            return Err(Error::invalid_option(format!(
                "`drift_margin` {margin:?} is more than half of the `ttl` {ttl:?}: raise the `ttl`"
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::error::ErrorKind;

    const SECOND: Duration = Duration::from_secs(1);

    fn refusal(change: impl FnOnce(&mut Timing)) -> String {
        let mut timing = Timing::for_ttl(15 * SECOND);
        change(&mut timing);
        let error = timing.validate(SECOND).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidOption);
        error.to_string()
    }

    /// Every rule refuses with its own sentence.
    #[test]
    fn times_that_cannot_work_are_refused_by_name() {
        assert!(refusal(|t| t.ttl = Duration::ZERO).contains("longer than 0s"));
        assert!(refusal(|t| t.ttl = SECOND / 2).contains("at least 1s"));
        assert!(refusal(|t| t.ttl = Timing::MAX_TTL + SECOND).contains("at most 24h"));
        assert!(refusal(|t| t.op_timeout = 6 * SECOND).contains("raise `ttl` to 18s"));
        assert!(refusal(|t| t.op_timeout = Duration::ZERO).contains("op_timeout"));
        assert!(refusal(|t| t.connect_timeout = Duration::ZERO).contains("connect_timeout"));
        assert!(refusal(|t| t.drift_margin = Some(8 * SECOND)).contains("half of the `ttl`"));
        assert!(refusal(|t| t.handoff_limit = 1024).contains("at most 1023"));
    }

    /// A short ttl alone is enough: the default request bound follows it.
    #[test]
    fn defaults_hold_for_every_ttl_of_a_second_or_more() {
        for ttl in [SECOND, 2 * SECOND, 15 * SECOND, Timing::MAX_TTL] {
            Timing::for_ttl(ttl).validate(SECOND).unwrap();
        }
    }

    /// The default margin is one percent and ten milliseconds.
    #[test]
    fn the_default_margin_follows_the_ttl() {
        let timing = Timing::for_ttl(15 * SECOND);
        assert_eq!(timing.margin(15 * SECOND), Duration::from_millis(160));
    }
}
