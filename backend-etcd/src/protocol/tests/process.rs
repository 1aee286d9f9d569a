//! One who contends: what it knows, and what it has heard.

use leasehold_core::clock::{Deadline, Moment};
use leasehold_core::{LockName, OwnerId};

use super::super::*;
use super::store::Reply;

pub(super) const NOW: Moment = Moment::from_nanos(1);
pub(super) const AHEAD: Deadline = Deadline::At(Moment::from_nanos(2));

#[derive(Debug)]
pub(super) struct Process {
    pub(super) session: usize,
    /// What it knows of its session.
    pub(super) epoch: Revision,
    pub(super) has_expired: bool,
    pub(super) acquisition: u32,
    /// How it holds, or would.
    pub(super) mode: Mode,
    pub(super) contender: Option<Contender>,
    /// What its last look for an entry of its own showed.
    pub(super) found: Option<Option<Revision>>,
    pub(super) book: Book,
    pub(super) held: Option<Revision>,
    pub(super) told: Told,
    /// Its watches: what has not been told yet comes after that revision.
    pub(super) watches: Vec<Stream>,
    pub(super) last_watch: WatchId,
    /// An answer that is on its way.
    pub(super) reply: Option<Reply>,
    /// Its entry that the rule has admitted last.
    pub(super) was_admitted: Revision,
    /// What reads of its own entry showed and it has not heard yet: all before that revision is gone.
    pub(super) reads: Vec<Revision>,
    /// It has heard that all its entries from before then are gone.
    pub(super) gone_before: Revision,
    /// The same of an entry that no answer had shown yet. Only the watch knows it, and only as long as it stands: after that
    /// it is found out once the entry is watched, as where no watch stood.
    pub(super) told_early: Revision,
}

#[derive(Clone, Debug)]
pub(super) struct Stream {
    /// One key, or all.
    pub(super) key: Option<Key>,
    /// Up to there it has told.
    pub(super) upto: Revision,
    /// It tells nothing any more, and nobody knows.
    pub(super) is_stalled: bool,
}

impl Process {
    pub(super) fn new((session, epoch): (usize, Revision)) -> Self {
        Self {
            session,
            epoch,
            has_expired: false,
            acquisition: 0,
            mode: Mode::EXCLUSIVE,
            contender: None,
            found: None,
            book: Book::new(AHEAD, epoch),
            held: None,
            told: Told::default(),
            watches: Vec::new(),
            last_watch: 0,
            reply: None,
            was_admitted: 0,
            reads: Vec::new(),
            gone_before: 0,
            told_early: 0,
        }
    }

    pub(super) fn deadline(&self) -> Deadline {
        Deadline::At(Moment::from_nanos(if self.has_expired { 0 } else { 2 }))
    }
}

pub(super) fn name() -> LockName {
    LockName::new("n").expect("a name")
}

pub(super) fn owner(acquisition: u32) -> OwnerId {
    OwnerId::from_random(u128::from(acquisition).to_be_bytes())
}
