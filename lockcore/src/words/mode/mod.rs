//! How a lock is held: one rule for every kind.
//!
//! > An entry holds if and only if the weights of all live entries up to and including it are together at most
//! > the smallest capacity among them.
//!
//! # Invariants
//! - **mode-1** *Prefix*: if an entry holds, everything older holds. So waiters are served in the order they
//!   came, whatever they want.
//! - **mode-2** *Monotone*: older entries only disappear, so who is once admitted stays so until it goes.
//! - **mode-3** *Incremental*: what the holders weigh together decides whether the first waiter holds; nobody
//!   else needs to be looked at.
//! - **mode-4** What holds at one time fits together: the weights are at most each holder's own capacity. No
//!   limit is stored: who disagrees on it goes by the smallest.
//!
//! Pure. Checked by the tests below on all small queues and histories.

use std::fmt;
use std::num::NonZeroU32;

use crate::words::error::{Error, Result};
use crate::words::guarantees::Guarantees;

/// How a lock is held: a *weight*, of a *capacity* that all who hold it share.
///
/// [`EXCLUSIVE`](Self::EXCLUSIVE) is 1 of 1, [`SHARED`](Self::SHARED) 1 of endless, and a permit some of
/// some. Exclusive holders wait for everybody, and everybody waits for them; shared ones hold together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mode {
    weight: NonZeroU32,
    capacity: NonZeroU32,
}

impl Mode {
    /// By one holder: 1 of 1.
    pub const EXCLUSIVE: Self = Self { weight: NonZeroU32::MIN, capacity: NonZeroU32::MIN };
    /// With any number of others who share it: 1 of endless.
    pub const SHARED: Self = Self { weight: NonZeroU32::MIN, capacity: NonZeroU32::MAX };

    /// `weight` of `capacity` permits; 1 of 1 is the exclusive lock.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) for a weight of zero or above the capacity, and for the
    /// capacity [`u32::MAX`], which is that of shared locks.
    pub fn permits(weight: u32, capacity: u32) -> Result<Self> {
        let refused = |rule| {
            Err(Error::invalid_option(format!(
                "{weight} of {capacity} permits is invalid: \
             {rule}"
            )))
        };
        let (Some(w), Some(c)) = (NonZeroU32::new(weight), NonZeroU32::new(capacity)) else {
            return refused("weight and capacity must be at least 1");
        };
        if c < w {
            return refused("the weight must not exceed the capacity");
        }
        if c == NonZeroU32::MAX {
            return refused("the capacity must be below 2^32 - 1");
        }
        Ok(Self { weight: w, capacity: c })
    }

    /// What it takes.
    pub const fn weight(self) -> u32 {
        self.weight.get()
    }

    /// The most that may be taken while it is there; [`u32::MAX`] is endless.
    pub const fn capacity(self) -> u32 {
        self.capacity.get()
    }

    /// Whether it keeps `later` out as long as it is there, whoever else is.
    pub fn bars(self, later: Self) -> bool {
        !Load::NONE.and(self).admits(later)
    }

    /// What a store must promise for it.
    pub fn needs(self) -> Guarantees {
        match self {
            Self::EXCLUSIVE => Guarantees::empty(),
            Self::SHARED => Guarantees::SHARED,
            _ => Guarantees::PERMITS,
        }
    }
}

impl Default for Mode {
    fn default() -> Self {
        Self::EXCLUSIVE
    }
}

/// `exclusive`, `shared` or, of permits, such as `2 of 8`.
impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::EXCLUSIVE => f.write_str("exclusive"),
            Self::SHARED => f.write_str("shared"),
            Self { weight, capacity } => write!(f, "{weight} of {capacity}"),
        }
    }
}

impl fmt::Debug for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What entries in front weigh together, and the smallest of their capacities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Load {
    weight: u64,
    capacity: u32,
}

impl Load {
    /// Of nobody.
    pub const NONE: Self = Self { weight: 0, capacity: u32::MAX };

    /// Whether `mode` holds behind it.
    pub fn admits(self, mode: Mode) -> bool {
        self.weight + u64::from(mode.weight()) <= u64::from(self.capacity.min(mode.capacity()))
    }

    /// With `mode` in front, too.
    #[must_use]
    pub fn and(self, mode: Mode) -> Self {
        let weight = self.weight + u64::from(mode.weight());
        Self { weight, capacity: self.capacity.min(mode.capacity()) }
    }
}

impl FromIterator<Mode> for Load {
    fn from_iter<I: IntoIterator<Item = Mode>>(modes: I) -> Self {
        modes.into_iter().fold(Self::NONE, Self::and)
    }
}

#[cfg(test)]
mod tests;
