//! How locks are moved, as pure parts: readings and grants go in, the next actions come out.
//!
//! | part | contains |
//! |---|---|
//! | `record` | the record of a move |
//! | `records` | both records together, and how a move begins |
//! | `tokens` | which numbers an epoch may give |
//! | `view` | the records that a process knows, its phase by them, and its acknowledgements |
//! | `contender` | one acquisition |
//! | `hold` | one hold, from its grant until nothing is left of it |
//! | `member` | the entry of a participant in both stores |
//! | `transition` | one step of a move, by an administrator |
//! | `repair` | both records anew, after a store has lost its data |
//! | `clean` | the end of a move |
//!
//! In phases `old` and `shadow` a lock is held in the old store, in `drain` and `new` in the one moved
//! to, in `both` in both. Safety is one sentence: **no process of the first two phases is there at the same time as
//! one of the last two.** All others share a store.
//!
//! # Invariants
//! - **migration-1** At most one guard of a name is valid (G1).
//! - **migration-2** Tokens grow in the order of grants, over all phases (G3).
//! - **migration-3** No guard rests on the one store alone while another rests on the other alone.
//! - **migration-4** Nothing is held in a store that no task of the process will release (G5).
//! - **migration-5** Waits never form a circle: every begun operation can complete.
//!
//! Checked by `protocol/tests`: these parts against a model of two stores, of processes that die and are cut off, and of
//! administrators who stop anywhere; every interleaving up to a bound, and for each rule a mutant without it.

use std::ops::{Index, IndexMut};

use leasehold_core::backend::stage::{Phase, Side};
use serde::{Deserialize, Serialize};

pub(crate) mod clean;
pub(crate) mod contender;
pub(crate) mod hold;
pub(crate) mod member;
pub(crate) mod parts;
pub(crate) mod record;
pub(crate) mod records;
pub(crate) mod repair;
#[cfg(test)]
mod tests;
pub(crate) mod tokens;
pub(crate) mod transition;
pub(crate) mod view;

pub(crate) const SIDES: [Side; 2] = [Side::Old, Side::New];

/// One for each of the two stores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Pair<T> {
    pub(crate) old: T,
    pub(crate) new: T,
}

impl<T> Pair<T> {
    pub(crate) fn each(mut of: impl FnMut(Side) -> T) -> Self {
        Self { old: of(Side::Old), new: of(Side::New) }
    }
}

impl<T> Index<Side> for Pair<T> {
    type Output = T;

    fn index(&self, side: Side) -> &T {
        match side {
            Side::Old => &self.old,
            Side::New => &self.new,
        }
    }
}

impl<T> IndexMut<Side> for Pair<T> {
    fn index_mut(&mut self, side: Side) -> &mut T {
        match side {
            Side::Old => &mut self.old,
            Side::New => &mut self.new,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    /// In the old one.
    Old,
    Bridge,
    /// In the new one.
    New,
}

impl Class {
    pub(crate) fn of(phase: Phase) -> Self {
        match phase {
            Phase::Old | Phase::Shadow => Self::Old,
            Phase::Both => Self::Bridge,
            Phase::Drain | Phase::New => Self::New,
        }
    }

    /// Whether locks are held at `side`.
    pub(crate) fn has(self, side: Side) -> bool {
        match side {
            Side::Old => self != Self::New,
            Side::New => self != Self::Old,
        }
    }
}
