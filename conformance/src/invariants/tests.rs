//! The judges find the planted violations, and nothing else.

use leasehold_core::{LostReason, Mode};

use super::plot::{BOUNDS, Plot, token};
use super::{
    Property, Violation, bound, check_all, hand_over, litter, notice, one_entry, order, overlap, ownership,
    places, tokens,
};
use crate::history::{Attempt, Entry, History, What};

/// What `planted` shows as; nothing but that.
fn found(planted: Plot) -> Vec<Property> {
    let mut properties: Vec<_> =
        check_all(&planted.history(), &BOUNDS).iter().map(|found| found.property).collect();
    properties.dedup();
    properties
}

#[test]
fn a_clean_history_passes() {
    assert_eq!(check_all(&Plot::clean().history(), &BOUNDS), []);
    assert_eq!(check_all(&Plot::default().history(), &BOUNDS), []);
}

/// `check` finds one violation in each of the first, and none in the others.
fn judges<const W: usize, const R: usize>(
    check: impl Fn(&History) -> Vec<Violation>,
    wrong: [Plot; W],
    right: [Plot; R],
) {
    for (planted, found) in wrong.map(|plot| (plot, 1)).into_iter().chain(right.map(|plot| (plot, 0))) {
        let history = planted.history();
        assert_eq!(check(&history).len(), found, "{history}");
    }
}

fn in_order(history: &History) -> Vec<Violation> {
    order::check(history, &BOUNDS)
}

/// G1: a hold that begins inside another one, also when a third lies between. Holds that meet do not overlap, whatever
/// ended the first.
#[test]
fn overlapping_holds_are_found() {
    let inside = Plot::default().holds(0, "p1", 1, (1, 0), 900).holds(100, "p2", 2, (2, 0), 200);
    let nested = inside.holds(300, "p3", 3, (3, 0), 400);
    assert_eq!(overlap::check(&nested.history()).len(), 2);
    let renewed = Plot::default().holds(0, "p1", 1, (1, 0), 100).sees(50, "p1", 1, 500);
    let first = || Plot::default().holds(0, "p1", 1, (1, 0), 900);
    let second = |plot: Plot, millis| plot.holds(millis, "p2", 2, (2, 0), 2_000);
    let met = [
        second(first(), 900),
        second(first().lets_go(500, "p1", 1), 500),
        second(first().loses(500, "p1", 1, LostReason::Expired), 500),
        second(first().crash(500, "p1"), 500),
        second(first().overrules(100, 1), 200),
    ];
    judges(overlap::check, [second(renewed, 200)], met);
}

/// G2: a hold is not seen after the store's next grant, its loss, or its release.
#[test]
fn a_hold_that_is_seen_too_late_is_found() {
    let held = || Plot::default().holds(0, "p1", 1, (1, 0), 300);
    let too_late = [
        held().store_grants(400, "p2", 2, 2).sees(401, "p1", 1, 700),
        held().holds(400, "p2", 2, (2, 0), 900).sees(400, "p1", 1, 700),
        held().loses(100, "p1", 1, LostReason::Revoked).sees(100, "p1", 1, 300),
        held().lets_go(100, "p1", 1).sees(101, "p1", 1, 300),
    ];
    let excused = held().overrules(100, 1).store_grants(100, "p2", 2, 2).sees(101, "p1", 1, 300);
    let in_time = held().sees(400, "p1", 1, 700).store_grants(400, "p2", 2, 2);
    judges(notice::check, too_late, [excused, in_time]);
}

/// G2: a hold that may last for so long is over then, and not before; `lost` returns, if timers fire.
#[test]
fn a_hold_that_lasts_too_long_is_found() {
    let bounded = || Plot::default().bounded(0, "p1", 1, 300).holds(0, "p1", 1, (1, 0), 900);
    let told = |plot: Plot, millis| plot.loses(millis, "p1", 1, LostReason::MaxHold);
    let listens = || bounded().add(0, "p1", What::Listens { attempt: Attempt::new(1) });
    let wrong = [
        bounded().sees(320, "p1", 1, 900),
        told(bounded(), 200),
        told(Plot::default().holds(0, "p1", 1, (1, 0), 900), 300),
        told(listens(), 320),
        listens().sees(100, "p1", 1, 900).lets_go(400, "p1", 1),
    ];
    let right = [
        bounded().sees(299, "p1", 1, 300).lets_go(400, "p1", 1),
        told(listens(), 300),
        told(listens(), 303),
        listens().lets_go(200, "p1", 1).asks(900, "p2", 2),
        listens().loses(100, "p1", 1, LostReason::Revoked).asks(900, "p2", 2),
        told(listens().add(200, "p1", What::Stopped), 700),
        listens().crash(200, "p1").asks(900, "p2", 2),
        Plot::default()
            .bounded(0, "p1", 1, 300)
            .add(100, "p1", What::Stopped)
            .holds(200, "p1", 1, (1, 0), 900)
            .add(200, "p1", What::Listens { attempt: Attempt::new(1) })
            .asks(900, "p2", 2),
    ];
    judges(bound::check, wrong, right);
}

/// G2: `lost` returns before the store's next grant, if timers fire.
#[test]
fn a_loss_that_is_told_too_late_is_found() {
    let listens = || {
        let held = Plot::default().holds(0, "p1", 1, (1, 0), 300);
        held.add(0, "p1", What::Listens { attempt: Attempt::new(1) })
    };
    let untold = listens().store_grants(400, "p2", 2, 2).loses(401, "p1", 1, LostReason::Expired);
    let excused = [
        listens().loses(300, "p1", 1, LostReason::Expired).store_grants(400, "p2", 2, 2),
        listens().lets_go(200, "p1", 1).store_grants(200, "p2", 2, 2),
        listens().crash(200, "p1").store_grants(400, "p2", 2, 2),
        listens().add(200, "p1", What::Stopped).store_grants(400, "p2", 2, 2),
        listens().overrules(200, 1).store_grants(200, "p2", 2, 2),
    ];
    let resumed =
        listens().add(200, "p1", What::Stopped).add(400, "p1", What::Resumed).store_grants(401, "p2", 2, 2);
    judges(notice::check, [untold, resumed], excused);
}

/// G3: tokens that repeat, or go back for one who asked later or for a process.
#[test]
fn tokens_that_do_not_grow_are_found() {
    let first = || Plot::default().asks(0, "p1", 1).holds(1, "p1", 1, (5, 0), 10).lets_go(2, "p1", 1);
    let broken = [
        first().asks(3, "p2", 2).holds(4, "p2", 2, (4, 0), 10),
        first().holds(4, "p2", 2, (5, 0), 10),
        first().holds(4, "p1", 2, (5, 0), 10),
        Plot::default().holds(0, "p1", 1, (5, 1), 10).holds(11, "p1", 2, (5, 0), 20),
        Plot::default().asks_store(0, "p1", 1).store_grants(0, "p1", 1, 7).store_grants(1, "p2", 2, 7),
        Plot::default().store_grants(0, "p1", 1, 7).asks_store(1, "p2", 2).store_grants(1, "p2", 2, 6),
    ];
    // A grant that was read late, and a late hand-off of an overruled grant, break nothing.
    let late = Plot::default()
        .asks_store(0, "p1", 1)
        .asks_store(0, "p2", 2)
        .store_grants(1, "p2", 2, 2)
        .store_grants(9, "p1", 1, 1);
    let handed_on = Plot::default()
        .holds(0, "p1", 1, (1, 0), 900)
        .overrules(1, 1)
        .holds(2, "p2", 2, (2, 0), 900)
        .asks(3, "p1", 3)
        .lets_go(4, "p1", 1)
        .holds(4, "p1", 3, (1, 1), 900);
    judges(tokens::check, broken, [late, handed_on]);
}

/// G3: a write with a token that is not the writer's, or taken after a larger one.
#[test]
fn writes_that_should_be_refused_are_found() {
    let holds = || Plot::default().holds(0, "p1", 1, (1, 0), 9).holds(9, "p2", 2, (2, 0), 20);
    let wrote = |attempt, grant, accepted| What::Wrote {
        attempt: Attempt::new(attempt),
        token: token(grant),
        accepted,
    };
    let stale = || holds().add(10, "p2", wrote(2, (2, 0), true));
    let foreign = holds().add(9, "p1", wrote(1, (2, 0), true));
    let late = |accepted| stale().add(11, "p1", wrote(1, (1, 0), accepted));
    judges(tokens::check, [late(true), foreign], [late(false)]);
}

/// G4: a release that another grant or another process pays for, and a hold that vanished.
#[test]
fn end_of_another_hold_is_found() {
    let granted = || Plot::default().store_grants(0, "p1", 1, 1);
    let held = || Plot::default().holds(0, "p1", 1, (1, 0), 900);
    let strays = [
        granted().store_grants(5, "p2", 2, 2).store_releases(6, "p1", 1),
        granted().store_releases(6, "p2", 1),
        held().loses(10, "p1", 1, LostReason::Gone),
    ];
    for planted in strays {
        assert_eq!(found(planted), [Property::Ownership]);
    }
    let expired = || held().loses(10, "p1", 1, LostReason::Expired);
    assert_eq!(found(expired()), [Property::Ownership]);
    assert_eq!(found(expired().add(11, "world", What::Disturbed("late"))), []);
    let explained = [
        granted().store_releases(6, "p1", 1),
        held().overrules(9, 1).loses(10, "p1", 1, LostReason::Gone),
        held().add(1, "p1", What::Disturbed("silent")).loses(900, "p1", 1, LostReason::Gone),
    ];
    judges(ownership::check, [], explained);
}

/// G6: a lock that has waiters and is free for too long, and an operation that hangs.
#[test]
fn a_lock_that_nobody_takes_is_found() {
    let waits = || Plot::default().asks(0, "p2", 2);
    let storm = || Plot::default().add(0, "world", What::Disturbed("storm"));
    let free_too_long = [
        waits().holds(2_001, "p2", 2, (2, 0), 9_000),
        waits().add(9_000, "world", What::AtRest { left: Vec::new() }),
        Plot::default().holds(0, "p1", 1, (1, 0), 500).asks(10, "p2", 2).holds(2_501, "p2", 2, (2, 0), 9_000),
        waits().add(1, "world", What::Stuck { waits_for: "ever".to_owned() }),
        storm().asks(0, "p2", 2).add(9_000, "world", What::Healed).holds(11_001, "p2", 2, (2, 0), 20_000),
        storm().asks(0, "p2", 2).add(100, "world", What::Healed).hears_no(2_401, "p2", 2),
        storm().add(100, "world", What::Healed).asks(100, "p2", 2).hears_no(2_101, "p2", 2),
    ];
    let behind = || Plot::default().holds(0, "p1", 1, (1, 0), 8_000).asks(1, "p2", 2);
    let in_time = [
        waits().holds(2_000, "p2", 2, (2, 0), 9_000),
        behind().holds(9_000, "p2", 2, (2, 0), 9_500),
        waits().crash(1_000, "p2").add(9_000, "world", What::AtRest { left: Vec::new() }),
        storm().asks(0, "p2", 2).add(100, "world", What::Healed).hears_no(2_400, "p2", 2),
        storm().asks(0, "p2", 2).asks(9_000, "p2", 3),
    ];
    judges(|history| hand_over::check(history, &BOUNDS), free_too_long, in_time);
}

/// G7: an entry overtaken in the store's queue, a caller overtaken in its process.
#[test]
fn overtaking_is_found() {
    let queued = || Plot::default().asks_store(0, "p1", 1).asks_store(1, "p2", 2);
    let overtaken = queued().store_grants(2, "p2", 2, 1).store_grants(3, "p1", 1, 2);
    let again = What::StoreGranted { entry: Entry::new(1), counter: 2, requeued: true };
    let requeued = || queued().store_grants(2, "p2", 2, 1).add(3, "p1", again.clone());
    let in_bad_weather = requeued().add(4, "p1", What::Disturbed("silent"));
    judges(places::check, [requeued()], [in_bad_weather]);
    let asked = || Plot::default().asks(0, "p1", 1).asks(1, "p1", 2);
    let out_of_turn = asked().holds(2, "p1", 2, (1, 0), 9).holds(9, "p1", 1, (2, 0), 20);
    let in_turn = asked().holds(2, "p1", 1, (1, 0), 9).holds(9, "p1", 2, (2, 0), 20);
    judges(in_order, [overtaken, out_of_turn], [requeued(), in_turn]);
}

/// G7: a place that is given up while a caller of its process waits on.
#[test]
fn a_place_that_is_given_up_is_found() {
    let left = What::StoreLeft { entry: Entry::new(1) };
    let waits = || Plot::default().asks(0, "p1", 1).asks_store(0, "p1", 1).asks(1, "p1", 2);
    let cancelled = |plot: Plot, attempt| {
        let attempt = Attempt::new(attempt);
        plot.add(2, "p1", What::Cancelled { attempt })
    };
    let given_up = cancelled(waits().add(2, "p1", left.clone()), 1).asks(3, "p1", 3);
    let shares = |bounded: [bool; 3]| {
        let (mode, entry) = (Mode::SHARED, Entry::new(1));
        let plot = (1..).zip(bounded).fold(Plot::default(), |plot, (attempt, bounded)| {
            let plot = plot.wants(0, "p1", attempt, mode);
            if bounded { plot.bounded(0, "p1", attempt, 300) } else { plot }
        });
        let plot = plot.add(0, "p1", What::StoreAsked { entry, mode, waits: true });
        cancelled(plot.add(2, "p1", What::StoreLeft { entry }), 1).asks(3, "p1", 9)
    };
    let alike = [[false; 3], [true; 3], [true, true, false], [false, false, true]].map(shares);
    judges(places::check, alike, [[true, false, true], [false, true, false]].map(shares));
    let behind = waits().wants(1, "p1", 3, Mode::SHARED).add(2, "p1", left.clone());
    let behind = cancelled(behind, 1).asks(3, "p1", 4);
    let of_no_use = cancelled(cancelled(waits().add(2, "p1", left), 1), 2).asks(3, "p1", 3);
    judges(places::check, [given_up, behind], [of_no_use]);
}

/// G7: hand-offs beyond their number and their time.
#[test]
fn hand_offs_beyond_the_budget_are_found() {
    let first = || Plot::default().holds(0, "p1", 1, (1, 0), 900);
    let too_late = first().holds(101, "p1", 2, (1, 1), 900);
    let too_often = first().holds(5, "p1", 2, (1, 3), 900);
    let within = first().holds(5, "p1", 2, (1, 1), 900).holds(100, "p1", 3, (1, 2), 900);
    judges(in_order, [too_late, too_often], [within]);
}

/// G5, G8: what the store still knows at rest.
#[test]
fn litter_is_found() {
    let left = vec![leasehold_core::LockName::new("b").unwrap()];
    let violations = litter::check(&Plot::clean().add(9_500, "world", What::AtRest { left }).history());
    let [Violation { name: Some(name), .. }] = violations.as_slice() else {
        panic!("not exactly one: {violations:?}");
    };
    assert_eq!(name.as_str(), "b");
}

/// B1: an entry that begins while another one of its process and name is alive.
#[test]
fn a_second_entry_is_found() {
    let began = |entry| What::EntryBegan { entry: Entry::new(entry), mode: Mode::EXCLUSIVE };
    let ended = |entry| What::EntryEnded { entry: Entry::new(entry) };
    let two = Plot::default().add(0, "p1", began(1)).add(1, "p1", began(2)).add(2, "p1", ended(1));
    let one_each = Plot::default().add(0, "p1", began(1)).add(0, "p2", began(2)).add(1, "p1", ended(1));
    judges(one_entry::check, [two], [one_each.add(1, "p1", began(3))]);
}

/// G1: sharers hold at the same time, and with no writer; permits by their sum, and by the
/// smallest of their capacities.
#[test]
fn holds_that_do_not_fit_together_are_found() {
    let some = |weight, capacity| Mode::permits(weight, capacity).unwrap();
    let beside = |modes: &[Mode]| {
        (1..).zip(modes).fold(Plot::default(), |plot, (number, mode)| {
            plot.wants(0, "p", number, *mode).holds(number, "p", number, (number, 0), 900)
        })
    };
    let wrong = [
        beside(&[Mode::SHARED, Mode::SHARED, Mode::EXCLUSIVE]),
        beside(&[Mode::EXCLUSIVE, Mode::SHARED]),
        beside(&[some(1, 3), some(2, 3), some(1, 3)]),
        beside(&[some(1, 2), some(1, 9), some(1, 9)]),
    ];
    judges(overlap::check, wrong, [beside(&[Mode::SHARED; 5]), beside(&[some(1, 3), some(2, 3)])]);
}

/// G2, G3, G7: of sharers none is late, out of turn or behind another; a writer among them is.
#[test]
fn sharers_are_judged_by_whom_they_exclude() {
    let shares = |second| {
        Plot::default()
            .wants(0, "p", 1, Mode::SHARED)
            .wants(0, "p", 2, second)
            .holds(1, "p", 2, (2, 0), 900)
            .holds(1, "p", 1, (1, 1), 900)
            .sees(2, "p", 1, 900)
    };
    assert_eq!(found(shares(Mode::SHARED)), []);
    let beside_a_writer = found(shares(Mode::EXCLUSIVE));
    for property in [Property::Overlap, Property::Notice, Property::Tokens, Property::Order] {
        assert!(beside_a_writer.contains(&property), "{property:?} of {beside_a_writer:?}");
    }
}

/// B1: beside a grant of its own a process asks for what fits, one thing at a time.
#[test]
fn a_process_asks_for_what_fits_one_at_a_time() {
    let entry = Entry::new;
    let begins =
        |plot: Plot, number, mode| plot.add(number, "p", What::EntryBegan { entry: entry(number), mode });
    let granted = |plot: Plot, number| plot.add(number, "p", What::EntryGranted { entry: entry(number) });
    let first = || begins(Plot::default(), 1, Mode::SHARED);
    let beside = |mode| begins(granted(first(), 1), 2, mode);
    let wrong = [begins(first(), 2, Mode::SHARED), beside(Mode::EXCLUSIVE)];
    judges(one_entry::check, wrong, [beside(Mode::SHARED)]);
}
