//! The revocation of a lock, and its outcomes.

use std::time::Duration;

use crate::words::error::{Error, Result};

/// How a lock is revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "a holder is asked or it is not")]
pub enum Revoke {
    /// Notifies the holder, which may hold the lock for `grace`, counted on its clock from the notification.
    Ask {
        /// The grace period in whole milliseconds; with zero the holder loses the lock at the notification.
        grace: Duration,
    },
    /// Deletes the store's entry at once, also if the holder cannot be notified.
    Force,
}

impl Revoke {
    /// Notifies the holder without a grace period.
    pub const AT_ONCE: Self = Self::Ask { grace: Duration::ZERO };
    /// The longest grace period.
    pub const MAX_GRACE: Duration = Duration::from_secs(24 * 60 * 60);

    /// The same in whole milliseconds, if it is within bounds.
    pub(crate) fn checked(self) -> Result<Self> {
        match self {
            Self::Ask { grace } if Self::MAX_GRACE < grace => Err(Error::invalid_option(format!(
                "a `grace` of {grace:?} is too long: expected at most {:?}",
                Self::MAX_GRACE
            ))),
            Self::Ask { grace } => {
                let millis = u64::try_from(grace.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
                Ok(Self::Ask { grace: Duration::from_millis(millis) })
            }
            Self::Force => Ok(self),
        }
    }
}

/// The outcome of a revocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "callers distinguish them")]
pub enum Revocation {
    /// No notified holder holds the lock any more, or its entry was deleted. The lease of a holder that was
    /// stopped or cut off before may have expired instead: stores do not distinguish the two.
    Released,
    /// No notified holder holds the lock any more, but one still held it after its grace period and a request, and
    /// after two thirds of its ttl: it may not be notified, and may still be working.
    Late,
    /// A holder still holds the lock after its grace period and its ttl.
    Unanswered,
    /// A holder is a foreign client, which cannot be notified. All others were notified.
    Foreign,
    /// The lock was free.
    NotHeld,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A grace is sent in milliseconds: it never becomes shorter by that.
    #[test]
    fn a_grace_is_bounded_and_whole() {
        let ask = |grace| Revoke::Ask { grace };
        for (grace, millis) in [(0, 0), (1, 1), (1_000_000, 1), (1_000_001, 2)] {
            assert_eq!(
                ask(Duration::from_nanos(grace)).checked().unwrap(),
                ask(Duration::from_millis(millis))
            );
        }
        assert_eq!(ask(Revoke::MAX_GRACE).checked().unwrap(), ask(Revoke::MAX_GRACE));
        let error = ask(Revoke::MAX_GRACE + Duration::from_nanos(1)).checked().unwrap_err();
        assert!(error.to_string().contains("86400"), "{error}");
    }
}
