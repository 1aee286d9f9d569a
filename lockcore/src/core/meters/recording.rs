//! Everything goes to the recorder that the program has installed, if it has.

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

use crate::backend::env::Env;
use crate::clock::Moment;
use crate::core::acquire::Tried;
use crate::core::held::Held;
use crate::core::lease::Answer;
use crate::words::error::{ErrorKind, Result};
use crate::words::loss::LostReason;

/// Tells the recorder what each metric means. Call it once one is installed, if it shows that.
///
/// | name | kind | labels |
/// |---|---|---|
/// | `leasehold_acquisitions_total` | counter | `outcome`: `granted`, `busy` (a try), `timeout`, `cancelled`, or the error: `unavailable`, `denied`, `lost`, `closed`, `protocol`, `misuse`, `unsupported` |
/// | `leasehold_handoffs_total` | counter | `to`: `local` (a waiter of this process) or `store` |
/// | `leasehold_losses_total` | counter | `reason`: `expired`, `gone`, `revoked`, `session_lost`, `shutdown`, `runtime_gone`, `too_long` |
/// | `leasehold_renewals_total` | counter | `outcome`: `renewed`, `gone`, `unknown` |
/// | `leasehold_guards_dropped_total` | counter | |
/// | `leasehold_wait_seconds` | histogram | |
/// | `leasehold_hold_seconds` | histogram | |
/// | `leasehold_held_locks` | gauge | |
///
/// No label names a lock: there may be any number of those.
pub fn describe() {
    describe_counter!(ACQUISITIONS, "Acquisitions that ended, by outcome.");
    describe_counter!(HANDOFFS, "Releases, to a waiter of this process or to the store.");
    describe_counter!(LOSSES, "Holds that ended otherwise than by their release, by reason.");
    describe_counter!(RENEWALS, "Renewals of leases that were answered or given up, by outcome.");
    describe_counter!(DROPPED, "Guards that were dropped instead of released.");
    describe_histogram!(WAIT, Unit::Seconds, "Time from asking for a lock to having it.");
    describe_histogram!(HOLD, Unit::Seconds, "Time from having a lock to releasing or dropping it.");
    describe_gauge!(HELD, "Locks that this process has from the store.");
}

const ACQUISITIONS: &str = "leasehold_acquisitions_total";
const HANDOFFS: &str = "leasehold_handoffs_total";
const LOSSES: &str = "leasehold_losses_total";
const RENEWALS: &str = "leasehold_renewals_total";
const DROPPED: &str = "leasehold_guards_dropped_total";
const WAIT: &str = "leasehold_wait_seconds";
const HOLD: &str = "leasehold_hold_seconds";
const HELD: &str = "leasehold_held_locks";

/// An acquisition that goes on; dropped, it was cancelled.
pub(crate) struct Acquisition {
    env: Env,
    since: Moment,
    outcome: &'static str,
}

impl Acquisition {
    pub(crate) fn begin(env: &Env) -> Self {
        Self { env: env.clone(), since: env.now(), outcome: "cancelled" }
    }

    pub(crate) fn waited(mut self, outcome: &Result<Held>) {
        self.outcome = match outcome {
            Ok(_) => GRANTED,
            Err(error) => word(error.kind()),
        };
    }

    pub(crate) fn tried(mut self, outcome: &Result<Tried>) {
        self.outcome = match outcome {
            Ok(Tried::Granted(_)) => GRANTED,
            Ok(Tried::Held(_)) => "busy",
            Err(error) => word(error.kind()),
        };
    }
}

impl Drop for Acquisition {
    fn drop(&mut self) {
        counter!(ACQUISITIONS, "outcome" => self.outcome).increment(1);
        if self.outcome == GRANTED {
            histogram!(WAIT).record(self.env.now().since(self.since));
        }
    }
}

const GRANTED: &str = "granted";

fn word(kind: &ErrorKind) -> &'static str {
    match kind {
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

/// A guard's life.
pub(crate) struct Hold {
    since: Moment,
}

impl Hold {
    pub(crate) fn begin(env: &Env) -> Self {
        Self { since: env.now() }
    }

    pub(crate) fn end(&self, env: &Env) {
        histogram!(HOLD).record(env.now().since(self.since));
    }
}

pub(crate) fn taken() {
    gauge!(HELD).increment(1);
}

pub(crate) fn let_go() {
    gauge!(HELD).decrement(1);
}

pub(crate) fn handed_on(locally: bool) {
    counter!(HANDOFFS, "to" => if locally { "local" } else { "store" }).increment(1);
}

pub(crate) fn lost(reason: LostReason) {
    let reason = match reason {
        LostReason::Expired => "expired",
        LostReason::Gone => "gone",
        LostReason::Released => "released",
        LostReason::Revoked => "revoked",
        LostReason::TooLong => "too_long",
        LostReason::RuntimeGone => "runtime_gone",
        LostReason::SessionLost => "session_lost",
        LostReason::Shutdown => "shutdown",
    };
    counter!(LOSSES, "reason" => reason).increment(1);
}

pub(crate) fn renewed(answer: Answer) {
    let outcome = match answer {
        Answer::Until(_) => "renewed",
        Answer::Gone(_) => "gone",
        Answer::Unknown => "unknown",
    };
    counter!(RENEWALS, "outcome" => outcome).increment(1);
}

pub(crate) fn dropped() {
    counter!(DROPPED).increment(1);
}
