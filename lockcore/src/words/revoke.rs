//! What an administrator asks for, and what comes of it.

use std::time::Duration;

use crate::words::error::{Error, Result};

/// How a lock is to be given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "a holder is asked or it is not")]
pub enum Revoke {
    /// The holder is asked, and goes on for at most `grace`, counted on its clock from when it hears.
    Ask {
        /// In whole milliseconds; zero loses the lock as soon as the holder hears, and so does a holder of
        /// a version that knows no grace.
        grace: Duration,
    },
    /// The store's entry is deleted, whether or not the holder hears.
    Force,
}

impl Revoke {
    /// The holder is asked to let go at once.
    pub const AT_ONCE: Self = Self::Ask { grace: Duration::ZERO };
    /// The longest grace.
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

/// What a revocation came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "callers distinguish them")]
pub enum Revocation {
    /// None that was asked holds it any more, or it was taken away. A holder that had been stopped or cut off
    /// before it was asked may have lost its lease instead: stores do not tell the two apart.
    Released,
    /// None that was asked holds it any more, but one still did after its grace and a request, and after two thirds of
    /// its ttl: it may not have heard, and may still be at work.
    Late,
    /// A holder still had it when its grace and its ttl were over.
    Unanswered,
    /// A holder is a foreign client, which cannot be asked. All others were.
    Foreign,
    /// Nobody held the lock.
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
