//! The states of a hold, and the reasons of its loss.

use std::fmt;

/// The state of a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "users decide on all three")]
pub enum GuardState {
    /// Held, and renewed in time.
    Held,
    /// Held, but a renewal is overdue: finish or stop the work that needs the lock.
    AtRisk,
    /// No longer held, finally.
    Lost(LostReason),
}

/// Why a guard is no longer held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum LostReason {
    /// The deadline passed without a renewal.
    Expired,
    /// The store reports that the entry was removed, or belongs to another client.
    Gone,
    /// Its own guard released it, or passed it to the next local waiter.
    Released,
    /// An administrator revoked it.
    Revoked,
    /// The async runtime of the manager has ended, and with it the renewals.
    RuntimeGone,
    /// The session with the store was lost.
    SessionLost,
    /// The manager was shut down.
    Shutdown,
    /// It was held for its `max_hold`.
    MaxHold,
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its deadline passed without a renewal",
            Self::Gone => "the store reports that its entry was removed",
            Self::Released => "it was released",
            Self::Revoked => "it was revoked",
            Self::RuntimeGone => "the runtime of its manager has ended",
            Self::SessionLost => "the session with the store was lost",
            Self::Shutdown => "its manager was shut down",
            Self::MaxHold => "it was held for its `max_hold`",
        })
    }
}
