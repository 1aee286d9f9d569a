//! An entry in a queue, and the rule by which it becomes a hold.
//!
//! *c* is the create revision of the entry, *h* that of the latest reply that showed it, *K* the older entries that are known
//! from there: all of them, or a *blocking set*, some that alone block it. Older entries only get fewer. So an entry that is
//! admitted by any set that contains them holds, if it existed when the last of the others was deleted.
//!
//! With all of them, the one watch on the queue removes keys from *K*. It reports the deletion of the own entry in the same
//! order, so no read is needed if the watch stood when the reply was given. A later watch covers nothing until the next reply,
//! whatever revision it names. With a blocking set each of its keys has a watch of its own. These have no common order and may
//! report the end of the own entry last: they never grant, but cause a read. One entry after another may have the same key; at
//! *h* it was the one in *K*, so the first deletion after *h* is of that one.
//!
//! [`Load`] decides which modes are admitted, the keys show the modes, and [`blocking_set`] chooses the blocking set.

use leasehold_core::backend::Load;
use leasehold_core::{LostReason, Mode};

use super::blocking_set::{Rival, admits, blocking_set, fewest};
use super::told::{Key, Told, Watch, WatchId};
use super::{End, Revision, Step};

/// A queue as a reply showed it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct QueueSnapshot {
    pub(crate) revision: Revision,
    /// Entries older than the own one, the youngest first.
    pub(crate) older: Vec<Rival>,
    pub(crate) beyond: Beyond,
    /// So many are older that the turn is far away.
    pub(crate) is_far: bool,
    /// The watch on the queue that stood when the request was sent.
    pub(crate) watch: Option<WatchId>,
}

/// The older entries that were not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Beyond {
    Nobody,
    /// So many of our mode.
    Alike(usize),
    Unknown,
}

impl QueueSnapshot {
    fn admits(&self, mode: Mode) -> bool {
        let alike = match self.beyond {
            Beyond::Nobody => 0,
            Beyond::Alike(others) => others,
            Beyond::Unknown => return false,
        };
        let shown = self.older.iter().map(|rival| rival.mode);
        shown.chain(std::iter::repeat_n(mode, alike)).collect::<Load>().admits(mode)
    }

    /// Whether a new entry would hold; `None` if the reply does not show that.
    pub(super) fn has_room(&self, mode: Mode) -> Option<bool> {
        let is_unknown = self.beyond == Beyond::Unknown && admits(mode, &self.older);
        (!is_unknown).then(|| self.admits(mode))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    /// All contenders.
    Queue,
    /// One of them, from a revision of the past or from now on.
    Key(Key, Option<Revision>),
}

/// An own entry in a queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct QueuePosition {
    mode: Mode,
    pub(crate) create: Revision,
    /// The latest reply, with *K* as the older entries.
    pub(super) seen: QueueSnapshot,
    knows: Knows,
    is_deleted: bool,
    /// A watch has missed a deletion: the queue is read in any case.
    is_in_doubt: bool,
}

/// The knowledge of the older entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Knows {
    /// The reply admits our entry.
    Turn,
    /// All of them.
    All,
    /// A blocking set.
    BlockingSet,
    /// Too little: all must be read.
    Little,
}

impl QueuePosition {
    pub(crate) fn new(mode: Mode, create: Revision, seen: QueueSnapshot, told: &Told) -> Self {
        let knows = Knows::Little;
        let mut place = Self { mode, create, seen, knows, is_deleted: false, is_in_doubt: false };
        // Behind few entries the watch on the queue is opened, if it does not stand.
        place.take_in(true, told);
        place
    }

    /// Keeps the entries of the latest reply.
    fn take_in(&mut self, may_watch_all: bool, told: &Told) {
        let seen = &mut self.seen;
        if seen.admits(self.mode) {
            (self.knows, seen.older) = (Knows::Turn, Vec::new());
        } else if may_watch_all && seen.beyond == Beyond::Nobody {
            self.knows = Knows::All;
        } else {
            let blocking_set = blocking_set(self.mode, &seen.older, told, seen.revision);
            self.knows = if blocking_set.is_some() { Knows::BlockingSet } else { Knows::Little };
            seen.older = blocking_set.unwrap_or_default();
        }
    }

    /// Whether the watch on the queue reports all that is waited for.
    pub(crate) fn hears_all(&self) -> bool {
        self.knows != Knows::BlockingSet
    }

    /// Whether the latest reply grants; `None` if it does not show enough.
    pub(super) fn holds_at_once(&self) -> Option<bool> {
        match self.knows {
            Knows::Turn => Some(true),
            Knows::Little if self.seen.beyond == Beyond::Unknown => None,
            _ => Some(false),
        }
    }

    pub(super) fn next(&self, own: &[u8], told: &Told) -> Step {
        let has_ended = |watch: &Watch| watch.has_deleted(own, self.seen.revision);
        if self.is_deleted || told.queue.as_ref().is_some_and(has_ended) {
            return Step::End(End::Lost(LostReason::Gone));
        }
        if self.is_in_doubt {
            return self.look();
        }
        match self.knows {
            Knows::Turn => Step::End(End::Granted(self.create)),
            Knows::All if admits(self.mode, &self.left(told)) => Step::End(End::Granted(self.create)),
            Knows::All | Knows::Little => self.by_the_queue(told),
            Knows::BlockingSet => self.by_its_blocking_set(told),
        }
    }

    /// Reads the queue: all of it, if a part is not enough.
    pub(super) fn look(&self) -> Step {
        let all = self.knows == Knows::Little || self.seen.older.len() > LONG;
        Step::Look { create: self.create, all }
    }

    fn by_the_queue(&self, told: &Told) -> Step {
        match &told.queue {
            None => Step::Open(Target::Queue),
            Some(watch) if watch.since.is_some() && !self.is_covered(watch) => self.look(),
            Some(_) => Step::Wait,
        }
    }

    fn by_its_blocking_set(&self, told: &Told) -> Step {
        let (mut is_late, mut is_opening) = (false, false);
        for Rival { key, .. } in &self.seen.older {
            let Some(watch) = told.keys.get(key) else {
                let from = self.seen.is_far.then_some(self.seen.revision.saturating_add(1));
                return Step::Open(Target::Key(key.clone(), from));
            };
            is_late |= watch.since.is_some_and(|since| since > self.seen.revision);
            is_opening |= watch.since.is_none();
        }
        // One read serves all watches that opened late.
        if admits(self.mode, &self.left(told)) || is_late && !is_opening { self.look() } else { Step::Wait }
    }

    /// Whether the watch reports everything since the reply that showed all entries.
    fn is_covered(&self, watch: &Watch) -> bool {
        self.knows == Knows::All
            && self.seen.watch == Some(watch.id)
            && watch.since.is_some_and(|since| since <= self.seen.revision)
    }

    /// *K* without the deletions that the watch on the queue has reported, if it covers *K*, or those on its keys.
    pub(crate) fn left(&self, told: &Told) -> Vec<Rival> {
        let on_all = told.queue.as_ref().filter(|watch| self.is_covered(watch));
        let is_left = |Rival { key, .. }: &&Rival| {
            let watch = if self.knows == Knows::BlockingSet { told.keys.get(key) } else { on_all };
            watch.is_none_or(|watch| !watch.has_deleted(key, self.seen.revision))
        };
        self.seen.older.iter().filter(is_left).cloned().collect()
    }

    /// As few as block the own entry, as far as is known; none if too little is known.
    pub(crate) fn blocking_set(&self, told: &Told) -> Vec<Rival> {
        fewest(self.mode, self.left(told))
    }

    /// The entries whose deletions the watch on the queue must report.
    pub(super) fn awaited(&self) -> &[Rival] {
        if self.knows == Knows::All { &self.seen.older } else { &[] }
    }

    pub(crate) fn watched(&self) -> &[Rival] {
        if self.knows == Knows::BlockingSet { &self.seen.older } else { &[] }
    }

    pub(super) fn doubt(&mut self) {
        self.is_in_doubt = true;
    }

    /// The queue was read up to our entry; `None` if that does not exist.
    pub(crate) fn looked(&mut self, seen: Option<QueueSnapshot>, told: &Told) {
        match seen {
            None => self.is_deleted = true,
            // A reply that is older than the latest one decides nothing.
            Some(seen) if seen.revision < self.seen.revision => {}
            Some(seen) => {
                (self.seen, self.is_in_doubt) = (seen, false);
                // Without a watch that stood, all entries are not known for long.
                self.take_in(self.seen.watch.is_some(), told);
            }
        }
    }
}

/// Up to so many older entries are all known, if the watch on the queue stands and a blocking set is enough.
pub(crate) const LONG: usize = 32;
