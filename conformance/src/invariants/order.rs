//! G7, order: first come, first served.
//!
//! Of the entries that kept their place in the store's queue, an earlier one has the smaller
//! counter. The callers of one process that wait, and exclude each other, are served in the order in which they asked. A
//! lock passes locally only as often and as long as its budget allows.
//!
//! Survivors only: an entry that had to queue again has no order, nor has one that was never
//! granted; a caller that tries does not queue. Does not apply to stores without FIFO, whose
//! histories are to be judged without their store's events.

use std::collections::BTreeMap;

use leasehold_core::clock::Moment;
use leasehold_core::{FencingToken, LockName, Mode};

use super::Bounds;
use super::holds::{Largest, add, excluded_by};
use super::violation::{Property, Violation};
use crate::history::{Attempt, Entry, Event, History, What};

/// Grants out of turn, and hand-offs beyond the budget.
pub fn check(history: &History, bounds: &Bounds) -> Vec<Violation> {
    let mut found = store_order(history);
    found.extend(local_order(history));
    found.extend(overtaking(history, bounds));
    found
}

fn store_order(history: &History) -> Vec<Violation> {
    let mut asked: BTreeMap<Entry, usize> = BTreeMap::new();
    let mut granted: BTreeMap<(Option<&LockName>, u64), (usize, Entry, &Event)> = BTreeMap::new();
    for (place, event) in history.events().iter().enumerate() {
        match event.what {
            What::StoreAsked { entry, .. } => {
                asked.insert(entry, place);
            }
            What::StoreGranted { entry, counter, requeued: false } => {
                if let Some(place) = asked.get(&entry) {
                    granted.insert((event.name.as_ref(), counter), (*place, entry, event));
                }
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    let mut last: BTreeMap<Option<&LockName>, (usize, Entry)> = BTreeMap::new();
    for ((name, counter), (place, entry, event)) in granted {
        if let Some((_, ahead)) = last.get(&name).filter(|(last, _)| *last > place) {
            let detail = format!("{entry}, which came before {ahead}, is granted after it ({counter})");
            found.push(Violation::of(Property::Order, event, detail));
        }
        let latest = last.entry(name).or_insert((place, entry));
        *latest = (*latest).max((place, entry));
    }
    found
}

fn local_order(history: &History) -> Vec<Violation> {
    let mut asked: BTreeMap<Attempt, (usize, Mode)> = BTreeMap::new();
    let mut last: BTreeMap<_, Largest<(usize, Attempt)>> = BTreeMap::new();
    let mut found = Vec::new();
    for (place, event) in history.events().iter().enumerate() {
        match event.what {
            What::Invoked { attempt, mode, waits: true } => {
                asked.insert(attempt, (place, mode));
            }
            What::Granted { attempt, .. } => {
                let Some((place, mode)) = asked.get(&attempt) else {
                    continue;
                };
                let last = last.entry((&event.actor, event.name.as_ref())).or_default();
                // Holds that fit together may be granted in any order.
                if let Some((_, other)) = excluded_by(last, *mode).filter(|(last, _)| last > place) {
                    let detail = format!("{attempt} came before {other}, but is served after it");
                    found.push(Violation::of(Property::Order, event, detail));
                }
                add(last, *mode, (*place, attempt));
            }
            _ => {}
        }
    }
    found
}

fn overtaking(history: &History, bounds: &Bounds) -> Vec<Violation> {
    let mut first: BTreeMap<(Option<&LockName>, u64), Moment> = BTreeMap::new();
    let mut found = Vec::new();
    for event in history.events() {
        let What::Granted { attempt, token, .. } = event.what else {
            continue;
        };
        let began = *first.entry((event.name.as_ref(), token.counter())).or_insert(event.at);
        let passed = token.get() - (token.counter() << FencingToken::INDEX_BITS);
        let after = event.at.since(began);
        let detail = if passed > u64::from(bounds.handoff_limit) {
            format!("{attempt} is hand-off {passed} of its grant, {} are allowed", bounds.handoff_limit)
        } else if passed > 0 && after > bounds.handoff_window {
            format!("{attempt} got the lock locally {after:?} after the grant")
        } else {
            continue;
        };
        found.push(Violation::of(Property::Order, event, detail));
    }
    found
}
