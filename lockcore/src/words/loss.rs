//! How a hold stands, and how it can end.

use std::fmt;

/// How a guard stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "users decide on all three")]
pub enum GuardState {
    /// Held, and renewed in time.
    Held,
    /// Held, but a renewal is overdue: finish or stop what must not run without the lock.
    AtRisk,
    /// Not held any more, for good.
    Lost(LostReason),
}

/// Why a guard is not held any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum LostReason {
    /// The deadline passed without a renewal.
    Expired,
    /// The store says that the entry is gone, or belongs to somebody else.
    Gone,
    /// It was released, or handed on, by its own guard.
    Released,
    /// An administrator asked for the lock.
    Revoked,
    /// The async runtime in which the manager was opened is gone, and with it the renewals.
    RuntimeGone,
    /// The session with the store is over.
    SessionLost,
    /// The manager was shut down.
    Shutdown,
    /// It was held for as long as its `max_hold` allows.
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
