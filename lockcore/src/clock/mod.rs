//! The one clock that lease decisions read.
//!
//! A lease is bounded time, so the clock must run on while the host is suspended: [`BootClock`] reads `CLOCK_BOOTTIME`. Timers
//! (tokio's) stop in a suspended host and may fire late; so a timer is only ever a convenience, and every decision reads
//! [`Clock::now`].
//!
//! # Invariants
//! - **clock-1** A [`Deadline`] is counted from the moment a request was *sent* (G2): it passes on this process's clock before
//!   the store can end the lease, however long the reply took.
//! - **clock-2** Moments of different clocks are never compared; no wall clock decides anything.
//!
//! Not promised: a guest that its hypervisor pauses without a suspend event sees no time pass (A1).
//! Checked by the unit tests below and the conformance cases of `g2`.

mod boot;
mod manual;
pub(crate) mod timing;
mod tokio_time;

use std::fmt;
use std::num::NonZeroU64;
use std::ops::Add;
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;

pub use boot::BootClock;
pub use manual::ManualClock;
pub use tokio_time::TokioClock;

/// A monotonic clock with timers.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The time on this clock. Never goes back; runs on while the host is suspended.
    fn now(&self) -> Moment;

    /// Ends once [`Clock::now`] has reached `at`, or later.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the timer.
    fn sleep_until(&self, at: Moment) -> BoxFuture<'static, ()>;

    /// The wall clock, for labels that people read. Decides nothing.
    fn wall_time(&self) -> SystemTime {
        #[expect(clippy::disallowed_methods, reason = "the one place that reads it, for labels")]
        SystemTime::now()
    }
}

/// A reading of a [`Clock`], in nanoseconds since that clock's origin.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(
    /// One more than the nanoseconds: so that an optional moment takes no more space, wherever many are kept.
    NonZeroU64,
);

impl Moment {
    /// Later than everything.
    pub(crate) const LAST: Self = Self::from_nanos(u64::MAX);

    /// The moment `nanos` nanoseconds after the clock's origin; five hundred years are the last.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(nanos))
    }

    /// Nanoseconds since the clock's origin.
    pub const fn as_nanos(self) -> u64 {
        self.0.get() - 1
    }

    /// The time from `earlier` to `self`; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.as_nanos().saturating_sub(earlier.as_nanos()))
    }

    /// `self` less `span`, at least the clock's origin.
    #[must_use]
    pub fn saturating_sub(self, span: Duration) -> Self {
        Self::from_nanos(self.as_nanos().saturating_sub(nanos(span)))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    /// Saturates, in five hundred years.
    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos(span)))
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from_nanos(self.as_nanos()))
    }
}

/// Until when a hold can be trusted, on the owner's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_enums, reason = "a deadline is a moment or there is none")]
pub enum Deadline {
    /// Held before this moment, not at it.
    At(Moment),
    /// The store has no lease: held while the process lives.
    Never,
}

impl Deadline {
    /// The deadline of a lease of `ttl` whose request was sent at `sent_at`.
    pub fn of_lease(sent_at: Moment, ttl: Duration, margin: Duration) -> Self {
        Self::At(sent_at + ttl.saturating_sub(margin))
    }

    /// Whether the hold must not be trusted at `now`.
    pub fn has_passed(self, now: Moment) -> bool {
        match self {
            Self::At(at) => at <= now,
            Self::Never => false,
        }
    }

    /// The time left at `now`; [`Duration::MAX`] without a lease.
    pub fn remaining(self, now: Moment) -> Duration {
        match self {
            Self::At(at) => at.since(now),
            Self::Never => Duration::MAX,
        }
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At the deadline itself nothing is held any more.
    #[test]
    fn a_deadline_has_passed_when_it_is_reached() {
        let deadline = Deadline::of_lease(
            Moment::from_nanos(1_000),
            Duration::from_nanos(100),
            Duration::from_nanos(10),
        );
        assert!(!deadline.has_passed(Moment::from_nanos(1_089)));
        assert!(deadline.has_passed(Moment::from_nanos(1_090)));
        assert_eq!(deadline.remaining(Moment::from_nanos(1_080)), Duration::from_nanos(10));
        assert!(deadline < Deadline::Never);
    }

    /// A margin above the ttl gives a hold that is over when it begins, not one that never ends.
    #[test]
    fn a_margin_above_the_ttl_leaves_no_time() {
        let sent = Moment::from_nanos(5);
        let deadline = Deadline::of_lease(sent, Duration::from_secs(1), Duration::from_secs(2));
        assert!(deadline.has_passed(sent));
    }
}
