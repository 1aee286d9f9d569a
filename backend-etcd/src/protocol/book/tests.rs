use super::*;

const GRACE: Duration = Duration::from_secs(10);

fn name() -> LockName {
    LockName::new("n").unwrap()
}

fn at(secs: u64) -> Moment {
    Moment::from_nanos(0) + Duration::from_secs(secs)
}

fn owner() -> OwnerId {
    OwnerId::from_random([7; 16])
}

/// A book in which somebody deals with a name since a moment.
fn busy_since(since: Moment) -> Book {
    let mut book = Book::new(Deadline::Never, 1);
    assert_eq!(book.take(&name(), Mode::EXCLUSIVE, since), Some(ONLY));
    book
}

const ONLY: Slot = Slot { mode: Mode::EXCLUSIVE, number: 0 };

fn enter(book: &mut Book, create: Revision, phase: EntryPhase) {
    book.enter(&name(), ONLY, create, owner(), at(0));
    book.entry(&name(), create).unwrap().phase = phase;
}

/// etcd.book-1
#[test]
fn a_deletion_counts_for_what_was_there_before_it() {
    for (phase, lost) in [
        (EntryPhase::Queued, None),
        (EntryPhase::Held, Some(7)),
        (EntryPhase::Releasing, None),
        (EntryPhase::Deleted, None),
    ] {
        let mut book = busy_since(at(1));
        assert_eq!(book.deleted(&name(), ONLY, 9), None, "it is not there");
        enter(&mut book, 7, phase);
        for earlier in [6, 7] {
            assert_eq!(book.deleted(&name(), ONLY, earlier), None, "{phase:?}");
            assert_eq!(book.entry(&name(), 7).unwrap().phase, phase);
        }
        assert_eq!(book.deleted(&name(), ONLY, 8), lost, "{phase:?}");
        assert_eq!(book.deleted(&name(), ONLY, 8), None, "it is told already");
        assert_eq!(book.grant(&name(), 7, at(2), at(3)), None, "{phase:?}");
    }
}

/// etcd.book-2
#[test]
fn one_at_a_time_deals_with_a_name() {
    let mut book = busy_since(at(1));
    assert_eq!(book.take(&name(), Mode::SHARED, at(2)), None);
    book.free(&name());
    assert!(book.take(&name(), Mode::SHARED, at(3)).is_some());
}

/// etcd.book-3
#[test]
fn a_session_that_is_over_grants_nothing_and_stays_over() {
    let mut late = Book::new(Deadline::At(at(5)), 1);
    enter(&mut late, 7, EntryPhase::Queued);
    assert_eq!(late.grant(&name(), 7, at(5), at(6)), None);
    late.extend(Deadline::At(at(9)), at(5));
    assert_eq!(late.deadline(), Deadline::At(at(5)), "a late renewal revives nothing");

    let mut book = Book::new(Deadline::At(at(5)), 1);
    enter(&mut book, 7, EntryPhase::Queued);
    assert!(book.end() && !book.end());
    enter_nothing(&mut book);
    book.extend(Deadline::At(at(9)), at(1));
    assert!(book.deadline().has_passed(at(1)));
}

fn enter_nothing(book: &mut Book) {
    book.enter(&name(), ONLY, 8, owner(), at(0));
    assert!(book.entry(&name(), 8).is_none());
    assert_eq!(book.grant(&name(), 8, at(0), at(1)), None);
}

/// What is let go of is deleted once more if the answer was lost, and is not lost by it.
#[test]
fn a_release_is_of_a_hold_of_that_owner() {
    let mut book = busy_since(at(1));
    enter(&mut book, 7, EntryPhase::Held);
    assert!(book.release(&name(), 6, owner()).is_err());
    assert!(book.release(&name(), 7, OwnerId::from_random([8; 16])).is_err());
    assert_eq!(book.release(&name(), 7, owner()).unwrap(), Some(ONLY));
    assert_eq!(book.deleted(&name(), ONLY, 8), None);
    assert_eq!(book.release(&name(), 7, owner()).unwrap(), Some(ONLY));
    assert!(book.forget(&name(), 6).is_none() && book.entry(&name(), 7).is_some());
    book.forget(&name(), 7);
    assert!(book.release(&name(), 7, owner()).is_err());
}

/// Whoever makes the watch of an entry that went meanwhile finds that nobody has it, though the name is held
/// again.
#[test]
fn a_watch_is_that_of_its_entry() {
    let mut book = busy_since(at(1));
    enter(&mut book, 7, EntryPhase::Held);
    assert_eq!(book.begin_watches(at(2)), [(name(), ONLY)]);
    assert!(book.is_watched(&name(), ONLY) && book.begin_watches(at(2)).is_empty());
    assert_eq!(book.forget(&name(), 7), Some(ONLY), "it has one");
    enter(&mut book, 8, EntryPhase::Held);
    assert!(!book.is_watched(&name(), ONLY));
    assert_eq!(book.begin_watches(at(2)), [(name(), ONLY)]);
}

/// Only a hold is told; one that begins later finds what was asked of its entry.
#[test]
fn holds_are_told_what_they_are_asked() {
    for phase in [None, Some(EntryPhase::Queued), Some(EntryPhase::Releasing), Some(EntryPhase::Deleted)] {
        let mut book = busy_since(at(1));
        if let Some(phase) = phase {
            enter(&mut book, 7, phase);
        }
        assert_eq!(book.wanted(7, GRACE, at(2)), None, "{phase:?}");
        assert_eq!(book.asked.within(7, at(2)), Some(GRACE), "{phase:?}");
        if phase == Some(EntryPhase::Queued) {
            let (_, within) = book.grant(&name(), 7, at(3), at(4)).unwrap();
            assert_eq!(within, Some(GRACE - (at(3).since(at(2)))));
        }
    }
    let mut book = busy_since(at(1));
    enter(&mut book, 7, EntryPhase::Held);
    assert_eq!(book.wanted(6, GRACE, at(2)), None, "it is about an earlier entry");
    assert_eq!(book.wanted(7, GRACE, at(2)), Some(name()));
    assert_eq!(book.wanted(7, GRACE, at(3)), None, "it is told already");
    assert_eq!(book.wanted(7, GRACE / 10, at(3)), Some(name()));
}

/// What is about an entry that may still turn out to be ours is not in vain, nor while that is there.
#[test]
fn messages_in_vain_are_told_from_early_ones() {
    let mut book = busy_since(at(1));
    book.wanted(7, GRACE, at(2));
    assert_eq!(book.wanted_in_vain(), [0; 0], "an acquisition is under way");
    for phase in [EntryPhase::Queued, EntryPhase::Held, EntryPhase::Releasing] {
        enter(&mut book, 7, phase);
        assert_eq!(book.wanted_in_vain(), [0; 0], "{phase:?}");
    }
    enter(&mut book, 9, EntryPhase::Queued);
    assert_eq!(book.wanted_in_vain(), [7], "the name's entry is another one");
    enter(&mut book, 9, EntryPhase::Deleted);
    assert_eq!(book.wanted_in_vain(), [0; 0], "another may be on its way since then");
    book.free(&name());
    book.take(&name(), Mode::EXCLUSIVE, at(3));
    assert_eq!(book.wanted_in_vain(), [7], "what began later has a later entry");
    book.free(&name());
    book.forget(&name(), 9);
    assert_eq!(book.wanted_in_vain(), [7], "nobody deals with anything");
    book.asked.forget(7);
    assert_eq!(book.wanted_in_vain(), [0; 0]);
}
/// A book that holds, in slots of one mode, what was created at these revisions.
fn held(mode: Mode, creates: &[Revision]) -> Book {
    let mut book = Book::new(Deadline::Never, 1);
    for create in creates {
        let slot = book.take(&name(), mode, at(1)).unwrap();
        book.enter(&name(), slot, *create, owner(), at(1));
        assert!(book.grant(&name(), *create, at(1), at(2)).is_some());
        book.free(&name());
    }
    book
}

fn next_slot(book: &mut Book, mode: Mode) -> u32 {
    let slot = book.take(&name(), mode, at(9)).unwrap();
    book.free(&name());
    assert_eq!(slot.mode, mode);
    slot.number
}

/// What may be held together lies side by side, and the keys are used again.
#[test]
fn those_who_share_have_a_slot_each() {
    let mut book = held(Mode::SHARED, &[7, 8, 9]);
    assert_eq!(next_slot(&mut book, Mode::SHARED), 3);
    assert_eq!(next_slot(&mut book, Mode::permits(1, 2).unwrap()), 0, "another mode, another key");
    let second = Slot { mode: Mode::SHARED, number: 1 };
    assert_eq!(book.release(&name(), 8, owner()).unwrap(), Some(second));
    assert_eq!(next_slot(&mut book, Mode::SHARED), 3, "its release is not confirmed");
    book.forget(&name(), 8);
    assert_eq!(next_slot(&mut book, Mode::SHARED), 1);
    assert_eq!(book.deleted(&name(), second, 20), None, "nobody is there");
    assert_eq!(book.deleted(&name(), Slot { number: 2, ..second }, 20), Some(9), "of three that one");
    assert_eq!(next_slot(&mut book, Mode::SHARED), 1);
    book.forget(&name(), 7);
    assert_eq!(next_slot(&mut book, Mode::SHARED), 0);
    book.forget(&name(), 9);
    assert!(book.entries.is_empty());
}

/// What was forgotten by whoever held it is in the next one's way, and goes: beside itself it never holds.
#[test]
fn an_exclusive_entry_has_one_slot() {
    for mode in [Mode::EXCLUSIVE, Mode::permits(2, 3).unwrap()] {
        assert_eq!(next_slot(&mut held(mode, &[7]), mode), 0, "{mode}");
    }
}

/// Each of several is watched, told and asked by itself.
#[test]
fn shared_holds_are_told_apart() {
    let mut book = held(Mode::SHARED, &[7, 8]);
    let slots = [0, 1].map(|number| Slot { mode: Mode::SHARED, number });
    assert_eq!(book.begin_watches(at(3)), slots.map(|slot| (name(), slot)));
    book.not_watched(&name(), slots[1], at(5));
    assert!(book.is_watched(&name(), slots[0]) && !book.is_watched(&name(), slots[1]));
    assert_eq!(book.begin_watches(at(6)), [(name(), slots[1])]);
    assert_eq!(book.forget(&name(), 7), Some(slots[0]));
    assert_eq!(book.wanted(8, GRACE, at(6)), Some(name()));

    let third = book.take(&name(), Mode::SHARED, at(4)).unwrap();
    book.wanted(9, GRACE, at(7));
    assert_eq!(book.wanted_in_vain(), [0; 0], "the entry that is under way may be that");
    book.enter(&name(), third, 10, owner(), at(7));
    assert_eq!(book.wanted_in_vain(), [9]);
}
