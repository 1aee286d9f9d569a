//! An entry in a queue, and the rule by which it becomes a hold.
//!
//! *c* is the revision at which the entry was created, *h* that of the latest answer that showed it, *K* the older
//! entries that are known from there: all of them, or a *witness*, some that alone keep ours out. Older entries only
//! get fewer, so whoever is admitted beside any set that contains them holds, if its own entry was there when the
//! last of the others went.
//!
//! With all of them, the one watch on the queue takes keys off *K*. It tells our own end in the same order, so no
//! read is needed, if it stood when the answer was given. One that was opened later covers nothing until the next
//! answer, whatever revision it names. With a witness each of its keys has a watch of its own. Those have no order
//! among each other and may tell of our own end last: they never let us hold, but make us look. A key names one
//! bearer after another; at *h* it was that in *K*, so what is deleted after *h* first is that one.
//!
//! Who is admitted is said by [`Load`]; keys tell the modes. What keeps ours out is told by [`witness`].

use leasehold_core::backend::Load;
use leasehold_core::{LostReason, Mode};

use super::told::{Key, Told, Watch, WatchId};
use super::witness::{Rival, admits, fewest, witness};
use super::{End, Revision, Step};

/// What an answer showed of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Seen {
    pub(crate) revision: Revision,
    /// Entries older than ours, the youngest first.
    pub(crate) older: Vec<Rival>,
    pub(crate) beyond: Beyond,
    /// So many are older that the next of them will not be called soon.
    pub(crate) is_far: bool,
    /// The watch on the queue that stood when the answer was asked for.
    pub(crate) watch: Option<WatchId>,
}

/// Who is older than ours and was not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Beyond {
    Nobody,
    /// So many who hold as we would.
    Alike(usize),
    Unknown,
}

impl Seen {
    fn admits(&self, mode: Mode) -> bool {
        let alike = match self.beyond {
            Beyond::Nobody => 0,
            Beyond::Alike(others) => others,
            Beyond::Unknown => return false,
        };
        let shown = self.older.iter().map(|rival| rival.mode);
        shown.chain(std::iter::repeat_n(mode, alike)).collect::<Load>().admits(mode)
    }

    /// Whether an entry that came now would hold; `None` if what is shown does not say.
    pub(super) fn has_room(&self, mode: Mode) -> Option<bool> {
        let is_unknown = self.beyond == Beyond::Unknown && admits(mode, &self.older);
        (!is_unknown).then(|| self.admits(mode))
    }
}

/// What is to be watched.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    /// All contenders.
    Queue,
    /// One of them, from a revision of the past or from now on.
    Key(Key, Option<Revision>),
}

/// An entry of ours in a queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    mode: Mode,
    create: Revision,
    /// Of the latest answer, with *K* as those who are older.
    seen: Seen,
    knows: Knows,
    is_deleted: bool,
    /// What should have been told was not: the queue is read, whatever stands.
    is_in_doubt: bool,
}

/// What there is to go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Knows {
    /// The answer admits us.
    Turn,
    /// All that are older.
    All,
    /// A witness.
    Witness,
    /// Not enough: all are to be read.
    Little,
}

impl Place {
    /// An answer showed the entry while, and perhaps since, it was put.
    pub(crate) fn new(mode: Mode, create: Revision, seen: Seen, told: &Told) -> Self {
        let knows = Knows::Little;
        let mut place = Self { mode, create, seen, knows, is_deleted: false, is_in_doubt: false };
        // Whoever comes behind few opens the watch on all of them, if it does not stand.
        place.take_in(true, told);
        place
    }

    /// Keeps what there is to go by.
    fn take_in(&mut self, may_watch_all: bool, told: &Told) {
        let seen = &mut self.seen;
        if seen.admits(self.mode) {
            (self.knows, seen.older) = (Knows::Turn, Vec::new());
        } else if may_watch_all && seen.beyond == Beyond::Nobody {
            self.knows = Knows::All;
        } else {
            let witness = witness(self.mode, &seen.older, told, seen.revision);
            self.knows = if witness.is_some() { Knows::Witness } else { Knows::Little };
            seen.older = witness.unwrap_or_default();
        }
    }

    pub(crate) fn create(&self) -> Revision {
        self.create
    }

    /// The revision of the latest answer.
    pub(super) fn known_at(&self) -> Revision {
        self.seen.revision
    }

    /// Whether what is waited for is told by the watch on all.
    pub(crate) fn hears_all(&self) -> bool {
        self.knows != Knows::Witness
    }

    /// Whether the latest answer lets us hold; `None` if it did not show enough to say so.
    pub(super) fn holds_at_once(&self) -> Option<bool> {
        match self.knows {
            Knows::Turn => Some(true),
            Knows::Little if self.seen.beyond == Beyond::Unknown => None,
            _ => Some(false),
        }
    }

    /// What to do, after what was `told`.
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
            Knows::Witness => self.by_its_witness(told),
        }
    }

    /// Reads the queue: all of it, if some of it does not do.
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

    fn by_its_witness(&self, told: &Told) -> Step {
        let (mut is_late, mut is_opening) = (false, false);
        for Rival { key, .. } in &self.seen.older {
            let Some(watch) = told.keys.get(key) else {
                let from = self.seen.is_far.then_some(self.seen.revision.saturating_add(1));
                return Step::Open(Target::Key(key.clone(), from));
            };
            is_late |= watch.since.is_some_and(|since| since > self.seen.revision);
            is_opening |= watch.since.is_none();
        }
        // Those that open late are read together.
        if admits(self.mode, &self.left(told)) || is_late && !is_opening { self.look() } else { Step::Wait }
    }

    /// Whether what that watch tells goes on from the answer that we know all from.
    fn is_covered(&self, watch: &Watch) -> bool {
        self.knows == Knows::All
            && self.seen.watch == Some(watch.id)
            && watch.since.is_some_and(|since| since <= self.seen.revision)
    }

    /// *K* without what was told of by the watch on the queue, if that says enough, or by those on its keys.
    pub(crate) fn left(&self, told: &Told) -> Vec<Rival> {
        let on_all = told.queue.as_ref().filter(|watch| self.is_covered(watch));
        let is_left = |Rival { key, .. }: &&Rival| {
            let watch = if self.knows == Knows::Witness { told.keys.get(key) } else { on_all };
            watch.is_none_or(|watch| !watch.has_deleted(key, self.seen.revision))
        };
        self.seen.older.iter().filter(is_left).cloned().collect()
    }

    /// Some that keep ours out, as far as we know; none if we know too little.
    pub(crate) fn witness(&self, told: &Told) -> Vec<Rival> {
        fewest(self.mode, self.left(told))
    }

    /// Those whose ends the watch on the queue has to tell.
    pub(super) fn awaited(&self) -> &[Rival] {
        if self.knows == Knows::All { &self.seen.older } else { &[] }
    }

    /// Those that are watched one by one.
    pub(crate) fn watched(&self) -> &[Rival] {
        if self.knows == Knows::Witness { &self.seen.older } else { &[] }
    }

    /// The watches have not told what they should have.
    pub(super) fn doubt(&mut self) {
        self.is_in_doubt = true;
    }

    /// The queue was read up to our entry; `None` if that was not there.
    pub(crate) fn looked(&mut self, seen: Option<Seen>, told: &Told) {
        match seen {
            None => self.is_deleted = true,
            // An answer from before the latest one decides nothing.
            Some(seen) if seen.revision < self.seen.revision => {}
            Some(seen) => {
                (self.seen, self.is_in_doubt) = (seen, false);
                // Only what the watch stood for is known from here on.
                self.take_in(self.seen.watch.is_some(), told);
            }
        }
    }
}

/// Of so many older entries at most are all known, if the watch on the queue stands and a witness does.
pub(crate) const LONG: usize = 32;
