//! The options of a lock, and the times of a manager, as a program or its configuration file gives them.

use std::time::Duration;

use crate::clock::timing::Timing;
use crate::words::mode::Mode;

/// The options of one lock, checked when it is acquired; the defaults are the manager's.
///
/// With the feature `serde` they are read from a configuration file: a length of time is a text such as `"500ms"` or `"1m30s"`,
/// a mode is `"exclusive"`, `"shared"` or, of permits, `"2 of 8"`. An unknown name is an error. In TOML:
///
/// ```toml
/// wait = "5s"
/// hold_at_least = "1m"
/// metadata = "month-end"
/// ```
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use leasehold_core::LockOptions;
///
/// let built = LockOptions::default().wait(Duration::from_secs(5));
/// let written = LockOptions { wait: Some(Duration::from_secs(5)), ..LockOptions::default() };
/// assert_eq!(built, written);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(default, deny_unknown_fields))]
pub struct LockOptions {
    /// The longest wait for the lock; `None` is no limit, zero is one attempt.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "reading::span"))]
    pub wait: Option<Duration>,
    /// The ttl of this lock's lease, on stores with [`Guarantees::PER_LOCK_TTL`](crate::Guarantees::PER_LOCK_TTL).
    #[cfg_attr(feature = "serde", serde(deserialize_with = "reading::span"))]
    pub ttl: Option<Duration>,
    /// The number of successive local hand-offs; see [`Timing::handoff_limit`].
    pub handoff_limit: Option<u16>,
    /// The longest hold of one guard, which is then lost ([`LostReason::MaxHold`](crate::LostReason::MaxHold));
    /// `None` is no limit.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "reading::span"))]
    pub max_hold: Option<Duration>,
    /// The shortest time for which the name is held, also when its guard is released earlier; see
    /// [`Lock::hold_at_least`](crate::Lock::hold_at_least).
    #[cfg_attr(feature = "serde", serde(deserialize_with = "reading::span"))]
    pub hold_at_least: Option<Duration>,
    /// The text that `inspect` shows of the holder, at most [`LockOptions::MAX_METADATA_BYTES`].
    pub metadata: Option<String>,
    /// The mode of the hold, by default exclusive. Stores promise the other modes by
    /// [`Guarantees::SHARED`](crate::Guarantees::SHARED) and [`Guarantees::PERMITS`](crate::Guarantees::PERMITS).
    pub mode: Mode,
}

impl LockOptions {
    /// The longest metadata, in bytes.
    pub const MAX_METADATA_BYTES: usize = 1024;

    /// Sets [`wait`](Self::wait).
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        Self { wait: Some(wait), ..self }
    }

    /// Sets [`ttl`](Self::ttl).
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { ttl: Some(ttl), ..self }
    }

    /// Sets [`handoff_limit`](Self::handoff_limit).
    #[must_use]
    pub fn handoff_limit(self, limit: u16) -> Self {
        Self { handoff_limit: Some(limit), ..self }
    }

    /// Sets [`max_hold`](Self::max_hold).
    #[must_use]
    pub fn max_hold(self, span: Duration) -> Self {
        Self { max_hold: Some(span), ..self }
    }

    /// Sets [`hold_at_least`](Self::hold_at_least).
    #[must_use]
    pub fn hold_at_least(self, span: Duration) -> Self {
        Self { hold_at_least: Some(span), ..self }
    }

    /// Sets [`metadata`](Self::metadata).
    #[must_use]
    pub fn metadata(self, metadata: impl Into<String>) -> Self {
        Self { metadata: Some(metadata.into()), ..self }
    }

    /// Sets [`mode`](Self::mode).
    #[must_use]
    pub fn mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }
}

impl Timing {
    /// Sets [`op_timeout`](Self::op_timeout).
    #[must_use]
    pub fn op_timeout(self, op_timeout: Duration) -> Self {
        Self { op_timeout, ..self }
    }

    /// Sets [`connect_timeout`](Self::connect_timeout).
    #[must_use]
    pub fn connect_timeout(self, connect_timeout: Duration) -> Self {
        Self { connect_timeout, ..self }
    }

    /// Sets [`drift_margin`](Self::drift_margin).
    #[must_use]
    pub fn drift_margin(self, margin: Duration) -> Self {
        Self { drift_margin: Some(margin), ..self }
    }

    /// Sets [`handoff_limit`](Self::handoff_limit).
    #[must_use]
    pub fn handoff_limit(self, handoff_limit: u16) -> Self {
        Self { handoff_limit, ..self }
    }

    /// Sets [`handoff_window`](Self::handoff_window).
    #[must_use]
    pub fn handoff_window(self, handoff_window: Duration) -> Self {
        Self { handoff_window, ..self }
    }
}

impl Default for Timing {
    /// Those for leases of [`Timing::DEFAULT_TTL`].
    fn default() -> Self {
        Self::for_ttl(Self::DEFAULT_TTL)
    }
}

#[cfg(feature = "serde")]
mod reading {
    use serde::de::{Deserialize, Deserializer, Error};

    use super::{Duration, Timing};

    /// A length of time, as in a URL.
    struct Span(Duration);

    impl<'de> Deserialize<'de> for Span {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let text = String::deserialize(deserializer)?;
            crate::span(&text).map(Self).map_err(Error::custom)
        }
    }

    pub(super) fn span<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<Span>::deserialize(deserializer)?.map(|Span(span)| span))
    }

    /// The times that are given; the defaults of the others depend on the ttl.
    #[derive(Default, serde::Deserialize)]
    #[serde(default, deny_unknown_fields, rename = "Timing")]
    struct Given {
        #[serde(deserialize_with = "span")]
        ttl: Option<Duration>,
        #[serde(deserialize_with = "span")]
        op_timeout: Option<Duration>,
        #[serde(deserialize_with = "span")]
        connect_timeout: Option<Duration>,
        #[serde(deserialize_with = "span")]
        drift_margin: Option<Duration>,
        handoff_limit: Option<u16>,
        #[serde(deserialize_with = "span")]
        handoff_window: Option<Duration>,
    }

    /// With the feature `serde`; a length of time is a text such as `"15s"`, and the defaults are those of the ttl.
    impl<'de> Deserialize<'de> for Timing {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let given = Given::deserialize(deserializer)?;
            let defaults = Self::for_ttl(given.ttl.unwrap_or(Self::DEFAULT_TTL));
            Ok(Self {
                op_timeout: given.op_timeout.unwrap_or(defaults.op_timeout),
                connect_timeout: given.connect_timeout.unwrap_or(defaults.connect_timeout),
                drift_margin: given.drift_margin,
                handoff_limit: given.handoff_limit.unwrap_or(defaults.handoff_limit),
                handoff_window: given.handoff_window.unwrap_or(defaults.handoff_window),
                ..defaults
            })
        }
    }
}

#[cfg(all(test, feature = "serde"))]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn options(text: &str) -> Result<LockOptions, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    /// Every option has its form; a wrong one is refused with the form that is expected.
    #[test]
    fn options_are_read_from_a_configuration() {
        assert_eq!(options("{}"), Ok(LockOptions::default()));
        let all = r#"{"wait": "5s", "ttl": "1m30s", "handoff_limit": 0, "max_hold": "2h", "hold_at_least": "500ms",
            "metadata": "here", "mode": "2 of 8"}"#;
        let built =
            LockOptions::default().wait(5 * SECOND).ttl(90 * SECOND).handoff_limit(0).metadata("here");
        let built = built.max_hold(7_200 * SECOND).hold_at_least(SECOND / 2);
        assert_eq!(options(all), Ok(built.mode(Mode::permits(2, 8).unwrap())));
        for (mode, read) in [("exclusive", Mode::EXCLUSIVE), ("shared", Mode::SHARED)] {
            assert_eq!(options(&format!(r#"{{"mode": "{mode}"}}"#)).unwrap().mode, read);
        }
        for (wrong, expected) in [
            (r#"{"wait": "soon"}"#, "expected a length of time"),
            (r#"{"wait": 5}"#, "expected a string"),
            (r#"{"mode": "9 of 8"}"#, "9"),
            (r#"{"mode": "some"}"#, "`2 of 8`"),
            (r#"{"waits": "5s"}"#, "unknown field"),
        ] {
            let refused = options(wrong).unwrap_err();
            assert!(refused.contains(expected), "{wrong}: {refused}");
        }
    }

    /// The defaults follow the ttl that is given.
    #[test]
    fn times_are_read_from_a_configuration() {
        let timing = |text| serde_json::from_str::<Timing>(text).map_err(|error| error.to_string());
        assert_eq!(timing("{}"), Ok(Timing::default()));
        assert_eq!(timing(r#"{"ttl": "3s"}"#), Ok(Timing::for_ttl(3 * SECOND)));
        let all = r#"{"ttl": "9s", "op_timeout": "1s", "connect_timeout": "4s", "drift_margin": "200ms", "handoff_limit": 7,
            "handoff_window": "1s"}"#;
        let built =
            Timing::for_ttl(9 * SECOND).op_timeout(SECOND).connect_timeout(4 * SECOND).handoff_limit(7);
        assert_eq!(timing(all), Ok(built.drift_margin(SECOND / 5).handoff_window(SECOND)));
        assert!(timing(r#"{"tll": "9s"}"#).unwrap_err().contains("unknown field"));
    }
}
