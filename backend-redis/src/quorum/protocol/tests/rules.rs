//! Single rules of the protocol, one case each.

use std::time::Duration;

use leasehold_core::OwnerId;
use leasehold_core::clock::Moment;

use crate::quorum::protocol::{
    Answer, Contender, Errand, Horizon, Memory, Outcome, Releasing, Size, Standing, Step, Terms, Ticket,
    recovered,
};

const THREE: Size = Size { servers: 3, quorum: 2 };

fn at(millis: u64) -> Moment {
    Moment::from_nanos(millis * 1_000_000)
}

fn ticket(time: u64) -> Ticket {
    Ticket { time, owner: OwnerId::from_random([7; 16]) }
}

/// One that came at 10.
fn contender(waits: bool) -> Contender {
    let terms = Terms {
        size: THREE,
        ttl: Duration::from_millis(900),
        margin: Duration::from_millis(20),
        poll: Duration::from_millis(100),
    };
    Contender::new(terms, ticket(10), waits)
}

fn held(by: u64) -> Answer {
    Answer::Held { by: ticket(by), ask_in: Duration::from_millis(800) }
}

/// Asked at 0, and answered by the first servers.
fn answered(waits: bool, answers: &[Answer]) -> Contender {
    let mut contender = contender(waits);
    assert_eq!(contender.errands(at(0)).len(), 3);
    for (server, answer) in answers.iter().enumerate() {
        contender.answered(at(1), server, (1, at(0)), *answer);
    }
    contender
}

/// Two of three that agree are enough; the deadline counts from sending, and the third is not waited for.
#[test]
fn a_quorum_that_agrees_elects() {
    let mut contender = answered(true, &[Answer::Voted { n: 5 }, Answer::Voted { n: 5 }]);
    assert!(contender.errands(at(1)).is_empty());
    let Step::Take { token: 5, deadline } = contender.step(at(1)) else { panic!("{contender:?}") };
    assert_eq!(deadline, leasehold_core::clock::Deadline::At(at(880)));
}

/// A hold that one server has not voted for asks it, and outlasts the loss of another; one that has lost its vote is not
/// asked again.
#[test]
fn a_hold_recruits_servers() {
    let mut contender = answered(true, &[Answer::Voted { n: 5 }, Answer::Voted { n: 5 }, held(9)]);
    contender.errands(at(1));
    assert!(matches!(contender.step(at(1)), Step::Take { token: 5, .. }));
    assert!(contender.errands(at(300)).is_empty());
    assert_eq!(contender.errands(at(301)), [(2, Errand::Vote { round: 1 })]);
    contender.renewed(0, at(301), true);
    contender.answered(at(302), 2, (1, at(301)), Answer::Voted { n: 4 });
    let confirm = Errand::Confirm { round: 1, n: 4, token: 5 };
    assert_eq!(contender.errands(at(302)), [(2, confirm)]);
    assert_eq!(contender.deadline(), Some(leasehold_core::clock::Deadline::At(at(880))));
    contender.confirmed(at(303), 2, (1, at(302)), Some(true));
    assert_eq!(contender.deadline(), Some(leasehold_core::clock::Deadline::At(at(1181))));
    contender.renewed(1, at(310), false);
    assert!(contender.over(at(900)).is_none() && contender.errands(at(900)).is_empty());
    contender.renewed(0, at(910), false);
    assert!(contender.over(at(910)).is_some());
}

/// Two that do not agree are told the larger number, and that is waited for, without asking all the time.
#[test]
fn a_token_is_confirmed_where_it_is_not() {
    let mut contender = answered(true, &[Answer::Voted { n: 5 }, Answer::Voted { n: 7 }]);
    let confirm = Errand::Confirm { round: 1, n: 5, token: 7 };
    assert_eq!(contender.errands(at(1)), [(0, confirm)]);
    let Step::Wait(until) = contender.step(at(1)) else { panic!("{contender:?}") };
    assert!(until > at(1), "{until:?}");
    contender.confirmed(at(2), 0, (1, at(1)), Some(true));
    assert!(matches!(contender.step(at(2)), Step::Take { token: 7, .. }));
}

/// A contender that sees an earlier one gives back what it has, and the earlier keeps it.
#[test]
fn the_later_gives_its_votes_back() {
    for (other, gives_back) in [(9, true), (11, false)] {
        let mut contender = answered(true, &[Answer::Voted { n: 5 }, held(other)]);
        contender.failed(at(1), 2);
        let errands = contender.errands(at(1));
        assert_eq!(errands.contains(&(0, Errand::GiveBack { round: 1 })), gives_back, "{errands:?}");
        assert_eq!(contender.number_at(0).is_some(), !gives_back);
    }
}

/// A message may overtake the answer that was written before it: the server is asked again soon.
#[test]
fn a_message_that_overtakes_an_answer_is_not_lost() {
    let mut contender = contender(true);
    contender.errands(at(0));
    for server in 0..3 {
        contender.freed(at(1), server);
        contender.answered(at(1), server, (1, at(0)), held(9));
    }
    assert_eq!(contender.errands(at(1)).len(), 3, "{contender:?}");
}

/// A lock that a quorum holds is not asked for until its lease may be over, or a quorum of its servers say so.
#[test]
fn a_held_lock_is_waited_for() {
    let mut contender = answered(true, &[held(9), held(9), held(9)]);
    assert!(contender.errands(at(1)).is_empty());
    // A third of the ttl: what frees it may go unheard.
    assert_eq!(contender.step(at(1)), Step::Wait(at(301)));
    contender.freed(at(50), 1);
    assert!(contender.errands(at(50)).is_empty());
    contender.freed(at(51), 2);
    assert_eq!(contender.errands(at(51)).len(), 3);
    assert_eq!(answered(false, &[held(9), held(9), held(9)]).errands(at(1)), []);
}

/// Who only tries is told that it is held, or that too few vote.
#[test]
fn a_try_ends() {
    let mut busy = answered(false, &[held(9), held(9)]);
    busy.errands(at(101));
    assert_eq!(busy.step(at(101)), Step::Busy);
    let mut cut_off = answered(false, &[held(9)]);
    (1..3).for_each(|server| cut_off.failed(at(1), server));
    cut_off.errands(at(1));
    assert_eq!(cut_off.step(at(1)), Step::Unreachable);
    let mut alone = answered(false, &[Answer::Voted { n: 5 }]);
    (1..3).for_each(|server| alone.failed(at(1), server));
    alone.errands(at(1));
    assert_eq!(alone.step(at(1)), Step::Unreachable);
}

/// A release ends with a quorum; that the hold was over is said when too few of its servers had it.
#[test]
fn a_release_ends_with_a_quorum() {
    let outcome = |was_ours: Option<Vec<bool>>, answers: &[Option<bool>]| {
        let mut releasing = Releasing::new(THREE, was_ours);
        let mut last = Outcome::Open;
        for (server, answer) in answers.iter().enumerate() {
            assert_eq!(last, Outcome::Open);
            last = match answer {
                Some(had) => releasing.answered(server, *had),
                None => releasing.failed(),
            };
        }
        (last, releasing.given_up())
    };
    let (all, two) = (Some(vec![true; 3]), Some(vec![true, true, false]));
    let (yes, no) = (Some(true), Some(false));
    for (was_ours, answers, expected) in [
        (all.clone(), &[yes, yes][..], Outcome::Released),
        (all.clone(), &[yes, no], Outcome::Open),
        (all.clone(), &[yes, no, yes], Outcome::Released),
        (all.clone(), &[yes, no, no], Outcome::Lost),
        (all.clone(), &[no, no], Outcome::Lost),
        (all.clone(), &[yes, None, None], Outcome::Unconfirmed),
        (two.clone(), &[yes, no], Outcome::Lost),
        (two, &[yes, None, no], Outcome::Released),
        (None, &[no, no], Outcome::Lost),
        (None, &[no, None, no], Outcome::Lost),
    ] {
        assert_eq!(outcome(was_ours.clone(), answers).0, expected, "{was_ours:?}, {answers:?}");
    }
    assert_eq!(outcome(all, &[yes]).1, Outcome::Unconfirmed);
}

/// A blank server is told what so many others know as every quorum has one of; where a quorum is blank, in both looks,
/// its clock has to do.
#[test]
fn a_blank_server_is_told_what_the_others_know() {
    let standing = |whole, run: &str, max| {
        let (left, pause) = (Duration::from_millis(max), Duration::from_millis(500));
        Some(Standing { run: run.to_owned(), whole, max, leases_left: left, pause_left: pause })
    };
    let (blank, whole) = (standing(false, "a", 1), |max| standing(true, "b", max));
    let told = |look: [Option<Standing>; 3]| recovered(THREE, 0, &look, &look);
    let memory = |floor, pause| Some(Memory { floor, pause: Duration::from_millis(pause) });
    assert_eq!(told([blank.clone(), whole(7), whole(9)]), memory(9, 9));
    assert_eq!(told([blank.clone(), whole(7), None]), None);
    assert_eq!(told([blank.clone(), blank.clone(), whole(9)]), memory(9, 500));
    assert_eq!(told([blank.clone(), blank.clone(), None]), memory(1, 500));
    let (first, second) = (
        [blank.clone(), standing(false, "c", 1), whole(9)],
        [blank.clone(), standing(false, "d", 1), whole(9)],
    );
    assert_eq!(recovered(THREE, 0, &first, &second), None, "it came up in between");
    assert_eq!(told([whole(9), whole(7), blank]), None, "it knows");
}

/// A proposal is above the time of the server that is furthest ahead, and above every number that was heard.
#[test]
fn a_proposal_is_above_what_was_heard() {
    let mut horizon = Horizon::default();
    assert_eq!((horizon.time(at(5)), horizon.proposal(at(5))), (None, 1));
    horizon.heard_time(at(5), at(3), 1_000_000);
    horizon.heard_time(at(5), at(3), 900_000);
    assert_eq!(horizon.time(at(6)), Some(1_003_000));
    assert_eq!(horizon.proposal(at(6)), 1_023_000);
    horizon.heard_number(7_000_000);
    assert_eq!(horizon.proposal(at(6)), 7_000_001);
}
