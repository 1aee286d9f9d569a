//! Having a lock given up: what an administrator asks for, and waiting for the answer.
//!
//! Stores only pass the request on. Whether the holder has let go is seen from outside, by looking at
//! the lock, so it is the same on every store, and a holder of any version can answer.
//!
//! Checked by the conformance cases of `g4` and the tests in `tests/revoked.rs`.

use std::time::Duration;

use crate::backend::Holder;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::name::LockName;
use crate::timing::Timing;

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
    pub const MAX_GRACE: Duration = Timing::MAX_TTL;

    /// The same in whole milliseconds, if it is within bounds.
    pub(crate) fn checked(self) -> Result<Self> {
        match self {
            Self::Ask { grace } if Self::MAX_GRACE < grace => Err(Error::invalid_option(format!(
                "a grace of {grace:?} is above {:?}, the longest",
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
#[expect(clippy::exhaustive_enums, reason = "callers tell the three apart")]
pub enum Revocation {
    /// The holder that was asked does not hold it any more, or it was taken away.
    Released,
    /// The holder still had it when its grace and its ttl were over.
    Unanswered,
    /// Nobody held the lock.
    NotHeld,
}

impl Core {
    /// Has `name` given up, and waits for that.
    pub(crate) async fn revoke(&self, name: &LockName, how: Revoke) -> Result<Revocation> {
        let how = how.checked()?;
        let env = self.env();
        let Some(holder) = env.bounded(self.backend().revoke(name, how)).await? else {
            return Ok(Revocation::NotHeld);
        };
        let Revoke::Ask { grace } = how else {
            return Ok(Revocation::Released);
        };
        // What others write into the store is bounded by what there can be.
        let ttl = holder.ttl.unwrap_or_else(|| env.timing().ttl).min(Timing::MAX_TTL);
        let give_up_at = env.now() + grace + ttl;
        let mut pause = env.timing().op_timeout / 16;
        loop {
            env.sleep_until((env.now() + pause).min(give_up_at)).await;
            let is_last = give_up_at <= env.now();
            match env.bounded(self.backend().inspect(name)).await {
                Ok(now) if now.holder.as_ref().is_none_or(|now| !holder.is_same_grant(now)) => {
                    return Ok(Revocation::Released);
                }
                Ok(_) if is_last => return Ok(Revocation::Unanswered),
                Err(error) if is_last => return Err(error.with_context("after the holder was asked", name)),
                // It was asked all the same; the next look may be answered.
                Err(error) => tracing::debug!(lock = %name, %error, "whether it was given up is not known"),
                Ok(_) => {}
            }
            pause = (pause * 2).min(env.timing().ttl / 3);
        }
    }
}

impl Holder {
    /// Whether both are one grant, as far as the store tells.
    fn is_same_grant(&self, other: &Self) -> bool {
        match (self.token, other.token) {
            (None, None) => {
                (&self.label, self.since, &self.metadata) == (&other.label, other.since, &other.metadata)
            }
            (ours, others) => ours == others,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    /// By token where there is one; the holders of others by all that is told of them, but for what is
    /// left of a lease.
    #[test]
    fn a_grant_is_told_from_the_next() {
        let ours = Holder::new("a").with_counter(7);
        let moved =
            Holder { since: Some(SystemTime::UNIX_EPOCH), ttl: Some(Duration::from_secs(1)), ..ours.clone() };
        assert!(ours.is_same_grant(&moved));
        assert!(!ours.is_same_grant(&Holder::new("a").with_counter(8)));
        assert!(!ours.is_same_grant(&Holder::new("a")));
        let stranger = Holder::new("a");
        let later = Holder { since: Some(SystemTime::UNIX_EPOCH), ..stranger.clone() };
        let renewed = Holder { ttl: Some(Duration::from_secs(1)), ..stranger.clone() };
        assert!(stranger.is_same_grant(&renewed) && !stranger.is_same_grant(&later));
        assert!(!stranger.is_same_grant(&Holder::new("b")));
    }

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
