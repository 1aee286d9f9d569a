//! One step of a move, by an administrator: the readings, the waits and the writes.
//!
//! | step | actions, in this order |
//! |---|---|
//! | `old` → `shadow` | old's base; new := a copy of the next record; old := shadow |
//! | `shadow` → `both` | old's members conform, and new's; new := a copy of the next record; old := both, the next epoch |
//! | `both` → `drain` | old's members conform; new's base; old := drain, which blocks it; new := drain |
//! | the same, begun before | old := drain again; new := drain |
//! | `drain` → `new` | old has its record, no plain sessions and no foreign clients; new := new |
//! | `new` → `drain` | new's base; new := drain; a copy in old, unless that is down |
//! | `drain` → `both` | new := both, which blocks it; new's members conform; old := both |
//! | `both` → `shadow` | old's base; old := shadow, the next epoch. The new store may be down |
//! | `shadow` → `old` | old := old |
//!
//! The copies decide nothing. They are for when the other store dies or loses its data: each record knows which numbers were
//! granted, except in the one epoch that a rollback to `shadow` begins (repair-2).
//!
//! # Invariants
//! - **transition-1** Both records are read first, and every write expects the version that was read: the conditions of the
//!   step still hold when it is written, or nothing is written. (A phase would not do: it may have come back.)
//! - **transition-2** Members conform to *the version* that was read, and no session is without an entry. They are counted
//!   after that version was written, since which no plain session has opened. Each store is counted before locks are acquired
//!   there as well as in the other one: so neither has sessions from before there was a record.
//! - **transition-3** A meeting with a foreign client is a version of the new store's record: a meeting after the check makes
//!   the write of `new` a conflict.
//! - **transition-4** Every step may be interrupted anywhere and begun again by any administrator.

use leasehold_core::Result;
use leasehold_core::backend::TokenBase;
use leasehold_core::backend::stage::{Phase, Side};

use super::Pair;
use super::record::{Seen, Stand};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Way {
    Forth,
    Back,
}

/// The next task; the method of the same name answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Task {
    /// Read the record.
    Read(Side),
    /// Read the base of the tokens.
    Measure(Side),
    /// Wait until every member acknowledges at least this version, and no session is open that is not a member's.
    Conform { side: Side, version: u64 },
    /// Wait until no foreign client was met for long enough, by the record of the new store at the version that was read, and
    /// check that none holds a lock in the old store, that its record blocks plain sessions, and that no such session is open.
    Quiet,
    /// Make the base at least this.
    Raise { side: Side, base: u64 },
    /// Replace the record at this version by one with this stand.
    Write { side: Side, expected: u64, stand: Stand },
    /// The step is done; this is the phase.
    Done(Phase),
    /// It cannot be done: this record is not there, or could not be read.
    Unread(Side),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Transition {
    way: Way,
    state: TransitionState,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum TransitionState {
    ReadNew,
    ReadOld,
    Measure {
        side: Side,
        /// The stand of the granted numbers.
        known: Stand,
        old: Option<Seen>,
        new: Option<Seen>,
    },
    /// The first is to be done now; the last is `Done` or `Unread`.
    Do(Vec<Task>),
}

impl Transition {
    pub(crate) fn new(way: Way) -> Self {
        Self { way, state: TransitionState::ReadNew }
    }

    pub(crate) fn task(&self) -> Task {
        match &self.state {
            TransitionState::ReadNew => Task::Read(Side::New),
            TransitionState::ReadOld => Task::Read(Side::Old),
            TransitionState::Measure { side, .. } => Task::Measure(*side),
            TransitionState::Do(tasks) => tasks[0],
        }
    }

    /// The record was read; `seen` is both, as far as they were read: `None` if a record is not there or cannot be read. The
    /// new store's record may depend on the old one's.
    pub(crate) fn read(&mut self, seen: Pair<Option<Seen>>) {
        self.state = match self.state {
            TransitionState::ReadNew => TransitionState::ReadOld,
            TransitionState::ReadOld => self.after_reading(seen.old, seen.new),
            TransitionState::Measure { .. } | TransitionState::Do(_) => return,
        };
    }

    /// # Errors
    ///
    /// As [`Window::next`](super::tokens::Window::next).
    pub(crate) fn measured(&mut self, base: TokenBase) -> Result<()> {
        if let TransitionState::Measure { known, old, new, .. } = self.state {
            self.state = TransitionState::Do(measured(self.way, known, old, new, base)?);
        }
        Ok(())
    }

    /// The wait has ended, or the base has been raised.
    pub(crate) fn done(&mut self) {
        if let TransitionState::Do(tasks) = &mut self.state
            && matches!(tasks[0], Task::Conform { .. } | Task::Quiet | Task::Raise { .. })
        {
            tasks.remove(0);
        }
    }

    /// The record was written, as this version; `None` if another one was in force, and the step begins again. (So it
    /// does when nothing is known of the write.)
    pub(crate) fn written(&mut self, version: Option<u64>) {
        let TransitionState::Do(tasks) = &mut self.state else { return };
        let Task::Write { side: written, .. } = tasks[0] else { return };
        let Some(written_as) = version else {
            self.state = TransitionState::ReadNew;
            return;
        };
        tasks.remove(0);
        if let Task::Conform { side, version } = &mut tasks[0]
            && *side == written
        {
            *version = written_as;
        }
    }

    fn after_reading(&self, old: Option<Seen>, new: Option<Seen>) -> TransitionState {
        use Phase::{Both, Drain, New, Old, Shadow};
        use Way::{Back, Forth};

        // If the new store decides, the old one may be lost for good.
        if let Some(new) = new {
            match (self.way, new.stand.phase) {
                (Forth, New) => return TransitionState::Do(vec![Task::Done(New)]),
                (Forth, Drain) => {
                    let write = write(Side::New, new, new.stand.with(New));
                    return TransitionState::Do(vec![Task::Quiet, write, Task::Done(New)]);
                }
                (Back, New) => {
                    return TransitionState::Measure {
                        side: Side::New,
                        known: new.stand,
                        old,
                        new: Some(new),
                    };
                }
                _ => {}
            }
        }
        let Some(seen) = old else {
            return TransitionState::Do(vec![Task::Unread(Side::Old)]);
        };
        let measure = |side| TransitionState::Measure { side, known: seen.stand, old, new };
        let tasks = match (self.way, seen.stand.phase, new) {
            (Forth, Old, Some(_)) | (Back, Both, _) => return measure(Side::Old),
            (Forth, Shadow, Some(_)) => return measure(Side::New),
            (Forth, Both, Some(new)) => bar_and_open(seen, new),
            (Forth, Drain | New, Some(new)) => open_at_last(seen, new),
            (Back, Drain | New, Some(new)) => close(seen, new),
            (Back, Shadow, _) => vec![write(Side::Old, seen, seen.stand.with(Old)), Task::Done(Old)],
            (Back, Old, _) => vec![Task::Done(Old)],
            (_, _, None) => vec![Task::Unread(Side::New)],
        };
        TransitionState::Do(tasks)
    }
}

/// The tasks once the base of the store that will count is known.
fn measured(
    way: Way,
    known: Stand,
    old: Option<Seen>,
    new: Option<Seen>,
    store: TokenBase,
) -> Result<Vec<Task>> {
    let next = |phase| -> Result<Stand> {
        Ok(Stand { phase, epoch: known.epoch + 1, window: known.window.next(store)? })
    };
    let bounded =
        |phase| -> Result<Stand> { Ok(Stand { window: known.window.bounded(store)?, ..known.with(phase) }) };
    Ok(match (way, known.phase, old, new) {
        (Way::Forth, Phase::Shadow, Some(old), Some(new)) => {
            let stand = next(Phase::Both)?;
            vec![
                Task::Conform { side: Side::Old, version: old.version },
                Task::Conform { side: Side::New, version: new.version },
                write(Side::New, new, stand),
                write(Side::Old, old, stand),
                Task::Done(Phase::Both),
            ]
        }
        (Way::Forth, _, Some(old), Some(new)) => {
            let stand = bounded(Phase::Shadow)?;
            vec![write(Side::New, new, stand), write(Side::Old, old, stand), Task::Done(Phase::Shadow)]
        }
        (Way::Back, Phase::Both, Some(old), _) => {
            let stand = next(Phase::Shadow)?;
            let base = stand.window.offset;
            vec![
                Task::Raise { side: Side::Old, base },
                write(Side::Old, old, stand),
                Task::Done(Phase::Shadow),
            ]
        }
        (Way::Back, _, old, Some(new)) => {
            let stand = bounded(Phase::Drain)?;
            let copy = old.map(|old| write(Side::Old, old, stand));
            let decides = write(Side::New, new, stand);
            [decides].into_iter().chain(copy).chain([Task::Done(Phase::Drain)]).collect()
        }
        _ => vec![Task::Unread(Side::New)],
    })
}

fn bar_and_open(old: Seen, new: Seen) -> Vec<Task> {
    let base = old.stand.window.offset;
    let mut tasks =
        vec![Task::Conform { side: Side::Old, version: old.version }, Task::Raise { side: Side::New, base }];
    tasks.extend(open_at_last(old, new));
    tasks
}

/// The blocking record is written although it may be there: an administrator that has read the closed record of the new store
/// before a rollback would open it after that.
fn open_at_last(old: Seen, new: Seen) -> Vec<Task> {
    let stand = old.stand.newest(new.stand).with(Phase::Drain);
    vec![write(Side::Old, old, stand), write(Side::New, new, stand), Task::Done(Phase::Drain)]
}

/// The new store's record is replaced although it may be closed: that stops an administrator that is about to open it.
fn close(old: Seen, new: Seen) -> Vec<Task> {
    let stand = old.stand.newest(new.stand).with(Phase::Both);
    vec![
        write(Side::New, new, stand),
        Task::Conform { side: Side::New, version: new.version },
        write(Side::Old, old, stand),
        Task::Done(Phase::Both),
    ]
}

fn write(side: Side, at: Seen, stand: Stand) -> Task {
    Task::Write { side, expected: at.version, stand }
}
