//! What the two records say together: whether they are of one move, and how far that is.
//!
//! # Invariants
//! - **records-1** Records of two moves are never taken for one: nobody acts on them, and nobody writes either.
//! - **records-2** A record whose move is over is as none, but for its version.

use leasehold_core::backend::stage::{Phase, Side};
use leasehold_core::{Error, ErrorKind, Result};

use super::record::{Record, Seen};
use super::{Class, Pair};

/// A record and the version it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) version: u64,
    pub(crate) record: Record,
}

/// Where a move is; half steps between phases are places, too, so that whoever goes on with one knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    At(Phase),
    /// The store that is left is barred, and the other one is not open: everybody is in `both`.
    Barred,
}

impl Read {
    pub(crate) fn seen(&self) -> Seen {
        Seen { version: self.version, stand: self.record.stand }
    }
}

impl Pair<Option<Read>> {
    /// The record at `side`, of a move that is not over.
    pub(crate) fn live(&self, side: Side) -> Option<&Read> {
        self[side].as_ref().filter(|read| !read.record.over)
    }

    /// Whether the two, as far as they are there, are of one move from the one store to the other (records-1). `old`
    /// and `new` are where the stores are, for people.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`] when the two stores are one namespace; [`ErrorKind::Misuse`] when a record is
    /// of another move, or of this one and that is over.
    pub(crate) fn of_one_move(&self, at: &Pair<String>) -> Result<()> {
        let live = |side| self.live(side).map(|read| &read.record);
        if let (Some(old), Some(new)) = (live(Side::Old), live(Side::New))
            && old == new
        {
            return Err(Error::invalid_option(format!(
                "the store of `migrate_to` ({}) is the namespace that is left: give the new one a prefix of its own",
                at.new
            )));
        }
        for side in [Side::Old, Side::New] {
            let Some(record) = live(side).filter(|record| record.side != side) else { continue };
            let (here, other) = (&at[side], &record.other);
            return Err(misuse(match record.side {
                Side::New => format!(
                    "the locks of another store ({other}) have moved to {here}: `migrate clean` ends that move, \
                     before another one begins"
                ),
                Side::Old => format!(
                    "the locks of {here} move, or have moved, to another store ({other}): `migrate clean --old` \
                     ends that move, before another one begins"
                ),
            }));
        }
        match (live(Side::Old), live(Side::New)) {
            (Some(old), Some(new)) if old.id != new.id => Err(misuse(format!(
                "the locks of {} move to {}, and not to {}, to which those of {} move: give everybody the same \
                 `migrate_to`, or end the other move with `migrate clean`",
                at.old, old.other, at.new, new.other
            ))),
            (Some(old), None) if self.is_over(Side::New) && old.stand.phase == Phase::Drain => {
                Err(misuse(format!(
                    "the move from {} is over: open the store that the locks are in, {}, without `migrate_to`",
                    at.old, at.new
                )))
            }
            _ => Ok(()),
        }
    }

    fn is_over(&self, side: Side) -> bool {
        self[side].as_ref().is_some_and(|read| read.record.over)
    }

    /// How far the move is; `None` before it, and where the record that decides is missing.
    pub(crate) fn place(&self) -> Option<Place> {
        let phase = |side| self.live(side).map(|read| read.record.stand.phase);
        let (old, new) = (phase(Side::Old), phase(Side::New));
        if let Some(new) = new.filter(|phase| Class::of(*phase) == Class::New) {
            return Some(Place::At(new));
        }
        match old? {
            Phase::Drain | Phase::New => new.map(|_| Place::Barred),
            old => Some(Place::At(old)),
        }
    }

    /// Whether one is missing without which the other makes no sense: the store has lost its data.
    pub(crate) fn lost(&self) -> Option<Side> {
        let phase = |side| self.live(side).map(|read| read.record.stand.phase);
        match (phase(Side::Old), phase(Side::New)) {
            (None, Some(Phase::Shadow | Phase::Both)) => Some(Side::Old),
            (Some(_), None) if !self.is_over(Side::New) => Some(Side::New),
            _ => None,
        }
    }
}

impl Place {
    /// In which phase everybody is then.
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
        let rank = |phase| Phase::ALL.into_iter().zip([0, 2, 4, 6, 8]).find(|(each, _)| *each == phase);
        match self {
            Self::At(phase) => rank(phase).map_or(8, |(_, rank)| rank),
            Self::Barred => 5,
        }
    }
}

fn misuse(message: String) -> Error {
    Error::not_applied(ErrorKind::Misuse, message)
}

#[cfg(test)]
mod tests {
    use super::super::record::Stand;
    use super::super::tokens::Window;
    use super::*;

    fn read(id: u64, side: Side, phase: Phase) -> Option<Read> {
        let stand = Stand { phase, epoch: 0, window: Window::first(0) };
        let record = Record { id, side, stand, other: "elsewhere".to_owned(), since: 0, over: false };
        Some(Read { version: 3, record })
    }

    fn ended(read: Option<Read>) -> Option<Read> {
        read.map(|read| Read { record: read.record.ended(), ..read })
    }

    fn refused(old: Option<Read>, new: Option<Read>) -> Option<(ErrorKind, String)> {
        let at = Pair { old: "h0".to_owned(), new: "h1".to_owned() };
        let answer = Pair { old, new }.of_one_move(&at);
        answer.err().map(|error| (error.kind().clone(), error.to_string()))
    }

    /// Every way in which two records are not of one move, and what is said of it (records-1).
    #[test]
    fn records_of_two_moves_are_refused() {
        use Phase::{Both, Drain, New, Old};
        use Side::{New as N, Old as O};
        let is = |answer: Option<(ErrorKind, String)>, kind, said: &str| {
            let (was, message) = answer.expect(said);
            assert!(was == kind && message.contains(said), "{was:?} {message}");
        };
        is(refused(read(1, O, Old), read(1, O, Old)), ErrorKind::InvalidOption, "prefix of its own");
        is(refused(read(1, O, Both), read(2, N, Both)), ErrorKind::Misuse, "not to h1");
        is(refused(read(1, N, New), None), ErrorKind::Misuse, "migrate clean`");
        is(refused(None, read(1, O, Drain)), ErrorKind::Misuse, "clean --old");
        is(refused(read(1, O, Drain), ended(read(1, N, New))), ErrorKind::Misuse, "without `migrate_to`");
        for (old, new) in [
            (None, None),
            (None, read(1, N, Old)),
            (read(1, O, Old), None),
            (read(1, O, Both), read(1, N, Old)),
            (ended(read(7, N, New)), read(1, N, Old)),
            (read(1, O, Old), ended(read(7, O, Drain))),
            (ended(read(7, N, New)), ended(read(8, O, Drain))),
        ] {
            assert_eq!(refused(old, new), None);
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
            (Old, Old, Place::At(Old), Shadow, Old),
            (Shadow, Old, Place::At(Shadow), Both, Old),
            (Shadow, Both, Place::At(Shadow), Both, Old),
            (Both, Both, Place::At(Both), Drain, Shadow),
            (Drain, Both, Place::Barred, Drain, Both),
            (Drain, Drain, Place::At(Drain), New, Both),
            (Drain, New, Place::At(New), New, Drain),
        ] {
            assert_eq!(place(Some(old), Some(new)), Some(expected), "{old} {new}");
            assert_eq!((expected.after(), expected.before()), (after, before), "{old} {new}");
            let rank = |phase| Place::At(phase).rank();
            assert!(rank(after) > expected.rank() || after == New, "{old} {new}");
            assert!(rank(before) < expected.rank() || before == Old, "{old} {new}");
        }
        assert_eq!(place(None, Some(New)), Some(Place::At(New)), "the old store may be gone");
        assert_eq!(place(Some(Both), None), Some(Place::At(Both)));
        assert_eq!([place(Some(Drain), None), place(None, Some(Both)), place(None, None)], [None; 3]);
    }

    /// Which record is missing; one whose move is over is as none (records-2).
    #[test]
    fn a_record_that_is_missing_is_said() {
        use Phase::{Both, Drain, New, Old};
        for (old, new, lost) in [
            (None, None, None),
            (None, read(1, Side::New, Old), None),
            (None, read(1, Side::New, Both), Some(Side::Old)),
            (None, read(1, Side::New, New), None),
            (read(1, Side::Old, Both), None, Some(Side::New)),
            (read(1, Side::Old, Drain), ended(read(1, Side::New, New)), None),
        ] {
            assert_eq!(Pair { old, new }.lost(), lost);
        }
    }
}
