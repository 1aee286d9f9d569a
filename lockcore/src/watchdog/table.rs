//! Which leases there are, who hangs on them, and when to look at each again. Pure.
//!
//! # Invariants
//! - **WT1** Every lease with a timer has exactly one entry in `timers`, at its next moment.
//! - **WT2** A lost session, and an entry lost before its grant has come, stay as a tombstone for a ttl
//!   after their deadline: a grant that names them late is lost too. No request sent before the loss
//!   reaches beyond that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use slab::Slab;

use crate::backend::{Lease, LeaseId, LeaseScope};
use crate::clock::{Deadline, Moment};
use crate::lease::{Answer, Change, LeaseState};
use crate::loss::LostReason;
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
    /// Until when a lost lease is remembered (WT2).
    tombstone: Option<Moment>,
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
        if entry.state.is_at_risk() {
            tenure.put_at_risk();
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

    /// Adds an announced lease. One that never ends by itself has nothing to renew, and would stay.
    pub(crate) fn opened(&mut self, lease: Lease, now: Moment) {
        if lease.deadline == Deadline::Never {
            return;
        }
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

    /// Until when a session lives, if the lease is one and is not lost.
    pub(crate) fn session_deadline(&self, lease: &Lease) -> Option<Deadline> {
        let state = &self.leases.get(&lease.id).filter(|_| lease.scope == LeaseScope::Session)?.state;
        state.lost().is_none().then(|| state.lease().deadline)
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
            tombstone: None,
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
            Change::Lost(reason) => entry.bury(reason),
        };
        self.reschedule(id);
        (!tenures.is_empty()).then_some(Outcome { change, deadline, tenures })
    }

    fn reschedule(&mut self, id: LeaseId) {
        let Some(entry) = self.leases.get_mut(&id) else {
            return;
        };
        let next = match entry.state.lost() {
            None => entry.state.next_timer(),
            Some(_) => entry.tombstone,
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
    /// Takes the tenures off a lost lease, and remembers it for as long as a grant may name it (WT2).
    fn bury(&mut self, reason: LostReason) -> Vec<Arc<Tenure>> {
        let tenures = std::mem::take(&mut self.tenures);
        let lease = self.state.lease();
        let grant_may_come = tenures.is_empty() && reason != LostReason::Released;
        self.tombstone = match lease.deadline {
            Deadline::At(at) if grant_may_come || lease.scope == LeaseScope::Session => Some(at + lease.ttl),
            _ => None,
        };
        tenures.into_iter().map(|(_, tenure)| tenure).collect()
    }

    fn tenures(&self) -> impl Iterator<Item = Arc<Tenure>> {
        self.tenures.iter().map(|(_, tenure)| Arc::clone(tenure))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Grant;
    use crate::loss::GuardState;
    use crate::{LockName, OwnerId};

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    fn session(deadline: u64) -> Lease {
        Lease {
            id: LeaseId::new(1),
            scope: LeaseScope::Session,
            ttl: Duration::from_secs(9),
            deadline: Deadline::At(at(deadline)),
        }
    }

    fn granted(lease: Lease) -> Arc<Tenure> {
        let (name, owner) = (LockName::new("a").unwrap(), OwnerId::from_random([1; 16]));
        Arc::new(Tenure::new(Grant { name, owner, lease, counter: 1 }))
    }

    fn table() -> Table {
        let mut table = Table::new(Duration::from_secs(1), Duration::from_millis(750));
        table.opened(session(9), at(0));
        table
    }

    /// A backend that heard a late answer believes in its session longer than we do; what it grants
    /// on that is lost (WT2).
    #[test]
    fn a_session_that_expired_stays_lost() {
        let mut table = table();
        while table.step(at(9)).wake_at.is_some_and(|wake_at| wake_at <= at(9)) {}
        assert_eq!(table.register(&granted(session(17)), at(10)), Err(LostReason::Expired));
        table.step(at(18));
        assert!(table.leases.is_empty());
    }

    /// An entry that was announced while it queued, and lost, is lost for the grant that comes late; for
    /// a ttl after its deadline, as no request from before reaches further (WT2). One that was given
    /// back is no grant's.
    #[test]
    fn an_entry_that_was_lost_before_its_grant_stays_lost() {
        let entry = Lease { scope: LeaseScope::Entry, ..session(9) };
        let mut table = Table::new(Duration::from_secs(1), Duration::from_millis(750));
        table.opened(entry, at(0));
        assert!(table.lose(entry.id, LostReason::Gone).is_none());
        table.step(at(17));
        assert_eq!(table.register(&granted(entry), at(17)), Err(LostReason::Gone));
        table.step(at(18));
        assert!(table.leases.is_empty() && table.timers.is_empty());
        table.opened(entry, at(0));
        table.lose(entry.id, LostReason::Released);
        assert!(table.leases.is_empty());
    }

    /// A grant on a session whose renewal is overdue is at risk from the beginning.
    #[test]
    fn a_grant_on_a_lease_at_risk_is_at_risk() {
        let mut table = table();
        table.step(at(3));
        table.step(at(4));
        let late = granted(session(9));
        assert_eq!(table.register(&late, at(5)), Ok(()));
        assert_eq!(late.state(at(5)), GuardState::AtRisk);
    }
}
