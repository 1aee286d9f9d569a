//! What a session has in the store: its entries, from the answer that showed them until they are
//! confirmed gone.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lockcore::backend::{Grant, Lease, LeaseScope, StoreEvent};
use lockcore::clock::{Deadline, Moment};
use lockcore::{Error, ErrorKind, FencingToken, LockName, LostReason, OwnerId, Result};

use super::Session;
use crate::protocol::{Revision, RevokeRequests};

pub(super) struct Book {
    pub(super) deadline: Deadline,
    pub(super) epoch: Revision,
    pub(super) over: Option<LostReason>,
    /// Why the entries of a session that is over could not be deleted.
    pub(super) denied: Option<String>,
    pub(super) entries: HashMap<LockName, Entry>,
    /// Names that somebody deals with, and since when.
    pub(super) busy: HashMap<LockName, Moment>,
    pub(super) asked: RevokeRequests,
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

impl Book {
    /// Somebody wants the lock that the entry created at `create` holds, or is about to: which hold is to be
    /// told, and how long it may go on.
    fn wanted(&mut self, create: Revision, grace: Duration, now: Moment) -> Option<(LockName, Duration)> {
        if !self.asked.heard(create, grace, now) {
            return None;
        }
        let mut held = self.entries.iter().filter(|(_, entry)| entry.phase == Phase::Held);
        held.find(|(_, entry)| entry.create == create).map(|(name, _)| (name.clone(), grace))
    }

    /// Entries that are gone and that we are asked for all the same.
    pub(super) fn asked_in_vain(&self) -> Vec<Revision> {
        let live = |name| self.entries.get(name).filter(|entry| entry.phase != Phase::Deleted);
        let unknown = self.busy.iter().filter(|(name, _)| live(name).is_none()).map(|(_, since)| *since);
        let is_known = |create| self.entries.values().any(|entry| entry.create == create);
        self.asked.gone(is_known, unknown.min())
    }
}

impl Session {
    /// etcd.session-1
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
        if let Some(within) = book.asked.within(create, self.env().now()) {
            self.sessions.events.tell(StoreEvent::GrantAsked { name: name.clone(), counter, within });
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

    /// A message is in the inbox.
    pub(super) fn asked_to_let_go(&self, create: Revision, grace: Duration) {
        let wanted = self.book.lock().wanted(create, grace, self.env().now());
        if let Some((name, within)) = wanted
            && let Ok(counter) = self.counter(create)
        {
            self.sessions.events.tell(StoreEvent::GrantAsked { name, counter, within });
        }
    }

    fn grant_lost(&self, name: LockName, create: Revision, reason: LostReason) {
        if let Ok(counter) = self.counter(create) {
            self.sessions.events.tell(StoreEvent::GrantLost { name, counter, reason });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(10);

    fn name() -> LockName {
        LockName::new("n").unwrap()
    }

    fn at(secs: u64) -> Moment {
        Moment::from_nanos(0) + Duration::from_secs(secs)
    }

    /// A book in which somebody deals with a name since a moment.
    fn busy_since(since: Moment) -> Book {
        Book {
            deadline: Deadline::Never,
            epoch: 1,
            over: None,
            denied: None,
            entries: HashMap::new(),
            busy: HashMap::from([(name(), since)]),
            asked: RevokeRequests::default(),
        }
    }

    fn enter(book: &mut Book, create: Revision, phase: Phase) {
        let owner = OwnerId::from_random([7; 16]);
        let entry = Entry { create, owner, phase, watch_at: at(0), is_watched: false };
        book.entries.insert(name(), entry);
    }

    /// Only a hold is told; one that begins later finds what was asked of its entry.
    #[test]
    fn holds_are_told_what_they_are_asked() {
        for phase in [None, Some(Phase::Queued), Some(Phase::Releasing), Some(Phase::Deleted)] {
            let mut book = busy_since(at(1));
            if let Some(phase) = phase {
                enter(&mut book, 7, phase);
            }
            assert_eq!(book.wanted(7, GRACE, at(2)), None, "{phase:?}");
            assert_eq!(book.asked.within(7, at(2)), Some(GRACE), "{phase:?}");
        }
        let mut book = busy_since(at(1));
        enter(&mut book, 7, Phase::Held);
        assert_eq!(book.wanted(6, GRACE, at(2)), None, "it is about an earlier entry");
        assert_eq!(book.wanted(7, GRACE, at(2)), Some((name(), GRACE)));
        assert_eq!(book.wanted(7, GRACE, at(3)), None, "it is told already");
        assert_eq!(book.wanted(7, GRACE / 10, at(3)), Some((name(), GRACE / 10)));
    }

    /// What is about an entry that may still turn out to be ours is not in vain, nor while that is there.
    #[test]
    fn messages_in_vain_are_told_from_early_ones() {
        let mut book = busy_since(at(1));
        book.wanted(7, GRACE, at(2));
        assert_eq!(book.asked_in_vain(), [], "an acquisition is under way");
        for phase in [Phase::Queued, Phase::Held, Phase::Releasing] {
            enter(&mut book, 7, phase);
            assert_eq!(book.asked_in_vain(), [], "{phase:?}");
        }
        enter(&mut book, 9, Phase::Queued);
        assert_eq!(book.asked_in_vain(), [7], "the name's entry is another one");
        enter(&mut book, 9, Phase::Deleted);
        assert_eq!(book.asked_in_vain(), [], "another may be on its way since then");
        book.busy.insert(name(), at(3));
        assert_eq!(book.asked_in_vain(), [7], "what began later has a later entry");
        book.busy.clear();
        book.entries.clear();
        assert_eq!(book.asked_in_vain(), [7], "nobody deals with anything");
        book.asked.forget(7);
        assert_eq!(book.asked_in_vain(), []);
    }
}
