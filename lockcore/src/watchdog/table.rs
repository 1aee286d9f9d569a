//! Which leases there are, who hangs on them, and when to look at each again. Pure.
//!
//! # Invariants
//! - **WT1** Every lease with a timer has exactly one entry in `timers`, at its next moment.
//! - **WT2** A lost session stays as a tombstone until its deadline, so that a grant that names it
//!   late is lost too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use slab::Slab;

use crate::backend::{Lease, LeaseId, LeaseScope};
use crate::clock::{Deadline, Moment};
use crate::guard::LostReason;
use crate::lease::{Answer, Change, LeaseState};
use crate::tenure::Tenure;

#[derive(Debug)]
pub(crate) struct Table {
    leases: BTreeMap<LeaseId, Entry>,
    timers: BTreeSet<(Moment, LeaseId)>,
    /// When the task wakes by itself; later than everything means never.
    asleep_until: Option<Moment>,
    overdue_after: Duration,
    /// Renewals due within this time of another go out with it.
    window: Duration,
}

#[derive(Debug)]
struct Entry {
    state: LeaseState,
    timer: Option<Moment>,
    tenures: Slab<Arc<Tenure>>,
}

/// What a change of a lease means for its tenures.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) change: Change,
    pub(crate) deadline: Deadline,
    pub(crate) tenures: Vec<Arc<Tenure>>,
}

/// What is to be done now.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) due: Vec<LeaseId>,
    pub(crate) wake_at: Option<Moment>,
}

impl Table {
    pub(crate) fn new(overdue_after: Duration, window: Duration) -> Self {
        Self { leases: BTreeMap::new(), timers: BTreeSet::new(), asleep_until: None, overdue_after, window }
    }

    /// Adds a tenure to its lease; the reason if that is lost.
    pub(crate) fn register(&mut self, tenure: &Arc<Tenure>, now: Moment) -> Result<(), LostReason> {
        let lease = tenure.grant().lease;
        let entry = self.named(lease, now);
        if let Some(reason) = entry.state.lost() {
            return Err(reason);
        }
        let slot = entry.tenures.insert(Arc::clone(tenure));
        tenure.set_slot(slot);
        let deadline = entry.state.lease().deadline;
        if deadline > lease.deadline {
            tenure.extend(deadline);
        }
        self.reschedule(lease.id);
        Ok(())
    }

    pub(crate) fn deregister(&mut self, tenure: &Arc<Tenure>) {
        let lease = tenure.grant().lease;
        let Some(entry) = self.leases.get_mut(&lease.id) else {
            return;
        };
        let slot = tenure.slot();
        if entry.tenures.get(slot).is_some_and(|registered| Arc::ptr_eq(registered, tenure)) {
            entry.tenures.remove(slot);
            if lease.scope == LeaseScope::Entry && entry.tenures.is_empty() {
                self.remove(lease.id);
            }
        }
    }

    pub(crate) fn opened(&mut self, lease: Lease, now: Moment) {
        self.named(lease, now);
        self.reschedule(lease.id);
    }

    pub(crate) fn lose(&mut self, id: LeaseId, reason: LostReason) -> Option<Outcome> {
        let change = self.leases.get_mut(&id)?.state.lose(reason);
        self.settle(id, change)
    }

    pub(crate) fn answered(
        &mut self,
        id: LeaseId,
        now: Moment,
        sent_at: Moment,
        answer: Answer,
    ) -> Option<Outcome> {
        let change = self.leases.get_mut(&id)?.state.answered(now, sent_at, answer);
        self.settle(id, change)
    }

    /// Looks at every lease whose time has come, and at those that may be renewed with them.
    pub(crate) fn step(&mut self, now: Moment) -> Step {
        let mut outcomes = Vec::new();
        let mut due = Vec::new();
        for id in self.timers_until(now) {
            let Some(entry) = self.leases.get_mut(&id) else {
                continue;
            };
            if entry.state.lost().is_some() {
                self.remove(id);
                continue;
            }
            let change = entry.state.tick(now);
            if entry.state.is_due(now, Duration::ZERO) {
                entry.state.sent();
                due.push(id);
            }
            outcomes.extend(self.settle(id, change));
        }
        if !due.is_empty() {
            for id in self.timers_until(now + self.window) {
                let Some(entry) = self.leases.get_mut(&id) else {
                    continue;
                };
                if entry.state.is_due(now, self.window) {
                    entry.state.sent();
                    due.push(id);
                    self.reschedule(id);
                }
            }
        }
        self.asleep_until = self.timers.first().map(|(at, _)| *at);
        Step { outcomes, due, wake_at: self.asleep_until }
    }

    /// Whether a timer has come up before the task would wake; answers yes once.
    pub(crate) fn must_wake(&mut self) -> bool {
        let first = self.timers.first().map(|(at, _)| *at);
        let sooner = match (first, self.asleep_until) {
            (Some(first), Some(asleep_until)) => first < asleep_until,
            (Some(_), None) => true,
            (None, _) => false,
        };
        if sooner {
            self.asleep_until = first;
        }
        sooner
    }

    pub(crate) fn tenures(&self) -> Vec<Arc<Tenure>> {
        self.leases.values().flat_map(Entry::tenures).collect()
    }

    fn named(&mut self, lease: Lease, now: Moment) -> &mut Entry {
        let overdue_after = self.overdue_after;
        let entry = self.leases.entry(lease.id).or_insert_with(|| Entry {
            state: LeaseState::new(lease, now, overdue_after),
            timer: None,
            tenures: Slab::new(),
        });
        if entry.state.named_again(now, lease.deadline) {
            let deadline = entry.state.lease().deadline;
            entry.tenures.iter().for_each(|(_, tenure)| tenure.extend(deadline));
        }
        entry
    }

    /// Passes a change on to the tenures, and forgets what is over.
    fn settle(&mut self, id: LeaseId, change: Change) -> Option<Outcome> {
        let entry = self.leases.get_mut(&id)?;
        let deadline = entry.state.lease().deadline;
        let tenures = match change {
            Change::Nothing => Vec::new(),
            Change::Extended | Change::AtRisk => entry.tenures().collect(),
            Change::Lost(_) => {
                std::mem::take(&mut entry.tenures).into_iter().map(|(_, tenure)| tenure).collect()
            }
        };
        self.reschedule(id);
        (!tenures.is_empty()).then_some(Outcome { change, deadline, tenures })
    }

    fn reschedule(&mut self, id: LeaseId) {
        let Some(entry) = self.leases.get_mut(&id) else {
            return;
        };
        let next = match (entry.state.lost(), entry.state.lease().deadline) {
            (None, _) => entry.state.next_timer(),
            // WT2: `step` removes it at its deadline.
            (Some(_), Deadline::At(at)) if entry.state.lease().scope == LeaseScope::Session => Some(at),
            (Some(_), _) => None,
        };
        let over = next.is_none() && entry.state.lost().is_some();
        let last = std::mem::replace(&mut entry.timer, next);
        if last != next {
            last.map(|at| self.timers.remove(&(at, id)));
            next.map(|at| self.timers.insert((at, id)));
        }
        if over {
            self.leases.remove(&id);
        }
    }

    fn remove(&mut self, id: LeaseId) {
        if let Some(Entry { timer: Some(at), .. }) = self.leases.remove(&id) {
            self.timers.remove(&(at, id));
        }
    }

    fn timers_until(&self, at: Moment) -> Vec<LeaseId> {
        self.timers.iter().take_while(|(timer, _)| *timer <= at).map(|(_, id)| *id).collect()
    }
}

impl Entry {
    fn tenures(&self) -> impl Iterator<Item = Arc<Tenure>> {
        self.tenures.iter().map(|(_, tenure)| Arc::clone(tenure))
    }
}
