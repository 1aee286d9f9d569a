//! The entries and holds of a session, and its deadline; pure.
//!
//! An entry is in the book from the answer that showed it until its removal is confirmed.
//!
//! # Invariants
//! - **postgres.book-1** An entry that is not in the book when the answer of `mine` is read is not held later: answers of older
//!   connections are refused from before `mine` is sent.
//! - **postgres.book-2** An ended session never lives again; no grant names its lease (B3).
//! - **postgres.book-3** An entry that was removed by force is not held later, whatever answer arrives after that.
//! - **postgres.book-4** A bound of [`Lows`] counts on the connections that reported it: a crash breaks them, or is reported.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::clock::{Deadline, Moment};
use leasehold_core::{Error, LockName, LostReason, OwnerId, Result};

use super::{Generation, Lows, Seq};

/// News of an entry for its session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum EntryNews {
    #[default]
    Nothing,
    /// Something before it has ended and is kept by a transaction: look again soon.
    Looks,
    /// It holds from now on.
    Holds,
    /// It was removed by force.
    Gone,
}

impl EntryNews {
    /// A removal is final (postgres.book-3). A hold outlasts older answers.
    fn then(self, later: Self) -> Self {
        match (self, later) {
            (Self::Gone, _) | (Self::Holds, Self::Nothing | Self::Looks) => self,
            _ => later,
        }
    }
}

/// A message of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Notice {
    Told(Seq, EntryNews),
    /// A release is requested, within that time.
    Asked(Seq, Duration),
    /// The entry was removed by force.
    Lost(Seq),
}

impl Notice {
    /// Reads a message; `None` for any other text.
    pub(crate) fn read(text: &str) -> Option<Self> {
        if let Some(rest) = text.strip_prefix("asked ") {
            let (seq, millis) = rest.split_once(' ')?;
            return Some(Self::Asked(seq.parse().ok()?, Duration::from_millis(millis.parse().ok()?)));
        }
        if let Some(seq) = text.strip_prefix("lost ") {
            return seq.parse().ok().map(Self::Lost);
        }
        let told = if text.starts_with('?') { EntryNews::Looks } else { EntryNews::Holds };
        Some(Self::Told(text.trim_start_matches('?').parse().ok()?, told))
    }
}

/// The differences between the server's entries of a session and the book's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Holds that the server does not have.
    pub(crate) lost: Vec<(LockName, Seq)>,
    /// Numbers of entries that nobody here knows.
    pub(crate) unknown: Vec<Seq>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SessionBook {
    deadline: Deadline,
    is_over: bool,
    /// Answers count on these connections only.
    on: Generation,
    /// The epoch of these connections, once the server has told it.
    epoch: Option<i32>,
    /// The era of the server as of that epoch, and after which crash.
    past: i64,
    /// How many removals by force of this session's entries are known here.
    taken: i32,
    lows: Lows,
    entries: BTreeMap<Seq, BookEntry>,
    /// Messages about numbers whose answer is still to come, while any answer is.
    early: BTreeMap<Seq, EntryNews>,
    asking: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct BookEntry {
    name: LockName,
    owner: OwnerId,
    phase: Phase,
    told: EntryNews,
    /// The grace of a requested release.
    asked: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Queued,
    Held,
    Releasing,
}

impl SessionBook {
    /// A session that was opened on those connections is in its first epoch.
    pub(crate) fn new(deadline: Deadline, on: Generation, past: i64) -> Self {
        Self {
            deadline,
            is_over: false,
            on,
            epoch: Some(1),
            past,
            taken: 0,
            lows: Lows::default(),
            entries: BTreeMap::new(),
            early: BTreeMap::new(),
            asking: 0,
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

    /// Ends the session; returns whether it had not ended before.
    pub(crate) fn end(&mut self) -> bool {
        self.entries.clear();
        self.early.clear();
        !std::mem::replace(&mut self.is_over, true)
    }

    pub(crate) fn generation(&self) -> Generation {
        self.on
    }

    /// The epoch on those connections, if it is known.
    pub(crate) fn epoch_on(&self, generation: Generation) -> Option<i32> {
        self.epoch.filter(|_| self.on == generation)
    }

    /// `mine` is about to be sent on those connections: no answer of others counts from here on (postgres.book-1).
    pub(crate) fn moves_to(&mut self, generation: Generation) {
        if generation > self.on {
            (self.on, self.epoch) = (generation, None);
            self.lows = Lows::default();
        }
    }

    /// `mine` was answered: the server has these entries.
    pub(crate) fn compare(&mut self, there: &[Seq]) -> Difference {
        let is_gone = |seq: &Seq, entry: &BookEntry| entry.phase == Phase::Held && !there.contains(seq);
        let lost = self.entries.iter().filter(|(seq, entry)| is_gone(seq, entry));
        let lost = lost.map(|(seq, entry)| (entry.name.clone(), *seq)).collect();
        let unknown = there.iter().filter(|seq| !self.entries.contains_key(seq)).copied().collect();
        Difference { lost, unknown }
    }

    /// Entries that only the server had are released.
    pub(crate) fn in_epoch(&mut self, generation: Generation, epoch: i32, past: i64) {
        if self.on == generation {
            (self.epoch, self.past) = (Some(epoch), past);
        }
    }

    /// A renewal on those connections told the past; returns whether the server has crashed or was replaced behind them, as
    /// behind a pooler. Then it may have lost releases, and `mine` has to show that on new connections.
    pub(crate) fn is_other_past(&self, generation: Generation, past: i64) -> bool {
        self.epoch_on(generation).is_some() && self.past != past
    }

    /// Below that number nothing of the name lives.
    pub(crate) fn low(&self, name: &LockName) -> Seq {
        self.lows.of(name)
    }

    /// An answer on those connections told the lowest live number.
    pub(crate) fn learn(&mut self, name: &LockName, first: Seq, on: Generation) {
        if self.on == on {
            self.lows.learn(name, first);
        }
    }

    /// The entries that a later look at the server has to show, unless they were removed; and whether these are all. An answer
    /// that is still to come may show another one.
    pub(crate) fn known(&self) -> (Vec<Seq>, bool) {
        (self.entries.keys().copied().collect(), self.asking == 0)
    }

    /// A renewal told how many removals by force there were; returns whether one of them is not known.
    pub(crate) fn misses(&self, taken: i32) -> bool {
        self.taken != taken
    }

    /// So many removals are known.
    pub(crate) fn knows(&mut self, taken: i32) {
        self.taken = taken;
    }

    /// A request that may put an entry is sent.
    pub(crate) fn asks(&mut self) {
        self.asking += 1;
    }

    /// It has ended.
    pub(crate) fn asked(&mut self) {
        self.asking -= 1;
        if self.asking == 0 {
            self.early.clear();
        }
    }

    /// An answer showed the entry; returns whether it counts.
    pub(crate) fn enter(&mut self, name: &LockName, seq: Seq, owner: OwnerId, on: Generation) -> bool {
        if self.is_over || self.on != on {
            return false;
        }
        if let Some(entry) = self.entries.get_mut(&seq) {
            entry.told = entry.told.then(EntryNews::Nothing);
            return true;
        }
        let told = self.early.remove(&seq).unwrap_or_default();
        let (name, phase) = (name.clone(), Phase::Queued);
        self.entries.insert(seq, BookEntry { name, owner, phase, told, asked: None });
        true
    }

    pub(crate) fn told(&self, seq: Seq) -> EntryNews {
        self.entries.get(&seq).map_or(EntryNews::Nothing, |entry| entry.told)
    }

    pub(crate) fn forget(&mut self, seq: Seq) {
        self.entries.remove(&seq);
    }

    /// Begins the hold of an entry that has its turn, unless the session has ended: its deadline, and the grace of a release that
    /// was requested already.
    pub(crate) fn grant(&mut self, seq: Seq, now: Moment) -> Option<(Deadline, Option<Duration>)> {
        let deadline = self.deadline();
        let may_hold = |entry: &&mut BookEntry| entry.phase == Phase::Queued && entry.told != EntryNews::Gone;
        let entry = self.entries.get_mut(&seq).filter(may_hold)?;
        if deadline.has_passed(now) {
            return None;
        }
        entry.phase = Phase::Held;
        Some((deadline, entry.asked))
    }

    /// Begins the release of a hold.
    pub(crate) fn release(&mut self, seq: Seq, owner: OwnerId) -> Result<()> {
        if self.is_over {
            return Err(Error::lost(LostReason::SessionLost));
        }
        let entry = self.entries.get_mut(&seq).filter(|entry| entry.owner == owner);
        entry.ok_or_else(|| Error::lost(LostReason::Gone))?.phase = Phase::Releasing;
        Ok(())
    }

    /// A message that the entry of that number holds, or has to look.
    pub(crate) fn hears(&mut self, seq: Seq, told: EntryNews) {
        match self.entries.get_mut(&seq) {
            Some(entry) => entry.told = entry.told.then(told),
            None if self.asking > 0 && !self.is_over => {
                let early = self.early.entry(seq).or_default();
                *early = early.then(told);
            }
            None => {}
        }
    }

    /// A release is requested; the name of the hold that has to be told, unless it was told of a request that is no later.
    pub(crate) fn wanted(&mut self, seq: Seq, grace: Duration) -> Option<LockName> {
        let entry = self.entries.get_mut(&seq)?;
        if entry.asked.is_some_and(|before| before <= grace) {
            return None;
        }
        entry.asked = Some(grace);
        (entry.phase == Phase::Held).then(|| entry.name.clone())
    }

    /// An entry was removed by force; the name of the hold that is lost.
    pub(crate) fn taken(&mut self, seq: Seq) -> Option<LockName> {
        let is_held = self.entries.get(&seq).is_some_and(|entry| entry.phase == Phase::Held);
        if !is_held {
            self.hears(seq, EntryNews::Gone);
            return None;
        }
        self.entries.remove(&seq).map(|entry| entry.name)
    }
}
