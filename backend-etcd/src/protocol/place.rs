//! An entry in a queue, and the rule by which it becomes a hold.
//!
//! *c* is the revision at which the entry was created, *h* that of the latest answer that showed the
//! queue, *w* that at which the watch began: it tells every deletion after *w*, in order. With *w* ≤ *h*
//! nothing is missed between the two, so deletions after *h* are counted and those up to *h* are in the
//! answer already. Our own deletion comes on the same ordered watch, so a hold that it did not tell of
//! needs no further read. When a watch ends, what it told is worth nothing to the next one, which may
//! come from a member that lags behind: the queue is read again.

use std::collections::BTreeSet;

use super::Revision;

/// A change of a key, as the watch tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) revision: Revision,
    pub(crate) key: Box<[u8]>,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// With its value.
    Put(Box<[u8]>),
    /// With the revision at which the key was created, if the store still knew.
    Deleted(Option<Revision>),
}

/// How an entry stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Standing {
    /// It is the oldest: held.
    First,
    /// It is gone.
    Deleted,
    /// Something may have been missed: read again.
    Doubtful,
    /// Others are before it.
    Behind,
}

/// An entry of ours in a queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    /// c
    create: Revision,
    /// h
    seen_at: Revision,
    /// w
    watched_since: Option<Revision>,
    older: usize,
    /// What was counted after *h*.
    counted: BTreeSet<(Revision, Box<[u8]>)>,
    is_deleted: bool,
    /// Only an answer at or after this revision decides.
    doubt: Option<Revision>,
}

impl Place {
    pub(crate) fn new(
        create: Revision,
        seen_at: Revision,
        older: usize,
        watched_since: Option<Revision>,
    ) -> Self {
        Self {
            create,
            seen_at,
            watched_since,
            older,
            counted: BTreeSet::new(),
            is_deleted: false,
            doubt: None,
        }
    }

    pub(crate) fn create(&self) -> Revision {
        self.create
    }

    pub(crate) fn standing(&self) -> Standing {
        if self.is_deleted {
            return Standing::Deleted;
        }
        // The answer itself says so; otherwise the watch must cover everything since.
        if self.older == 0 && self.counted.is_empty() && self.doubt.is_none() {
            return Standing::First;
        }
        match self.watched_since {
            Some(since) if since > self.seen_at || self.doubt.is_some() => Standing::Doubtful,
            Some(_) if self.older == 0 => Standing::First,
            Some(_) | None => Standing::Behind,
        }
    }

    pub(crate) fn watched(&mut self, since: Option<Revision>) {
        if self.watched_since.is_some() {
            self.doubt = self.doubt.max(Some(self.seen_at));
        }
        self.watched_since = since;
    }

    pub(crate) fn saw(&mut self, changes: &[Change], own: &[u8]) {
        for Change { revision, key, kind } in changes.iter().filter(|change| change.revision > self.seen_at) {
            match kind {
                Kind::Deleted(_) if **key == *own => self.is_deleted = true,
                Kind::Deleted(None) => self.doubt = self.doubt.max(Some(*revision)),
                Kind::Deleted(Some(created)) if *created < self.create => {
                    if self.counted.insert((*revision, key.clone())) {
                        match self.older.checked_sub(1) {
                            Some(older) => self.older = older,
                            // More deletions than there were entries: the answer and the watch disagree.
                            None => self.doubt = self.doubt.max(Some(*revision)),
                        }
                    }
                }
                Kind::Deleted(Some(_)) | Kind::Put(_) => {}
            }
        }
    }

    pub(crate) fn looked(&mut self, revision: Revision, present: bool, older: usize) {
        // An answer from before the watch began, or from before the latest one, decides nothing.
        if revision < self.seen_at || self.watched_since.is_some_and(|since| revision < since) {
            return;
        }
        self.seen_at = revision;
        self.counted.retain(|(counted_at, _)| *counted_at > revision);
        self.older = older.saturating_sub(self.counted.len());
        self.doubt = self.doubt.filter(|doubt| *doubt > revision);
        self.is_deleted |= !present;
    }
}
