//! Files that a disk, or a user who can write the directory, has changed.

use proptest::prelude::*;
use testbed::fuzz::{changed, tries};

use super::*;

fn record(counter: u64) -> Stamped<FileRecord> {
    Stamped { seq: counter, value: tests::record(counter) }
}

/// Two grants and how each ended, as they are written one after the other.
fn whole() -> Vec<u8> {
    let mut image = vec![0; FILE];
    let mut put = |at: u64, bytes: &[u8]| {
        let at = usize::try_from(at).unwrap();
        image[at..at + bytes.len()].copy_from_slice(bytes);
    };
    for counter in [1, 2] {
        put(slot_at(counter), &slot(&record(counter)).unwrap());
        let ending = Ending { counter, seq: counter, durable: true };
        put(ending.at(), &ending.to_bytes());
    }
    image
}

fn floor() -> Vec<u8> {
    slot(&Stamped { seq: 2, value: Floor { counter: 258, token_base: 1 } }).unwrap()
}

proptest! {
    #![proptest_config(tries())]

    /// What is read of a changed file is what was once written there, or nothing.
    #[test]
    fn a_changed_file_says_what_was_written_or_nothing(image in changed(vec![whole(), floor(), Vec::new()])) {
        if let Ok(read) = newest::<FileRecord>(&image) {
            prop_assert!([record(1), record(2)].contains(&read), "{read:?}");
        }
        if let Ok(read) = newest::<Floor>(&image) {
            prop_assert_eq!((read.seq, read.value), (2, Floor { counter: 258, token_base: 1 }));
        }
        if let Some(ending) = Ending::newest(&image) {
            let known = [1, 2].map(|counter| Ending { counter, seq: counter, durable: true });
            prop_assert!(known.contains(&ending), "{ending:?}");
        }
    }
}
