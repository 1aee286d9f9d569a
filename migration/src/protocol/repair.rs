//! The repair when a store has lost its data or is lost for good: both records anew.
//!
//! # Invariants
//! - **repair-1** Except for a copy (records-3), no process takes part: checked before and after all holds have expired.
//! - **repair-2** The next numbers are above all that any epoch granted: also above one that began in a lost record.
//! - **repair-3** If the other store is dead, the repair goes on from a record that counts. A first record may have been
//!   written late, over lost data.
//! - **repair-4** Whichever record closes a store is written before the other one opens it.

use std::collections::VecDeque;

use leasehold_core::backend::TokenBase;
use leasehold_core::backend::stage::{Phase, Side};
use leasehold_core::{Error, ErrorKind, Result};

use super::record::{MOST_RESTORED, MoveRecord, Stand};
use super::records::{Read, RecordLocation, misuse};
use super::{Class, Pair};

/// The reading of a store's record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Known {
    /// It is dead for good.
    Dead,
    Read(Option<Read>),
}

/// The next task; the method of the same name answers it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Task {
    Look,
    /// Check that no process takes part, and that no session lives, in the stores that are not dead.
    Alone,
    /// Wait until every earlier hold has expired.
    Outlast,
    Measure(Side),
    Raise {
        side: Side,
        base: u64,
    },
    /// Replace the record at this version, or write the first one.
    Write {
        expected: Option<u64>,
        record: MoveRecord,
    },
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Repair {
    names: Pair<String>,
    /// When, for the records.
    since: u64,
    /// Another id: a store that was taken for dead may come back, and its record is one of another move then.
    fresh: u64,
    /// All holds are over.
    pub(crate) outlasted: bool,
    state: RepairState,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum RepairState {
    Look,
    Alone(Plan),
    Outlast,
    Measure(Plan),
    Do(VecDeque<Task>),
}

/// The contents of both records.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Plan {
    phase: Phase,
    /// The store that counts then.
    counts: Side,
    /// The stand that knows most of the granted numbers.
    newest: Stand,
    /// An epoch may have begun that nothing knows of.
    skips: bool,
    record: MoveRecord,
    /// The versions that are replaced; nothing for a dead store.
    expected: Pair<Option<Option<u64>>>,
}

impl Repair {
    pub(crate) fn new(names: Pair<String>, since: u64, fresh: u64) -> Self {
        Self { names, since, fresh, outlasted: false, state: RepairState::Look }
    }

    pub(crate) fn task(&self) -> Task {
        match &self.state {
            RepairState::Look => Task::Look,
            RepairState::Alone(_) => Task::Alone,
            RepairState::Outlast => Task::Outlast,
            RepairState::Measure(plan) => Task::Measure(plan.counts),
            RepairState::Do(tasks) => tasks.front().cloned().unwrap_or(Task::Done),
        }
    }

    /// # Errors
    ///
    /// [`ErrorKind::Misuse`] without a move, or with one that has only begun if a store is dead, and as [`Pair::of_one_move`];
    /// [`ErrorKind::Unavailable`] if both are dead.
    pub(crate) fn looked(&mut self, known: &Pair<Known>) -> Result<()> {
        let reads = Pair::each(|side| match &known[side] {
            Known::Read(read) => read.clone(),
            Known::Dead => None,
        });
        reads.of_one_move(&self.names)?;
        let is_dead = |side: Side| known[side] == Known::Dead;
        if !is_dead(Side::Old)
            && !is_dead(Side::New)
            && let Some(records) = reads.restored()
        {
            self.state = RepairState::Do(records.map(|record| write(&reads, record)).into());
            return Ok(());
        }
        let plan = self.plan(&reads, is_dead)?;
        self.state = RepairState::Alone(plan);
        Ok(())
    }

    fn plan(&self, reads: &Pair<Option<Read>>, is_dead: impl Fn(Side) -> bool) -> Result<Plan> {
        let live = |side| reads.live(side).map(|read| &read.record);
        let (old, new) = (live(Side::Old), live(Side::New));
        let Some(record) = old.or(new) else {
            return Err(misuse("there is no move to repair: neither store has a move record"));
        };
        let phase = if is_dead(Side::Old) {
            record.stand.phase.max(Phase::Drain)
        } else if is_dead(Side::New) {
            record.stand.phase.min(Phase::Shadow)
        } else {
            match (reads.place(), old, new) {
                (Some(place), ..) => RecordLocation::phase(place),
                // It decided before it lost its data.
                (None, Some(_), _) => Phase::Drain,
                (None, None, _) => record.stand.phase,
            }
        };
        let is_one_dead = is_dead(Side::Old) || is_dead(Side::New);
        if is_one_dead && record.restored == 0 {
            // Nothing tells it from one that was written late (records-4).
            return Err(misuse(if is_dead(Side::New) {
                "cannot repair the move: the old store's record says only that a move began. Stay on the old store with its \
                 plain URL. If that store may have lost data, first stop every process and raise its token base with \
                 `leasehold token-base set`"
            } else {
                "cannot repair the move: the new store's record does not say which tokens the old store granted. Stop every \
                 process, wait for one ttl, raise the token base of another prefix with `leasehold token-base set`, and use \
                 that prefix"
            }));
        }
        let id = if is_one_dead { self.fresh } else { record.id };
        let newest = old.or(new).zip(new.or(old)).map(|(old, new)| old.stand.newest(new.stand));
        let restored = old.into_iter().chain(new).map(|record| record.restored).max().unwrap_or(0) + 1;
        if restored > MOST_RESTORED {
            let message = "the records of this move were written again too often: move to a namespace with \
                           another name";
            return Err(Error::not_applied(ErrorKind::Unsupported, message));
        }
        let expected = Pair::each(|side| {
            let version = reads[side].as_ref().map(|read| read.version);
            (!is_dead(side)).then_some(version)
        });
        Ok(Plan {
            phase,
            counts: if Class::of(phase) == Class::Old { Side::Old } else { Side::New },
            newest: newest.unwrap_or(record.stand),
            skips: old.is_none() && Class::of(record.stand.phase) != Class::New,
            record: MoveRecord { id, restored, since: self.since, ..record.clone() },
            expected,
        })
    }

    pub(crate) fn alone(&mut self) {
        if let RepairState::Alone(plan) = &self.state {
            self.state =
                if self.outlasted { RepairState::Measure(plan.clone()) } else { RepairState::Outlast };
        }
    }

    pub(crate) fn outlasted(&mut self) {
        self.outlasted = true;
        self.state = RepairState::Look;
    }

    pub(crate) fn measured(&mut self, store: TokenBase) -> Result<()> {
        if let RepairState::Measure(plan) = &self.state {
            self.state = RepairState::Do(plan.tasks(store)?);
        }
        Ok(())
    }

    /// The base was raised, or the record written.
    pub(crate) fn done(&mut self) {
        if let RepairState::Do(tasks) = &mut self.state {
            tasks.pop_front();
        }
    }
}

impl Plan {
    fn tasks(&self, store: TokenBase) -> Result<VecDeque<Task>> {
        let Self { phase, counts, newest, .. } = *self;
        let mut window = newest.window.bounded(store)?;
        for _ in 0..=u8::from(self.skips) {
            window = window.next(store)?;
        }
        let stand = Stand { phase, epoch: newest.epoch + 1 + u64::from(self.skips), window };
        let order = match counts {
            Side::New if phase != Phase::Both => [Side::Old, Side::New],
            _ => [Side::New, Side::Old],
        };
        let writes = order.into_iter().filter_map(|side| {
            let stand = if side == Side::Old { stand.with(phase.min(Phase::Drain)) } else { stand };
            let expected = self.expected[side]?;
            Some(Task::Write { expected, record: MoveRecord { side, stand, ..self.record.clone() } })
        });
        let raise = Task::Raise { side: counts, base: window.offset };
        Ok((phase != Phase::Both).then_some(raise).into_iter().chain(writes).collect())
    }
}

fn write(reads: &Pair<Option<Read>>, record: MoveRecord) -> Task {
    Task::Write { expected: reads[record.side].as_ref().map(|read| read.version), record }
}
