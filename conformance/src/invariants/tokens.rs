//! G3, fencing: tokens of a name are unique. A request that began after a grant which it excludes gets a larger one;
//! so does every later hold of a process. A resource that refuses smaller tokens never
//! takes a write of an older hold after one of a newer.
//!
//! Needs no timing assumption and holds for overruled grants too; only that callers that share the
//! process of an overruled grant may get it late, by hand-off or because its answer was on the way,
//! and are refused by the resource. Judged by the grants before the request began, so it does
//! not matter how late a grant was read. Does not apply to a store that lost its data without a
//! raised `token_base`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use leasehold_core::{FencingToken, LockName, Mode};

use super::holds::{Largest, Overruled, add, excluded_by, grows, overruled};
use super::violation::{Property, Violation};
use crate::history::{Attempt, Entry, Event, History, What};

/// Tokens and counters that repeat or go back, and writes that a resource should have refused.
pub fn check(history: &History) -> Vec<Violation> {
    let mut sweep = Sweep { overruled: overruled(history), ..Sweep::default() };
    for event in history.events() {
        sweep.see(event);
    }
    sweep.found
}

#[derive(Default)]
struct Sweep<'a> {
    overruled: Overruled<'a>,
    names: BTreeMap<Option<&'a LockName>, OfName>,
    /// The largest token that was granted before the request began.
    floors: BTreeMap<Attempt, (Mode, Option<FencingToken>)>,
    store_floors: BTreeMap<Entry, Option<u64>>,
    of_process: BTreeMap<(&'a Arc<str>, Option<&'a LockName>), Largest<FencingToken>>,
    granted: BTreeMap<Attempt, FencingToken>,
    found: Vec<Violation>,
}

#[derive(Default)]
struct OfName {
    tokens: BTreeSet<FencingToken>,
    largest: Largest<FencingToken>,
    counters: BTreeSet<u64>,
    written: Option<FencingToken>,
}

impl<'a> Sweep<'a> {
    fn see(&mut self, event: &'a Event) {
        let name = event.name.as_ref();
        let of_name = self.names.entry(name).or_default();
        match &event.what {
            What::Invoked { attempt, mode, .. } => {
                self.floors.insert(*attempt, (*mode, excluded_by(&of_name.largest, *mode)));
            }
            What::StoreAsked { entry, .. } => {
                self.store_floors.insert(*entry, of_name.counters.last().copied());
            }
            What::StoreGranted { entry, counter, .. } => {
                let floor = self.store_floors.get(entry).copied().flatten();
                let detail = if !of_name.counters.insert(*counter) {
                    format!("the store grants {counter} twice")
                } else if floor >= Some(*counter) {
                    format!(
                        "the store grants {counter} to a request that came after grant {}",
                        floor.unwrap_or(0)
                    )
                } else {
                    return;
                };
                self.found.push(Violation::of(Property::Tokens, event, detail));
            }
            What::Granted { attempt, token, .. } => {
                let (mode, floor) = self.floors.get(attempt).copied().unwrap_or_default();
                let of_process = self.of_process.entry((&event.actor, name)).or_default();
                let of_process_grows = grows(of_process, mode, *token);
                add(&mut of_name.largest, mode, *token);
                self.granted.insert(*attempt, *token);
                let detail = if !of_name.tokens.insert(*token) {
                    format!("{attempt} gets token {token}, which another hold has")
                } else if floor >= Some(*token) && !self.overruled.contains(&(name, token.counter())) {
                    format!("{attempt} gets token {token} after a larger one was out when it asked")
                } else if !of_process_grows {
                    format!("{attempt} gets token {token} after a larger one of its own process")
                } else {
                    return;
                };
                self.found.push(Violation::of(Property::Tokens, event, detail));
            }
            What::Wrote { attempt, token, accepted: true } => {
                let detail = if self.granted.get(attempt) != Some(token) {
                    format!("{attempt} writes with token {token}, which is not its own")
                } else if of_name.written > Some(*token) {
                    format!("{attempt} writes with token {token} after a larger one has written")
                } else {
                    of_name.written = Some(*token);
                    return;
                };
                self.found.push(Violation::of(Property::Tokens, event, detail));
            }
            _ => {}
        }
    }
}
