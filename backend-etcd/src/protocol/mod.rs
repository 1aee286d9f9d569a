//! One acquisition of one name by one session, as a pure state machine.
//!
//! The driver asks [`Contender::next`] what to do, does it, and tells what came of it. One request
//! is under way at a time; what the watch tells meanwhile waits. [`place`] holds the rule by which a
//! queued entry becomes a hold, [`book`] what a session has of entries and holds, [`revocation`] which of
//! them it is asked to give up.
//!
//! A request whose answer never came may still be on its way, and would create an entry that lives as
//! long as the session. Every acquiring request is bound to the session's *epoch*, the revision of
//! the session's key. So whoever has such a copy out there waits until the epoch has moved on, or moves it,
//! before anything else: then the copy cannot apply any more, whoever moved it. If the lock is not
//! wanted, the entry is looked for and deleted after that. A server without room may carry out a request
//! and refuse it all the same; no copy of that one is left, only what it put.
//!
//! # Invariants
//! - **etcd.protocol-1** `Granted` only with no older entry, ours present at a revision that the watch
//!   covers, and the session's deadline ahead (G1).
//! - **etcd.protocol-2** An entry is adopted only if it carries this acquisition's owner; another one of
//!   ours is deleted by its create revision first (G4).
//! - **etcd.protocol-3** After an abandon the end is `Left` only when no entry of ours exists and no copy
//!   of a request can create one (G5, G8).
//!
//! Checked by the property tests in `tests`, on a model of the store.

mod book;
mod place;
mod revocation;
#[cfg(test)]
mod tests;

use leasehold_core::Effect;
use leasehold_core::clock::{Deadline, Moment};

pub(crate) use book::{Book, Hold, Phase};
pub(crate) use place::{Delete, Place, Standing};
pub(crate) use revocation::RevokeRequests;

/// A revision of the store: it counts the transactions that wrote.
pub(crate) type Revision = i64;

/// How a lock is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Patience {
    /// Queue, and wait.
    Waits,
    /// Only if nobody holds it or waits for it.
    Tries,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// Put the entry, or learn what is in its place.
    Ask,
    /// Delete the entry if it was created at that revision.
    Delete(Revision),
    /// Move the session's epoch on.
    Settle,
    /// Read whether there is an entry of ours.
    Find,
    /// Read the queue up to the entry created at that revision.
    Look(Revision),
    /// Wait for what the watch on the queue tells; open it if there is none.
    Wait,
    /// It is over.
    End(End),
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
    /// The entry was deleted while it waited.
    EntryLost,
    /// The session is over, and its entries with it.
    SessionOver,
}

/// What the acquiring transaction answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    /// The entry was created, at the answer's revision.
    Entered {
        /// That revision.
        revision: Revision,
        /// How many entries were there before.
        older: usize,
    },
    /// It was not: there is one already, the epoch has moved, or (for a try) somebody is before us.
    NotEntered {
        /// The answer's revision.
        revision: Revision,
        /// Our entry: where it was created, and whether it carries this acquisition's owner.
        mine: Option<(Revision, bool)>,
        /// How many entries are older than ours; without one of ours, how many there are.
        older: usize,
        /// Whether the request's epoch was that of the session.
        in_epoch: bool,
    },
}

/// What is known of a transaction that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Failure {
    /// The store did nothing.
    NotApplied,
    /// The store has answered, for want of room; it may have done it first.
    Refused,
    /// It may be carried out yet.
    Unanswered,
}

impl Failure {
    pub(crate) fn of(effect: Effect, is_for_space: bool) -> Self {
        match effect {
            Effect::NotApplied => Self::NotApplied,
            Effect::Unknown if is_for_space => Self::Refused,
            Effect::Unknown => Self::Unanswered,
        }
    }
}

/// An acquisition, from its first request until nothing of it is left or it is granted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Contender {
    patience: Patience,
    stage: Stage,
    trace: Trace,
}

/// What requests without an answer may have left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Trace {
    None,
    /// An entry.
    Entry,
    /// An entry, or a copy of a request that is still on its way and bound to that epoch.
    Copy(Revision),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Asking {
        wanted: bool,
    },
    /// Another acquisition's entry is in the way.
    Replacing(Revision),
    Queued(Place),
    /// The epoch cannot be moved for want of room, which lets no copy in either: what is there goes first,
    /// if it was found.
    Clearing(Option<Revision>),
    /// The entry is not wanted any more; what is said when it is gone.
    Leaving {
        create: Revision,
        end: End,
    },
    Ended(End),
}

impl Contender {
    pub(crate) fn new(patience: Patience) -> Self {
        Self { patience, stage: Stage::Asking { wanted: true }, trace: Trace::None }
    }

    /// A hold that is to be given back.
    pub(crate) fn leaving(create: Revision) -> Self {
        let stage = Stage::Leaving { create, end: End::Left };
        Self { patience: Patience::Waits, stage, trace: Trace::None }
    }

    /// What to do at `now`, with the session trusted until `deadline`.
    pub(crate) fn next(&self, now: Moment, deadline: Deadline) -> Step {
        if let Stage::Ended(end) = self.stage {
            return Step::End(end);
        }
        if deadline.has_passed(now) {
            return Step::End(End::SessionOver);
        }
        match &self.stage {
            Stage::Asking { .. } if matches!(self.trace, Trace::Copy(_)) => Step::Settle,
            Stage::Asking { wanted: true } => Step::Ask,
            Stage::Asking { wanted: false } => Step::Find,
            Stage::Replacing(create) | Stage::Clearing(Some(create)) => Step::Delete(*create),
            Stage::Clearing(None) => Step::Find,
            Stage::Queued(place) => match place.standing() {
                Standing::First => Step::End(End::Granted(place.create())),
                Standing::Deleted => Step::End(End::EntryLost),
                Standing::Doubtful => Step::Look(place.create()),
                Standing::Behind => Step::Wait,
            },
            Stage::Leaving { create, .. } => Step::Delete(*create),
            Stage::Ended(end) => Step::End(*end),
        }
    }

    /// The entry of ours, while there may be one that counts.
    pub(crate) fn create(&self) -> Option<Revision> {
        match &self.stage {
            Stage::Queued(place) => Some(place.create()),
            _ => None,
        }
    }

    /// The acquiring transaction was answered; the watch on the queue stands since `watched`.
    pub(crate) fn asked(&mut self, answer: &Answer, watched: Option<Revision>) {
        if !matches!(self.stage, Stage::Asking { .. }) {
            return;
        }
        self.trace = Trace::None;
        self.stage = match *answer {
            Answer::Entered { revision, older } => {
                Stage::Queued(Place::new(revision, revision, older, watched))
            }
            Answer::NotEntered { revision, mine: Some((create, true)), older, .. } => {
                Stage::Queued(Place::new(create, revision, older, watched))
            }
            Answer::NotEntered { mine: Some((create, false)), .. } => Stage::Replacing(create),
            Answer::NotEntered { mine: None, older, in_epoch, .. } => match self.patience {
                Patience::Tries if in_epoch && older > 0 => Stage::Ended(End::Refused),
                Patience::Tries | Patience::Waits => Stage::Asking { wanted: true },
            },
        };
        // A try that finds itself behind somebody does not wait.
        if self.patience == Patience::Tries
            && let Stage::Queued(place) = &self.stage
            && place.standing() != Standing::First
        {
            self.stage = Stage::Leaving { create: place.create(), end: End::Refused };
        }
    }

    /// The acquiring transaction failed; one without an answer may be applied yet, while the session is in
    /// the `epoch` that it was bound to.
    pub(crate) fn failed(&mut self, failure: Failure, epoch: Revision) {
        if !matches!(self.stage, Stage::Asking { .. }) {
            return;
        }
        match (failure, self.trace) {
            (Failure::Unanswered, _) => self.trace = Trace::Copy(epoch),
            (Failure::Refused, Trace::None) => self.trace = Trace::Entry,
            (Failure::Refused | Failure::NotApplied, _) => {}
        }
    }

    /// The entry created at the revision in question is gone, or was not there.
    pub(crate) fn deleted(&mut self) {
        match self.stage {
            Stage::Replacing(_) => self.stage = Stage::Asking { wanted: true },
            Stage::Clearing(_) => self.stage = Stage::Asking { wanted: false },
            Stage::Leaving { end, .. } => self.stage = Stage::Ended(end),
            Stage::Asking { .. } | Stage::Queued(_) | Stage::Ended(_) => {}
        }
    }

    /// The session was seen in that epoch: no copy of a request that is bound to an earlier one can apply
    /// any more.
    pub(crate) fn in_epoch(&mut self, epoch: Revision) {
        if matches!(self.trace, Trace::Copy(bound) if bound < epoch) {
            self.trace = Trace::Entry;
        }
    }

    /// The epoch was not moved: the server has no room.
    pub(crate) fn not_settled(&mut self) {
        if self.stage == (Stage::Asking { wanted: false }) {
            self.stage = Stage::Clearing(None);
        }
    }

    /// The entry was looked for: when it was created, if it is there.
    pub(crate) fn found(&mut self, create: Option<Revision>) {
        if self.stage == Stage::Clearing(None) {
            self.stage =
                create.map_or(Stage::Asking { wanted: false }, |create| Stage::Clearing(Some(create)));
            return;
        }
        if self.trace == Trace::Entry && self.stage == (Stage::Asking { wanted: false }) {
            self.stage = match create {
                Some(create) => Stage::Leaving { create, end: End::Left },
                None => Stage::Ended(End::Left),
            };
        }
    }

    /// The watch stands, from the revision after `since`; `None` when it has ended.
    pub(crate) fn watched(&mut self, since: Option<Revision>) {
        if let Stage::Queued(place) = &mut self.stage {
            place.watched(since);
        }
    }

    /// The watch told of deletions, all of one revision together.
    pub(crate) fn saw(&mut self, deletes: &[Delete]) {
        if let Stage::Queued(place) = &mut self.stage {
            place.saw(deletes);
        }
    }

    /// The queue was read at `revision`: whether our entry is in it, and how many are older.
    pub(crate) fn looked(&mut self, revision: Revision, present: bool, older: usize) {
        if let Stage::Queued(place) = &mut self.stage {
            place.looked(revision, present, older);
        }
    }

    /// Nobody wants the lock any more; a request whose answer is not known counts as failed.
    pub(crate) fn abandon(&mut self) {
        self.stage = match &self.stage {
            Stage::Asking { .. } if self.trace != Trace::None => Stage::Asking { wanted: false },
            Stage::Asking { .. } => Stage::Ended(End::Left),
            Stage::Replacing(create) => Stage::Leaving { create: *create, end: End::Left },
            Stage::Queued(place) => Stage::Leaving { create: place.create(), end: End::Left },
            Stage::Clearing(create) => Stage::Clearing(*create),
            Stage::Leaving { create, .. } => Stage::Leaving { create: *create, end: End::Left },
            Stage::Ended(end) => Stage::Ended(*end),
        };
    }
}
