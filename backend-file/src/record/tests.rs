use super::*;

pub(super) fn record(counter: u64) -> FileRecord {
    FileRecord {
        name: LockName::new("invoice/42").unwrap(),
        counter,
        session: SessionId(7),
        owner: OwnerId::from_random([0xab; 16]),
        ttl: Duration::from_secs(15),
        since: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)),
        label: "host/1".to_owned(),
        metadata: Some("why".to_owned()),
    }
}

fn image(values: &[Stamped<FileRecord>]) -> Vec<u8> {
    let mut image = vec![0; FILE];
    for stamped in values {
        let at = usize::try_from(slot_at(stamped.seq)).unwrap();
        let slot = slot(stamped).unwrap();
        image[at..at + slot.len()].copy_from_slice(&slot);
    }
    image
}

fn write(image: &mut [u8], ending: Ending) {
    let at = usize::try_from(ending.at()).unwrap();
    image[at..at + ENDING].copy_from_slice(&ending.to_bytes());
}

/// Existing directories depend on these bytes: change them only with the format version.
#[test]
fn the_format_is_fixed() {
    let bytes = slot(&Stamped { seq: 3, value: Floor { counter: 258, token_base: 1 } }).unwrap();
    assert_eq!(bytes.len(), HEADER + 16);
    assert_eq!(&bytes[..16], b"leasehold floor\n");
    assert_eq!(&bytes[16..32], [1, 0, 16, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(&bytes[HEADER..], [2, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!((slot_at(0), slot_at(1), slot_at(2), FILE), (0, 4096, 0, 8192));
    let ending = Ending { counter: 258, seq: 3, durable: true };
    assert_eq!(
        &ending.to_bytes()[..24],
        [2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]
    );
    assert_eq!((ending.at(), Ending { seq: 2, ..ending }.at()), (4056, 8152));
}

#[test]
fn records_round_trip() {
    let bare = FileRecord { since: None, metadata: None, label: String::new(), ..record(9) };
    for value in [record(1), bare] {
        let stamped = Stamped { seq: 4, value };
        assert_eq!(newest(&image(std::slice::from_ref(&stamped))), Ok(stamped));
    }
    for (seq, durable) in [(4, false), (5, true)] {
        let (mut image, ending) = (vec![0; FILE], Ending { counter: 5, seq, durable });
        assert_eq!(Ending::newest(&image), None);
        write(&mut image, ending);
        assert_eq!(Ending::newest(&image), Some(ending));
        write(&mut image, Ending { counter: 4, seq: seq ^ 1, durable });
        assert_eq!(Ending::newest(&image), Some(ending));
    }
}

/// A note and the slot before it leave each other alone, however long the record is; one that is torn,
/// or not in a place of notes, is none.
#[test]
fn a_note_stands_beside_the_slot() {
    let fits = |metadata: &usize| {
        let value = FileRecord { metadata: Some("x".repeat(*metadata)), ..record(9) };
        slot(&Stamped { seq: 9, value })
    };
    let longest = (0..PAGE).rev().find_map(|metadata| fits(&metadata)).unwrap();
    assert_eq!(longest.len(), SLOT);
    let mut image = image(&[Stamped { seq: 8, value: record(8) }]);
    let ending = Ending { counter: 8, seq: 8, durable: true };
    write(&mut image, ending);
    image[PAGE..PAGE + SLOT].copy_from_slice(&longest);
    assert_eq!(newest::<FileRecord>(&image).map(|stamped| stamped.seq), Ok(9));
    assert_eq!(Ending::newest(&image), Some(ending));
    for at in FILE - ENDING..FILE {
        let mut torn = image.clone();
        torn[at] ^= 1;
        assert_eq!(Ending::newest(&torn), None);
    }
    let mut elsewhere = image.clone();
    elsewhere[FILE - ENDING..].fill(0);
    elsewhere.extend(ending.to_bytes());
    assert_eq!(Ending::newest(&elsewhere), None);
    assert_eq!(Ending::newest(&image[..FILE - 1]), None);
}

#[test]
fn a_record_that_does_not_fit_is_refused() {
    let name = LockName::new("x".repeat(LockName::MAX_BYTES)).unwrap();
    let longest = FileRecord { name, label: "x".repeat(256), metadata: Some("x".repeat(1024)), ..record(1) };
    assert!(slot(&Stamped { seq: 0, value: longest }).is_some());
    for length in [4096, 70_000] {
        let value = FileRecord { metadata: Some("x".repeat(length)), ..record(1) };
        assert_eq!(slot(&Stamped { seq: 0, value }), None);
    }
}

/// file.record-2
#[test]
fn unreadable_value_gives_its_cause() {
    let mut newer = image(&[Stamped { seq: 0, value: record(1) }, Stamped { seq: 1, value: record(2) }]);
    newer[16] = 2;
    assert_eq!(newest::<FileRecord>(&newer), Err(Unreadable::Newer { version: 2 }));
    let mut damaged = image(&[Stamped { seq: 0, value: record(1) }]);
    damaged[80] ^= 1;
    assert_eq!(newest::<FileRecord>(&damaged), Err(Unreadable::Damaged));
    for foreign in [&b""[..], b"x", b"leasehold", &[0; 9000]] {
        assert_eq!(newest::<FileRecord>(foreign), Err(Unreadable::Foreign));
    }
    let floor = slot(&Stamped { seq: 0, value: Floor::default() }).unwrap();
    assert_eq!(newest::<FileRecord>(&floor), Err(Unreadable::Foreign));
}

/// A write cut short at any byte leaves the value before it, or is whole (file.record-1).
#[test]
fn a_torn_write_leaves_the_value_before() {
    let before = [Stamped { seq: 6, value: record(6) }, Stamped { seq: 7, value: record(7) }];
    let next = Stamped { seq: 8, value: FileRecord { label: "another".to_owned(), ..record(8) } };
    let bytes = slot(&next).unwrap();
    for cut in 0..=bytes.len() {
        let mut torn = image(&before);
        torn[..cut].copy_from_slice(&bytes[..cut]);
        let counter = newest::<FileRecord>(&torn).unwrap().value.counter;
        // The last bytes may be what stood there before.
        assert!(
            counter == if cut == bytes.len() { 8 } else { 7 } || torn[..bytes.len()] == bytes,
            "cut at {cut}"
        );
    }
}
