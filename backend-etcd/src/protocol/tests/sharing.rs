//! The engine of entries that several may hold together, answer by answer.

use super::*;

fn some(weight: u32, capacity: u32) -> Mode {
    Mode::permits(weight, capacity).unwrap()
}

/// Created at 100, behind some of one mode, youngest first, and perhaps others.
fn behind(patience: Patience, mode: Mode, older: &[(u8, Mode)], beyond: Beyond) -> Contender {
    let older = older.iter().enumerate();
    let older = older.map(|(place, (key, mode))| rival(*key, 99 - place as Revision, *mode)).collect();
    let mut contender = Contender::new(patience, mode, OWN);
    asked(
        &mut contender,
        QueueSnapshot { revision: 100, older, beyond, is_far: false, watch: None },
        Some((100, true)),
    );
    contender
}

/// What is watched one by one.
fn watched(contender: &Contender) -> Vec<u8> {
    contender.place().unwrap().watched().iter().map(|rival| rival.key[0]).collect()
}

/// Of permits as many are watched as keep us out though all but one of the others end; those first whose watches stand.
#[test]
fn a_permit_waits_for_more_than_it_takes() {
    let older: Vec<_> = (b'a'..=b'p').map(|key| (key, some(1, 4))).collect();
    let waits = |older: &[_]| behind(Patience::Waits, some(1, 4), older, Beyond::Unknown);
    let permit = waits(&older);
    assert_eq!(watched(&permit), b"abcdefg");
    let mut told = Told::default();
    for key in b"cfghijkl" {
        told.open(Some(&[*key].into()), 1);
        told.stands(Some(&[*key].into()), 90);
    }
    let mut again = waits(&older);
    let all = permit.place().unwrap().watched().to_vec();
    let more = b"hijklmnop".iter().map(|key| rival(*key, 9, some(1, 4)));
    let seen = QueueSnapshot {
        revision: 101,
        older: all.into_iter().chain(more).collect(),
        beyond: Beyond::Unknown,
        is_far: false,
        watch: None,
    };
    again.looked(Some(seen), &told);
    assert_eq!(watched(&again), b"cfghijk");
    for (at, key) in (102..).zip(b"cfg") {
        assert_eq!(hears(&again, &told), Step::Wait);
        told.tell(Some(&[*key].into()), &[Change { revision: at, key: [*key].into(), value: None }], true);
    }
    assert_eq!(hears(&again, &told), Step::Wait, "four are left");
    told.tell(Some(&[b'k'].into()), &[Change { revision: 109, key: [b'k'].into(), value: None }], true);
    assert_eq!(hears(&again, &told), Step::Look { create: 100, all: false });
}

/// Where too many together are in the way, all of them are read, and listened to at any length.
#[test]
fn a_crowd_is_read_as_a_whole() {
    let crowd: Vec<_> = (0..60).map(|key| (key, some(1, 50))).collect();
    let mut permit = behind(Patience::Waits, some(1, 50), &crowd[..16], Beyond::Unknown);
    assert_eq!(step(&permit), Step::Open(Target::Queue));
    let mut told = told(None, 1, 100);
    let all = Step::Look { create: 100, all: true };
    assert_eq!(hears(&permit, &told), all);
    let older = crowd.iter().map(|(key, mode)| rival(*key, 9, *mode)).collect();
    let seen = QueueSnapshot { revision: 101, older, beyond: Beyond::Nobody, is_far: false, watch: Some(1) };
    permit.looked(Some(seen), &told);
    for (at, key) in (102..).zip(0..11) {
        assert_eq!(hears(&permit, &told), Step::Wait);
        tell(&mut told, key, at);
    }
    assert_eq!(hears(&permit, &told), Step::End(End::Granted(100)));
    let mut cut = Told::default();
    cut.open(None, 2);
    cut.stands(None, 120);
    assert_eq!(hears(&permit, &cut), all);
}

/// What a try cannot tell from its answer it reads, once; and it never waits, nor leaves anything.
#[test]
fn a_try_for_permits_ends() {
    let crowd: Vec<_> = (0..16).map(|key| (key, some(1, 50))).collect();
    let tries = |beyond| behind(Patience::Tries, some(1, 50), &crowd, beyond);
    assert_eq!(step(&tries(Beyond::Alike(33))), Step::End(End::Granted(100)));
    assert_eq!(step(&tries(Beyond::Alike(34))), Step::Delete(100));
    for (weight, then) in [(34, Step::End(End::Granted(100))), (35, Step::Delete(100))] {
        let mut unsure = tries(Beyond::Unknown);
        assert_eq!(step(&unsure), Step::Look { create: 100, all: true });
        let mut older: Vec<_> = crowd.iter().map(|(key, mode)| rival(*key, 9, *mode)).collect();
        older[15].mode = some(weight, 51);
        let seen = QueueSnapshot { revision: 101, older, beyond: Beyond::Nobody, is_far: false, watch: None };
        looked(&mut unsure, Some(seen));
        assert_eq!(step(&unsure), then);
    }
    let mut gone = tries(Beyond::Unknown);
    looked(&mut gone, None);
    assert_eq!(step(&gone), Step::End(End::Lost(LostReason::Gone)));
}

/// A try is put only where it holds: one that is refused would refuse others until it is deleted. If others come each
/// time before it, its place in the queue decides.
#[test]
fn try_enters_only_where_it_has_room() {
    let (none_after, one) =
        (|revision, all| Step::Ask { enter: Enter::NoneAfter { revision, all } }, some(1, 2));
    let (refused, always) = (Step::End(End::Refused), Step::Ask { enter: Enter::Always });
    let among_readers = Step::Ask { enter: Enter::AmongReaders };
    for (mode, first) in
        [(Mode::SHARED, among_readers), (one, none_after(0, false)), (Mode::EXCLUSIVE, none_after(0, false))]
    {
        for (older, beyond, then) in [
            (Mode::EXCLUSIVE, Beyond::Nobody, &refused),
            (some(2, 2), Beyond::Unknown, &refused),
            (one, Beyond::Alike(1), &refused),
            (one, Beyond::Unknown, &none_after(0, true)),
            (one, Beyond::Nobody, &none_after(12, false)),
        ] {
            let mut contender = Contender::new(Patience::Tries, mode, OWN);
            assert_eq!(step(&contender), first);
            contender.asked(
                answer(
                    QueueSnapshot { older: vec![rival(b'a', 3, older)], beyond, ..seen(12, &[], None) },
                    None,
                ),
                &Told::default(),
            );
            let then = if mode == Mode::EXCLUSIVE { &refused } else { then };
            assert_eq!(step(&contender), *then, "{mode} behind {older}, {beyond:?}");
        }
    }
    let mut outrun = Contender::new(Patience::Tries, one, OWN);
    for revision in [20, 21, 22] {
        asked(
            &mut outrun,
            QueueSnapshot { older: vec![rival(b'a', 3, one)], ..seen(revision, &[], None) },
            None,
        );
        assert_eq!(step(&outrun), none_after(revision, false));
    }
    asked(&mut outrun, QueueSnapshot { older: vec![rival(b'a', 3, one)], ..seen(23, &[], None) }, None);
    assert_eq!(step(&outrun), always);
}
