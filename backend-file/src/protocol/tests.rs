use std::collections::BTreeSet;
use std::time::Duration;

use leasehold_core::{LockName, OwnerId};
use proptest::prelude::*;

use super::*;
use crate::record::SessionId;

fn record(counter: u64) -> FileRecord {
    FileRecord {
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

/// A record that fills its slot, and is another in every sector of the page than those before it.
fn long(counter: u64) -> FileRecord {
    let letter = char::from(b'a' + u8::try_from(counter % 26).unwrap());
    FileRecord { metadata: Some(letter.to_string().repeat(3900)), ..record(counter) }
}

fn ended(seen: &Seen, durable: bool) -> Step {
    end(Ending { counter: seen.record().counter, seq: seen.newest.seq, durable })
}

/// A file as the system keeps it: the disk, and the writes since the last sync.
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

    /// What is left when the host fails while it writes the changed pages: of the sectors those in
    /// `lost`, by the bits of it, are as they were.
    fn after_torn_pages(&self, lost: u16) -> Self {
        let mut disk = self.visible();
        for (sector, at) in (0..self.disk.len()).step_by(SECTOR).enumerate() {
            if lost & (1 << sector) != 0 {
                disk[at..at + SECTOR].copy_from_slice(&self.disk[at..at + SECTOR]);
            }
        }
        Self { disk, written: Vec::new() }
    }

    /// The pages that the next sync writes.
    fn changed_pages(&self) -> BTreeSet<usize> {
        let ends = |(at, bytes): &(usize, Vec<u8>)| [at / PAGE, (at + bytes.len() - 1) / PAGE];
        self.written.iter().flat_map(ends).collect()
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
/// counter granted before is never lost (file.protocol-1).
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

/// What was raised stays raised when one who raises dies anywhere, then another, then the host: a counter
/// or a base, whichever the two raise.
#[test]
fn no_crash_lowers_the_floor() {
    let floor = |file: &File| newest::<Floor>(&file.visible()).unwrap();
    let is_below = |a: Floor, b: Floor| a.counter <= b.counter && a.token_base <= b.token_base;
    let counter = |counter| Floor { counter, token_base: 0 };
    let base = |token_base| Floor { counter: 0, token_base };
    for (least, higher) in [
        ([counter(5), counter(9)], [counter(8), counter(12)]),
        ([base(9), base(12)], [base(8), base(15)]),
        ([base(9), counter(9)], [counter(9), base(12)]),
    ] {
        let mut file = born(Floor { counter: 0, token_base: 7 });
        for step in raise(&floor(&file), least[0]).unwrap().0 {
            file.carry_out(&step);
        }
        let before = floor(&file).value;
        let (first, raised) = raise(&floor(&file), least[1]).unwrap();
        let states = cuts(&file, &first);
        assert_eq!(floor(states.last().unwrap()), raised);
        for (cut, file) in states.iter().enumerate() {
            let at_least = if cut + 1 == states.len() { raised.value } else { before };
            for higher in higher {
                let (second, raised) = raise(&floor(file), higher).unwrap();
                let states = cuts(file, &second);
                let end = states.last().unwrap().after_power_loss(&[0]);
                assert_eq!(floor(&end), raised);
                assert!(is_below(higher, raised.value));
                for file in states {
                    for kept in [[0, 0], [70, 0], [0, 70], [67, 68], [usize::MAX, 40]] {
                        let left = floor(&file.after_power_loss(&kept)).value;
                        assert!(is_below(at_least, left), "the host forgot {at_least:?}: {left:?}");
                    }
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
    file.carry_out(&ended(&file.seen(), false));
    assert!(file.seen().is_over());
    assert_eq!(grant(&file.seen(), record(2)).unwrap().len(), 4);
    file.carry_out(&ended(&file.seen(), true));
    assert_eq!(grant(&file.seen(), record(2)).unwrap().len(), 2);
}

/// From one sync to the next, the end of a hold and the next grant change one page (file.protocol-3); whichever of
/// its sectors a failing host loses, the grant before is there (file.protocol-1), and goes on.
#[test]
fn an_orderly_end_and_the_next_grant_are_one_page() {
    let mut file = born(long(1));
    for counter in 2..=6 {
        file.carry_out(&ended(&file.seen(), true));
        let steps = grant(&file.seen(), long(counter)).unwrap();
        let [write, Step::Sync] = steps.as_slice() else { panic!("{} steps", steps.len()) };
        file.carry_out(write);
        assert_eq!(file.changed_pages().len(), 1);
        for lost in 0..=u16::MAX >> 8 {
            let mut left = file.after_torn_pages(lost | lost << 8);
            let last = left.seen().counter();
            assert_eq!(last, if lost == 0 { counter } else { counter - 1 });
            assert_eq!(left.seen().is_over(), last < counter && lost & NOTED == 0);
            for step in grant(&left.seen(), long(last + 1)).unwrap() {
                left.carry_out(&step);
            }
            assert!(!left.seen().is_over());
        }
        file.carry_out(&Step::Sync);
        assert_eq!((file.seen().record().counter, file.seen().is_over()), (counter, false));
    }
}

/// A note whose record was lost, or never written whole, neither ends the hold that comes next nor
/// hides that the record before it has to be secured.
#[test]
fn a_note_ends_no_other_hold() {
    let mut file = born(record(1));
    file.carry_out(&ended(&file.seen(), true));
    let seq = file.seen().next_seq();
    file.carry_out(&end(Ending { counter: 2, seq, durable: false }));
    let seen = file.seen();
    assert_eq!((seen.record().counter, seen.counter(), seen.is_over()), (1, 2, true));
    let steps = grant(&seen, record(3)).unwrap();
    assert_eq!(steps.len(), 4);
    steps.iter().for_each(|step| file.carry_out(step));
    assert_eq!((file.seen().record().counter, file.seen().is_over()), (3, false));
    file.carry_out(&ended(&file.seen(), true));
    assert!(file.seen().is_over());
}

#[test]
fn counters_end_at_the_largest_token() {
    assert_eq!(after(0, 0), Some(1));
    assert_eq!(after(FencingToken::MAX_COUNTER - 1, 0), Some(FencingToken::MAX_COUNTER));
    assert_eq!(after(FencingToken::MAX_COUNTER - 1, 1), None);
    assert_eq!(after(u64::MAX, 0), None);
}

/// What a failure of the host takes.
#[derive(Clone, Debug)]
enum Loss {
    None,
    Writes(Vec<usize>),
    Sectors(u16),
}

fn loss() -> impl Strategy<Value = Loss> {
    prop_oneof![
        Just(Loss::None),
        prop::collection::vec(0_usize..200, 1..4).prop_map(Loss::Writes),
        any::<u16>().prop_map(Loss::Sectors),
    ]
}

proptest! {
    /// Random lives of a file: grants that complete, die or are followed by a power loss. Every
    /// grant that was returned has a larger counter than all before it (file.protocol-1).
    #[test]
    fn random_crashes_keep_counters_growing(
        lives in prop::collection::vec((0_usize..400, any::<bool>(), any::<bool>(), loss()), 1..30)
    ) {
        let mut file = born(record(1));
        let mut granted = 1;
        for (cut, ends, durable, loss) in lives {
            let counter = file.seen().counter() + 1;
            prop_assert!(counter > granted);
            let seq = file.seen().next_seq();
            let steps = grant(&file.seen(), record(counter)).unwrap();
            let states = cuts(&file, &steps);
            let completed = cut + 1 >= states.len();
            file = states[cut.min(states.len() - 1)].clone();
            if completed {
                granted = counter;
            }
            // Whoever could not make it durable notes the end as well, whatever of it was written.
            if ends {
                let ending = Ending { counter, seq, durable: completed && durable };
                file.carry_out(&end(ending));
                prop_assert!(file.seen().is_over());
            } else if completed {
                prop_assert!(!file.seen().is_over());
            }
            file = match loss {
                Loss::None => file,
                Loss::Writes(kept) => file.after_power_loss(&kept),
                Loss::Sectors(lost) => file.after_torn_pages(lost),
            };
        }
    }
}

const PAGE: usize = 4096;
const SECTOR: usize = 512;
/// The sector of a page in which its note stands, as a bit.
const NOTED: u16 = 1 << 7;
