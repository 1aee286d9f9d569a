//! G1, timed exclusion: the holds of one name are disjoint in time.
//!
//! A sweep over the holds by their beginning keeps the latest end. Does not apply to a grant that
//! the world overruled: there A2 does not hold, or an administrator used force.

use std::collections::BTreeMap;

use leasehold_core::clock::Deadline;

use super::holds::{Hold, holds};
use super::violation::{Property, Violation};
use crate::history::History;

/// Holds that begin before an earlier one has ended.
pub fn check(history: &History) -> Vec<Violation> {
    let holds = holds(history);
    let mut found = Vec::new();
    let mut latest: BTreeMap<_, &Hold<'_>> = BTreeMap::new();
    for hold in holds.iter().filter(|hold| !hold.overruled) {
        let last = latest.entry(hold.name()).or_insert(hold);
        if last.attempt != hold.attempt && last.ends() > Deadline::At(hold.begins()) && is_held(hold) {
            let detail = format!("{} begins while {} is held", hold.describe(), last.describe());
            found.push(Violation::of(Property::Overlap, hold.granted, detail));
        }
        if hold.ends() > last.ends() {
            *last = hold;
        }
    }
    found
}

/// Whether there is an instant of it.
fn is_held(hold: &Hold<'_>) -> bool {
    hold.ends() > Deadline::At(hold.begins())
}
