//! One acquisition at the store: which request comes next, and when it ends; pure.
//!
//! The server orders the entries of a name and decides which of them hold. An acquisition learns that its entry holds from an
//! answer, or from a message to the session.
//!
//! # Invariants
//! - **postgres.protocol-1** An entry that queued holds only after a notification of that *and* `flushed` was answered on the connections
//!   that queued it: before that a crash of the server may forget the entry, and grant the lock to another one.
//! - **postgres.protocol-2** An answer counts only on the connections of the present epoch. After a reconnect every entry is
//!   looked at again: what `mine` did not know was released.
//! - **postgres.protocol-3** An acquisition asks again as the same owner, so a lost answer leaves no second entry.
//! - **postgres.protocol-4** A message is about one number, which never returns.
//!
//! The model in `tests` runs it.

mod book;
mod lows;
#[cfg(test)]
mod tests;

use leasehold_core::LostReason;
use leasehold_core::clock::{Deadline, Moment};

pub(crate) use book::{EntryNews, Notice, SessionBook};
pub(crate) use lows::Lows;

/// The number of an entry.
pub(crate) type Seq = i64;

/// Which connections: later ones have larger numbers.
pub(crate) type Generation = u64;

/// Whether an acquisition waits for its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Demand {
    Tries,
    Waits,
}

/// The next step of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// Finds or puts the entry, and reads whether it holds.
    Ask,
    /// Waits until the entry is on the server's disk.
    Flush,
    /// Removes the entry.
    Release(Seq),
    /// Removes whatever a request has put.
    Abandon,
    /// Nothing, until a message or a look is due.
    Wait,
    AcquireEnd(AcquireEnd),
}

/// How an acquisition ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AcquireEnd {
    Granted(Seq),
    /// A try is behind others.
    Refused,
    /// It is not wanted any more, and nothing of it is left.
    Left,
    Lost(LostReason),
}

/// The answer to [`Step::Ask`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AcquireReply {
    pub(crate) granted: bool,
    /// None after a refused try.
    pub(crate) seq: Option<Seq>,
    pub(crate) on: Generation,
}

/// One acquisition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Contender {
    patience: Demand,
    entry: OwnEntry,
    leaving: Option<AcquireEnd>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum OwnEntry {
    Absent,
    /// A request may have put one, or has not shown again the one of that number.
    Unknown {
        before: Option<Seq>,
    },
    There {
        seq: Seq,
        on: Generation,
        is_flushed: bool,
        is_granted: bool,
        is_in_doubt: bool,
    },
}

impl Contender {
    pub(crate) fn new(patience: Demand) -> Self {
        Self { patience, entry: OwnEntry::Absent, leaving: None }
    }

    /// The next step, in a session with that deadline and those connections. `told` is about the entry's number.
    pub(crate) fn next(&self, now: Moment, deadline: Deadline, on: Generation, told: EntryNews) -> Step {
        if deadline.has_passed(now) {
            return Step::AcquireEnd(self.leaving.unwrap_or(AcquireEnd::Lost(LostReason::SessionLost)));
        }
        match (self.entry, self.leaving) {
            (OwnEntry::Absent, Some(end)) => Step::AcquireEnd(end),
            (OwnEntry::Unknown { .. }, Some(_)) => Step::Abandon,
            (OwnEntry::There { seq, .. }, Some(_)) => Step::Release(seq),
            (OwnEntry::Absent | OwnEntry::Unknown { .. }, None) => Step::Ask,
            // An entry that is there all the same, on a standby that was promoted, is removed: it is not held (postgres.book-3).
            (OwnEntry::There { seq, .. }, None) if told == EntryNews::Gone => Step::Release(seq),
            (OwnEntry::There { on: then, .. }, None) if then != on => Step::Ask,
            (OwnEntry::There { seq, is_granted: true, .. }, None) => {
                Step::AcquireEnd(AcquireEnd::Granted(seq))
            }
            (OwnEntry::There { is_flushed: false, .. }, None) => Step::Flush,
            (OwnEntry::There { seq, .. }, None) if told == EntryNews::Holds => {
                Step::AcquireEnd(AcquireEnd::Granted(seq))
            }
            (OwnEntry::There { is_in_doubt, .. }, None) if is_in_doubt || told == EntryNews::Looks => {
                Step::Ask
            }
            (OwnEntry::There { .. }, None) => Step::Wait,
        }
    }

    /// The number of the entry, while there may be one.
    pub(crate) fn seq(&self) -> Option<Seq> {
        match self.entry {
            OwnEntry::There { seq, .. } => Some(seq),
            OwnEntry::Unknown { before } => before,
            OwnEntry::Absent => None,
        }
    }

    pub(crate) fn asked(&mut self, answer: AcquireReply) {
        let AcquireReply { granted, seq, on } = answer;
        let was_flushed = matches!(self.entry, OwnEntry::There { seq: before, on: then, is_flushed: true, .. }
            if Some(before) == seq && then == on);
        self.entry = seq.map_or(OwnEntry::Absent, |seq| OwnEntry::There {
            seq,
            on,
            is_flushed: was_flushed,
            is_granted: granted,
            is_in_doubt: false,
        });
        if self.patience == Demand::Tries && !granted {
            self.leaving.get_or_insert(AcquireEnd::Refused);
        }
    }

    /// A request that may put an entry was sent and not answered, or answered on connections that are not in use any more. An
    /// entry that was there keeps its place.
    pub(crate) fn failed(&mut self) {
        self.entry = OwnEntry::Unknown { before: self.seq() };
    }

    /// [`Step::Flush`] was answered on those connections.
    pub(crate) fn flushed(&mut self, by: Generation) {
        if let OwnEntry::There { on, is_flushed, .. } = &mut self.entry {
            *is_flushed |= *on == by;
        }
    }

    /// The entry, or whatever a request has put, is removed.
    pub(crate) fn removed(&mut self) {
        self.entry = OwnEntry::Absent;
    }

    /// A lease before the entry may have ended.
    pub(crate) fn doubt(&mut self) {
        if let OwnEntry::There { is_in_doubt, .. } = &mut self.entry {
            *is_in_doubt = true;
        }
    }

    /// The lock is not wanted any more.
    pub(crate) fn abandon(&mut self) {
        self.leaving.get_or_insert(AcquireEnd::Left);
    }
}
