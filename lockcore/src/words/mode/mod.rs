//! How a lock is held: one rule for every kind.
//!
//! > An entry holds if and only if the sum of the weights of all live entries up to and including it is at most
//! > the smallest capacity among them.
//!
//! # Invariants
//! - **mode-1** *Prefix*: if an entry holds, every older entry holds. So waiters are served in order of arrival in
//!   every mode.
//! - **mode-2** *Monotone*: older entries only disappear, so an admitted entry stays admitted until it ends.
//! - **mode-3** *Incremental*: the total weight of the holders decides whether the first waiter holds; no other
//!   entry matters.
//! - **mode-4** The total weight of the holders is at most each holder's own capacity. No capacity is stored: of
//!   different ones the smallest counts.
//!
//! Pure. Checked by the tests below on all small queues and histories.

use std::fmt;
use std::num::NonZeroU32;

/// The mode of a hold: a *weight* of a *capacity* that all holders share.
///
/// [`EXCLUSIVE`](Self::EXCLUSIVE) is 1 of 1, [`SHARED`](Self::SHARED) is 1 of unlimited, and permits are any
/// other weight and capacity. An exclusive holder excludes all others; shared holders hold at the same time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mode {
    pub(super) weight: NonZeroU32,
    pub(super) capacity: NonZeroU32,
}

impl Mode {
    /// One holder: 1 of 1.
    pub const EXCLUSIVE: Self = Self { weight: NonZeroU32::MIN, capacity: NonZeroU32::MIN };
    /// Any number of readers: 1 of unlimited.
    pub const SHARED: Self = Self { weight: NonZeroU32::MIN, capacity: NonZeroU32::MAX };

    /// Returns the weight.
    pub const fn weight(self) -> u32 {
        self.weight.get()
    }

    /// Returns the largest total weight that it may be part of; [`u32::MAX`] is unlimited.
    pub const fn capacity(self) -> u32 {
        self.capacity.get()
    }

    /// Returns whether it alone blocks `later`.
    pub fn bars(self, later: Self) -> bool {
        !Load::NONE.and(self).admits(later)
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

/// The total weight of the entries in front, and the smallest of their capacities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Load {
    weight: u64,
    capacity: u32,
}

impl Load {
    /// The load of no entry.
    pub const NONE: Self = Self { weight: 0, capacity: u32::MAX };

    /// Returns whether `mode` holds behind it.
    pub fn admits(self, mode: Mode) -> bool {
        self.weight + u64::from(mode.weight()) <= u64::from(self.capacity.min(mode.capacity()))
    }

    /// Returns the load with `mode` in front, too.
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
