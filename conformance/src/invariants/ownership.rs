//! G4, ownership: a release or renewal of one hold never affects another.
//!
//! A store confirms the release of a grant to the process that was granted it, before any later
//! grant of the name that it excludes. A hold that was not released or overruled is not gone
//! before its deadline. Without faults it is lost only at the end of its `max_hold` ([`bound`](super::bound)).
//!
//! Does not apply to overruled grants, which the world took away. A release that was carried out
//! and repeated may be confirmed again.

use std::collections::BTreeMap;
use std::sync::Arc;

use leasehold_core::clock::Deadline;
use leasehold_core::{LockName, LostReason, Mode};

use super::holds::{Largest, add, excluded_by, holds};
use super::violation::{Property, Violation};
use crate::history::{Attempt, Entry, History, What};

/// Releases that ended another hold, and holds that vanished.
pub fn check(history: &History) -> Vec<Violation> {
    let mut found = stray_releases(history);
    found.extend(vanished_holds(history));
    found
}

fn stray_releases(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut modes: BTreeMap<Entry, Mode> = BTreeMap::new();
    let mut grantees: BTreeMap<_, (&Arc<str>, Mode)> = BTreeMap::new();
    let mut largest: BTreeMap<Option<&LockName>, Largest<u64>> = BTreeMap::new();
    for event in history.events() {
        let name = event.name.as_ref();
        match event.what {
            What::StoreAsked { entry, mode, .. } => {
                modes.insert(entry, mode);
            }
            What::StoreGranted { entry, counter, .. } => {
                let mode = modes.get(&entry).copied().unwrap_or_default();
                grantees.insert((name, counter), (&event.actor, mode));
                add(largest.entry(name).or_default(), mode, counter);
            }
            What::StoreReleased { counter, done: true } => {
                let granted = grantees.get(&(name, counter));
                let mode = granted.map_or(Mode::EXCLUSIVE, |(_, mode)| *mode);
                let latest = largest.get(&name).and_then(|largest| excluded_by(largest, mode)).unwrap_or(0);
                let detail = match granted {
                    Some((grantee, _)) if *grantee != &event.actor => {
                        format!("grant {counter} of {grantee} was released by {}", event.actor)
                    }
                    _ if latest > counter => {
                        format!("grant {counter} was released after grant {latest}")
                    }
                    _ => continue,
                };
                found.push(Violation::of(Property::Ownership, event, detail));
            }
            _ => {}
        }
    }
    found
}

fn vanished_holds(history: &History) -> Vec<Violation> {
    let holds = holds(history);
    let live: BTreeMap<Attempt, _> =
        holds.iter().filter(|hold| !hold.overruled).map(|hold| (hold.attempt, hold)).collect();
    let fair_weather = !history.is_disturbed();
    let vanished = history.events().iter().filter_map(|event| {
        let What::LostTold { attempt, reason } = event.what else {
            return None;
        };
        let hold = live.get(&attempt).filter(|_| reason != LostReason::MaxHold)?;
        let early = hold.deadline > Deadline::At(event.at);
        (fair_weather || early && reason == LostReason::Gone).then(|| {
            let detail = format!("{} is lost and should not be: {reason}", hold.describe());
            Violation::of(Property::Ownership, event, detail)
        })
    });
    vanished.collect()
}
