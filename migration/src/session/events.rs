//! The events of the stores, as events of the whole.

use std::sync::Arc;

use futures_util::StreamExt;
use leasehold_core::backend::stage::Side;
use leasehold_core::backend::{Grant, Lease, LeaseScope, LockBackend, StoreEvent};
use leasehold_core::{LockName, LostReason};

use super::book::Book;
use super::claim::{Claim, Stage};
use super::{SIDES, Session};

impl Session {
    /// Passes on the events of the store, while both are open.
    pub(super) async fn listen(self: Arc<Self>, side: Side, backend: Arc<dyn LockBackend>) {
        let mut events = backend.events();
        drop(backend);
        loop {
            let event = tokio::select! {
                biased;
                () = self.closing.cancelled() => return,
                event = events.next() => event,
            };
            let Some(event) = event else { return };
            self.with(|book, _| book.told(side, event));
            // A stream that is always ready need not let others have their turn: we do.
            tokio::task::coop::consume_budget().await;
        }
    }
}

impl Book {
    pub(super) fn told(&mut self, side: Side, event: StoreEvent) {
        match event {
            StoreEvent::LeaseOpened(lease) => {
                let names = self.hanging_on(side, lease.id);
                // A lease that is a part of another is renewed with that.
                if lease.scope == LeaseScope::Session || names.is_empty() {
                    self.leases.announce(side, lease, &self.events);
                }
                for name in names {
                    self.extend_hold(&name);
                }
            }
            StoreEvent::LeaseLost { lease, reason } => self.lease_over(side, lease, reason),
            StoreEvent::GrantLost { name, counter, reason } => self.grant_lost(side, &name, counter, reason),
            StoreEvent::RevocationRequested { name, counter, within } => {
                let until = self.leases.now + within;
                let Some(claim) = self.claim(&name) else { return };
                let earlier = claim.early[side].asked.filter(|(asked, _)| *asked == counter);
                let until = earlier.map_or(until, |(_, earlier)| earlier.min(until));
                claim.early[side].asked = Some((counter, until));
                self.pass_on_asked(&name);
            }
            StoreEvent::Queued { name, holder } => {
                self.meet(side, &name, &holder);
                let holder = self.known_to_all(side, &name, holder);
                self.events.tell(StoreEvent::Queued { name, holder });
            }
            warning => self.events.tell(warning),
        }
    }

    /// A part of the hold of `name` lasts longer than it did: the hold may, too.
    fn extend_hold(&mut self, name: &LockName) {
        self.admit(name);
        let (trusted, now) = (self.trusted(name), self.leases.now);
        let Some(claim) = self.claim(name) else { return };
        let until = claim.trusted_until(trusted, now);
        let ttl = claim.ttl();
        if let Claim { id, stage: Stage::Holding { hold, told, .. }, .. } = claim
            && let Some(ttl) = ttl
            && !hold.over
            && *told < until
        {
            *told = until;
            let lease = Lease::new(*id, LeaseScope::Entry, ttl, until);
            self.events.tell(StoreEvent::LeaseOpened(lease));
        }
        self.advance(name);
    }

    /// A revocation request for a part of a hold is one for the hold.
    pub(super) fn pass_on_asked(&mut self, name: &LockName) {
        let now = self.leases.now;
        let Some(claim) = self.claim(name) else { return };
        for (side, early) in SIDES.map(|side| (side, claim.early[side].asked)) {
            let Some((raw, until)) = early else { continue };
            let Some(counter) = self.counter_of(side, name, raw) else { continue };
            if let Some(claim) = self.claim(name) {
                claim.early[side].asked = None;
            }
            let (name, within) = (name.clone(), until.since(now));
            self.events.tell(StoreEvent::RevocationRequested { name, counter, within });
        }
    }

    /// The core's counter for the number of a grant of `side`.
    pub(super) fn counter_of(&self, side: Side, name: &LockName, raw: u64) -> Option<u64> {
        let claim = self.slots.get(name)?.claim.as_ref()?;
        let Claim { stage: Stage::Holding { counter, .. }, parts, .. } = claim else { return None };
        let is_it = |part: &Grant| part.counter == raw;
        parts[side].as_ref().is_some_and(is_it).then_some(*counter)
    }

    /// One grant was ended from outside. A part that is revoked ends the whole.
    fn grant_lost(&mut self, side: Side, name: &LockName, raw: u64, reason: LostReason) {
        let held_as = self.counter_of(side, name, raw);
        let was_needed = self
            .claim(name)
            .is_some_and(|claim| matches!(&claim.stage, Stage::Holding { hold, .. } if hold.needs(side)));
        let Some(claim) = self.claim(name) else { return };
        if claim.parts[side].as_ref().is_none_or(|part| part.counter != raw) {
            claim.early[side].lost = Some(raw);
            return;
        }
        if let Some(counter) = held_as.filter(|_| was_needed || reason == LostReason::Revoked) {
            let name = name.clone();
            self.events.tell(StoreEvent::GrantLost { name, counter, reason });
        }
        self.part_over(name, side);
    }
}
