//! Both records together: whether they are of one move, the phase of that move, and the record that is written where one is
//! missing.
//!
//! # Invariants
//! - **records-1** Records of two moves are never taken for one: no process acts on them, and none writes either. One record alone
//!   is of a move between the two namespaces that it names.
//! - **records-2** A record whose move has ended blocks no session. The same move does not begin once more if it was finished.
//! - **records-3** A record that is lost (`kept`) is written again from the one that decides, and from no other; both count
//!   that.
//! - **records-4** A move begins with four writes: the new store's record, the old store's with an id of its own, and then in
//!   both, in this order, that the record counts. Only then a process follows them, with or without the new store
//!   (`is_enough`). So if the new store's record does not count, no process was granted anything by the old store's. The new
//!   store's record counts the old one's by its id, also when that move was finished. So a first record that is written late,
//!   over lost data, is recognized, and counts as none; an end is written over it, too.

use leasehold_core::backend::ledger::Entry;
use leasehold_core::backend::stage::{Phase, Side};
use leasehold_core::{Error, ErrorKind, Result};

use super::record::{End, MOST_RESTORED, MoveRecord, Seen};
use super::{Class, Pair, SIDES};

/// A record and the version it has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Read {
    pub(crate) version: u64,
    pub(crate) record: MoveRecord,
}

/// Where a move is; half steps between phases are places, too, so that the next call completes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RecordLocation {
    At(Phase),
    /// The old store is blocked, and the new one is not open yet: all processes are in `both`.
    Barred,
}

/// The steps about the records of both stores by a process that opens them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// It follows them.
    Follow,
    /// It writes the first record of a move at that side.
    Begin(Side),
    /// It goes on with a move whose beginning, or end, was left halfway.
    Write(MoveRecord),
}

/// How many bits a version has.
const VERSION_BITS: u32 = 53;

/// The store's part of the version that identifies a record.
pub(crate) const fn in_store(version: u64) -> u64 {
    version & ((1 << VERSION_BITS) - 1)
}

/// How often the records were written again after data was lost, by the version that one is known by (records-4).
pub(crate) const fn losses(version: u64) -> u64 {
    (version >> VERSION_BITS).saturating_sub(1)
}

impl Read {
    /// Reads an entry.
    ///
    /// # Errors
    ///
    /// As [`MoveRecord::decode`]; [`ErrorKind::Protocol`] for a version that no store comes to by itself: none could follow.
    pub(crate) fn of(entry: &Entry) -> Result<Self> {
        let record = MoveRecord::decode(&entry.value)?;
        if in_store(entry.version) != entry.version {
            let message =
                format!("the move record is invalid: leasehold never writes version {}", entry.version);
            return Err(Error::not_applied(ErrorKind::Protocol, message));
        }
        Ok(Self { version: entry.version, record })
    }

    pub(crate) fn seen(&self) -> Seen {
        Seen { version: (self.record.restored << VERSION_BITS) | self.version, stand: self.record.stand }
    }
}

impl Pair<Option<Read>> {
    /// The record at `side`, of a move that has not ended; without one that was written late (records-4).
    pub(crate) fn live(&self, side: Side) -> Option<&Read> {
        let other = self[side.other()].as_ref().map(|read| &read.record);
        let other = other.filter(|other| other.restored > 0 && other.end != Some(End::Left));
        let is_counted = |record: &MoveRecord| {
            other.is_none_or(|other| other.id == record.id || other.between != record.between)
        };
        self.open(side).filter(|read| read.record.restored > 0 || is_counted(&read.record))
    }

    /// The record at `side`, of a move that has not ended; also one that was written late.
    pub(super) fn open(&self, side: Side) -> Option<&Read> {
        self[side].as_ref().filter(|read| read.record.end.is_none())
    }

    /// The same, without an old store's record that admits plain sessions while the new store's decides: that store has lost its
    /// last writes.
    pub(crate) fn kept(&self, side: Side) -> Option<&Read> {
        let bars = |read: &&Read| Class::of(read.record.stand.phase) == Class::New;
        self.live(side).filter(|read| side == Side::New || self.decides(side) || bars(read))
    }

    fn ended(&self, side: Side, end: End) -> Option<&MoveRecord> {
        self[side].as_ref().map(|read| &read.record).filter(|record| record.end == Some(end))
    }

    /// The record at `side` that ended the move of the other one's record, and gave it up.
    fn half_ended(&self, side: Side) -> Option<&MoveRecord> {
        let other = self.live(side.other())?.record.id;
        self.ended(side, End::Left).filter(|record| record.id == other)
    }

    /// Whether the two, as far as they are there, are of one move from the one store to the other (records-1), whose
    /// namespaces are `names`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`] when the two stores are one namespace; [`ErrorKind::Misuse`] when a record is of another
    /// move, or of this move after its end.
    pub(crate) fn of_one_move(&self, names: &Pair<String>) -> Result<()> {
        let live = |side| self.live(side).map(|read| &read.record);
        if names.old == names.new || live(Side::Old).is_some() && live(Side::Old) == live(Side::New) {
            return Err(one_namespace(&names.new));
        }
        for side in SIDES {
            let Some(record) = live(side).filter(|record| record.side != side) else { continue };
            let (here, other) = (&names[side], &record.between[side]);
            return Err(misuse(match record.side {
                Side::New => format!(
                    "the locks of another store ({other}) have moved to {here}: end that move with `migrate \
                     clean` before another one begins"
                ),
                Side::Old => format!(
                    "the locks of {here} move, or have moved, to another store ({other}): end that move with \
                     `migrate clean --old` before another one begins"
                ),
            }));
        }
        let (old, new) = (live(Side::Old), live(Side::New));
        let begins = |old: &MoveRecord, new: &MoveRecord| {
            old.restored + new.restored == 0 && old.between == new.between
        };
        match (old, new) {
            (Some(old), Some(new)) if old.id != new.id && !begins(old, new) => Err(another(old, new, names)),
            (Some(old), None) if self.ended(Side::New, End::Moved).is_some() => Err(over(old)),
            (Some(only), None) | (None, Some(only)) => {
                let half = self.half_ended(only.side.other()).is_some();
                let same = only.between[only.side.other()] == names[only.side.other()];
                if half || same { Ok(()) } else { Err(another(only, only, names)) }
            }
            (None, None) => {
                let finished = |side| self.ended(side, End::Moved);
                let (old, new) = (finished(Side::Old), finished(Side::New));
                let both = old.zip(new).filter(|(old, new)| old.id == new.id).map(|(_, new)| new);
                let of_names = old.or(new).filter(|record| record.between == *names);
                both.filter(|new| new.side == Side::New)
                    .or(of_names)
                    .map_or(Ok(()), |record| Err(over(record)))
            }
            _ => Ok(()),
        }
    }

    /// The action of a process that has read both.
    ///
    /// # Errors
    ///
    /// As [`of_one_move`](Self::of_one_move); [`ErrorKind::Protocol`] when the store that decides has lost its record.
    pub(crate) fn opening(&self, names: &Pair<String>) -> Result<Opening> {
        self.of_one_move(names)?;
        if let Some(half) = SIDES.into_iter().find_map(|side| self.half_ended(side)) {
            let stand = half.stand.with(Phase::Old);
            return Ok(Opening::Write(MoveRecord { stand, end: None, ..half.clone() }));
        }
        if let Some(side) = self.lost().filter(|side| self.decides(*side)) {
            return Err(lost_its_data(side, true));
        }
        let record = |side| self.live(side).map(|read| &read.record);
        Ok(match (record(Side::Old), record(Side::New)) {
            (old, None) if old.is_none_or(|old| old.restored == 0) => Opening::Begin(Side::New),
            (None, Some(new)) if Class::of(new.stand.phase) == Class::Old => Opening::Begin(Side::Old),
            (Some(old), Some(new)) if old.restored == 0 => {
                let side = if new.restored == 0 { Side::New } else { Side::Old };
                Opening::Write(MoveRecord { side, restored: new.restored.max(1), ..old.clone() })
            }
            (Some(old), Some(new)) if new.restored < old.restored => {
                Opening::Write(MoveRecord { restored: old.restored, ..new.clone() })
            }
            _ => Opening::Follow,
        })
    }

    /// Whether locks are granted by the record at `side`, or were before it was lost.
    fn decides(&self, side: Side) -> bool {
        let other = self.live(side.other()).map(|read| Class::of(read.record.stand.phase));
        other.is_none_or(|class| class.has(side))
    }

    /// That the record at `side` was lost.
    pub(crate) fn loss(&self, side: Side) -> Error {
        lost_its_data(side, self.decides(side))
    }

    /// The records to write, in that order, when the store that does not decide has none: both of them, so that a record that
    /// is lost next is written again with a larger number (records-3). For two that were read.
    pub(crate) fn restored(&self) -> Option<[MoveRecord; 2]> {
        let is_missing = |side: &Side| self.kept(*side).is_none() && self.half_ended(*side).is_none();
        let missing = SIDES.into_iter().find(is_missing)?;
        let is_copied = |read: &&Read| !self.decides(missing) && read.record.restored < MOST_RESTORED;
        let known = &self.live(missing.other()).filter(is_copied)?.record;
        let known = MoveRecord { restored: known.restored + 1, ..known.clone() };
        let stand = known.stand.with(known.stand.phase.min(Phase::Drain));
        Some([known.clone(), MoveRecord { side: missing, stand, ..known }])
    }

    /// How far the move is; `None` before it, and where the record that decides is missing.
    pub(crate) fn place(&self) -> Option<RecordLocation> {
        let phase = |side| self.live(side).map(|read| read.record.stand.phase);
        let (old, new) = (phase(Side::Old), phase(Side::New));
        if let Some(new) = new.filter(|phase| Class::of(*phase) == Class::New) {
            return Some(RecordLocation::At(new));
        }
        match old? {
            Phase::Drain | Phase::New => new.map(|_| RecordLocation::Barred),
            old => Some(RecordLocation::At(old)),
        }
    }

    /// Whether one is missing without which the other makes no sense: the store has lost its data.
    pub(crate) fn lost(&self) -> Option<Side> {
        let phase = |side| self.live(side).map(|read| read.record.stand.phase);
        match (phase(Side::Old), phase(Side::New)) {
            (None, Some(Phase::Shadow | Phase::Both)) => Some(Side::Old),
            // A record that does not count has nothing to lose (records-4).
            (None, Some(Phase::Old)) => {
                let was_there = self.live(Side::New).is_some_and(|read| read.record.restored > 0);
                (was_there && self.half_ended(Side::Old).is_none()).then_some(Side::Old)
            }
            (Some(_), None) => {
                let over = self.ended(Side::New, End::Moved).or_else(|| self.half_ended(Side::New));
                over.is_none().then_some(Side::New)
            }
            _ => None,
        }
    }
}

impl RecordLocation {
    /// The phase of all processes then.
    pub(crate) fn phase(self) -> Phase {
        match self {
            Self::At(phase) => phase,
            Self::Barred => Phase::Both,
        }
    }

    /// The phase that one step toward `new` leads to; itself at the end.
    pub(crate) fn after(self) -> Phase {
        match self {
            Self::At(Phase::Old) => Phase::Shadow,
            Self::At(Phase::Shadow) => Phase::Both,
            Self::At(Phase::Both) | Self::Barred => Phase::Drain,
            Self::At(Phase::Drain | Phase::New) => Phase::New,
        }
    }

    /// The phase that one step toward `old` leads to; itself at the end.
    pub(crate) fn before(self) -> Phase {
        match self {
            Self::At(Phase::Old | Phase::Shadow) => Phase::Old,
            Self::At(Phase::Both) => Phase::Shadow,
            Self::Barred | Self::At(Phase::Drain) => Phase::Both,
            Self::At(Phase::New) => Phase::Drain,
        }
    }

    /// How far along it is; half steps lie between.
    pub(crate) fn rank(self) -> u8 {
        match self {
            Self::At(phase) => 2 * phase as u8,
            Self::Barred => 5,
        }
    }
}

/// The store has lost its data; `decides` if locks are granted by its record.
pub(crate) fn lost_its_data(side: Side, decides: bool) -> Error {
    let lost = format!("the {} store has lost its data and its move record", side.word());
    let then = match (side, decides) {
        (_, true) => {
            "no lock is granted until you stop every process and run `leasehold migrate repair --yes`"
        }
        (Side::New, false) => {
            "the old store still grants locks; to continue the move, run `leasehold migrate repair --yes` \
             without stopping a process"
        }
        (Side::Old, false) => {
            "the new store still grants locks, and a process of the move writes the record again"
        }
    };
    Error::not_applied(ErrorKind::Protocol, format!("{lost}: {then}"))
}

pub(crate) fn one_namespace(new: &str) -> Error {
    Error::invalid_option(format!(
        "the store of `migrate_to` ({new}) is the old store's namespace: give the new one a prefix of its \
         own"
    ))
}

/// `old` and `new` are the records, or twice the only one.
fn another(old: &MoveRecord, new: &MoveRecord, names: &Pair<String>) -> Error {
    misuse(format!(
        "the locks of {} move to {}, but this URL moves the locks of {} to {}: use the same `migrate_to` for \
         all processes, or end the other move with `migrate clean`",
        new.between.old, old.between.new, names.old, names.new
    ))
}

fn over(record: &MoveRecord) -> Error {
    misuse(format!(
        "the move from {} is over: open {}, the store that has the locks, without `migrate_to`",
        record.between.old, record.between.new
    ))
}

pub(crate) fn misuse(message: impl Into<String>) -> Error {
    Error::not_applied(ErrorKind::Misuse, message.into())
}

#[cfg(test)]
mod tests {
    use super::super::record::Stand;
    use super::super::tokens::Window;
    use super::*;

    fn read(id: u64, side: Side, phase: Phase) -> Option<Read> {
        let stand = Stand { phase, epoch: 0, window: Window { offset: 0, low: 0, high: 9 } };
        let record =
            MoveRecord { id, side, stand, between: names(), since: 0, restored: 0, end: None, met: None };
        Some(Read { version: 3, record })
    }

    fn names() -> Pair<String> {
        Pair { old: "h0".to_owned(), new: "h1".to_owned() }
    }

    fn ended(read: Option<Read>, end: End) -> Option<Read> {
        read.map(|read| Read { record: read.record.ended(end), ..read })
    }

    /// The same as a record that was written again.
    fn again(read: Option<Read>) -> Option<Read> {
        read.map(|read| Read { record: MoveRecord { restored: 1, ..read.record }, ..read })
    }

    /// The same as a record between these.
    fn between(read: Option<Read>, old: &str, new: &str) -> Option<Read> {
        let between = Pair { old: old.to_owned(), new: new.to_owned() };
        read.map(|read| Read { record: MoveRecord { between, ..read.record }, ..read })
    }

    fn opening(old: Option<Read>, new: Option<Read>) -> Result<Opening> {
        Pair { old, new }.opening(&names())
    }

    /// Every way in which two records are not of one move, and what is said of it (records-1, records-2).
    #[test]
    fn records_of_two_moves_are_refused() {
        use End::{Left, Moved};
        use ErrorKind::{InvalidOption, Misuse, Protocol};
        use Phase::{Both, Drain, New, Old, Shadow};
        use Side::{New as N, Old as O};
        let to_h2 = |read| between(read, "h0", "h2");
        for (old, new, kind, said) in [
            (read(1, O, Old), read(1, O, Old), InvalidOption, "prefix of its own"),
            (again(read(1, O, Both)), again(read(2, N, Both)), Misuse, "the same `migrate_to`"),
            (read(1, N, New), None, Misuse, "migrate clean`"),
            (None, read(1, O, Drain), Misuse, "clean --old"),
            (read(1, O, Drain), ended(read(1, N, New), Moved), Misuse, "without `migrate_to`"),
            (ended(read(1, O, Old), Moved), ended(read(1, N, New), Moved), Misuse, "without `migrate_to`"),
            (None, ended(read(1, N, New), Moved), Misuse, "without `migrate_to`"),
            (ended(read(1, O, Old), Moved), None, Misuse, "without `migrate_to`"),
            (to_h2(read(1, O, Both)), None, Misuse, "to h2, but this URL"),
            (to_h2(read(1, O, Old)), ended(read(2, N, New), Left), Misuse, "to h2, but this URL"),
            (None, between(read(1, N, Old), "h3", "h1"), Misuse, "of h3 move"),
            (None, between(read(1, N, New), "h3", "h1"), Misuse, "of h3 move"),
            (read(1, O, Both), None, Protocol, "new store has lost"),
            (None, read(1, N, Shadow), Protocol, "old store has lost"),
            (None, read(1, N, Both), Protocol, "old store has lost"),
            (None, again(read(1, N, Old)), Protocol, "until you stop every process"),
            (read(2, O, Old), again(read(1, N, Old)), Protocol, "until you stop every process"),
            (to_h2(read(2, O, Old)), read(1, N, Old), Misuse, "the same `migrate_to`"),
            (to_h2(read(2, O, Old)), again(read(1, N, Old)), Misuse, "the same `migrate_to`"),
        ] {
            let error = opening(old, new).expect_err(said);
            assert!(*error.kind() == kind && error.to_string().contains(said), "{error}");
        }
    }

    /// The steps about the records of one move, or of none.
    #[test]
    fn a_process_follows_or_begins() {
        use End::{Left, Moved};
        use Phase::{Both, Drain, New, Old, Shadow};
        use Side::{New as N, Old as O};
        let elsewhere = |end| between(ended(read(7, N, New), end), "h3", "h1");
        let back = |read| between(ended(read, Moved), "h1", "h0");
        let write = |read: Option<Read>| Opening::Write(read.unwrap().record);
        for (old, new, expected) in [
            (None, None, Opening::Begin(N)),
            (None, read(1, N, Old), Opening::Begin(O)),
            (back(read(7, N, New)), read(1, N, Old), Opening::Begin(O)),
            (read(2, O, Old), read(1, N, Old), write(again(read(2, N, Old)))),
            (read(1, O, Old), again(read(1, N, Old)), write(again(read(1, O, Old)))),
            (read(1, O, Old), None, Opening::Begin(N)),
            (again(read(2, O, Old)), read(1, N, Old), Opening::Follow),
            (back(read(7, N, New)), ended(read(8, O, Old), Left), Opening::Begin(N)),
            (back(read(7, N, New)), back(read(7, O, Old)), Opening::Begin(N)),
            (None, elsewhere(Moved), Opening::Begin(N)),
            (ended(read(7, O, Old), Left), ended(read(7, N, New), Left), Opening::Begin(N)),
            (again(read(1, O, Both)), again(read(1, N, Old)), Opening::Follow),
            (again(read(1, O, Shadow)), None, Opening::Follow),
            (again(read(1, O, Old)), read(1, N, Old), write(again(read(1, N, Old)))),
            (between(again(read(1, O, Both)), "a", "b"), again(read(1, N, Old)), Opening::Follow),
            (None, read(1, N, Drain), Opening::Follow),
            (read(1, O, Old), ended(read(1, N, New), Left), write(read(1, N, Old))),
            (ended(read(1, O, Old), Left), read(1, N, Old), write(read(1, O, Old))),
        ] {
            assert_eq!(opening(old, new).unwrap(), expected);
        }
    }

    /// A lost record is written again where the other one decides, and known as newer than what was there (records-3).
    #[test]
    fn the_record_that_decides_is_copied() {
        use Phase::{Both, Drain, New, Old, Shadow};
        for (known, phase, copy) in [
            (Side::Old, Old, Some(Old)),
            (Side::Old, Shadow, Some(Shadow)),
            (Side::Old, Both, None),
            (Side::New, Both, None),
            (Side::New, Drain, Some(Drain)),
            (Side::New, New, Some(Drain)),
        ] {
            let mut reads = Pair { old: None, new: None };
            reads[known] = read(1, known, phase);
            let copied = reads.restored();
            assert_eq!(copied.as_ref().map(|[_, copy]| copy.stand.phase), copy, "{phase}");
            let Some([again, copy]) = copied else { continue };
            assert_eq!((copy.side, again.stand.phase), (known.other(), phase));
            let lost = Read { version: 900, record: MoveRecord { restored: 0, ..copy.clone() } };
            let found = Read { version: 1, record: copy };
            assert!(found.seen().version > lost.seen().version && in_store(found.seen().version) == 1);
        }
    }

    /// A version that no store gives would be the last one.
    #[test]
    fn a_version_beyond_all_is_refused() {
        let value = read(1, Side::Old, Phase::Old).unwrap().record.encode();
        let of = |version| Read::of(&Entry { version, value: value.clone() });
        assert_eq!(of((1 << VERSION_BITS) - 1).unwrap().version, (1 << VERSION_BITS) - 1);
        for version in [1 << VERSION_BITS, u64::MAX] {
            assert_eq!(*of(version).unwrap_err().kind(), ErrorKind::Protocol);
        }
    }

    /// Where the move is by two records, and where a step leads from there.
    #[test]
    fn the_place_follows_from_both_records() {
        use Phase::{Both, Drain, New, Old, Shadow};
        let place = |old: Option<Phase>, new: Option<Phase>| {
            let read = |side| move |phase| read(1, side, phase);
            Pair { old: old.and_then(read(Side::Old)), new: new.and_then(read(Side::New)) }.place()
        };
        for (old, new, expected, after, before) in [
            (Old, Old, RecordLocation::At(Old), Shadow, Old),
            (Shadow, Old, RecordLocation::At(Shadow), Both, Old),
            (Shadow, Both, RecordLocation::At(Shadow), Both, Old),
            (Both, Both, RecordLocation::At(Both), Drain, Shadow),
            (Drain, Both, RecordLocation::Barred, Drain, Both),
            (Drain, Drain, RecordLocation::At(Drain), New, Both),
            (Drain, New, RecordLocation::At(New), New, Drain),
        ] {
            assert_eq!(place(Some(old), Some(new)), Some(expected), "{old} {new}");
            assert_eq!((expected.after(), expected.before()), (after, before), "{old} {new}");
            let rank = |phase| RecordLocation::At(phase).rank();
            assert!(rank(after) > expected.rank() || after == New, "{old} {new}");
            assert!(rank(before) < expected.rank() || before == Old, "{old} {new}");
        }
        assert_eq!(place(None, Some(New)), Some(RecordLocation::At(New)), "the old store may be gone");
        assert_eq!(place(Some(Both), None), Some(RecordLocation::At(Both)));
        assert_eq!([place(Some(Drain), None), place(None, Some(Both)), place(None, None)], [None; 3]);
    }
}
