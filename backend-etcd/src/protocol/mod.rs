//! One acquisition of one name by one session, as a pure state machine.
//!
//! The driver asks [`Contender::next`] what to do, by what the watches have told until then, does it, and says
//! what came of it. One request is under way at a time. [`place`] holds the rule by which a queued entry becomes a
//! hold, [`witness`] who keeps it out, [`told`] what it is told, [`slot`] how keys tell who shares, [`book`] what a
//! session has of entries and holds, [`revocation`] which of them it is asked to give up.
//!
//! A request whose answer never came may still be on its way, and would create an entry that lives as
//! long as the session. Every acquiring request is bound to the session's *epoch*, the revision of
//! the session's key. So whoever has such a copy out there waits until the epoch has moved on, or moves it,
//! before it asks again: then the copy cannot apply any more, whoever moved it. If the lock is not wanted,
//! what is there already is deleted first, and what the copy has left once it cannot apply: a server without
//! room moves no epoch. It may carry out a request and refuse it all the same; no copy of that one is left,
//! only what it put.
//!
//! An entry that is lost, or whose session is, ends its acquisition: whoever wants the lock asks again as
//! another one.
//!
//! # Invariants
//! - **etcd.protocol-1** `Granted` only where those who are older admit ours, ours present when the last that did not
//!   went, and the session's deadline ahead (G1).
//! - **etcd.protocol-2** An entry is adopted only if it carries this acquisition's owner; another one of
//!   ours is deleted by its create revision first (G4).
//! - **etcd.protocol-3** After an abandon the end is `Left` only when no entry of ours exists and no copy
//!   of a request can create one (G5, G8).
//!
//! Checked by the property tests in `tests`, on a model of the store.

mod book;
mod place;
mod revocation;
mod slot;
#[cfg(test)]
mod tests;
mod told;
mod witness;

use std::collections::HashSet;

use leasehold_core::clock::{Deadline, Moment};
use leasehold_core::{LostReason, Mode};

pub(crate) use book::Book;
pub(crate) use place::{Beyond, LONG, Place, Seen, Target};
pub(crate) use revocation::RevokeRequests;
pub(crate) use slot::{AFTER_SHARED, SHARED, Slot, mode_of};
pub(crate) use told::{Change, Key, Told, WatchId};
pub(crate) use witness::Rival;

/// A revision of the store: it counts the transactions that wrote.
pub(crate) type Revision = i64;

/// How a lock is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Patience {
    /// Queue, and wait.
    Waits,
    /// Only if it holds at once.
    Tries,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// Put the entry unless something keeps it out of the queue, and learn what that is.
    Ask { enter: Enter },
    /// Delete the entry if it was created at that revision.
    Delete(Revision),
    /// Move the session's epoch on.
    Settle,
    /// Read whether there is an entry of ours.
    Find,
    /// Read the queue up to the entry created at that revision: all of it, or as much as usually does.
    Look { create: Revision, all: bool },
    /// Open a watch.
    Open(Target),
    /// Wait for what the watches tell.
    Wait,
    /// It is over.
    End(End),
}

/// Beside which entries an entry is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Enter {
    /// Any.
    Always,
    /// Readers only; the entry is one itself.
    AmongReaders,
    /// None that was created after `revision`, at which the others left room for it. If there is one, all entries are
    /// read, or as many as usually say enough.
    NoneAfter { revision: Revision, all: bool },
}

/// What an acquisition came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum End {
    /// The lock is held by the entry created at that revision.
    Granted(Revision),
    /// Somebody else is before us; nothing of ours is left.
    Refused,
    /// Nothing of ours is left.
    Left,
    /// The entry is gone while it waited, by itself or with its session.
    Lost(LostReason),
}

/// What the acquiring transaction answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Answer {
    /// The entry under our key: where it was created, by this transaction or before, and whether it
    /// carries this acquisition's owner. There is none if the epoch has moved, or (for one that does not enter)
    /// somebody is before us.
    pub(crate) mine: Option<(Revision, bool)>,
    /// The entries that are older than ours; without one of ours, some of those that are in the way.
    pub(crate) seen: Seen,
    /// Whether the request's epoch was that of the session.
    pub(crate) in_epoch: bool,
}

/// An acquisition, from its first request until nothing of it is left or it is granted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Contender {
    patience: Patience,
    mode: Mode,
    enters: Enter,
    /// How often it was to be put where there was room.
    attempts: u32,
    /// Our key.
    own: Key,
    entry: Entry,
    /// A copy of a request may still be on its way, bound to that epoch; there is no place in the queue then.
    copy: Option<Revision>,
    /// The lock is not wanted any more: what is said when nothing is left.
    leaving: Option<End>,
}

/// Whether one asks in vain: the same again, after an answer that has shown nothing later. It came from a server that
/// lags behind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repeats {
    last: Option<(Step, Option<Revision>)>,
}

impl Repeats {
    /// `step` is to be done; whether that is in vain by now.
    pub(crate) fn is_in_vain(&mut self, step: &Step, contender: &Contender) -> bool {
        let next = Some((step.clone(), contender.place().map(Place::known_at)));
        std::mem::replace(&mut self.last, next.clone()) == next
    }

    /// Something else was done meanwhile.
    pub(crate) fn end(&mut self) {
        self.last = None;
    }
}

/// What there is under our key, as far as we know.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Entry {
    Absent,
    /// There may be one.
    Unknown,
    /// One that has to go, created at that revision: another acquisition's, or not wanted any more.
    Stray(Revision),
    Queued(Place),
}

impl Contender {
    pub(crate) fn new(patience: Patience, mode: Mode, own: &[u8]) -> Self {
        let enters = match (patience, mode) {
            (Patience::Waits, _) => Enter::Always,
            (Patience::Tries, Mode::SHARED) => Enter::AmongReaders,
            (Patience::Tries, _) => Enter::NoneAfter { revision: 0, all: false },
        };
        let (own, entry) = (own.into(), Entry::Absent);
        Self { patience, mode, enters, attempts: 0, own, entry, copy: None, leaving: None }
    }

    /// What to do at `now`, with the session trusted until `deadline`, after what was `told`.
    pub(crate) fn next(&self, now: Moment, deadline: Deadline, told: &Told) -> Step {
        match (&self.entry, self.leaving) {
            (Entry::Absent, Some(end)) if self.copy.is_none() => Step::End(end),
            _ if deadline.has_passed(now) => Step::End(End::Lost(LostReason::SessionLost)),
            (Entry::Stray(create), _) => Step::Delete(*create),
            (Entry::Queued(place), _) => match place.next(&self.own, told) {
                // It does not wait for a watch to find out.
                Step::Open(_) | Step::Wait if self.patience == Patience::Tries => place.look(),
                step => step,
            },
            // What is there goes first: the epoch may not be to be moved for a while.
            (Entry::Unknown, Some(_)) => Step::Find,
            (Entry::Absent | Entry::Unknown, _) if self.copy.is_some() => Step::Settle,
            (Entry::Absent | Entry::Unknown, _) => Step::Ask { enter: self.enters },
        }
    }

    /// The place in the queue, while there may be one that counts.
    pub(crate) fn place(&self) -> Option<&Place> {
        match &self.entry {
            Entry::Queued(place) => Some(place),
            _ => None,
        }
    }

    /// The keys whose ends the watch on the queue has to tell, as of the last answer.
    pub(crate) fn awaited(&self) -> HashSet<Key> {
        let older = self.place().map_or(&[][..], Place::awaited);
        older.iter().map(|rival| rival.key.clone()).chain([self.own.clone()]).collect()
    }

    /// The acquiring transaction was answered, after that was `told`.
    pub(crate) fn asked(&mut self, answer: Answer, told: &Told) {
        let Answer { mine, seen, in_epoch } = answer;
        let is_kept_out = mine.is_none() && in_epoch && self.enters != Enter::Always;
        let (has_room, revision) = (seen.has_room(self.mode), seen.revision);
        self.entry = match mine {
            Some((create, true)) => Entry::Queued(Place::new(self.mode, create, seen, told)),
            Some((create, false)) => Entry::Stray(create),
            None => Entry::Absent,
        };
        if is_kept_out {
            self.kept_out(has_room, revision);
        }
        self.leave_if_behind();
    }

    /// A try was not put; whether there was room for it at that revision, if the answer shows that. An entry that does
    /// not hold would refuse other tries until it is deleted, so it is put only where it holds. No compare counts
    /// permits: whether there is room is read, and nothing may come after that.
    fn kept_out(&mut self, has_room: Option<bool>, revision: Revision) {
        let all = matches!(self.enters, Enter::NoneAfter { all: true, .. });
        self.enters = match has_room {
            Some(false) => return self.leave(End::Refused),
            None if !all => Enter::NoneAfter { revision: 0, all: true },
            Some(true) if self.attempts < ATTEMPTS => Enter::NoneAfter { revision, all },
            // Others come all the time where there is room: a place in the queue decides.
            _ => Enter::Always,
        };
        self.attempts += u32::from(has_room.is_some());
    }

    /// A try that finds itself behind somebody does not wait.
    fn leave_if_behind(&mut self) {
        let is_behind = self.place().and_then(Place::holds_at_once) == Some(false);
        if self.patience == Patience::Tries && is_behind {
            self.leave(End::Refused);
        }
    }

    /// The acquiring transaction failed and may have been carried out; or a `copy` of it may be yet, while the
    /// session is in the epoch that it was bound to. The same when that epoch could not be moved: a copy may have
    /// come meanwhile, and what it left does not have to wait.
    pub(crate) fn failed(&mut self, copy: Option<Revision>) {
        self.entry = Entry::Unknown;
        self.copy = self.copy.max(copy);
    }

    /// The stray entry is gone, or was not there.
    pub(crate) fn deleted(&mut self) {
        self.entry = Entry::Absent;
    }

    /// The session was seen in that epoch: no copy of a request that is bound to an earlier one can apply
    /// any more. One may have until then, whatever was found before.
    pub(crate) fn in_epoch(&mut self, epoch: Revision) {
        if self.copy.is_some_and(|bound| bound < epoch) {
            (self.copy, self.entry) = (None, Entry::Unknown);
        }
    }

    /// The entry was looked for: when it was created, if it is there.
    pub(crate) fn found(&mut self, create: Option<Revision>) {
        self.entry = create.map_or(Entry::Absent, Entry::Stray);
    }

    /// The queue was read up to our entry, after that was `told`; `None` if the entry was not there.
    pub(crate) fn looked(&mut self, seen: Option<Seen>, told: &Told) {
        if let Entry::Queued(place) = &mut self.entry {
            place.looked(seen, told);
        }
        self.leave_if_behind();
    }

    /// Our entry or its witness is gone, and no watch has told.
    pub(crate) fn doubt(&mut self) {
        if let Entry::Queued(place) = &mut self.entry {
            place.doubt();
        }
    }

    /// Nobody wants the lock any more; a request whose answer is not known counts as failed.
    pub(crate) fn abandon(&mut self) {
        self.leave(End::Left);
    }

    fn leave(&mut self, end: End) {
        self.leaving = Some(end);
        if let Entry::Queued(place) = &self.entry {
            self.entry = Entry::Stray(place.create());
        }
    }
}

/// How often a try that sees room is put only if nobody comes before it.
const ATTEMPTS: u32 = 3;
