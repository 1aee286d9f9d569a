//! The holds of a session: grant, release, loss and revocation.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::{Grant, Lease, LeaseScope, StoreEvent};
use leasehold_core::{Error, ErrorKind, FencingToken, LockName, LostReason, OwnerId, Result};

use super::Session;
use crate::keys::Range;
use crate::protocol::Revision;

impl Session {
    pub(super) fn forget(&self, name: &LockName, create: Revision) {
        let watched = self.book.lock().forget(name, create);
        if let Some(slot) = watched {
            self.watches.close(&Range::entry(&self.keys(name, slot).own));
        }
    }

    /// The grant of an entry that has its turn, unless the entry or the session has ended.
    pub(super) fn grant(&self, name: &LockName, create: Revision, owner: OwnerId) -> Result<Grant> {
        let counter = self.counter(create)?;
        let now = self.env().now();
        // A short hold needs no watch.
        let hold = self.book.lock().grant(name, create, now, now + self.ttl / 10);
        let (deadline, within) = hold.ok_or_else(|| Error::lost(LostReason::Gone))?;
        if let Some(within) = within {
            self.sessions.events.tell(StoreEvent::RevocationRequested {
                name: name.clone(),
                counter,
                within,
            });
        }
        let lease = Lease::new(self.id(), LeaseScope::Session, self.ttl, deadline);
        Ok(Grant::new(name.clone(), owner, lease, counter))
    }

    /// The counter of an entry, with the namespace's base.
    pub(super) fn counter(&self, create: Revision) -> Result<u64> {
        let counter = u64::try_from(create).ok().and_then(|create| create.checked_add(self.token_base));
        counter.filter(|counter| *counter <= FencingToken::MAX_COUNTER).ok_or_else(|| {
            let sum = format!("revision {create} and token_base {}", self.token_base);
            let why = format!("cannot make a token of {sum}: the sum exceeds the largest token");
            Error::not_applied(ErrorKind::Protocol, why)
        })
    }

    /// Releases a hold, fenced by its create revision.
    pub(crate) async fn release(self: &Arc<Self>, grant: &Grant) -> Result<()> {
        let create = grant.counter.checked_sub(self.token_base).and_then(|create| create.try_into().ok());
        let create = create.ok_or_else(|| Error::lost(LostReason::Gone))?;
        let may_be_there = self.book.lock().release(&grant.name, create, grant.owner)?;
        let deleted = match may_be_there {
            Some(slot) => self.delete(&self.keys(&grant.name, slot).own, create).await?,
            None => false,
        };
        self.forget(&grant.name, create);
        if deleted { Ok(()) } else { Err(Error::lost(LostReason::Gone)) }
    }

    /// The entry under `key` was deleted, if it was created before `revision`.
    pub(super) fn entry_deleted(&self, key: &[u8], revision: Revision) {
        let Some((name, slot)) = self.sessions.keys.entry_of(key, self.lease) else {
            return;
        };
        let lost = self.book.lock().deleted(&name, slot, revision);
        if let Some(counter) = lost.and_then(|create| self.counter(create).ok()) {
            self.sessions.events.tell(StoreEvent::GrantLost { name, counter, reason: LostReason::Gone });
        }
    }

    pub(super) fn asked_to_let_go(&self, create: Revision, within: Duration) {
        let wanted = self.book.lock().wanted(create, within, self.env().now());
        if let Some(name) = wanted
            && let Ok(counter) = self.counter(create)
        {
            self.sessions.events.tell(StoreEvent::RevocationRequested { name, counter, within });
        }
    }
}
