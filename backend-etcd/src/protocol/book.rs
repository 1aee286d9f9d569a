//! What a session has in the store, and until when; pure.
//!
//! An entry is in the book from the answer that showed it until it is confirmed gone.
//!
//! # Invariants
//! - **etcd.book-1** No deletion of an entry that is told after the answer that created it goes unnoticed (G2);
//!   one that was made before that entry is about an earlier one under the same key.
//! - **etcd.book-2** Per name at most one acquisition or clean-up is under way: the others wait for its end.
//! - **etcd.book-3** A session that is over stays over; no grant names its lease (B3).
//!
//! The property tests of the engine run it, too.

use std::collections::{HashMap, hash_map};
use std::time::Duration;

use leasehold_core::clock::{Deadline, Moment};
use leasehold_core::{Error, ErrorKind, LockName, LostReason, OwnerId, Result};

use super::{Revision, RevokeRequests};

#[derive(Debug)]
pub(crate) struct Book {
    deadline: Deadline,
    epoch: Revision,
    is_over: bool,
    /// Why the entries of a session that is over could not be deleted.
    denied: Option<String>,
    entries: HashMap<LockName, Entry>,
    /// Names that somebody deals with, and since when.
    busy: HashMap<LockName, Moment>,
    pub(crate) asked: RevokeRequests,
}

/// An entry of ours in the store.
#[derive(Debug)]
struct Entry {
    create: Revision,
    owner: OwnerId,
    phase: Phase,
    /// When its key, if it is held still, gets a watch of its own; `None` if it has one.
    watch_at: Option<Moment>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Queued,
    Held,
    Releasing,
    /// Its end was told before it was held, or while it was.
    Deleted,
}

/// A hold that begins.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) deadline: Deadline,
    /// How long it may go on, if it is wanted already.
    pub(crate) within: Option<Duration>,
}

impl Book {
    pub(crate) fn new(deadline: Deadline, epoch: Revision) -> Self {
        Self {
            deadline,
            epoch,
            is_over: false,
            denied: None,
            entries: HashMap::new(),
            busy: HashMap::new(),
            asked: RevokeRequests::default(),
        }
    }

    /// Until when the session can be trusted; one that is over, never.
    pub(crate) fn deadline(&self) -> Deadline {
        if self.is_over { Deadline::At(Moment::from_nanos(0)) } else { self.deadline }
    }

    /// A renewal was answered.
    pub(crate) fn extend(&mut self, until: Deadline, now: Moment) {
        // One that comes too late revives nothing.
        if !self.deadline().has_passed(now) {
            self.deadline = self.deadline.max(until);
        }
    }

    pub(crate) fn epoch(&self) -> Revision {
        self.epoch
    }

    /// The session's key was seen with this revision.
    pub(crate) fn saw_epoch(&mut self, revision: Revision) {
        self.epoch = self.epoch.max(revision);
    }

    /// The session is over; whether that is news.
    pub(crate) fn end(&mut self) -> bool {
        self.entries.clear();
        !std::mem::replace(&mut self.is_over, true)
    }

    /// The right to its entries is gone.
    pub(crate) fn deny(&mut self, why: String) {
        self.denied.get_or_insert(why);
    }

    /// Whether nobody else deals with the name; from now on somebody does.
    pub(crate) fn take(&mut self, name: &LockName, now: Moment) -> bool {
        match self.busy.entry(name.clone()) {
            hash_map::Entry::Vacant(free) => {
                free.insert(now);
                true
            }
            hash_map::Entry::Occupied(_) => false,
        }
    }

    pub(crate) fn free(&mut self, name: &LockName) {
        self.busy.remove(name);
    }

    /// An answer showed the entry.
    pub(crate) fn enter(&mut self, name: &LockName, create: Revision, owner: OwnerId, now: Moment) {
        let there = self.entries.get(name);
        if self.is_over || there.is_some_and(|entry| entry.create == create) {
            return;
        }
        let watch_at = there.map_or(Some(now), |entry| entry.watch_at);
        self.entries.insert(name.clone(), Entry { create, owner, phase: Phase::Queued, watch_at });
    }

    /// The entry is confirmed gone; whether its key had a watch.
    pub(crate) fn forget(&mut self, name: &LockName, create: Revision) -> bool {
        let is_there = self.entry(name, create).is_some();
        is_there && self.entries.remove(name).is_some_and(|entry| entry.watch_at.is_none())
    }

    /// The entry is the first in its queue: its hold begins, unless it, or the session, is over meanwhile.
    pub(crate) fn grant(
        &mut self,
        name: &LockName,
        create: Revision,
        now: Moment,
        watch_at: Moment,
    ) -> Option<Hold> {
        let deadline = self.deadline();
        if deadline.has_passed(now) {
            return None;
        }
        let within = self.asked.within(create, now);
        let entry = self.entry(name, create).filter(|entry| entry.phase == Phase::Queued)?;
        entry.phase = Phase::Held;
        entry.watch_at = entry.watch_at.map(|_| watch_at);
        Some(Hold { deadline, within })
    }

    /// A hold is let go of; whether its entry may be there still.
    pub(crate) fn release(&mut self, name: &LockName, create: Revision, owner: OwnerId) -> Result<bool> {
        match &self.denied {
            Some(why) if self.is_over => return Err(Error::not_applied(ErrorKind::Denied, why.clone())),
            _ if self.is_over => return Err(Error::lost(LostReason::SessionLost)),
            _ => {}
        }
        let entry = self.entry(name, create).filter(|entry| entry.owner == owner);
        let entry = entry.ok_or_else(|| Error::lost(LostReason::Gone))?;
        if entry.phase == Phase::Held {
            entry.phase = Phase::Releasing;
        }
        Ok(entry.phase == Phase::Releasing)
    }

    /// The entry of that name is gone, if it was created before `revision`; the hold that is lost by it.
    pub(crate) fn deleted(&mut self, name: &LockName, revision: Revision) -> Option<Revision> {
        let entry = self.entries.get_mut(name).filter(|entry| revision > entry.create)?;
        let was = entry.phase;
        entry.phase = if was == Phase::Releasing { was } else { Phase::Deleted };
        (was == Phase::Held).then_some(entry.create)
    }

    /// The names whose keys, held for a while, get a watch of their own now: somebody may delete them.
    pub(crate) fn begin_watches(&mut self, now: Moment) -> Vec<LockName> {
        let is_due = |entry: &Entry| entry.phase == Phase::Held && entry.watch_at.is_some_and(|at| at <= now);
        let due = self.entries.iter_mut().filter(|(_, entry)| is_due(entry));
        due.map(|(name, entry)| {
            entry.watch_at = None;
            name.clone()
        })
        .collect()
    }

    /// It could not be watched; tried again then.
    pub(crate) fn not_watched(&mut self, name: &LockName, again_at: Moment) {
        if let Some(entry) = self.entries.get_mut(name) {
            entry.watch_at = Some(again_at);
        }
    }

    pub(crate) fn is_watched(&self, name: &LockName) -> bool {
        self.entries.get(name).is_some_and(|entry| entry.watch_at.is_none())
    }

    /// Somebody wants the lock that the entry created at `create` holds, or is about to: which hold is to be
    /// told.
    pub(crate) fn wanted(&mut self, create: Revision, grace: Duration, now: Moment) -> Option<LockName> {
        if !self.asked.heard(create, grace, now) {
            return None;
        }
        let mut held = self.entries.iter().filter(|(_, entry)| entry.phase == Phase::Held);
        held.find(|(_, entry)| entry.create == create).map(|(name, _)| name.clone())
    }

    /// Entries that are gone and that we are asked for all the same.
    pub(crate) fn wanted_in_vain(&self) -> Vec<Revision> {
        let live = |name| self.entries.get(name).filter(|entry| entry.phase != Phase::Deleted);
        let unknown = self.busy.iter().filter(|(name, _)| live(name).is_none()).map(|(_, since)| *since);
        let is_known = |create| self.entries.values().any(|entry| entry.create == create);
        self.asked.gone(is_known, unknown.min())
    }

    fn entry(&mut self, name: &LockName, create: Revision) -> Option<&mut Entry> {
        self.entries.get_mut(name).filter(|entry| entry.create == create)
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

    fn owner() -> OwnerId {
        OwnerId::from_random([7; 16])
    }

    /// A book in which somebody deals with a name since a moment.
    fn busy_since(since: Moment) -> Book {
        let mut book = Book::new(Deadline::Never, 1);
        assert!(book.take(&name(), since));
        book
    }

    fn enter(book: &mut Book, create: Revision, phase: Phase) {
        book.enter(&name(), create, owner(), at(0));
        book.entry(&name(), create).unwrap().phase = phase;
    }

    /// etcd.book-1
    #[test]
    fn a_deletion_counts_for_what_was_there_before_it() {
        for (phase, lost) in
            [(Phase::Queued, None), (Phase::Held, Some(7)), (Phase::Releasing, None), (Phase::Deleted, None)]
        {
            let mut book = busy_since(at(1));
            assert_eq!(book.deleted(&name(), 9), None, "it is not there");
            enter(&mut book, 7, phase);
            for earlier in [6, 7] {
                assert_eq!(book.deleted(&name(), earlier), None, "{phase:?}");
                assert_eq!(book.entry(&name(), 7).unwrap().phase, phase);
            }
            assert_eq!(book.deleted(&name(), 8), lost, "{phase:?}");
            assert_eq!(book.deleted(&name(), 8), None, "it is told already");
            assert_eq!(book.grant(&name(), 7, at(2), at(3)), None, "{phase:?}");
        }
    }

    /// etcd.book-2
    #[test]
    fn one_at_a_time_deals_with_a_name() {
        let mut book = busy_since(at(1));
        assert!(!book.take(&name(), at(2)));
        book.free(&name());
        assert!(book.take(&name(), at(3)));
    }

    /// etcd.book-3
    #[test]
    fn a_session_that_is_over_grants_nothing_and_stays_over() {
        let mut late = Book::new(Deadline::At(at(5)), 1);
        enter(&mut late, 7, Phase::Queued);
        assert_eq!(late.grant(&name(), 7, at(5), at(6)), None);
        late.extend(Deadline::At(at(9)), at(5));
        assert_eq!(late.deadline(), Deadline::At(at(5)), "a late renewal revives nothing");

        let mut book = Book::new(Deadline::At(at(5)), 1);
        enter(&mut book, 7, Phase::Queued);
        assert!(book.end() && !book.end());
        enter_nothing(&mut book);
        book.extend(Deadline::At(at(9)), at(1));
        assert!(book.deadline().has_passed(at(1)));
    }

    fn enter_nothing(book: &mut Book) {
        book.enter(&name(), 8, owner(), at(0));
        assert!(book.entry(&name(), 8).is_none());
        assert_eq!(book.grant(&name(), 8, at(0), at(1)), None);
    }

    /// What is let go of is deleted once more if the answer was lost, and is not lost by it.
    #[test]
    fn a_release_is_of_a_hold_of_that_owner() {
        let mut book = busy_since(at(1));
        enter(&mut book, 7, Phase::Held);
        assert!(book.release(&name(), 6, owner()).is_err());
        assert!(book.release(&name(), 7, OwnerId::from_random([8; 16])).is_err());
        assert!(book.release(&name(), 7, owner()).unwrap());
        assert_eq!(book.deleted(&name(), 8), None);
        assert!(book.release(&name(), 7, owner()).unwrap());
        assert!(!book.forget(&name(), 6) && book.entry(&name(), 7).is_some());
        book.forget(&name(), 7);
        assert!(book.release(&name(), 7, owner()).is_err());
    }

    /// Whoever makes the watch of an entry that went meanwhile finds that nobody has it, though the name is held
    /// again.
    #[test]
    fn a_watch_is_that_of_its_entry() {
        let mut book = busy_since(at(1));
        enter(&mut book, 7, Phase::Held);
        assert_eq!(book.begin_watches(at(2)), [name()]);
        assert!(book.is_watched(&name()) && book.begin_watches(at(2)).is_empty());
        assert!(book.forget(&name(), 7), "it has one");
        enter(&mut book, 8, Phase::Held);
        assert!(!book.is_watched(&name()));
        assert_eq!(book.begin_watches(at(2)), [name()]);
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
            if phase == Some(Phase::Queued) {
                assert_eq!(
                    book.grant(&name(), 7, at(3), at(4)).unwrap().within,
                    Some(GRACE - (at(3).since(at(2))))
                );
            }
        }
        let mut book = busy_since(at(1));
        enter(&mut book, 7, Phase::Held);
        assert_eq!(book.wanted(6, GRACE, at(2)), None, "it is about an earlier entry");
        assert_eq!(book.wanted(7, GRACE, at(2)), Some(name()));
        assert_eq!(book.wanted(7, GRACE, at(3)), None, "it is told already");
        assert_eq!(book.wanted(7, GRACE / 10, at(3)), Some(name()));
    }

    /// What is about an entry that may still turn out to be ours is not in vain, nor while that is there.
    #[test]
    fn messages_in_vain_are_told_from_early_ones() {
        let mut book = busy_since(at(1));
        book.wanted(7, GRACE, at(2));
        assert_eq!(book.wanted_in_vain(), [0; 0], "an acquisition is under way");
        for phase in [Phase::Queued, Phase::Held, Phase::Releasing] {
            enter(&mut book, 7, phase);
            assert_eq!(book.wanted_in_vain(), [0; 0], "{phase:?}");
        }
        enter(&mut book, 9, Phase::Queued);
        assert_eq!(book.wanted_in_vain(), [7], "the name's entry is another one");
        enter(&mut book, 9, Phase::Deleted);
        assert_eq!(book.wanted_in_vain(), [0; 0], "another may be on its way since then");
        book.free(&name());
        book.take(&name(), at(3));
        assert_eq!(book.wanted_in_vain(), [7], "what began later has a later entry");
        book.free(&name());
        book.forget(&name(), 9);
        assert_eq!(book.wanted_in_vain(), [7], "nobody deals with anything");
        book.asked.forget(7);
        assert_eq!(book.wanted_in_vain(), [0; 0]);
    }
}
