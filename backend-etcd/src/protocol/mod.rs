//! One acquisition of one name by one session, as a pure state machine.
//!
//! The acquisition takes the next step from [`Contender::next`], carries it out, and reports the outcome. One request is
//! pending at a time. [`place`] holds the rule by which a queued entry becomes a hold, [`blocking_set`] which entries block it,
//! [`told`] the reports of the watches, [`slot`] how keys show the mode, [`book`] the entries and holds of a session,
//! [`revocation`] the requests to release them.
//!
//! A request without a reply may still be in transit, and would create an entry that lives as long as the session. So every
//! acquiring request is bound to the session's *epoch*, the revision of the session's key. While a copy of a request may be in
//! transit, the contender waits until the epoch has moved on, or moves it, before it sends another: then the copy cannot apply
//! any more. If the lock is not wanted, the entry that exists is deleted first, and the one that the copy has left once the
//! copy cannot apply: a server without space moves no epoch. It may apply a request and refuse it all the same; no copy of that
//! one is left, only its entry.
//!
//! A lost entry or session ends its acquisition. The core begins another one.
//!
//! # Invariants
//! - **etcd.protocol-1** `Granted` only if the older entries admit the own one, that existed when the last one that did not was
//!   deleted, and the session's deadline is ahead (G1).
//! - **etcd.protocol-2** An entry is adopted only if it has this acquisition's owner; another one of this session is
//!   deleted by its create revision first (G4).
//! - **etcd.protocol-3** After a cancellation the end is `Left` only when no own entry exists and no copy of a request can
//!   create one (G5, G8).
//!
//! Checked by the property tests in `tests`, on a model of the store.

mod blocking_set;
mod book;
mod place;
mod revocation;
mod slot;
#[cfg(test)]
mod tests;
mod told;

use std::collections::HashSet;

use leasehold_core::clock::{Deadline, Moment};
use leasehold_core::{LostReason, Mode};

pub(crate) use blocking_set::Rival;
pub(crate) use book::Book;
pub(crate) use place::{Beyond, LONG, QueuePosition, QueueSnapshot, Target};
pub(crate) use revocation::RevokeRequests;
pub(crate) use slot::{AFTER_SHARED, SHARED, Slot, mode_of};
pub(crate) use told::{Change, Key, Told, WatchId};

/// A revision of the store: it counts the transactions that wrote.
pub(crate) type Revision = i64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Patience {
    /// Queue, and wait.
    Waits,
    /// Only if it holds at once.
    Tries,
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// Put the entry, unless others must not be before it, and read the queue.
    Ask { enter: Enter },
    /// Delete the entry if it was created at that revision.
    Delete(Revision),
    /// Move the session's epoch on.
    Settle,
    /// Read whether an own entry exists.
    Find,
    /// Read the queue up to the entry created at that revision: all of it, or as much as is usually enough.
    Look { create: Revision, all: bool },
    /// Open a watch.
    Open(Target),
    /// Wait for a report of the watches.
    Wait,
    /// Return this end.
    End(End),
}

/// Which other entries an entry may be put behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Enter {
    /// Any.
    Always,
    /// Readers only; the entry is one itself.
    AmongReaders,
    /// None that was created after `revision`, when the others left room for it. If there is one, all entries are read, or
    /// as many as are usually enough.
    NoneAfter { revision: Revision, all: bool },
}

/// The end of an acquisition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum End {
    /// The lock is held by the entry created at that revision.
    Granted(Revision),
    /// Older entries block the own one; nothing of it is left.
    Refused,
    /// Nothing of it is left.
    Left,
    /// The entry has ended while it waited, by itself or with its session.
    Lost(LostReason),
}

/// The reply to the acquiring transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EntryReply {
    /// The entry under the own key: its create revision, and whether it has this acquisition's owner. There is none if the
    /// epoch has moved, or if others are before one that does not queue.
    pub(crate) mine: Option<(Revision, bool)>,
    /// The entries that are older than the own one; without an own one, some that block it.
    pub(crate) seen: QueueSnapshot,
    /// Whether the request's epoch was that of the session.
    pub(crate) in_epoch: bool,
}

/// An acquisition, from its first request until nothing of it is left or it is granted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Contender {
    patience: Patience,
    mode: Mode,
    enters: Enter,
    /// How often it was to be put because there was room.
    attempts: u32,
    /// Our key.
    own: Key,
    entry: EntryState,
    /// A copy of a request may be on its way, bound to that epoch; there is no place in the queue then.
    copy: Option<Revision>,
    /// The lock is not wanted any more; the end once nothing is left.
    leaving: Option<End>,
}

/// Notices a step that is repeated after a reply that has shown nothing newer: that came from a member that lags
/// behind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repeats {
    last: Option<(Step, Option<Revision>)>,
}

impl Repeats {
    /// Whether `step` repeats the last one, and the contender knows nothing newer.
    pub(crate) fn is_in_vain(&mut self, step: &Step, contender: &Contender) -> bool {
        let next = Some((step.clone(), contender.place().map(|place| place.seen.revision)));
        std::mem::replace(&mut self.last, next.clone()) == next
    }

    pub(crate) fn end(&mut self) {
        self.last = None;
    }
}

/// The entry under our key, as far as we know.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum EntryState {
    Absent,
    Unknown,
    /// One to be deleted, created at that revision: another acquisition's, or not wanted any more.
    Stray(Revision),
    Queued(QueuePosition),
}

impl Contender {
    pub(crate) fn new(patience: Patience, mode: Mode, own: &[u8]) -> Self {
        let enters = match (patience, mode) {
            (Patience::Waits, _) => Enter::Always,
            (Patience::Tries, Mode::SHARED) => Enter::AmongReaders,
            (Patience::Tries, _) => Enter::NoneAfter { revision: 0, all: false },
        };
        let (own, entry) = (own.into(), EntryState::Absent);
        Self { patience, mode, enters, attempts: 0, own, entry, copy: None, leaving: None }
    }

    /// The next step at `now`, with the session trusted until `deadline`.
    pub(crate) fn next(&self, now: Moment, deadline: Deadline, told: &Told) -> Step {
        match (&self.entry, self.leaving) {
            (EntryState::Absent, Some(end)) if self.copy.is_none() => Step::End(end),
            _ if deadline.has_passed(now) => Step::End(End::Lost(LostReason::SessionLost)),
            (EntryState::Stray(create), _) => Step::Delete(*create),
            (EntryState::Queued(place), _) => match place.next(&self.own, told) {
                // A try does not wait for a watch.
                Step::Open(_) | Step::Wait if self.patience == Patience::Tries => place.look(),
                step => step,
            },
            // The entry is deleted first: a full server moves no epoch for a while.
            (EntryState::Unknown, Some(_)) => Step::Find,
            (EntryState::Absent | EntryState::Unknown, _) if self.copy.is_some() => Step::Settle,
            (EntryState::Absent | EntryState::Unknown, _) => Step::Ask { enter: self.enters },
        }
    }

    /// The place in the queue, while there may be one that counts.
    pub(crate) fn place(&self) -> Option<&QueuePosition> {
        match &self.entry {
            EntryState::Queued(place) => Some(place),
            _ => None,
        }
    }

    /// The keys whose deletions the watch on the queue must report, as of the last reply.
    pub(crate) fn awaited(&self) -> HashSet<Key> {
        let older = self.place().map_or(&[][..], QueuePosition::awaited);
        older.iter().map(|rival| rival.key.clone()).chain([self.own.clone()]).collect()
    }

    /// The acquiring transaction was answered.
    pub(crate) fn asked(&mut self, answer: EntryReply, told: &Told) {
        let EntryReply { mine, seen, in_epoch } = answer;
        let is_kept_out = mine.is_none() && in_epoch && self.enters != Enter::Always;
        let (has_room, revision) = (seen.has_room(self.mode), seen.revision);
        self.entry = match mine {
            Some((create, true)) => EntryState::Queued(QueuePosition::new(self.mode, create, seen, told)),
            Some((create, false)) => EntryState::Stray(create),
            None => EntryState::Absent,
        };
        if is_kept_out {
            self.kept_out(has_room, revision);
        }
        self.leave_if_behind();
    }

    /// A try was not put; whether there was room for it at that revision, if the reply shows that. An entry that does not
    /// hold would refuse other tries until it is deleted, so it is put only if it holds. A condition of etcd cannot count
    /// permits: the room is read, and no entry may come after that.
    fn kept_out(&mut self, has_room: Option<bool>, revision: Revision) {
        let all = matches!(self.enters, Enter::NoneAfter { all: true, .. });
        self.enters = match has_room {
            Some(false) => return self.leave(End::Refused),
            None if !all => Enter::NoneAfter { revision: 0, all: true },
            Some(true) if self.attempts < ATTEMPTS => Enter::NoneAfter { revision, all },
            // Others come all the time although there is room: a place in the queue decides.
            _ => Enter::Always,
        };
        self.attempts += u32::from(has_room.is_some());
    }

    /// A try that is behind others does not wait.
    fn leave_if_behind(&mut self) {
        let is_behind = self.place().and_then(QueuePosition::holds_at_once) == Some(false);
        if self.patience == Patience::Tries && is_behind {
            self.leave(End::Refused);
        }
    }

    /// The acquiring transaction failed and may have been applied; or a `copy` may be applied later, as long as the session
    /// is in that epoch. Also for an epoch that could not be moved: a copy may have been applied meanwhile, and its entry
    /// can be deleted already.
    pub(crate) fn failed(&mut self, copy: Option<Revision>) {
        self.entry = EntryState::Unknown;
        self.copy = self.copy.max(copy);
    }

    /// The session was read in that epoch: no copy that is bound to an earlier one can apply any more. It may have applied
    /// until then, also after an entry was searched.
    pub(crate) fn in_epoch(&mut self, epoch: Revision) {
        if self.copy.is_some_and(|bound| bound < epoch) {
            (self.copy, self.entry) = (None, EntryState::Unknown);
        }
    }

    /// The entry was searched, or deleted: its create revision, if it exists.
    pub(crate) fn found(&mut self, create: Option<Revision>) {
        self.entry = create.map_or(EntryState::Absent, EntryState::Stray);
    }

    /// The queue was read up to our entry; `None` if that does not exist.
    pub(crate) fn looked(&mut self, seen: Option<QueueSnapshot>, told: &Told) {
        if let EntryState::Queued(place) = &mut self.entry {
            place.looked(seen, told);
        }
        self.leave_if_behind();
    }

    /// The own entry or one that blocks it is gone, and no watch has reported it.
    pub(crate) fn doubt(&mut self) {
        if let EntryState::Queued(place) = &mut self.entry {
            place.doubt();
        }
    }

    /// The lock is not wanted any more; an unconfirmed request counts as failed.
    pub(crate) fn abandon(&mut self) {
        self.leave(End::Left);
    }

    fn leave(&mut self, end: End) {
        self.leaving = Some(end);
        if let EntryState::Queued(place) = &self.entry {
            self.entry = EntryState::Stray(place.create);
        }
    }
}

/// How often a try that sees room is put only if no other entry comes before it.
const ATTEMPTS: u32 = 3;
