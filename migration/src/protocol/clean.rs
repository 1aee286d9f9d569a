//! The end of a move in the stores' records.
//!
//! # Invariants
//! - **clean-1** No process takes part: checked before a record is ended and after it. A process that signed before that is seen
//!   then, and a later one finds no move.
//! - **clean-2** In `new` a move ends only while the old store's record blocks plain sessions, or that store cannot be reached.
//!   (Without processes nothing would write the record again.)
//! - **clean-3** Nothing that a beginning has written, and that does not count, is left (records-4).
//! - **clean-4** A record is ended, never removed: the next writer goes on with larger versions, and a move that was
//!   finished is not begun again.

use std::collections::VecDeque;

use leasehold_core::backend::stage::{Phase, Side};
use leasehold_core::{Error, ErrorKind, Result};

use super::record::{End, MoveRecord};
use super::records::{Read, RecordLocation, misuse};
use super::{Pair, SIDES};

/// The next task; the method of the same name answers it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Task {
    /// Check that no process takes part there.
    Nobody(Side),
    /// Replace the record at this version.
    Write {
        expected: u64,
        record: MoveRecord,
    },
    Done,
    /// A process takes part, and the move goes on.
    InUse,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Clean {
    tasks: VecDeque<Task>,
    /// The records as they were.
    before: Pair<Option<Read>>,
    /// The record that was ended, which is checked last.
    ended: Option<(Side, u64)>,
}

impl Clean {
    /// `old`: the old store admits plain sessions again; `is_old_read`: that store can be reached.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Misuse`] in another phase than `new` and `old`, and without a move; [`ErrorKind::Protocol`] if a record was
    /// lost: in `new` the one that blocks plain sessions; as [`Pair::of_one_move`].
    pub(crate) fn new(
        reads: &Pair<Option<Read>>,
        names: &Pair<String>,
        is_old_read: bool,
        old: bool,
    ) -> Result<Self> {
        let is_over = |side: Side| {
            let live = reads.live(side.other()).map(|read| read.record.id);
            let ours = |record: &MoveRecord| side == Side::New || record.between == *names;
            reads[side].as_ref().map(|read| &read.record).is_some_and(|record| {
                record.end == Some(End::Moved) && live.is_none_or(|id| id == record.id) && ours(record)
            })
        };
        let over = is_over(Side::New) || is_over(Side::Old);
        // A process that opens may write the new store's record between the two writes of an end.
        let is_left = reads.old.as_ref().is_some_and(|old| old.record.end == Some(End::Left));
        let begun =
            |read: &Read| read.record.stand.phase == Phase::Old && (read.record.restored == 0 || is_left);
        let is_only_begun = SIDES.into_iter().filter_map(|side| reads.live(side)).any(begun);
        if !over {
            reads.of_one_move(names)?;
        }
        let both: &[Side] = &[Side::New, Side::Old];
        let finished = if old { both } else { &both[..1] };
        let (end, sides) = match reads.place().map(RecordLocation::phase) {
            Some(Phase::New) if is_old_read && reads.kept(Side::Old).is_none() => {
                let message = "the old store has lost the move record that blocks its plain URL, and no \
                               process writes it after the end: run `leasehold migrate repair --yes` first";
                return Err(Error::not_applied(ErrorKind::Protocol, message));
            }
            Some(Phase::New) => (End::Moved, finished),
            // The first half was done.
            None if over => (End::Moved, finished),
            Some(Phase::Old) => (End::Left, both),
            // It grants nothing, and blocks other moves to there.
            None if is_only_begun => (End::Left, both),
            Some(phase) => {
                return Err(misuse(format!(
                    "cannot end the move in phase `{phase}`: expected `new` or `old`"
                )));
            }
            None => {
                let none = || misuse("there is no move to end: neither store has a move record");
                return Err(reads.lost().map_or_else(none, |side| reads.loss(side)));
            }
        };
        let open = sides.iter().filter_map(|side| reads.open(*side));
        let tasks = open.flat_map(|Read { version, record }| {
            let side = record.side;
            let ended = Task::Write { expected: *version, record: record.clone().ended(end) };
            [Task::Nobody(side), ended, Task::Nobody(side)]
        });
        Ok(Self { tasks: tasks.collect(), before: reads.clone(), ended: None })
    }

    pub(crate) fn task(&self) -> Task {
        self.tasks.front().cloned().unwrap_or(Task::Done)
    }

    /// Whether no process takes part. If one does, the earlier record is written again.
    pub(crate) fn nobody(&mut self, nobody: bool) {
        self.tasks.pop_front();
        let ended = self.ended.take();
        if !nobody {
            let back = ended.and_then(|(side, expected)| {
                self.before[side].take().map(|Read { record, .. }| Task::Write { expected, record })
            });
            self.tasks = back.into_iter().chain([Task::InUse]).collect();
        }
    }

    pub(crate) fn written(&mut self, version: u64) {
        if let Some(Task::Write { record, .. }) = self.tasks.pop_front() {
            self.ended = Some((record.side, version));
        }
    }
}
