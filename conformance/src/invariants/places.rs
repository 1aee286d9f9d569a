//! G7, places: where nothing misbehaves nobody loses a place in the store's queue, however long it
//! waits; and the place belongs to the process: while those of its callers wait who want the same, it is not given up.
//!
//! Does not apply to histories in which anything misbehaved: a lease that was not renewed in time
//! takes the place with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use leasehold_core::clock::Moment;
use leasehold_core::{LockName, Mode};

use super::violation::{Property, Violation};
use crate::history::{Attempt, Entry, Event, History, What};

/// Places that were lost or given up.
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

#[derive(Default)]
struct Sweep<'a> {
    /// Entries that wait at the store.
    queued: BTreeMap<Entry, Mode>,
    /// Callers that wait, and since when.
    callers: BTreeMap<Queue<'a>, BTreeMap<Attempt, (Moment, Mode)>>,
    /// Of them, those who share it with nobody of their process, and until when they wait.
    alone: BTreeMap<Queue<'a>, BTreeMap<Attempt, Moment>>,
    /// Entries that were given up in this instant.
    given_up: Vec<(Entry, &'a Event)>,
    found: Vec<Violation>,
}

impl<'a> Sweep<'a> {
    fn see(&mut self, event: &'a Event) {
        if self.given_up.first().is_some_and(|(_, given_up)| given_up.at < event.at) {
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
                // Who wants something else may have been the next, and not gone on with it.
                let mut waiting = self.callers.get(&key).into_iter().flatten();
                let alike = mode.filter(|mode| waiting.all(|(_, (_, wanted))| wanted == mode));
                let mut alone = self.alone.get(&key).into_iter().flatten();
                let alike =
                    alike.filter(|mode| *mode != Mode::SHARED || alone.all(|(_, left)| *left < event.at));
                self.given_up.extend(alike.map(|_| (*entry, event)));
            }
            What::Invoked { attempt, mode, waits: true } => {
                self.callers.entry(key).or_default().insert(*attempt, (event.at, *mode));
            }
            What::Bounded { attempt, .. } => {
                self.alone.entry(key).or_default().insert(*attempt, Moment::from_nanos(u64::MAX));
            }
            What::Granted { attempt, .. } | What::Refused { attempt, .. } | What::Cancelled { attempt } => {
                self.callers.entry(key).or_default().remove(attempt);
                if let Some(left) = self.alone.entry(key).or_default().get_mut(attempt) {
                    *left = event.at;
                }
            }
            _ => {}
        }
    }

    /// The instant is over: who still waits did so before and after.
    fn judge(&mut self) {
        for (entry, event) in std::mem::take(&mut self.given_up) {
            let callers = self.callers.get(&(&event.actor, event.name.as_ref()));
            let waiting = callers.into_iter().flatten().find(|(_, (since, _))| *since < event.at);
            if let Some((attempt, _)) = waiting {
                let detail = format!("{entry} is given up while {attempt} of its process waits");
                self.found.push(Violation::of(Property::Places, event, detail));
            }
        }
    }
}
