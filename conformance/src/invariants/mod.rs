//! Judges of a [`History`], one file per property.
//!
//! | property | from | file |
//! |---|---|---|
//! | concurrent holds fit together | G1 | [`overlap`] |
//! | a hold is over before the next grant | G2 | [`notice`] |
//! | a hold is not longer than it may be | G2 | [`bound`] |
//! | tokens are unique and grow | G3 | [`tokens`] |
//! | a release ends no other hold | G4 | [`ownership`] |
//! | a lock that is free is taken | G6 | [`hand_over`] |
//! | first come, first served; overtaking has a budget | G7 | [`order`] |
//! | without faults a waiter keeps its place | G7 | [`places`] |
//! | nothing is left behind | G5, G8 | [`litter`] |
//! | the core has one acquisition per name, of what fits | B1 | [`one_entry`] |
//!
//! Each takes O(n log n) for n events. A history that records only part of what happened is judged
//! by that part: a property without its events passes.

pub mod bound;
pub mod hand_over;
pub mod litter;
pub mod notice;
pub mod one_entry;
pub mod order;
pub mod overlap;
pub mod ownership;
pub mod places;
pub mod tokens;

mod holds;
#[cfg(test)]
mod plot;
mod violation;

use std::time::Duration;

use leasehold_core::Timing;

use crate::history::History;
pub use holds::{Largest, grows};
pub use violation::{Property, Violation};

/// What the judged managers were configured for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "tests construct it")]
pub struct Bounds {
    /// How long a lock that has waiters may be free (G6).
    pub hand_over: Duration,
    /// How long an answer is waited for that will never come.
    pub answer: Duration,
    /// How many times in a row a lock may pass within a process (G7).
    pub handoff_limit: u16,
    /// For how long after the store's grant (G7).
    pub handoff_window: Duration,
}

impl Bounds {
    /// What managers of `timing` promise on a store that ends leases `granularity` late at most.
    pub fn of(timing: &Timing, granularity: Duration) -> Self {
        let drift = |span: Duration| span + span / 100;
        Self {
            hand_over: drift(timing.ttl) + granularity + Duration::from_secs(1),
            answer: drift(timing.op_timeout),
            handoff_limit: timing.handoff_limit,
            handoff_window: drift(timing.handoff_window),
        }
    }
}

/// Every violation of every property, in order of properties.
pub fn check_all(history: &History, bounds: &Bounds) -> Vec<Violation> {
    let mut found = overlap::check(history);
    found.extend(notice::check(history));
    found.extend(bound::check(history));
    found.extend(tokens::check(history));
    found.extend(ownership::check(history));
    found.extend(hand_over::check(history, bounds));
    found.extend(order::check(history, bounds));
    found.extend(places::check(history));
    found.extend(litter::check(history));
    found.extend(one_entry::check(history));
    found
}

#[cfg(test)]
mod tests;
