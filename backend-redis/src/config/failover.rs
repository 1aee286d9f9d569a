//! The settings for a fail-over on which the managers of a prefix agree.

use std::time::Duration;

use leasehold_core::{Error, Result, StoreUrl, Timing};

use super::{PauseOption, RedisConfig};

/// The options of the pause after a fail-over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pausing {
    pub(super) max_ttl: Duration,
    pub(super) lag: Duration,
    /// If it is set.
    pub(super) pause: Option<Duration>,
}

/// The consequences for a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failover {
    /// The longest lease.
    pub(crate) max_ttl: Duration,
    /// For how long a primary that was replaced may still take writes.
    pub(crate) lag: Duration,
    /// How many replicas there are, if that is asserted.
    pub(crate) replicas: Option<u32>,
}

impl Pausing {
    pub(super) fn new(max_ttl: Duration, lag: Duration) -> Self {
        Self { max_ttl, lag, pause: None }
    }

    /// Reads what a URL sets.
    pub(super) fn take_from(&mut self, url: &mut StoreUrl) -> Result<()> {
        self.max_ttl = url.take_duration("max_ttl")?.unwrap_or(self.max_ttl);
        self.lag = url.take_duration("failover_lag")?.unwrap_or(self.lag);
        self.pause = url.take_duration("pause_after_failover")?;
        Ok(())
    }

    /// Checks them, and that `server` has no other pause.
    pub(super) fn checked(&self, server: &RedisConfig) -> Result<()> {
        let Self { max_ttl, lag, .. } = self;
        let wrong = |rule: String| Err(Error::invalid_option(rule));
        if !(RedisConfig::MIN_TTL..=Timing::MAX_TTL).contains(max_ttl) {
            let (least, most) = (RedisConfig::MIN_TTL, Timing::MAX_TTL);
            return wrong(format!("max_ttl={max_ttl:?} is invalid: expected {least:?} to {most:?}"));
        }
        if let Some(PauseOption { name, span, .. }) = server.pause {
            return wrong(format!(
                "cannot use {name}={span:?} with sentinels or in a cluster: set `pause_after_failover`, which covers \
                 restarts, too"
            ));
        }
        match self.pause.filter(|pause| !pause.is_zero() && *pause < *max_ttl + *lag + MARGIN) {
            None => Ok(()),
            Some(pause) => wrong(format!(
                "pause_after_failover={pause:?} is invalid: expected 0s, or at least max_ttl={max_ttl:?} plus \
                 failover_lag={lag:?} and {MARGIN:?}"
            )),
        }
    }

    /// The pause, if there is one: not with the format of `server`. A primary that was replaced `goes_on` for the lag.
    pub(super) fn option(&self, server: &RedisConfig, goes_on: bool) -> Option<PauseOption> {
        let default = || match server.format {
            Some(_) => Duration::ZERO,
            None => self.max_ttl + self.lag + MARGIN,
        };
        let span = self.pause.unwrap_or_else(default);
        let lag = if goes_on { self.lag + MARGIN } else { Duration::ZERO };
        let (name, max_ttl) = ("pause_after_failover", Some(self.max_ttl));
        (!span.is_zero()).then_some(PauseOption { name, span, lag, max_ttl })
    }

    pub(super) fn failover(&self, replicas: Option<u32>) -> Failover {
        Failover { max_ttl: self.max_ttl, lag: self.lag, replicas }
    }
}

/// Servers look for missing replicas once a second, and a promoted one is found a little later.
const MARGIN: Duration = Duration::from_secs(2);
