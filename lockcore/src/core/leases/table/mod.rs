//! The leases, the ownerships on each, and when to look at each again. Pure.
//!
//! # Invariants
//! - **leases-1** Every lease with a timer has exactly one entry in `timers`, at its next moment.
//! - **leases-2** A lost session, and an entry lost before its grant has come, stay as a tombstone for a ttl
//!   after their deadline: a grant that names them late is lost too. No request sent before the loss
//!   reaches beyond that.
//! - **leases-3** A lease's `LeaseDeadline` equals its state whenever the table is unlocked. Its ownerships are
//!   touched when they come to be at risk, out of it, or are lost; never for a renewal.
//! - **leases-4** Renewals of many leases stay spread over the interval, also if all are granted at once: the first one of each
//!   is due in the second half of it, by the id, and few that are due soon go out with one that is due. A stall of a third of
//!   the ttl puts them together again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::backend::{Grant, Lease, LeaseId, LeaseScope, Renewal};
use crate::clock::{Deadline, Moment};
use crate::core::deadline::LeaseDeadline;
use crate::core::lease::{Change, LeaseState};
use crate::core::leases::ends::Ends;
use crate::core::ownership::Ownership;
use crate::words::loss::LostReason;
use crate::words::mode::Mode;

pub(crate) struct LeaseTable {
    /// Boxed, since there is one for each hold on many stores, and maps have room for more than they hold.
    leases: BTreeMap<LeaseId, Box<LeaseEntry>>,
    timers: BTreeSet<(Moment, LeaseId)>,
    pub(super) ends: Ends,
    /// When the task wakes by itself; later than everything means never.
    asleep_until: Option<Moment>,
    overdue_after: Duration,
    /// Renewals due within this time of another go out with it.
    window: Duration,
}

struct LeaseEntry {
    state: LeaseState,
    lease_deadline: Arc<LeaseDeadline>,
    timer: Option<Moment>,
    /// Each knows its place.
    ownerships: SmallVec<[Arc<Ownership>; 1]>,
    /// Until when a lost lease is remembered (leases-2).
    tombstone: Option<Moment>,
}

/// The effect of a change of a lease on its ownerships.
pub(crate) struct LeaseChange {
    pub(crate) change: Change,
    pub(crate) ownerships: Vec<Arc<Ownership>>,
}

/// The next step.
pub(crate) struct Due {
    pub(crate) changes: Vec<LeaseChange>,
    pub(crate) renew: Vec<LeaseId>,
    /// These end by themselves about now.
    pub(crate) ends: Vec<Arc<Ownership>>,
    pub(crate) wake_at: Option<Moment>,
}

impl LeaseTable {
    /// No timer for an ownership that ends by itself is longer than `longest_timer`.
    pub(crate) fn new(overdue_after: Duration, window: Duration, longest_timer: Duration) -> Self {
        Self {
            leases: BTreeMap::new(),
            timers: BTreeSet::new(),
            ends: Ends::new(longest_timer),
            asleep_until: None,
            overdue_after,
            window,
        }
    }

    /// Begins an ownership on its lease; with the reason if that is lost, and the ownership is to be ended.
    pub(crate) fn register(
        &mut self,
        grant: Grant,
        mode: Mode,
        now: Moment,
    ) -> (Arc<Ownership>, Option<LostReason>) {
        let lease = grant.lease;
        let entry = self.named(lease, now);
        if let Some(reason) = entry.state.lost() {
            // The store believes in this deadline; the lease's own is over for us.
            let lease_deadline = Arc::new(LeaseDeadline::new(lease.deadline));
            return (Arc::new(Ownership::new(grant, mode, lease_deadline, 0)), Some(reason));
        }
        let (lease_deadline, slot) = (Arc::clone(&entry.lease_deadline), entry.ownerships.len());
        let ownership = Arc::new(Ownership::new(grant, mode, lease_deadline, slot));
        entry.ownerships.push(Arc::clone(&ownership));
        self.reschedule(lease.id);
        (ownership, None)
    }

    pub(crate) fn deregister(&mut self, ownership: &Arc<Ownership>) {
        self.ends.forget(ownership);
        let lease = ownership.grant.lease;
        let Some(entry) = self.leases.get_mut(&lease.id) else {
            return;
        };
        let slot = ownership.slot();
        if entry.ownerships.get(slot).is_some_and(|registered| Arc::ptr_eq(registered, ownership)) {
            entry.remove(slot);
            if lease.scope == LeaseScope::Entry && entry.ownerships.is_empty() {
                self.remove(lease.id);
            }
        }
    }

    /// Adds an announced lease. A lease that never ends by itself has nothing to renew, and would stay.
    pub(crate) fn opened(&mut self, lease: Lease, now: Moment) {
        if lease.deadline == Deadline::Never {
            return;
        }
        self.named(lease, now);
        self.reschedule(lease.id);
    }

    pub(crate) fn lose(&mut self, id: LeaseId, reason: LostReason) -> Option<LeaseChange> {
        let change = self.leases.get_mut(&id)?.state.lose(reason);
        self.settle(id, change)
    }

    pub(crate) fn answered(
        &mut self,
        id: LeaseId,
        now: Moment,
        sent_at: Moment,
        answer: &Renewal,
    ) -> Option<LeaseChange> {
        let state = &mut self.leases.get_mut(&id)?.state;
        let change = state.answered(now, sent_at, answer, self.overdue_after);
        self.settle(id, change)
    }

    /// Looks at every lease whose time has come, and at those that may be renewed with them.
    pub(crate) fn step(&mut self, now: Moment) -> Due {
        let mut changes = Vec::new();
        let mut renew = Vec::new();
        let due: Vec<_> = self.timers_until(now).collect();
        for id in due {
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
                renew.push(id);
            }
            changes.extend(self.settle(id, change));
        }
        if !renew.is_empty() {
            // leases-4
            // A store may renew so many by a request: whole ones.
            let most = FEW.max(self.leases.len() / PARTS / FEW * FEW).saturating_sub(renew.len());
            let soon: Vec<_> = self.timers_until(now + self.window).take(most).collect();
            for id in soon {
                if let Some(entry) = self.leases.get_mut(&id)
                    && entry.state.is_due(now, self.window)
                {
                    entry.state.sent();
                    renew.push(id);
                    self.reschedule(id);
                }
            }
        }
        let ends = self.ends.due(now);
        let first = self.first(now);
        // Its lease may be gone; the next one comes soon, and is not to wake the task again.
        let set = self.asleep_until.filter(|at| now < *at);
        self.asleep_until = first.into_iter().chain(set).min();
        Due { changes, renew, ends, wake_at: self.asleep_until }
    }

    /// Whether a timer has come up before the task would wake; answers yes once.
    ///
    /// RACE: a task that should have woken before `now` slept through a suspend, in which its timer stood still, and
    /// may sleep on.
    pub(crate) fn must_wake(&mut self, now: Moment) -> bool {
        let Some(first) = self.first(now) else {
            return false;
        };
        let sooner =
            self.asleep_until.filter(|at| now <= *at).is_none_or(|asleep_until| first < asleep_until);
        if sooner {
            self.asleep_until = Some(first);
        }
        sooner
    }

    /// Until when a session lives, if the lease is one and is not lost.
    pub(crate) fn session_deadline(&self, lease: &Lease) -> Option<Deadline> {
        let state = &self.leases.get(&lease.id).filter(|_| lease.scope == LeaseScope::Session)?.state;
        state.lost().is_none().then_some(state.lease.deadline)
    }

    pub(crate) fn ownerships(&self) -> Vec<Arc<Ownership>> {
        self.leases.values().flat_map(|entry| entry.ownerships.to_vec()).collect()
    }

    fn named(&mut self, lease: Lease, now: Moment) -> &mut LeaseEntry {
        let (overdue_after, is_one_of_many) = (self.overdue_after, self.leases.len() >= FEW);
        let entry = self.leases.entry(lease.id).or_insert_with(|| {
            let mut state = LeaseState::new(lease, now, overdue_after);
            if is_one_of_many && lease.scope == LeaseScope::Entry {
                let part = lease.id.get() % PARTS as u64;
                state.renew_earlier(lease.ttl / (6 * PARTS as u32) * part as u32);
            }
            Box::new(LeaseEntry {
                state,
                lease_deadline: Arc::new(LeaseDeadline::new(lease.deadline)),
                timer: None,
                ownerships: SmallVec::new(),
                tombstone: None,
            })
        });
        if entry.state.named_again(now, lease.deadline) {
            entry.publish();
        }
        entry
    }

    /// Returns the ownerships that a change concerns, and forgets a lease that is over.
    fn settle(&mut self, id: LeaseId, change: Change) -> Option<LeaseChange> {
        let entry = self.leases.get_mut(&id)?;
        entry.publish();
        let ownerships = match change {
            Change::Nothing => Vec::new(),
            Change::AtRisk | Change::Safe => entry.ownerships.to_vec(),
            Change::Lost(reason) => entry.bury(reason),
        };
        self.reschedule(id);
        (!ownerships.is_empty()).then_some(LeaseChange { change, ownerships })
    }

    fn reschedule(&mut self, id: LeaseId) {
        let Some(entry) = self.leases.get_mut(&id) else {
            return;
        };
        let is_lost = entry.state.lost().is_some();
        let next = if is_lost { entry.tombstone } else { entry.state.next_timer() };
        let last = std::mem::replace(&mut entry.timer, next);
        if last != next {
            last.map(|at| self.timers.remove(&(at, id)));
            next.map(|at| self.timers.insert((at, id)));
        }
        if is_lost && next.is_none() {
            self.leases.remove(&id);
        }
    }

    fn remove(&mut self, id: LeaseId) {
        if let Some(at) = self.leases.remove(&id).and_then(|entry| entry.timer) {
            self.timers.remove(&(at, id));
        }
    }

    fn first(&self, now: Moment) -> Option<Moment> {
        self.timers.first().map(|(at, _)| *at).into_iter().chain(self.ends.look_at(now)).min()
    }

    fn timers_until(&self, at: Moment) -> impl Iterator<Item = LeaseId> {
        self.timers.iter().take_while(move |(timer, _)| *timer <= at).map(|(_, id)| *id)
    }
}

impl LeaseEntry {
    /// Says in the lease deadline what the state says (leases-3).
    fn publish(&self) {
        if self.state.lost().is_none() {
            self.lease_deadline.extend(self.state.lease.deadline);
            self.lease_deadline.set_at_risk(self.state.is_at_risk());
        }
    }

    /// Takes an ownership out, and gives back the room of those that have ended, once it is most of it.
    fn remove(&mut self, slot: usize) {
        self.ownerships.swap_remove(slot);
        if let Some(moved) = self.ownerships.get(slot) {
            moved.set_slot(slot);
        }
        if self.ownerships.capacity() > KEPT && self.ownerships.len() < self.ownerships.capacity() / 4 {
            self.ownerships.shrink_to_fit();
        }
    }

    /// Takes the ownerships off a lost lease, and remembers it for as long as a grant may name it (leases-2).
    fn bury(&mut self, reason: LostReason) -> Vec<Arc<Ownership>> {
        let ownerships = std::mem::take(&mut self.ownerships);
        let lease = &self.state.lease;
        let grant_may_come = ownerships.is_empty() && reason != LostReason::Released;
        self.tombstone = match lease.deadline {
            Deadline::At(at) if grant_may_come || lease.scope == LeaseScope::Session => Some(at + lease.ttl),
            _ => None,
        };
        ownerships.into_vec()
    }
}

/// So few leases are renewed together.
const FEW: usize = 100;
/// More of them are renewed in so many parts.
const PARTS: usize = 64;
/// So few places are not worth giving back.
const KEPT: usize = 64;

#[cfg(test)]
mod tests;
