//! Counters and timers, through the `metrics` facade; without the feature of that name they cost nothing.
//!
//! Everything goes to the recorder that the program has installed, if it has. The callers give words and spans;
//! no type of the core is named here.

use crate::backend::env::Env;
use crate::words::error::{ErrorKind, Result};
use crate::words::loss::LostReason;

const ACQUISITIONS: &str = "leasehold_acquisitions_total";
const ACQUIRE: &str = "leasehold_acquire_seconds";
pub(crate) const RELEASES: &str = "leasehold_releases_total";
const LOSSES: &str = "leasehold_losses_total";
pub(crate) const RENEWALS: &str = "leasehold_renewals_total";
pub(crate) const DROPPED: &str = "leasehold_guards_dropped_total";
pub(crate) const HOLD: &str = "leasehold_hold_seconds";
pub(crate) const HELD: &str = "leasehold_held_locks";
const WAITING: &str = "leasehold_waiting_acquisitions";

/// The outcome of a try that found the lock held.
pub(crate) const BUSY: &str = "busy";

const GRANTED: &str = "granted";

/// The outcome of an acquisition, in one word.
pub(crate) fn outcome<T>(of: &Result<T>) -> &'static str {
    let Err(error) = of else {
        return GRANTED;
    };
    match error.kind() {
        ErrorKind::Closed => "closed",
        ErrorKind::Denied => "denied",
        ErrorKind::InvalidName | ErrorKind::InvalidOption | ErrorKind::Misuse => "misuse",
        ErrorKind::Lost { .. } => "lost",
        ErrorKind::Protocol => "protocol",
        ErrorKind::Timeout { .. } => "timeout",
        ErrorKind::Unavailable => "unavailable",
        ErrorKind::Unsupported => "unsupported",
    }
}

/// An acquisition that goes on; dropped, it was cancelled.
pub(crate) struct Acquisition {
    timer: Timer,
    outcome: &'static str,
}

impl Acquisition {
    pub(crate) fn begin(env: &Env) -> Self {
        add(WAITING, 1.0);
        Self { timer: Timer::begin(env), outcome: "cancelled" }
    }

    pub(crate) fn ended(mut self, outcome: &'static str) {
        self.outcome = outcome;
    }
}

impl Drop for Acquisition {
    fn drop(&mut self) {
        add(WAITING, -1.0);
        count(ACQUISITIONS, &[("outcome", self.outcome)]);
        if self.outcome == GRANTED {
            self.timer.record(ACQUIRE);
        }
    }
}

pub(crate) fn lost(reason: LostReason) {
    let reason = match reason {
        LostReason::Expired => "expired",
        LostReason::Gone => "gone",
        LostReason::Released => "released",
        LostReason::Revoked => "revoked",
        LostReason::MaxHold => "max_hold",
        LostReason::RuntimeGone => "runtime_gone",
        LostReason::SessionLost => "session_lost",
        LostReason::Shutdown => "shutdown",
    };
    count(LOSSES, &[("reason", reason)]);
}

#[cfg(feature = "metrics")]
pub use recorder::describe;
#[cfg(feature = "metrics")]
pub(crate) use recorder::{Timer, add, count};
#[cfg(not(feature = "metrics"))]
pub(crate) use silence::{Timer, add, count};

#[cfg(feature = "metrics")]
mod recorder {
    use ::metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

    use super::{ACQUIRE, ACQUISITIONS, DROPPED, HELD, HOLD, LOSSES, RELEASES, RENEWALS, WAITING};
    use crate::backend::env::Env;
    use crate::clock::Moment;

    /// Describes each metric to the recorder, and creates the counters at 0. Call it once one is installed.
    ///
    /// A rate or an increase that Prometheus computes does not include the first value of a series.
    ///
    /// | name | kind | labels |
    /// |---|---|---|
    /// | `leasehold_acquisitions_total` | counter | `outcome`: `granted`, `busy` (a try), `timeout`, `cancelled`, or the error: `unavailable`, `denied`, `lost`, `closed`, `protocol`, `misuse`, `unsupported` |
    /// | `leasehold_releases_total` | counter | `to`: `local` (a waiter of this process) or `store` |
    /// | `leasehold_losses_total` | counter | `reason`: `expired`, `gone`, `revoked`, `session_lost`, `shutdown`, `runtime_gone`, `max_hold` |
    /// | `leasehold_renewals_total` | counter | `outcome`: `renewed`, `gone`, `unknown` |
    /// | `leasehold_guards_dropped_total` | counter | |
    /// | `leasehold_acquire_seconds` | histogram | |
    /// | `leasehold_hold_seconds` | histogram | |
    /// | `leasehold_held_locks` | gauge | |
    /// | `leasehold_waiting_acquisitions` | gauge | |
    ///
    /// No label names a lock: there may be any number of locks.
    pub fn describe() {
        describe_counter!(ACQUISITIONS, "Completed acquisitions, by outcome.");
        describe_counter!(RELEASES, "Releases, to a waiter of this process or to the store.");
        describe_counter!(LOSSES, "Locks lost before their release, by reason.");
        describe_counter!(RENEWALS, "Completed renewals of leases, by outcome.");
        describe_counter!(DROPPED, "Guards dropped instead of released.");
        describe_histogram!(ACQUIRE, Unit::Seconds, "Time from an acquire call to its grant.");
        describe_histogram!(HOLD, Unit::Seconds, "Time from a grant to its release or drop.");
        describe_gauge!(WAITING, "Acquisitions of this process that have not ended yet.");
        describe_gauge!(HELD, "Locks that this process holds at the store.");
        for (name, label, values) in COUNTERS {
            values.iter().for_each(|value| counter!(name, label => *value).increment(0));
        }
        counter!(DROPPED).increment(0);
    }

    /// The counters with a label, and its values.
    const COUNTERS: [(&str, &str, &[&str]); 4] = [
        (
            ACQUISITIONS,
            "outcome",
            &[
                "granted",
                "busy",
                "timeout",
                "cancelled",
                "unavailable",
                "denied",
                "lost",
                "closed",
                "protocol",
                "misuse",
                "unsupported",
            ],
        ),
        (RELEASES, "to", &["local", "store"]),
        (
            LOSSES,
            "reason",
            &["expired", "gone", "revoked", "session_lost", "shutdown", "runtime_gone", "max_hold"],
        ),
        (RENEWALS, "outcome", &["renewed", "gone", "unknown"]),
    ];

    /// A span that is recorded at its end.
    pub(crate) struct Timer {
        env: Env,
        since: Moment,
    }

    impl Timer {
        pub(crate) fn begin(env: &Env) -> Self {
            Self { env: env.clone(), since: env.now() }
        }

        pub(crate) fn record(&self, name: &'static str) {
            histogram!(name).record(self.env.now().since(self.since));
        }
    }

    pub(crate) fn count(name: &'static str, labels: &[(&'static str, &'static str)]) {
        counter!(name, labels).increment(1);
    }

    pub(crate) fn add(name: &'static str, locks: f64) {
        gauge!(name).increment(locks);
    }
}

#[cfg(not(feature = "metrics"))]
mod silence {
    use crate::backend::env::Env;

    pub(crate) struct Timer;

    impl Timer {
        pub(crate) fn begin(_env: &Env) -> Self {
            Self
        }

        pub(crate) fn record(&self, _name: &'static str) {}
    }

    pub(crate) fn count(_name: &'static str, _labels: &[(&'static str, &'static str)]) {}

    pub(crate) fn add(_name: &'static str, _locks: f64) {}
}

#[cfg(all(test, feature = "metrics"))]
mod tests;
