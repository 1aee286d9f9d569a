use super::*;

fn cycle(requested: u64, granted: u64, releasing: u64) -> Cycle {
    let (released, token, mode) = (Some(releasing + 1), None, Mode::EXCLUSIVE);
    Cycle { contender: 0, requested, granted, releasing, released, token, mode }
}

fn with_tokens(tokens: [u64; 3]) -> History {
    let cycles = (0_u64..).zip(tokens).map(|(index, token)| Cycle {
        token: Some(token),
        ..cycle(index * 10, index * 10 + 1, index * 10 + 5)
    });
    History::new([cycles.collect()])
}

/// A lock that two hold at once is flagged, also if their holds only touch the third's far away.
#[test]
fn a_broken_lock_is_flagged() {
    let sound = [vec![cycle(0, 1, 10), cycle(20, 21, 30)], vec![cycle(0, 10, 21)]];
    assert_eq!(History::new(sound).violations(), 0);

    let overlap = [vec![cycle(0, 1, 10)], vec![cycle(0, 9, 20)]];
    assert_eq!(History::new(overlap).violations(), 1);

    // The first holds for so long that both others are inside.
    let nested = [vec![cycle(0, 1, 100)], vec![cycle(0, 10, 20), cycle(20, 30, 40)]];
    assert_eq!(History::new(nested).violations(), 2);
}

/// Tokens of a name grow with every grant, or something is wrong.
#[test]
fn a_token_that_does_not_grow_is_flagged() {
    assert_eq!(with_tokens([1, 2, 3]).violations(), 0);
    assert_eq!(with_tokens([1, 2, 2]).violations(), 1);
    assert_eq!(with_tokens([5, 1, 2]).violations(), 2);
}

/// In the order of arrival nobody is overtaken; a grant that passes over an earlier request counts once,
/// whatever the number of those who wait.
#[test]
fn overtakes_are_grants_before_an_earlier_request() {
    const MS: u64 = 1_000_000;
    let ms =
        |requested: u64, granted: u64, releasing: u64| cycle(requested * MS, granted * MS, releasing * MS);
    let in_order = [vec![ms(0, 10, 20)], vec![ms(1, 20, 30)], vec![ms(2, 30, 40)]];
    assert_eq!(History::new(in_order).overtakes(), Some(0.0));

    let last_first = [vec![ms(2, 10, 20)], vec![ms(1, 20, 30)], vec![ms(0, 30, 40)]];
    assert_eq!(History::new(last_first).overtakes(), Some(2.0 / 3.0));

    // The first takes the lock again and again while the other waits.
    let again = [vec![ms(0, 1, 10), ms(11, 12, 20), ms(21, 22, 30)], vec![ms(5, 40, 50)]];
    assert_eq!(History::new(again).overtakes(), Some(0.5));

    let simultaneous = [vec![cycle(0, 20, 30)], vec![cycle(MS - 1, 10, 20)]];
    assert_eq!(History::new(simultaneous).overtakes(), Some(0.0));
}

/// A hold that nobody could release is as much of a hold as any other.
#[test]
fn a_hold_without_a_release_is_overlapped_like_any_other() {
    let lost = Cycle { released: None, ..cycle(0, 1, 10) };
    let history = History::new([vec![lost], vec![cycle(0, 5, 20)]]);
    assert_eq!(history.violations(), 1);
    assert_eq!(history.releases().len(), 1);
}

/// Somebody who was never served is seen, although a closed loop writes nothing of it down.
#[test]
fn starvation_is_seen() {
    let greedy = (0..9).map(|n| cycle(n * 10, n * 10 + 1, n * 10 + 5)).collect::<Vec<_>>();
    let history = History::new([greedy, vec![cycle(0, 95, 99)]]);
    assert_eq!(history.service(2), Some(Service { served: 2, least: 0.2, most: 1.8 }));
    assert_eq!(history.service(4), Some(Service { served: 2, least: 0.0, most: 3.6 }));
    assert_eq!(history.service(1), None);
}

const THIRD: Mode = Mode { weight: 1, capacity: 3 };

fn held(mode: Mode, requested: u64, granted: u64, releasing: u64) -> Vec<Cycle> {
    vec![Cycle { mode, ..cycle(requested, granted, releasing) }]
}

/// Readers hold together, and a writer beside one of them is flagged, whichever came first.
#[test]
fn a_writer_beside_a_reader_is_flagged() {
    let reader = |granted, releasing| held(Mode::SHARED, 0, granted, releasing);
    let writer = |granted, releasing| held(Mode::EXCLUSIVE, 0, granted, releasing);
    assert_eq!(History::new([reader(1, 10), reader(2, 12), reader(3, 4)]).violations(), 0);
    assert_eq!(History::new([reader(1, 10), reader(2, 12), writer(12, 20), reader(20, 30)]).violations(), 0);
    assert_eq!(History::new([reader(1, 10), reader(2, 12), writer(11, 20)]).violations(), 1);
    // Both readers came while the writer held.
    assert_eq!(History::new([writer(1, 10), reader(2, 12), reader(9, 12)]).violations(), 2);
}

/// A permit more than there are is flagged, and of capacities that differ the smallest counts.
#[test]
fn a_permit_more_than_there_are_is_flagged() {
    let permit = |granted| held(THIRD, 0, granted, 10);
    assert_eq!(History::new([permit(1), permit(2), permit(3)]).violations(), 0);
    assert_eq!(History::new([permit(1), permit(2), permit(3), permit(4)]).violations(), 1);
    let heavy = |granted| held(Mode { weight: 2, capacity: 3 }, 0, granted, 10);
    assert_eq!(History::new([permit(1), heavy(2)]).violations(), 0);
    assert_eq!(History::new([heavy(1), heavy(2)]).violations(), 1);
    let half = held(Mode { weight: 1, capacity: 2 }, 0, 3, 10);
    assert_eq!(History::new([permit(1), permit(2), half]).violations(), 1);
}

/// Who holds beside others may have any token that is above those that it excludes.
#[test]
fn tokens_grow_between_those_who_exclude_each_other() {
    let of = |mode, granted, token| {
        let with = |cycle| Cycle { token: Some(token), ..cycle };
        held(mode, 0, granted, granted + 1).into_iter().map(with).collect::<Vec<_>>()
    };
    let readers = || [of(Mode::EXCLUSIVE, 1, 5), of(Mode::SHARED, 3, 8), of(Mode::SHARED, 5, 7)];
    assert_eq!(History::new(readers()).violations(), 0);
    assert_eq!(History::new(readers().into_iter().chain([of(Mode::EXCLUSIVE, 7, 9)])).violations(), 0);
    assert_eq!(History::new(readers().into_iter().chain([of(Mode::EXCLUSIVE, 7, 8)])).violations(), 1);
    assert_eq!(History::new(readers().into_iter().chain([of(Mode::SHARED, 7, 5)])).violations(), 1);
}

/// A reader beside readers passes nobody who reads; one that passes a writer which waits does, and so does a permit
/// that takes the last place.
#[test]
fn an_overtake_takes_the_place_of_who_waits() {
    const MS: u64 = 1_000_000;
    let ms = |mode, requested: u64, granted: u64, releasing: u64| {
        held(mode, requested * MS, granted * MS, releasing * MS)
    };
    let noticed_late = [ms(Mode::SHARED, 0, 9, 20), ms(Mode::SHARED, 5, 6, 20)];
    assert_eq!(History::new(noticed_late).overtakes(), Some(0.0));
    let passed = [ms(Mode::SHARED, 0, 1, 20), ms(Mode::EXCLUSIVE, 2, 20, 30), ms(Mode::SHARED, 5, 6, 15)];
    assert_eq!(History::new(passed).overtakes(), Some(1.0 / 3.0));
    let behind = [ms(Mode::SHARED, 0, 1, 20), ms(Mode::EXCLUSIVE, 2, 20, 30), ms(Mode::SHARED, 5, 30, 35)];
    assert_eq!(History::new(behind).overtakes(), Some(0.0));
    let room = [ms(THIRD, 0, 1, 20), ms(THIRD, 0, 9, 20), ms(THIRD, 5, 6, 20)];
    assert_eq!(History::new(room).overtakes(), Some(0.0), "there is room for who waits, too");
    let last = [ms(THIRD, 0, 1, 20), ms(THIRD, 0, 1, 20), ms(THIRD, 2, 20, 30), ms(THIRD, 5, 6, 20)];
    assert_eq!(History::new(last).overtakes(), Some(0.25));
}

/// How long a writer waited is a share of the run; readers do not count, and how many held is told.
#[test]
fn the_longest_wait_of_a_writer_is_a_share_of_the_run() {
    let readers = [held(Mode::SHARED, 0, 1, 99), held(Mode::SHARED, 0, 50, 99)];
    assert_eq!(History::new(readers.clone()).starved(), None);
    let history = History::new(readers.into_iter().chain([held(Mode::EXCLUSIVE, 25, 100, 199)]));
    assert_eq!(history.starved(), Some(0.375));
    assert_eq!(history.holders(), Some((98.0 + 49.0 + 99.0) / 200.0));
}

/// A gap counts where it ends: in the phase whose beginning it was.
#[test]
fn the_longest_gap_of_a_stretch_ends_in_it() {
    let history =
        History::new([vec![cycle(0, 10, 11), cycle(12, 20, 21), cycle(22, 90, 91), cycle(92, 95, 96)]]);
    assert_eq!(history.between(0, 50), (2, Some(10)));
    assert_eq!(history.between(50, 100), (2, Some(70)));
    assert_eq!(history.between(200, 300), (0, None));
    assert_eq!(history.ends(), Some((10, 95)));
}

/// A store whose tokens begin anew is seen, though nobody holds at the same time.
#[test]
fn tokens_that_begin_anew_are_seen_across_stores() {
    let before = with_tokens([7, 8, 9]);
    let later = |token| Cycle { token: Some(token), ..cycle(100, 101, 102) };
    let after = |token| History::new([vec![later(token)]]);
    assert_eq!(before.clone().and(after(1)).tokens_back(), 1);
    assert_eq!(before.clone().and(after(10)).violations(), 0);
    assert_eq!(before.last_token(), Some(9));
}

/// One contender alone overtakes nobody, which is not the same as fair.
#[test]
fn one_contender_has_no_order() {
    assert_eq!(History::new([vec![cycle(0, 1, 2), cycle(3, 4, 5)]]).overtakes(), None);
    assert_eq!(History::new([Vec::new()]).overtakes(), None);
}

/// From the release to the next grant, if the next one waited; not across a pause, and not to oneself.
#[test]
fn hand_offs_are_to_somebody_who_waits() {
    let handed = [vec![cycle(0, 1, 1_000)], vec![cycle(500, 3_000, 4_000)]];
    let times = History::new(handed).hand_offs();
    assert_eq!((times.len(), times.micros(1.0)), (1, Some(2.0)));

    let late = [vec![cycle(0, 1, 1_000)], vec![cycle(2_000, 3_000, 4_000)]];
    assert_eq!(History::new(late).hand_offs().len(), 0);

    let to_oneself = [vec![cycle(0, 1, 1_000), cycle(900, 1_500, 2_000)]];
    assert_eq!(History::new(to_oneself).hand_offs().len(), 0);
}

/// Throughput is over the whole run, not over the time that somebody held.
#[test]
fn throughput_counts_from_the_first_request_to_the_last_release() {
    let history = History::new([vec![cycle(0, 1, 2), cycle(999_999_000, 999_999_500, 999_999_999)]]);
    assert_eq!(history.cycles_per_s(), Some(2.0));
    assert_eq!(History::new([Vec::new()]).cycles_per_s(), None);
}
