//! The order of writes to the files, and what a reader concludes from them. Pure: bytes go in, steps come out.
//!
//! A value is on the disk before it counts: a grant is returned, and a lock file removed, only after the last step. A
//! process that finds a value that may not be durable makes it so before the other slot is written, so at most one of the
//! two slots is ever at risk. A note shares its page with a slot of which it changes no byte: a failure of the host while
//! the page is written leaves that slot.
//!
//! # Invariants
//! - **file.protocol-1** After a crash between any two steps, or at any byte within one, of the process or of the
//!   host, the counter that is read is at least every counter that was granted (G3).
//! - **file.protocol-2** The note shows every reader that a hold was released; the session shows that its process died.
//! - **file.protocol-3** If each hold is released, the writes from one sync to the next are in one page.
//!
//! Checked by the tests below, which cut every sequence at every byte, and a page at its sectors.

use leasehold_core::FencingToken;

use crate::record::{Ending, FILE, FileRecord, Floor, Stamped, Unreadable, Value, newest, slot, slot_at};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Write {
        at: u64,
        bytes: Vec<u8>,
    },
    /// Wait until everything written is on the disk.
    Sync,
}

/// The contents of a lock file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) newest: Stamped<FileRecord>,
    pub(crate) ending: Option<Ending>,
}

impl Seen {
    pub(crate) fn read(image: &[u8]) -> Result<Self, Unreadable> {
        Ok(Self { newest: newest(image)?, ending: Ending::newest(image) })
    }

    pub(crate) fn record(&self) -> &FileRecord {
        &self.newest.value
    }

    /// The number of the next grant's write.
    pub(crate) fn next_seq(&self) -> u64 {
        self.newest.seq + 1
    }

    /// The largest used counter. A note may name one above the record's, whose record is lost and was not granted: used
    /// again, that note would end the new hold, too.
    pub(crate) fn counter(&self) -> u64 {
        self.ending.map_or(0, |ending| ending.counter).max(self.record().counter)
    }

    /// Whether the hold was released; if not, its session shows whether it lives (file.protocol-2).
    pub(crate) fn is_over(&self) -> bool {
        // A reader without the lock may see a note that is newer than the record.
        self.ending.is_some_and(|ending| ending.counter >= self.record().counter)
    }

    fn is_durable(&self) -> bool {
        let Stamped { seq, value } = &self.newest;
        self.ending == Some(Ending { counter: value.counter, seq: *seq, durable: true })
    }
}

/// The first steps of a lock file or floor, before it is visible; `None` when the value is too long.
pub(crate) fn birth<T: Value>(value: T) -> Option<Vec<Step>> {
    let mut bytes = slot(&Stamped { seq: FIRST, value })?;
    // At its full size, so that no later sync has to allocate anything.
    bytes.resize(FILE, 0);
    Some(vec![Step::Write { at: slot_at(FIRST), bytes }, Step::Sync])
}

/// Records the next grant of an existing lock file; `None` when the record is too long.
pub(crate) fn grant(seen: &Seen, next: FileRecord) -> Option<Vec<Step>> {
    debug_assert!(next.counter > seen.counter(), "P1, P2");
    let mut steps = Vec::new();
    if !seen.is_durable() {
        steps.extend(write(&seen.newest)?);
    }
    steps.extend(write(&Stamped { seq: seen.next_seq(), value: next })?);
    Some(steps)
}

/// Notes the end of a hold.
pub(crate) fn end(ending: Ending) -> Step {
    Step::Write { at: ending.at(), bytes: ending.to_bytes().to_vec() }
}

/// Raises each number of the floor to that of `least` at least, durably; the steps, and the floor after them.
pub(crate) fn raise(seen: &Stamped<Floor>, least: Floor) -> Option<(Vec<Step>, Stamped<Floor>)> {
    // Its writer may have died before it was on the disk.
    let mut steps = write(seen)?;
    let Floor { counter, token_base } = seen.value;
    let value = Floor { counter: counter.max(least.counter), token_base: token_base.max(least.token_base) };
    if value == seen.value {
        return Some((steps, seen.clone()));
    }
    let raised = Stamped { seq: seen.seq + 1, value };
    steps.extend(write(&raised)?);
    Some((steps, raised))
}

/// The counter after `last`; `None` when tokens with `token_base` have run out.
pub(crate) fn after(last: u64, token_base: u64) -> Option<u64> {
    let next = last.checked_add(1)?;
    (next.checked_add(token_base)? <= FencingToken::MAX_COUNTER).then_some(next)
}

/// Writes a value to its slot, and to the disk. For one that is there already but may not be on the disk, these are the same
/// bytes in the same place, so none of them is at risk. A sync alone is not enough: after a failed sync the system may have
/// dropped the bytes.
fn write<T: Value>(stamped: &Stamped<T>) -> Option<Vec<Step>> {
    Some(vec![Step::Write { at: slot_at(stamped.seq), bytes: slot(stamped)? }, Step::Sync])
}

/// The number of a file's first write.
pub(crate) const FIRST: u64 = 0;

#[cfg(test)]
mod tests;
