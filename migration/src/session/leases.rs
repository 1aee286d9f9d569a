//! The leases of both stores under ids of their own.
//!
//! A lease that a store announces is *passed on*, one for one. A hold is a lease too, a *composite*: it lives as long
//! as the parts that it needs.

use std::collections::BTreeMap;

use leasehold_core::backend::stage::Side;
use leasehold_core::backend::{Events, Grant, Lease, LeaseId, LeaseScope, StoreEvent};
use leasehold_core::clock::{Deadline, Moment};
use leasehold_core::{LockName, LostReason};

use crate::protocol::{Pair, SIDES};

pub(super) struct Leases {
    last: u64,
    /// By the id that the core knows.
    passed: BTreeMap<LeaseId, (Side, Lease)>,
    /// The core's id, by the store's.
    known: Pair<BTreeMap<LeaseId, LeaseId>>,
    /// The leases whose end was reported, and until when an earlier reply may name them, as in the core.
    over: Pair<BTreeMap<LeaseId, Moment>>,
    /// The time of the last access to the book.
    pub(super) now: Moment,
    /// The names that are held.
    pub(super) composites: BTreeMap<LeaseId, LockName>,
}

impl Leases {
    pub(super) fn new() -> Self {
        Self {
            last: 0,
            passed: BTreeMap::new(),
            known: Pair::default(),
            over: Pair::default(),
            now: Moment::from_nanos(0),
            composites: BTreeMap::new(),
        }
    }

    pub(super) fn fresh(&mut self) -> LeaseId {
        self.last += 1;
        LeaseId::new(self.last)
    }

    /// A store has announced a lease, perhaps again with a later deadline, or the core is to renew an unannounced one.
    pub(super) fn announce(&mut self, side: Side, lease: Lease, events: &Events) {
        let outer = match self.known[side].get(&lease.id) {
            Some(outer) => *outer,
            None => self.fresh(),
        };
        self.known[side].insert(lease.id, outer);
        self.passed.entry(outer).or_insert((side, lease));
        self.extend(side, lease.id, lease.deadline);
        events.tell(StoreEvent::LeaseOpened(Lease::new(outer, lease.scope, lease.ttl, lease.deadline)));
    }

    /// The core renews the grants that are held while another store's lock is requested.
    pub(super) fn keep(&mut self, parts: &Pair<Option<Grant>>, events: &Events) {
        for side in SIDES {
            let part = parts[side].as_ref().filter(|part| part.lease.scope == LeaseScope::Entry);
            if let Some(part) = part {
                self.announce(side, part.lease, events);
            }
        }
    }

    /// Until when a lease is trusted that was granted like this.
    pub(super) fn deadline(&self, side: Side, lease: &Lease) -> Deadline {
        let passed = self.known[side].get(&lease.id).and_then(|outer| self.passed.get(outer));
        passed.map_or(lease.deadline, |(_, passed)| passed.deadline.max(lease.deadline))
    }

    /// The core does not renew this one for itself any more: it is a part of a hold, or of nothing. Until when it is trusted.
    pub(super) fn absorb(&mut self, side: Side, lease: &Lease, events: &Events) -> Deadline {
        let deadline = self.deadline(side, lease);
        if lease.scope == LeaseScope::Entry {
            self.lost(side, lease.id, LostReason::Released, events);
        }
        deadline
    }

    pub(super) fn lost(&mut self, side: Side, lease: LeaseId, reason: LostReason, events: &Events) {
        let Some(outer) = self.known[side].remove(&lease) else { return };
        if let Some((_, Lease { ttl, deadline: Deadline::At(at), .. })) = self.passed.remove(&outer)
            && reason != LostReason::Released
        {
            self.over[side].retain(|_, until| self.now < *until);
            self.over[side].insert(lease, at + ttl);
        }
        events.tell(StoreEvent::LeaseLost { lease: outer, reason });
    }

    /// Whether a late grant or signature of a store rests on a lease that has ended.
    pub(super) fn is_over(&self, side: Side, lease: &Lease) -> bool {
        self.over[side].contains_key(&lease.id)
    }

    /// The store's lease behind the core's `lease`, if that was passed on.
    pub(super) fn passed(&self, lease: LeaseId) -> Option<(Side, LeaseId)> {
        self.passed.get(&lease).map(|(side, lease)| (*side, lease.id))
    }

    pub(super) fn extend(&mut self, side: Side, lease: LeaseId, until: Deadline) {
        let passed = self.known[side].get(&lease).and_then(|outer| self.passed.get_mut(outer));
        if let Some((_, lease)) = passed {
            lease.deadline = lease.deadline.max(until);
        }
    }
}
