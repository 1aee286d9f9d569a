//! G2, notified in time. `ensure_held` never succeeds again for a hold once the store has granted a mode that the hold
//! excludes, its loss was reported, or it was released. `lost` has returned by the time of that grant.
//!
//! Does not apply to a grant that the world overruled, for the store's next grant; nor to `lost`
//! while the timers of the holder stand still. Grants that a stopped process never read
//! are not known, so a history may show less than there was, never more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use leasehold_core::clock::Moment;
use leasehold_core::{LockName, Mode};

use super::holds::{Hold, Largest, add, excluded_by, holds};
use super::violation::{Property, Violation};
use crate::history::{Attempt, Entry, Event, History, What};

/// Holds that were seen as held after their end, and losses that were not reported.
pub fn check(history: &History) -> Vec<Violation> {
    let holds = holds(history);
    let mut sweep = Sweep::default();
    sweep.holds.extend(holds.iter().map(|hold| (hold.attempt, hold)));
    for event in history.events() {
        sweep.see(event);
    }
    sweep.finish()
}

#[derive(Default)]
struct Sweep<'a> {
    holds: BTreeMap<Attempt, &'a Hold<'a>>,
    /// Why a hold is over.
    over: BTreeMap<Attempt, &'static str>,
    names: BTreeMap<Option<&'a LockName>, OfName>,
    /// As what entries asked the store.
    modes: BTreeMap<Entry, Mode>,
    stopped: BTreeSet<&'a Arc<str>>,
    resumed: BTreeMap<&'a Arc<str>, Moment>,
    dead: BTreeSet<&'a Arc<str>>,
    /// Holds whose loss was not reported before a grant, unless it is within its instant.
    untold: BTreeMap<Attempt, (&'a Event, u64)>,
    found: Vec<Violation>,
}

#[derive(Default)]
struct OfName {
    /// Of the grants in each mode.
    largest: Largest<u64>,
    /// Holds with a waiter for `lost`, and that are not over.
    listening: BTreeSet<Attempt>,
}

impl<'a> Sweep<'a> {
    fn see(&mut self, event: &'a Event) {
        let name = event.name.as_ref();
        match &event.what {
            What::StoreAsked { entry, mode, .. } => {
                self.modes.insert(*entry, *mode);
            }
            What::StoreGranted { entry, counter, .. } => {
                let mode = self.modes.get(entry).copied().unwrap_or_default();
                self.granted(name, mode, *counter);
                self.granted_on(event, mode, *counter);
            }
            What::Granted { attempt, token, .. } => {
                let mode = self.holds.get(attempt).map_or(Mode::EXCLUSIVE, |hold| hold.mode);
                self.granted(name, mode, token.counter());
            }
            What::Listens { attempt } => {
                self.names.entry(name).or_default().listening.insert(*attempt);
            }
            What::LostTold { attempt, .. } => self.ends(event, *attempt, "its loss was reported"),
            What::ReleaseInvoked { attempt } => self.ends(event, *attempt, "it was released"),
            What::HeldSeen { attempt, .. } => self.held(event, *attempt),
            What::Stopped => {
                self.stopped.insert(&event.actor);
            }
            What::Resumed => {
                self.stopped.remove(&event.actor);
                self.resumed.insert(&event.actor, event.at);
            }
            What::Crashed => {
                self.dead.insert(&event.actor);
            }
            _ => {}
        }
    }

    fn granted(&mut self, name: Option<&'a LockName>, mode: Mode, counter: u64) {
        add(&mut self.names.entry(name).or_default().largest, mode, counter);
    }

    fn ends(&mut self, event: &'a Event, attempt: Attempt, why: &'static str) {
        self.over.entry(attempt).or_insert(why);
        let of_name = self.names.entry(event.name.as_ref()).or_default();
        of_name.listening.remove(&attempt);
        if self.untold.get(&attempt).is_some_and(|(grant, _)| grant.at == event.at) {
            self.untold.remove(&attempt);
        }
    }

    fn held(&mut self, event: &Event, attempt: Attempt) {
        let Some(hold) = self.holds.get(&attempt) else {
            return;
        };
        let of_name = self.names.get(&event.name.as_ref());
        let largest = of_name.and_then(|of_name| excluded_by(&of_name.largest, hold.mode)).unwrap_or(0);
        let detail = if largest > hold.token.counter() && !hold.overruled {
            format!("{} is seen held after grant {largest}", hold.describe())
        } else if let Some(end) = self.over.get(&attempt) {
            format!("{} is seen held after {end}", hold.describe())
        } else {
            return;
        };
        self.found.push(Violation::of(Property::Notice, event, detail));
    }

    /// The holds whose loss should have been reported before the store granted `counter`.
    fn granted_on(&mut self, event: &'a Event, mode: Mode, counter: u64) {
        let Self { holds, names, stopped, resumed, dead, untold, .. } = self;
        let listening = &mut names.entry(event.name.as_ref()).or_default().listening;
        listening.retain(|attempt| {
            let Some(hold) = holds.get(attempt) else {
                return true;
            };
            let actor = &hold.granted.actor;
            let stands_still = stopped.contains(actor) || resumed.get(actor) == Some(&event.at);
            let is_over = hold.token.counter() < counter && hold.mode.bars(mode);
            let is_late = is_over && !hold.overruled && !stands_still && !dead.contains(actor);
            if is_late {
                untold.insert(*attempt, (event, counter));
            }
            !is_late
        });
    }

    fn finish(mut self) -> Vec<Violation> {
        self.found.extend(self.untold.iter().map(|(attempt, (grant, counter))| {
            let hold = self.holds[attempt].describe();
            let detail = format!("{hold} was not notified before grant {counter}");
            Violation::of(Property::Notice, grant, detail)
        }));
        self.found
    }
}
