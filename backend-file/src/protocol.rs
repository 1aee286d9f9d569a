//! What is written to the files, in which order, and what that means for whoever reads them. Pure:
//! bytes go in, steps come out.
//!
//! A value is on the disk before it counts: a grant is returned, and a lock file removed, only after
//! the last step. Whoever finds a value that its writer may not have made durable makes it so before
//! the other slot is touched, so at most one of the two slots is ever at stake.
//!
//! # Invariants
//! - **P1** After a crash between any two steps, or at any byte within one, of the process or of the
//!   host, the counter that is read is at least every counter that was granted (G3).
//! - **P2** A hold that ended in order is seen as over by everybody; one whose process died is told
//!   by its session.
//!
//! Checked by the tests below, which cut every sequence at every byte.

use lockcore::FencingToken;

use crate::record::{Ending, Floor, Record, Stamped, Unreadable, Value, newest, slot, slot_at};

/// One thing to do to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Write {
        at: u64,
        bytes: Vec<u8>,
    },
    /// Wait until everything written is on the disk.
    Sync,
}

/// What a lock file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) newest: Stamped<Record>,
    pub(crate) ending: Option<Ending>,
}

impl Seen {
    pub(crate) fn read(image: &[u8]) -> Result<Self, Unreadable> {
        Ok(Self { newest: newest(image)?, ending: Ending::read(image) })
    }

    pub(crate) fn record(&self) -> &Record {
        &self.newest.value
    }

    /// Whether the hold has ended in order; if not, its session says whether it lives (P2).
    pub(crate) fn is_over(&self) -> bool {
        // A reader without the lock may see a note that is newer than the record.
        self.ending.is_some_and(|ending| ending.counter >= self.record().counter)
    }

    fn is_durable(&self) -> bool {
        self.ending == Some(Ending { counter: self.record().counter, durable: true })
    }
}

/// The first steps of a lock file or floor, before it is visible; `None` when the value is too long.
pub(crate) fn birth<T: Value>(value: T) -> Option<Vec<Step>> {
    let bytes = slot(&Stamped { seq: 0, value })?;
    Some(vec![Step::Write { at: slot_at(0), bytes }, Step::Sync])
}

/// Records the next grant of an existing lock file; `None` when the record is too long.
pub(crate) fn grant(seen: &Seen, next: Record) -> Option<Vec<Step>> {
    debug_assert!(next.counter > seen.record().counter, "P1");
    let mut steps = Vec::new();
    if !seen.is_durable() {
        steps.extend(write(&seen.newest)?);
    }
    steps.extend(write(&Stamped { seq: seen.newest.seq + 1, value: next })?);
    Some(steps)
}

/// Notes that a hold is over.
pub(crate) fn end(ending: Ending) -> Step {
    Step::Write { at: Ending::AT, bytes: ending.to_bytes().to_vec() }
}

/// Raises the floor to `counter` at least, durably; the steps, and what the floor is after them.
pub(crate) fn fold(seen: &Stamped<Floor>, counter: u64) -> Option<(Vec<Step>, Stamped<Floor>)> {
    // Whoever wrote it may have died before it was on the disk.
    let mut steps = write(seen)?;
    if counter <= seen.value.counter {
        return Some((steps, seen.clone()));
    }
    let raised = Stamped { seq: seen.seq + 1, value: Floor { counter, ..seen.value } };
    steps.extend(write(&raised)?);
    Some((steps, raised))
}

/// The counter after `last`; `None` when tokens with `token_base` have run out.
pub(crate) fn after(last: u64, token_base: u64) -> Option<u64> {
    let next = last.checked_add(1)?;
    (next.checked_add(token_base)? <= FencingToken::MAX_COUNTER).then_some(next)
}

/// Puts a value in its slot and on the disk. For one that is there already but may not be on the disk,
/// these are the same bytes in the same place, so no byte of it is at stake if it is; a sync alone
/// would not do, for after one that failed the system may have dropped what was written.
fn write<T: Value>(stamped: &Stamped<T>) -> Option<Vec<Step>> {
    Some(vec![Step::Write { at: slot_at(stamped.seq), bytes: slot(stamped)? }, Step::Sync])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lockcore::{LockName, OwnerId};
    use proptest::prelude::*;

    use super::*;
    use crate::record::SessionId;

    fn record(counter: u64) -> Record {
        Record {
            name: LockName::new("a").unwrap(),
            counter,
            session: SessionId(counter),
            owner: OwnerId::from_random([u8::try_from(counter % 251).unwrap(); 16]),
            ttl: Duration::from_secs(1),
            since: None,
            label: "x".repeat(usize::try_from(counter % 7).unwrap()),
            metadata: None,
        }
    }

    /// A file as the system keeps it: what is on the disk, and what was written since.
    #[derive(Clone, Default)]
    struct File {
        disk: Vec<u8>,
        written: Vec<(usize, Vec<u8>)>,
    }

    impl File {
        fn carry_out(&mut self, step: &Step) {
            match step {
                Step::Write { at, bytes } => self.write(*at, bytes),
                Step::Sync => {
                    self.disk = self.visible();
                    self.written.clear();
                }
            }
        }

        fn write(&mut self, at: u64, bytes: &[u8]) {
            self.written.push((usize::try_from(at).unwrap(), bytes.to_vec()));
        }

        /// What every process of the host reads.
        fn visible(&self) -> Vec<u8> {
            let whole = self.written.iter().map(|(at, bytes)| (*at, bytes.as_slice()));
            patched(&self.disk, whole)
        }

        /// What is left when the host fails: of each write since the last sync the first bytes, some
        /// or none.
        fn after_power_loss(&self, kept: &[usize]) -> Self {
            let torn = self.written.iter().zip(kept.iter().cycle());
            let torn = torn.map(|((at, bytes), kept)| (*at, &bytes[..bytes.len().min(*kept)]));
            Self { disk: patched(&self.disk, torn), written: Vec::new() }
        }

        fn seen(&self) -> Seen {
            Seen::read(&self.visible()).unwrap()
        }
    }

    fn patched<'a>(image: &[u8], writes: impl Iterator<Item = (usize, &'a [u8])>) -> Vec<u8> {
        let mut image = image.to_vec();
        for (at, bytes) in writes.filter(|(_, bytes)| !bytes.is_empty()) {
            image.resize(image.len().max(at + bytes.len()), 0);
            image[at..at + bytes.len()].copy_from_slice(bytes);
        }
        image
    }

    fn born<T: Value>(value: T) -> File {
        let mut file = File::default();
        birth(value).unwrap().iter().for_each(|step| file.carry_out(step));
        file
    }

    /// Every state of the file in which a writer of `steps` can die: before each step, and at each
    /// byte of a write.
    fn cuts(file: &File, steps: &[Step]) -> Vec<File> {
        let mut file = file.clone();
        let mut states = vec![file.clone()];
        for step in steps {
            if let Step::Write { at, bytes } = step {
                states.extend((0..bytes.len()).map(|cut| {
                    let mut torn = file.clone();
                    torn.write(*at, &bytes[..cut]);
                    torn
                }));
            }
            file.carry_out(step);
            states.push(file.clone());
        }
        states
    }

    /// A writer that dies anywhere, then one that dies anywhere again, then the host: the last
    /// counter granted before is never lost (P1).
    #[test]
    fn no_crash_loses_a_granted_counter() {
        let file = born(record(1));
        let first = grant(&file.seen(), record(2)).unwrap();
        let states = cuts(&file, &first);
        for (cut, file) in states.iter().enumerate() {
            let granted = if cut + 1 == states.len() { 2 } else { 1 };
            for kept in [0, 16, 30, 70, 100, usize::MAX] {
                assert!(file.after_power_loss(&[kept]).seen().record().counter >= granted);
            }
            let last = file.seen().record().counter;
            let second = grant(&file.seen(), record(last + 1)).unwrap();
            for file in cuts(file, &second).into_iter().step_by(3) {
                for kept in [[0, 0], [40, 0], [0, 40], [40, 90], [usize::MAX, 40]] {
                    let counter = file.after_power_loss(&kept).seen().record().counter;
                    assert!(counter >= granted, "the host forgot a grant");
                }
            }
        }
    }

    /// A folded counter stays folded when one who folds dies anywhere, then another, then the host.
    #[test]
    fn no_crash_lowers_the_floor() {
        let floor = |file: &File| newest::<Floor>(&file.visible()).unwrap();
        let mut file = born(Floor { counter: 0, token_base: 7 });
        for step in fold(&floor(&file), 5).unwrap().0 {
            file.carry_out(&step);
        }
        let (first, raised) = fold(&floor(&file), 9).unwrap();
        let states = cuts(&file, &first);
        assert_eq!(floor(states.last().unwrap()), raised);
        for (cut, file) in states.iter().enumerate() {
            let folded = if cut + 1 == states.len() { 9 } else { 5 };
            for higher in [8, 12] {
                let (second, raised) = fold(&floor(file), higher).unwrap();
                let states = cuts(file, &second);
                let end = states.last().unwrap().after_power_loss(&[0]);
                assert_eq!(floor(&end), raised);
                assert!(raised.value.counter >= higher);
                for file in states {
                    for kept in [[0, 0], [70, 0], [0, 70], [67, 68], [usize::MAX, 40]] {
                        let left = floor(&file.after_power_loss(&kept)).value;
                        assert!(left.counter >= folded, "the host forgot a fold");
                        assert_eq!(left.token_base, 7);
                    }
                }
            }
        }
    }

    /// After an orderly end a grant is one write and one sync; after a death the value is secured
    /// first.
    #[test]
    fn an_orderly_end_saves_a_sync() {
        let mut file = born(record(1));
        assert_eq!(grant(&file.seen(), record(2)).unwrap().len(), 4);
        file.carry_out(&end(Ending { counter: 1, durable: false }));
        assert!(file.seen().is_over());
        assert_eq!(grant(&file.seen(), record(2)).unwrap().len(), 4);
        file.carry_out(&end(Ending { counter: 1, durable: true }));
        assert_eq!(grant(&file.seen(), record(2)).unwrap().len(), 2);
    }

    /// Tokens end before they stop growing.
    #[test]
    fn counters_end_at_the_largest_token() {
        assert_eq!(after(0, 0), Some(1));
        assert_eq!(after(FencingToken::MAX_COUNTER - 1, 0), Some(FencingToken::MAX_COUNTER));
        assert_eq!(after(FencingToken::MAX_COUNTER - 1, 1), None);
        assert_eq!(after(u64::MAX, 0), None);
    }

    proptest! {
        /// Random lives of a file: grants that complete, die or are followed by a power loss. Every
        /// grant that was returned has a larger counter than all before it (P1).
        #[test]
        fn random_crashes_keep_counters_growing(
            lives in prop::collection::vec((0_usize..400, any::<bool>(), any::<bool>(), prop::collection::vec(0_usize..200, 1..4)), 1..30)
        ) {
            let mut file = born(record(1));
            let mut granted = 1;
            for (cut, ends, power_loss, kept) in lives {
                let counter = file.seen().record().counter + 1;
                prop_assert!(counter > granted);
                let steps = grant(&file.seen(), record(counter)).unwrap();
                let states = cuts(&file, &steps);
                let completed = cut + 1 >= states.len();
                file = states[cut.min(states.len() - 1)].clone();
                if completed {
                    granted = counter;
                    if ends {
                        file.carry_out(&end(Ending { counter, durable: true }));
                        prop_assert!(file.seen().is_over());
                    }
                }
                if power_loss {
                    file = file.after_power_loss(&kept);
                }
            }
        }
    }
}
