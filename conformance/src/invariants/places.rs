//! G7, places: without faults a waiter keeps its place in the store's queue, however long it waits. The place belongs
//! to the process: it stays while the next of its callers waits in the same mode.
//!
//! Does not apply to histories in which anything misbehaved: a lease that was not renewed in time
//! takes the place with it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use leasehold_core::clock::Moment;
use leasehold_core::{LockName, Mode};

use super::violation::{Property, Violation};
use crate::history::{Attempt, Entry, Event, History, What};

/// Places that were lost or left.
pub fn check(history: &History) -> Vec<Violation> {
    let mut sweep = Sweep::default();
    if history.is_disturbed() {
        return sweep.found;
    }
    for event in history.events() {
        sweep.see(event);
    }
    sweep.found
}

/// The callers of one process for one name.
type Queue<'a> = (&'a Arc<str>, Option<&'a LockName>);

/// A caller that waits, or did.
struct Caller {
    since: Moment,
    /// Until when it waited, if it has left.
    until: Option<Moment>,
    mode: Mode,
    /// It may hold for a given time only: if it shares, then on a grant of its own.
    bounded: bool,
}

#[derive(Default)]
struct Sweep<'a> {
    /// Entries that wait at the store.
    queued: BTreeMap<Entry, Mode>,
    /// Callers in the order they came: the waiting ones, and those that have just left.
    callers: BTreeMap<Queue<'a>, BTreeMap<Attempt, Caller>>,
    /// Entries that were removed in this instant.
    given_up: Vec<(Entry, Mode, &'a Event)>,
    found: Vec<Violation>,
}

impl<'a> Sweep<'a> {
    fn see(&mut self, event: &'a Event) {
        if self.given_up.first().is_some_and(|(.., given_up)| given_up.at < event.at) {
            self.judge();
        }
        let key = (&event.actor, event.name.as_ref());
        match &event.what {
            What::StoreAsked { entry, mode, waits: true } => {
                self.queued.insert(*entry, *mode);
            }
            What::StoreGranted { entry, requeued, .. } => {
                self.queued.remove(entry);
                if *requeued {
                    let detail = format!("{entry} had lost its place");
                    self.found.push(Violation::of(Property::Places, event, detail));
                }
            }
            What::StoreLeft { entry } => {
                let mode = self.queued.remove(entry);
                self.given_up.extend(mode.map(|mode| (*entry, mode, event)));
            }
            What::Invoked { attempt, mode, waits: true } => {
                let callers = self.callers.entry(key).or_default();
                callers.retain(|_, caller| caller.until.is_none_or(|until| event.at <= until));
                let caller = Caller { since: event.at, until: None, mode: *mode, bounded: false };
                callers.insert(*attempt, caller);
            }
            What::Bounded { attempt, .. } => {
                if let Some(caller) = self.callers.entry(key).or_default().get_mut(attempt) {
                    caller.bounded = true;
                }
            }
            What::Granted { attempt, .. } | What::Refused { attempt, .. } | What::Cancelled { attempt } => {
                if let Some(caller) = self.callers.entry(key).or_default().get_mut(attempt) {
                    caller.until = Some(event.at);
                }
            }
            _ => {}
        }
    }

    /// The instant is over. Callers are served in the order they came, so the owner of the place is among those that have
    /// left in it. The first caller that waits before and after is the next, and the place is its own, if all callers
    /// up to it wait in the same mode.
    fn judge(&mut self) {
        for (entry, mode, event) in std::mem::take(&mut self.given_up) {
            let callers = self.callers.get(&(&event.actor, event.name.as_ref()));
            let here = callers.into_iter().flatten();
            let mut here = here.filter(|(_, caller)| caller.until.is_none_or(|until| event.at <= until));
            let mut alike = BTreeSet::new();
            let waits = here.find(|(_, caller)| {
                alike.insert((caller.mode, caller.bounded && caller.mode == Mode::SHARED));
                caller.since < event.at && caller.until.is_none_or(|until| event.at < until)
            });
            if let Some((attempt, Caller { mode: wanted, .. })) = waits.filter(|_| alike.len() == 1)
                && *wanted == mode
            {
                let detail = format!("{entry} is removed while {attempt} of its process waits");
                self.found.push(Violation::of(Property::Places, event, detail));
            }
        }
    }
}
