//! The two records that a process knows, its phase by them, and its acknowledgements.
//!
//! The record in the old store decides until its phase is `drain`: from then on it blocks that store, and the other record
//! decides. A process has an entry in the list of members of each store, with the version of that store's record that it
//! follows.
//!
//! # Invariants
//! - **view-1** *Sign, then read*: a record counts as unknown until it was read after the process's entry was signed,
//!   and again once that has lapsed. So an administrator that writes a record and then reads the members sees every process
//!   that may still act by an earlier one.
//! - **view-2** A version older than one that was read before is never trusted: the store has lost its data.
//! - **view-3** *A version* is acknowledged, never a phase, and only when no hold contradicts it; pending acquisitions read the
//!   view when they end.

use leasehold_core::backend::stage::{Phase, Side};

use super::record::Seen;
use super::{Class, Pair};

/// The records on which a process acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct View {
    pub(crate) phase: Phase,
    /// The record that decides.
    pub(crate) seen: Seen,
}

impl View {
    pub(crate) fn class(&self) -> Class {
        Class::of(self.phase)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Knowledge {
    sights: Pair<Sight>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Sight {
    footing: Footing,
    newest: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Footing {
    /// The process has no entry there.
    #[default]
    Absent,
    /// It has, and has not read the record since.
    Signed,
    /// It has, knows the record, and acknowledges a version.
    Read { seen: Seen, acknowledged: Option<u64> },
}

/// An older record than one that was read before: the store has lost its data (view-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DataLost;

impl Knowledge {
    /// The process has an entry at `side` from now on.
    pub(crate) fn signed(&mut self, side: Side) {
        let footing = &mut self.sights[side].footing;
        if *footing == Footing::Absent {
            *footing = Footing::Signed;
        }
    }

    /// Its entry at `side` may not be seen any more.
    pub(crate) fn lapsed(&mut self, side: Side) {
        self.sights[side].footing = Footing::Absent;
    }

    /// The record at `side` has changed, or cannot be read: it counts as unknown until it is read again.
    pub(crate) fn doubted(&mut self, side: Side) {
        let footing = &mut self.sights[side].footing;
        if let Footing::Read { .. } = footing {
            *footing = Footing::Signed;
        }
    }

    pub(crate) fn is_signed(&self, side: Side) -> bool {
        self.sights[side].footing != Footing::Absent
    }

    /// The record at `side`, read by a request that was sent while the process was signed there.
    pub(crate) fn learn(&mut self, side: Side, seen: Seen) -> Result<(), DataLost> {
        let sight = &mut self.sights[side];
        if seen.version < sight.newest {
            return Err(DataLost);
        }
        sight.newest = seen.version;
        sight.footing = match sight.footing {
            Footing::Absent => Footing::Absent,
            Footing::Signed => Footing::Read { seen, acknowledged: None },
            Footing::Read { acknowledged, .. } => Footing::Read { seen, acknowledged },
        };
        Ok(())
    }

    pub(crate) fn known(&self, side: Side) -> Option<Seen> {
        match self.sights[side].footing {
            Footing::Read { seen, .. } => Some(seen),
            Footing::Absent | Footing::Signed => None,
        }
    }

    /// The view that the process acts on; `None` if it must not be granted anything.
    pub(crate) fn view(&self) -> Option<View> {
        let (old, new) = (self.known(Side::Old), self.known(Side::New));
        if let Some(seen) = new.filter(|seen| Class::of(seen.stand.phase) == Class::New) {
            return Some(View { phase: seen.stand.phase, seen });
        }
        let seen = old?;
        if Class::of(seen.stand.phase) == Class::Old {
            return Some(View { phase: seen.stand.phase, seen });
        }
        new.map(|_| View { phase: Phase::Both, seen })
    }

    pub(crate) fn acknowledged(&self, side: Side) -> Option<u64> {
        match self.sights[side].footing {
            Footing::Read { acknowledged, .. } => acknowledged,
            Footing::Absent | Footing::Signed => None,
        }
    }

    /// Acknowledges the known record of `side`, unless a hold that rests on that store alone contradicts it (view-3). Returns
    /// whether that changes the entry.
    pub(crate) fn acknowledge(&mut self, side: Side, is_alone: bool) -> bool {
        if self.view().is_none() {
            return false;
        }
        let Footing::Read { seen, acknowledged } = &mut self.sights[side].footing else {
            return false;
        };
        let phase = Class::of(seen.stand.phase);
        let at_once = match side {
            Side::Old => phase == Class::Old,
            Side::New => phase == Class::New,
        };
        let news = (at_once || !is_alone) && *acknowledged != Some(seen.version);
        if news {
            *acknowledged = Some(seen.version);
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::Stand;
    use super::super::tokens::Window;
    use super::*;

    fn seen(version: u64, phase: Phase) -> Seen {
        Seen { version, stand: Stand { phase, epoch: 0, window: Window { offset: 0, low: 0, high: 9 } } }
    }

    fn knowing(old: Option<Phase>, new: Option<Phase>) -> Knowledge {
        let mut knowledge = Knowledge::default();
        for (side, phase) in [(Side::Old, old), (Side::New, new)] {
            knowledge.signed(side);
            if let Some(phase) = phase {
                knowledge.learn(side, seen(1, phase)).unwrap();
            }
        }
        knowledge
    }

    /// The whole table: which phase follows from two records, each of which may be unknown.
    #[test]
    fn the_phase_follows_from_what_is_known() {
        use Phase::{Both, Drain, New, Old, Shadow};
        let unknown_or = |phases: [Option<Phase>; 5]| phases;
        for (new, phases) in [
            (None, unknown_or([Some(Old), Some(Shadow), None, None, None])),
            (Some(Old), [Some(Old), Some(Shadow), Some(Both), Some(Both), Some(Both)]),
            (Some(Shadow), [Some(Old), Some(Shadow), Some(Both), Some(Both), Some(Both)]),
            (Some(Both), [Some(Old), Some(Shadow), Some(Both), Some(Both), Some(Both)]),
            (Some(Drain), [Some(Drain); 5]),
            (Some(New), [Some(New); 5]),
        ] {
            for (old, phase) in Phase::ALL.into_iter().zip(phases) {
                let view = knowing(Some(old), new).view();
                assert_eq!(view.map(|view| view.phase), phase, "{old}, {new:?}");
            }
            let alone = knowing(None, new).view().map(|view| view.phase);
            assert_eq!(alone, new.filter(|new| *new >= Drain), "{new:?} alone");
        }
    }

    /// A record that was read before the entry was signed, or before it lapsed, is not known (view-1).
    #[test]
    fn unsigned_message_is_unknown() {
        let mut knowledge = Knowledge::default();
        knowledge.learn(Side::Old, seen(1, Phase::Old)).unwrap();
        assert_eq!(knowledge.view(), None);
        knowledge.signed(Side::Old);
        assert_eq!(knowledge.view(), None);
        knowledge.learn(Side::Old, seen(1, Phase::Old)).unwrap();
        assert!(knowledge.view().is_some());
        assert!(knowledge.acknowledge(Side::Old, false));
        knowledge.signed(Side::Old);
        assert_eq!(knowledge.acknowledged(Side::Old), Some(1), "signing again extends");
        knowledge.lapsed(Side::Old);
        knowledge.signed(Side::Old);
        assert_eq!((knowledge.view(), knowledge.acknowledged(Side::Old)), (None, None));
    }

    /// A record that went back is not believed, not even after the entry has lapsed (view-2).
    #[test]
    fn an_older_version_is_not_believed() {
        let mut knowledge = knowing(Some(Phase::Old), None);
        knowledge.learn(Side::Old, seen(5, Phase::Shadow)).unwrap();
        knowledge.lapsed(Side::Old);
        knowledge.signed(Side::Old);
        assert_eq!(knowledge.learn(Side::Old, seen(4, Phase::Old)), Err(DataLost));
        assert_eq!(knowledge.view(), None);
        knowledge.learn(Side::Old, seen(5, Phase::Shadow)).unwrap();
        assert_eq!(knowledge.view().unwrap().phase, Phase::Shadow);
    }

    /// A record that is not believed any more is unknown; the entry is shown on, and the next version is believed (view-2).
    #[test]
    fn a_record_that_is_doubted_is_unknown() {
        let mut knowledge = knowing(Some(Phase::Old), None);
        assert!(knowledge.acknowledge(Side::Old, false));
        knowledge.doubted(Side::Old);
        assert_eq!((knowledge.view(), knowledge.acknowledged(Side::Old)), (None, None));
        assert!(knowledge.is_signed(Side::Old));
        knowledge.learn(Side::Old, seen(2, Phase::Old)).unwrap();
        assert!(knowledge.view().is_some());
        knowledge.lapsed(Side::Old);
        knowledge.doubted(Side::Old);
        assert!(!knowledge.is_signed(Side::Old), "there is no entry to doubt");
    }

    /// A version is acknowledged once, and not while a hold rests on the store that it closes (view-3).
    #[test]
    fn a_hold_that_contradicts_puts_off_the_acknowledgement() {
        for (side, phases) in
            [(Side::Old, [true, true, false, false, false]), (Side::New, [false, false, false, true, true])]
        {
            for (phase, at_once) in Phase::ALL.into_iter().zip(phases) {
                let mut knowledge = match side {
                    Side::Old => knowing(Some(phase), Some(Phase::Both)),
                    Side::New => knowing(Some(Phase::Both), Some(phase)),
                };
                assert_eq!(knowledge.acknowledge(side, true), at_once, "{side:?} {phase}");
                assert_eq!(knowledge.acknowledge(side, false), !at_once);
                assert!(!knowledge.acknowledge(side, false), "only once");
                assert_eq!(knowledge.acknowledged(side), Some(1));
            }
        }
    }
}
