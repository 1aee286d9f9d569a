//! What a session has in the store: its entries, from the answer that showed them until they are
//! confirmed gone.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use lockcore::backend::{Grant, Lease, LeaseScope, StoreEvent};
use lockcore::clock::{Deadline, Moment};
use lockcore::{Error, ErrorKind, FencingToken, LockName, LostReason, OwnerId, Result};

use super::Session;
use crate::protocol::Revision;

pub(super) struct Book {
    pub(super) deadline: Deadline,
    pub(super) epoch: Revision,
    pub(super) over: Option<LostReason>,
    /// Why the entries of a session that is over could not be deleted.
    pub(super) denied: Option<String>,
    pub(super) entries: HashMap<LockName, Entry>,
    pub(super) busy: HashSet<LockName>,
    /// Entries that somebody asks us to give up, also such as are not held or not known yet.
    pub(super) asked: HashSet<Revision>,
}

/// An entry of ours in the store.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) create: Revision,
    pub(super) owner: OwnerId,
    pub(super) phase: Phase,
    /// When its key, if it is held still, gets a watch of its own.
    pub(super) watch_at: Moment,
    /// It has one.
    pub(super) is_watched: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Queued,
    Held,
    Releasing,
    /// The watch told of its end before it was held.
    Deleted,
}

impl Session {
    /// S1
    pub(super) fn enter(&self, name: &LockName, create: Revision, owner: OwnerId) {
        let mut book = self.book.lock();
        if book.entries.get(name).is_none_or(|entry| entry.create != create) && book.over.is_none() {
            let (watch_at, phase) = (self.env().now(), Phase::Queued);
            let is_watched = book.entries.get(name).is_some_and(|entry| entry.is_watched);
            let entry = Entry { create, owner, phase, watch_at, is_watched };
            book.entries.insert(name.clone(), entry);
        }
    }

    pub(super) fn forget(&self, name: &LockName, create: Revision) {
        let mut book = self.book.lock();
        if book.entries.get(name).is_none_or(|entry| entry.create != create) {
            return;
        }
        let was_watched = book.entries.remove(name).is_some_and(|entry| entry.is_watched);
        drop(book);
        if was_watched {
            self.watches.unpin(&self.keys(name).own);
        }
    }

    /// The grant of an entry that came first; `None` if it, or the session, is over meanwhile.
    pub(super) fn grant(&self, name: &LockName, create: Revision) -> Result<Option<Grant>> {
        let counter = self.counter(create)?;
        let mut book = self.book.lock();
        let deadline = book.deadline;
        if book.over.is_some() || deadline.has_passed(self.env().now()) {
            return Ok(None);
        }
        let Some(entry) = book.entries.get_mut(name).filter(|entry| entry.create == create) else {
            return Ok(None);
        };
        if entry.phase != Phase::Queued {
            return Ok(None);
        }
        // A short hold needs no watch, and makes none.
        (entry.phase, entry.watch_at) = (Phase::Held, self.env().now() + self.ttl / 10);
        let owner = entry.owner;
        if book.asked.contains(&create) {
            let (name, reason) = (name.clone(), LostReason::Revoked);
            self.sessions.tell(StoreEvent::GrantLost { name, counter, reason });
        }
        let lease = Lease { id: self.id(), scope: LeaseScope::Session, ttl: self.ttl, deadline };
        Ok(Some(Grant { name: name.clone(), owner, lease, counter }))
    }

    /// The counter of an entry, with the namespace's base.
    pub(super) fn counter(&self, create: Revision) -> Result<u64> {
        let counter = u64::try_from(create).ok().and_then(|create| create.checked_add(self.token_base));
        counter.filter(|counter| *counter <= FencingToken::MAX_COUNTER).ok_or_else(|| {
            Error::not_applied(
                ErrorKind::Protocol,
                format!(
                    "revision {create} with a token_base of {} is above what a token holds",
                    self.token_base
                ),
            )
        })
    }

    /// Lets go of a hold, fenced by its create revision.
    pub(super) async fn release(self: &Arc<Self>, grant: &Grant) -> Result<()> {
        let (create, is_gone) = {
            let mut book = self.book.lock();
            if book.over.is_some() {
                return Err(match &book.denied {
                    Some(why) => Error::not_applied(ErrorKind::Denied, why.clone()),
                    None => Error::lost(LostReason::SessionLost),
                });
            }
            let base = self.token_base;
            let ours = |entry: &&mut Entry| {
                entry.owner == grant.owner
                    && u64::try_from(entry.create).is_ok_and(|create| create + base == grant.counter)
            };
            match book.entries.get_mut(&grant.name).filter(ours) {
                Some(entry) if matches!(entry.phase, Phase::Held | Phase::Releasing) => {
                    entry.phase = Phase::Releasing;
                    (entry.create, false)
                }
                Some(entry) => (entry.create, true),
                None => return Err(Error::lost(LostReason::Gone)),
            }
        };
        if is_gone {
            self.forget(&grant.name, create);
            return Err(Error::lost(LostReason::Gone));
        }
        let deleted = self.delete(&self.keys(&grant.name).own, create).await?;
        self.forget(&grant.name, create);
        if deleted { Ok(()) } else { Err(Error::lost(LostReason::Gone)) }
    }

    /// The entry under `key` is gone, if it was created before `revision`.
    pub(super) fn entry_deleted(&self, key: &[u8], revision: Revision) {
        let Some(name) = self.sessions.keys.name_of(key) else {
            return;
        };
        let mut book = self.book.lock();
        let Some(entry) = book.entries.get_mut(&name).filter(|entry| revision > entry.create) else {
            return;
        };
        let (create, was) = (entry.create, entry.phase);
        entry.phase = if was == Phase::Releasing { was } else { Phase::Deleted };
        drop(book);
        if was == Phase::Held {
            self.grant_lost(name, create, LostReason::Gone);
        }
    }

    /// Somebody wants the lock that the entry created at `create` holds, or is about to.
    pub(super) fn asked_to_let_go(&self, create: Revision) {
        let mut book = self.book.lock();
        book.asked.insert(create);
        let held =
            book.entries.iter().find(|(_, entry)| entry.create == create && entry.phase == Phase::Held);
        let name = held.map(|(name, _)| name.clone());
        drop(book);
        if let Some(name) = name {
            self.grant_lost(name, create, LostReason::Revoked);
        }
    }

    fn grant_lost(&self, name: LockName, create: Revision, reason: LostReason) {
        if let Ok(counter) = self.counter(create) {
            self.sessions.tell(StoreEvent::GrantLost { name, counter, reason });
        }
    }
}
