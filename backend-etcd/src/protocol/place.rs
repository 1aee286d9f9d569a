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
//! The entries of today keep everybody out alone. Modes that share a lock change [`admits`] and [`witness`].

use leasehold_core::LostReason;

use super::told::{Key, Told, Watch, WatchId};
use super::{End, Revision, Step};

/// What an answer showed of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Seen {
    pub(crate) revision: Revision,
    /// Entries older than ours with the revisions that created them, the youngest first.
    pub(crate) older: Vec<(Key, Revision)>,
    /// Those are all.
    pub(crate) all: bool,
    /// So many are older that the next of them will not be called soon.
    pub(crate) is_far: bool,
    /// The watch on the queue that stood when the answer was asked for.
    pub(crate) watch: Option<WatchId>,
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
    create: Revision,
    seen: Seen,
    is_deleted: bool,
    /// What should have been told was not: the queue is read, whatever stands.
    is_in_doubt: bool,
}

impl Place {
    pub(crate) fn new(create: Revision, seen: Seen) -> Self {
        Self { create, seen: Self::known(seen), is_deleted: false, is_in_doubt: false }
    }

    /// What is kept of an answer.
    fn known(mut seen: Seen) -> Seen {
        if !seen.all {
            seen.older = witness(seen.older);
        }
        seen
    }

    pub(crate) fn create(&self) -> Revision {
        self.create
    }

    /// The revision of the latest answer.
    pub(super) fn known_at(&self) -> Revision {
        self.seen.revision
    }

    /// Whether all that are older are known.
    pub(crate) fn knows_all(&self) -> bool {
        self.seen.all
    }

    /// What to do, after what was `told`.
    pub(super) fn next(&self, own: &[u8], told: &Told) -> Step {
        let has_ended = |watch: &Watch| watch.has_deleted(own, self.seen.revision);
        if self.is_deleted || told.queue.as_ref().is_some_and(has_ended) {
            return Step::End(End::Lost(LostReason::Gone));
        }
        if self.is_in_doubt {
            return Step::Look(self.create);
        }
        match (admits(&self.left(told)), self.seen.all) {
            (true, _) => Step::End(End::Granted(self.create)),
            (false, true) => self.by_the_queue(told),
            (false, false) => self.by_its_witness(told),
        }
    }

    fn by_the_queue(&self, told: &Told) -> Step {
        match &told.queue {
            None => Step::Open(Target::Queue),
            Some(watch) if watch.since.is_some() && !self.is_covered(watch) => Step::Look(self.create),
            Some(_) => Step::Wait,
        }
    }

    fn by_its_witness(&self, told: &Told) -> Step {
        for (key, _) in &self.seen.older {
            let Some(watch) = told.keys.get(key) else {
                let from = self.seen.is_far.then_some(self.seen.revision.saturating_add(1));
                return Step::Open(Target::Key(key.clone(), from));
            };
            let is_late = watch.since.is_some_and(|since| since > self.seen.revision);
            if is_late || watch.has_deleted(key, self.seen.revision) {
                return Step::Look(self.create);
            }
        }
        Step::Wait
    }

    fn is_covered(&self, watch: &Watch) -> bool {
        self.seen.watch == Some(watch.id) && watch.since.is_some_and(|since| since <= self.seen.revision)
    }

    /// *K* without what the watch on the queue has told of, if that says enough.
    pub(crate) fn left(&self, told: &Told) -> Vec<(Key, Revision)> {
        let mut left = self.seen.older.clone();
        if let Some(watch) = told.queue.as_ref().filter(|watch| self.seen.all && self.is_covered(watch)) {
            left.retain(|(key, _)| !watch.has_deleted(key, self.seen.revision));
        }
        left
    }

    /// What keeps ours out, as far as we know.
    pub(crate) fn witness(&self, told: &Told) -> Vec<(Key, Revision)> {
        witness(self.left(told))
    }

    /// The watches have not told what they should have.
    pub(super) fn doubt(&mut self) {
        self.is_in_doubt = true;
    }

    /// The queue was read up to our entry; `None` if that was not there.
    pub(crate) fn looked(&mut self, seen: Option<Seen>) {
        match seen {
            None => self.is_deleted = true,
            // An answer from before the latest one decides nothing.
            Some(seen) if seen.revision < self.seen.revision => {}
            Some(seen) => (self.seen, self.is_in_doubt) = (Self::known(seen), false),
        }
    }
}

/// Whether an entry holds beside these.
fn admits(older: &[(Key, Revision)]) -> bool {
    older.is_empty()
}

/// Of these, youngest first, as many as alone keep an entry out.
fn witness(mut older: Vec<(Key, Revision)>) -> Vec<(Key, Revision)> {
    older.truncate(1);
    older
}
