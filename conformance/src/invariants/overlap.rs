//! G1, timed exclusion: the holds of one name that exist at one time fit together; exclusive ones are disjoint.
//!
//! A sweep over the holds by their beginning keeps those that have not ended. Does not apply to a grant that
//! the world overruled: there A2 does not hold, or an administrator used force.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::Mode;
use leasehold_core::backend::Load;
use leasehold_core::clock::Deadline;

use super::holds::{Hold, holds};
use super::violation::{Property, Violation};
use crate::history::History;

/// Holds that begin beside others that exclude them.
pub fn check(history: &History) -> Vec<Violation> {
    let holds = holds(history);
    let mut found = Vec::new();
    let mut held: BTreeMap<_, Vec<&Hold<'_>>> = BTreeMap::new();
    for hold in holds.iter().filter(|hold| !hold.overruled && is_held(hold)) {
        let held = held.entry(hold.name()).or_default();
        held.retain(|other| other.ends() > Deadline::At(hold.begins()));
        // Holds that share a grant are one to the store.
        let mut shared = BTreeSet::from([hold.token.counter()]);
        let others =
            held.iter().filter(|other| other.mode != Mode::SHARED || shared.insert(other.token.counter()));
        let all_fit = fit(others.map(|other| other.mode).chain([hold.mode]));
        if let Some(last) = held.last().filter(|_| !all_fit) {
            let detail = format!("{} begins while {} is held", hold.describe(), last.describe());
            found.push(Violation::of(Property::Overlap, hold.granted, detail));
        }
        held.push(hold);
    }
    found
}

/// Whether holds in these modes may exist at one time.
pub fn fit(modes: impl IntoIterator<Item = Mode>) -> bool {
    let mut load = Load::NONE;
    modes.into_iter().all(|mode| {
        let fits = load.admits(mode);
        load = load.and(mode);
        fits
    })
}

/// Whether there is an instant of it.
fn is_held(hold: &Hold<'_>) -> bool {
    hold.ends() > Deadline::At(hold.begins())
}
