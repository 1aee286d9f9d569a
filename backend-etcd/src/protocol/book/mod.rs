//! The entries and holds of a session, and its deadline; pure.
//!
//! An entry is in the book from the reply that showed it until its deletion is confirmed.
//!
//! # Invariants
//! - **etcd.book-1** No deletion of an entry that is reported after the reply that created it goes unnoticed (G2); an older
//!   deletion is about an earlier entry under the same key.
//! - **etcd.book-2** Per name at most one acquisition or clean-up is in progress: the others wait for its end. No hold has
//!   its slot.
//! - **etcd.book-3** An ended session never lives again; no grant names its lease (B3).
//!
//! The property tests of the engine run it, too.

use std::collections::HashMap;
use std::time::Duration;

use leasehold_core::clock::{Deadline, Moment};
use leasehold_core::{Error, LockName, LostReason, Mode, OwnerId, Result};
use smallvec::SmallVec;

use super::{Revision, RevokeRequests, Slot};

#[derive(Debug)]
pub(crate) struct Book {
    deadline: Deadline,
    pub(crate) epoch: Revision,
    is_over: bool,
    /// The refusal to delete the entries of an ended session.
    denied: Option<Error>,
    /// More than one only of entries that may hold at the same time.
    entries: HashMap<LockName, SmallVec<[BookEntry; 1]>>,
    /// Names with an acquisition or clean-up: since when, and in which slot.
    busy: HashMap<LockName, (Moment, Slot)>,
    pub(crate) asked: RevokeRequests,
}

#[derive(Debug)]
struct BookEntry {
    slot: Slot,
    create: Revision,
    owner: OwnerId,
    phase: EntryPhase,
    /// When its key gets a watch of its own, if it is still held; `None` if it has one.
    watch_at: Option<Moment>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryPhase {
    Queued,
    Held,
    Releasing,
    /// Its deletion was reported before it was held, or while it was.
    Deleted,
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

    pub(crate) fn deadline(&self) -> Deadline {
        if self.is_over { Deadline::At(Moment::from_nanos(0)) } else { self.deadline }
    }

    /// A renewal was answered.
    pub(crate) fn extend(&mut self, until: Deadline, now: Moment) {
        // A late renewal revives nothing.
        if !self.deadline().has_passed(now) {
            self.deadline = self.deadline.max(until);
        }
    }

    /// The session's key was seen with this revision.
    pub(crate) fn saw_epoch(&mut self, revision: Revision) {
        self.epoch = self.epoch.max(revision);
    }

    /// Ends the session; returns whether it had not ended before.
    pub(crate) fn end(&mut self) -> bool {
        self.entries.clear();
        !std::mem::replace(&mut self.is_over, true)
    }

    pub(crate) fn deny(&mut self, why: Error) {
        self.denied.get_or_insert(why);
    }

    /// Reserves the name, and returns the slot of its entry; `None` if the name is reserved.
    pub(crate) fn take(&mut self, name: &LockName, mode: Mode, now: Moment) -> Option<Slot> {
        if self.busy.contains_key(name) {
            return None;
        }
        let slot = self.free_slot(name, mode);
        self.busy.insert(name.clone(), (now, slot));
        Some(slot)
    }

    /// The lowest that no entry has. A mode that excludes itself has one slot: an entry there was forgotten, and is deleted
    /// first.
    fn free_slot(&self, name: &LockName, mode: Mode) -> Slot {
        let first = Slot::first(mode);
        if mode.bars(mode) {
            return first;
        }
        let mut all = (0..=u32::MAX).map(|number| Slot { number, ..first });
        all.find(|slot| !self.is_live(name, *slot)).unwrap_or(first)
    }

    fn is_live(&self, name: &LockName, slot: Slot) -> bool {
        self.of(name).iter().any(|entry| entry.slot == slot && entry.phase != EntryPhase::Deleted)
    }

    pub(crate) fn free(&mut self, name: &LockName) {
        self.busy.remove(name);
    }

    pub(crate) fn enter(
        &mut self,
        name: &LockName,
        slot: Slot,
        create: Revision,
        owner: OwnerId,
        now: Moment,
    ) {
        if self.is_over || self.entry(name, create).is_some() {
            return;
        }
        let entries = self.entries.entry(name.clone()).or_default();
        let there = entries.iter().position(|entry| entry.slot == slot);
        let watch_at = there.map_or(Some(now), |there| entries.swap_remove(there).watch_at);
        entries.push(BookEntry { slot, create, owner, phase: EntryPhase::Queued, watch_at });
    }

    /// The deletion is confirmed; the entry's slot, if its key had a watch.
    pub(crate) fn forget(&mut self, name: &LockName, create: Revision) -> Option<Slot> {
        let entries = self.entries.get_mut(name)?;
        let there = entries.iter().position(|entry| entry.create == create)?;
        let entry = entries.swap_remove(there);
        if entries.is_empty() {
            self.entries.remove(name);
        }
        entry.watch_at.is_none().then_some(entry.slot)
    }

    /// Begins the hold of an entry that has its turn, unless the entry or the session has ended: the session's deadline, and
    /// the rest of the grace period if a release was requested already.
    pub(crate) fn grant(
        &mut self,
        name: &LockName,
        create: Revision,
        now: Moment,
        watch_at: Moment,
    ) -> Option<(Deadline, Option<Duration>)> {
        let deadline = self.deadline();
        if deadline.has_passed(now) {
            return None;
        }
        let within = self.asked.within(create, now);
        let entry = self.entry(name, create).filter(|entry| entry.phase == EntryPhase::Queued)?;
        entry.phase = EntryPhase::Held;
        entry.watch_at = entry.watch_at.map(|_| watch_at);
        Some((deadline, within))
    }

    /// Begins the release of a hold; the slot of its entry, if that may still exist.
    pub(crate) fn release(
        &mut self,
        name: &LockName,
        create: Revision,
        owner: OwnerId,
    ) -> Result<Option<Slot>> {
        if self.is_over {
            return Err(self.denied.clone().unwrap_or_else(|| Error::lost(LostReason::SessionLost)));
        }
        let entry = self.entry(name, create).filter(|entry| entry.owner == owner);
        let entry = entry.ok_or_else(|| Error::lost(LostReason::Gone))?;
        if entry.phase == EntryPhase::Held {
            entry.phase = EntryPhase::Releasing;
        }
        Ok((entry.phase == EntryPhase::Releasing).then_some(entry.slot))
    }

    /// The entry in that slot was deleted, if it was created before `revision`; the hold that is lost.
    pub(crate) fn deleted(&mut self, name: &LockName, slot: Slot, revision: Revision) -> Option<Revision> {
        let entry = self.at(name, slot).filter(|entry| revision > entry.create)?;
        let was = entry.phase;
        entry.phase = if was == EntryPhase::Releasing { was } else { EntryPhase::Deleted };
        (was == EntryPhase::Held).then_some(entry.create)
    }

    /// The keys that have been held for a while and get a watch of their own now: an administrator may delete them.
    pub(crate) fn begin_watches(&mut self, now: Moment) -> Vec<(LockName, Slot)> {
        let is_due =
            |entry: &BookEntry| entry.phase == EntryPhase::Held && entry.watch_at.is_some_and(|at| at <= now);
        let mut due = Vec::new();
        for (name, entries) in &mut self.entries {
            for entry in entries.iter_mut().filter(|entry| is_due(entry)) {
                entry.watch_at = None;
                due.push((name.clone(), entry.slot));
            }
        }
        due
    }

    pub(crate) fn not_watched(&mut self, name: &LockName, slot: Slot, again_at: Moment) {
        if let Some(entry) = self.at(name, slot) {
            entry.watch_at = Some(again_at);
        }
    }

    pub(crate) fn is_watched(&self, name: &LockName, slot: Slot) -> bool {
        self.of(name).iter().any(|entry| entry.slot == slot && entry.watch_at.is_none())
    }

    /// A release was requested of the entry created at `create`; the name of the hold that has to be notified.
    pub(crate) fn wanted(&mut self, create: Revision, grace: Duration, now: Moment) -> Option<LockName> {
        if !self.asked.heard(create, grace, now) {
            return None;
        }
        let is_it = |entry: &BookEntry| entry.phase == EntryPhase::Held && entry.create == create;
        let mut all = self.entries.iter();
        all.find(|(_, entries)| entries.iter().any(is_it)).map(|(name, _)| name.clone())
    }

    /// The requests that are about entries that do not exist any more.
    pub(crate) fn wanted_in_vain(&self) -> Vec<Revision> {
        let unknown = self.busy.iter().filter(|(name, (_, slot))| !self.is_live(name, *slot));
        let is_known = |create| self.entries.values().flatten().any(|entry| entry.create == create);
        self.asked.gone(is_known, unknown.map(|(_, (since, _))| *since).min())
    }

    fn of(&self, name: &LockName) -> &[BookEntry] {
        self.entries.get(name).map_or(&[], SmallVec::as_slice)
    }

    fn entry(&mut self, name: &LockName, create: Revision) -> Option<&mut BookEntry> {
        self.entries.get_mut(name)?.iter_mut().find(|entry| entry.create == create)
    }

    fn at(&mut self, name: &LockName, slot: Slot) -> Option<&mut BookEntry> {
        self.entries.get_mut(name)?.iter_mut().find(|entry| entry.slot == slot)
    }
}

#[cfg(test)]
mod tests;
