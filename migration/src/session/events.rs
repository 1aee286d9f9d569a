//! What the stores tell, in the words of the whole.

use std::sync::Arc;

use futures_util::StreamExt;
use leasehold_core::backend::stage::Side;
use leasehold_core::backend::{Grant, LockBackend, StoreEvent};
use leasehold_core::{LockName, LostReason};

use super::Session;
use super::book::Book;
use super::claim::{Claim, Stage};

impl Session {
    /// Passes on what the store tells, while both of us are open.
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
    fn told(&mut self, side: Side, event: StoreEvent) {
        match event {
            StoreEvent::LeaseOpened(lease) => self.leases.opened(side, lease, &self.events),
            StoreEvent::LeaseLost { lease, reason } => self.lease_over(side, lease, reason),
            StoreEvent::GrantLost { name, counter, reason } => self.grant_lost(side, &name, counter, reason),
            StoreEvent::GrantAsked { name, counter, within } => {
                if let Some(counter) = self.counter_of(side, &name, counter) {
                    self.events.tell(StoreEvent::GrantAsked { name, counter, within });
                }
            }
            StoreEvent::Queued { name, holder } => {
                let holder = self.known_to_all(side, holder);
                self.events.tell(StoreEvent::Queued { name, holder });
            }
            warning => self.events.tell(warning),
        }
    }

    /// By which counter the core knows what `side` has granted with that number.
    fn counter_of(&mut self, side: Side, name: &LockName, raw: u64) -> Option<u64> {
        let Claim { stage: Stage::Holding { counter, .. }, parts, .. } = self.claim(name)? else {
            return None;
        };
        let is_it = |part: &Grant| part.counter == raw;
        parts[side].as_ref().is_some_and(is_it).then_some(*counter)
    }

    /// Somebody has ended one grant. A part that is revoked ends the whole.
    fn grant_lost(&mut self, side: Side, name: &LockName, raw: u64, reason: LostReason) {
        let held_as = self.counter_of(side, name, raw);
        let was_needed = self
            .claim(name)
            .is_some_and(|claim| matches!(&claim.stage, Stage::Holding { hold, .. } if hold.needs(side)));
        let granted = self.claim(name).and_then(|claim| claim.parts[side].as_ref());
        if granted.is_none_or(|part| part.counter != raw) {
            return;
        }
        if let Some(counter) = held_as.filter(|_| was_needed || reason == LostReason::Revoked) {
            let name = name.clone();
            self.events.tell(StoreEvent::GrantLost { name, counter, reason });
        }
        self.part_over(name, side);
    }
}
