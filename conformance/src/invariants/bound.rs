//! G2, for a hold with a `max_hold`: it is not seen as held after that, and `lost` returns by then and not before. A hold
//! without `max_hold` is never lost for it.
//!
//! Holders count by their own clocks (A1). Notification is judged only of processes whose timers fired all the time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::LostReason;
use leasehold_core::clock::Moment;

use super::violation::{Property, Violation};
use crate::history::{Attempt, Event, History, What};

/// Holds that lasted too long, and losses that were reported too late or too early.
pub fn check(history: &History) -> Vec<Violation> {
    let mut sweep = Sweep::default();
    for event in history.events() {
        sweep.see(event);
    }
    sweep.found
}

#[derive(Default)]
struct Sweep<'a> {
    spans: BTreeMap<Attempt, Duration>,
    /// When bounded holds end, and their grants.
    held: BTreeMap<Attempt, (Moment, Moment, &'a Event)>,
    /// Those with a waiter for `lost`, by their end.
    told_by: BTreeSet<(Moment, Attempt)>,
    stopped: BTreeSet<&'a Arc<str>>,
    found: Vec<Violation>,
}

impl<'a> Sweep<'a> {
    fn see(&mut self, event: &'a Event) {
        while let Some(&(by, attempt)) = self.told_by.first().filter(|(by, _)| *by < event.at) {
            self.told_by.remove(&(by, attempt));
            let (_, _, grant) = self.held[&attempt];
            self.wrong(grant, format!("{attempt} was not notified by {by:?} of the end of its `max_hold`"));
        }
        match &event.what {
            What::Bounded { attempt, span } => {
                self.spans.insert(*attempt, *span);
            }
            What::Granted { attempt, .. } => {
                if let Some(span) = self.spans.get(attempt).copied() {
                    let (least, most) = (event.at + (span - span / 100), event.at + span + span / 90);
                    self.held.insert(*attempt, (least, most + TICK, event));
                }
            }
            What::Listens { attempt } => {
                if let Some((_, most, _)) =
                    self.held.get(attempt).filter(|_| !self.stopped.contains(&event.actor))
                {
                    self.told_by.insert((*most + TICK, *attempt));
                }
            }
            What::HeldSeen { attempt, .. }
                if self.held.get(attempt).is_some_and(|(_, most, _)| *most < event.at) =>
            {
                self.wrong(event, format!("{attempt} is seen held after the end of its `max_hold`"));
            }
            What::LostTold { attempt, reason } => {
                let over_at = self.held.get(attempt).map(|(least, ..)| *least);
                if *reason == LostReason::MaxHold && over_at.is_none_or(|least| event.at + TICK < least) {
                    self.wrong(event, format!("{attempt} is notified of the end of its `max_hold`"));
                }
                self.ends(*attempt);
            }
            What::ReleaseInvoked { attempt } => self.ends(*attempt),
            What::Resumed => {
                self.stopped.remove(&event.actor);
            }
            What::Stopped | What::Crashed => {
                self.stopped.insert(&event.actor);
                self.told_by.retain(|(_, attempt)| self.held[attempt].2.actor != event.actor);
            }
            _ => {}
        }
    }

    fn ends(&mut self, attempt: Attempt) {
        self.told_by.retain(|(_, told)| *told != attempt);
    }

    fn wrong(&mut self, event: &Event, detail: String) {
        self.found.push(Violation::of(Property::Bound, event, detail));
    }
}

/// Timers count in milliseconds.
const TICK: Duration = Duration::from_millis(2);
