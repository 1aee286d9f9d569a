//! Single rules of the protocol, one case each.

use std::time::Duration;

use leasehold_core::OwnerId;
use leasehold_core::clock::Moment;

use crate::quorum::protocol::{
    Confirming, Contender, Outcome, ProposalBound, Releasing, Size, Step, Terms, Ticket, VoteReply,
    VoteRequest,
};

pub(super) const THREE: Size = Size { servers: 3, quorum: 2 };

/// A request to a server that may have a queue entry of the contender.
const AGAIN: VoteRequest = VoteRequest::Vote { round: 1, again: true };

pub(super) fn at(millis: u64) -> Moment {
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

fn held(by: u64) -> VoteReply {
    VoteReply::Held { by: ticket(by), ask_in: Duration::from_millis(800) }
}

/// Asked at 0, and answered by the first servers.
fn answered(waits: bool, answers: &[VoteReply]) -> Contender {
    let mut contender = contender(waits);
    assert_eq!(contender.requests(at(0)).len(), 3);
    for (server, answer) in answers.iter().enumerate() {
        contender.answered(at(1), server, (1, at(0)), *answer);
    }
    contender
}

/// Elected with the number 5, and holding.
fn holding(answers: &[VoteReply]) -> Contender {
    let mut contender = answered(true, answers);
    contender.requests(at(1));
    assert!(matches!(contender.step(at(1)), Step::Take { token: 5, .. }), "{contender:?}");
    contender
}

const VOTED: VoteReply = VoteReply::Voted { n: 5 };
const PAUSES: VoteReply = VoteReply::Abstains { ask_in: Duration::from_millis(100) };

/// Two of three that agree are enough; the deadline counts from sending, and the third is not waited for.
#[test]
fn a_quorum_that_agrees_elects() {
    let mut contender = answered(true, &[VOTED, VOTED]);
    assert!(contender.requests(at(1)).is_empty());
    let Step::Take { token: 5, deadline } = contender.step(at(1)) else { panic!("{contender:?}") };
    assert_eq!(deadline, leasehold_core::clock::Deadline::At(at(880)));
}

#[test]
fn a_hold_recruits_servers() {
    let mut contender = holding(&[VOTED, VOTED, held(9)]);
    assert!(contender.requests(at(300)).is_empty());
    assert_eq!(contender.requests(at(301)), [(2, AGAIN)]);
    contender.renewed(at(301), 0, at(301), true);
    contender.answered(at(302), 2, (1, at(301)), VoteReply::Voted { n: 4 });
    let confirming = Confirming { round: 1, n: 4, token: 5 };
    assert_eq!(contender.requests(at(302)), [(2, VoteRequest::Confirm(confirming))]);
    assert_eq!(contender.number_at(2), None, "it is not renewed before it counts");
    assert_eq!(contender.deadline(), Some(leasehold_core::clock::Deadline::At(at(880))));
    contender.confirmed(at(303), 2, (confirming, at(302)), Some(true));
    assert_eq!(contender.number_at(2), Some(5));
    assert_eq!(contender.deadline(), Some(leasehold_core::clock::Deadline::At(at(1181))));
    contender.renewed(at(310), 1, at(310), false);
    assert!(contender.over(at(900)).is_none());
    assert_eq!(contender.requests(at(900)), [(1, AGAIN)], "while the others are a quorum");
    contender.renewed(at(910), 0, at(910), false);
    assert!(contender.over(at(910)).is_some());
}

/// It lasts until its deadline. A waiter keeps a vote for a moment only, so the vote is requested again soon.
#[test]
fn a_hold_outlasts_the_loss_of_a_server_while_others_may_vote() {
    let mut contender = holding(&[VOTED, VOTED]);
    contender.failed(at(1), 2);
    assert_eq!(contender.requests(at(300)), [(2, AGAIN)]);
    contender.renewed(at(301), 1, at(300), false);
    contender.renewed(at(301), 0, at(300), true);
    assert!(contender.over(at(301)).is_none(), "{contender:?}");
    assert_eq!(contender.number_at(1), None);
    contender.answered(at(302), 2, (1, at(300)), held(11));
    assert_eq!(contender.requests(at(302)), []);
    let lasts = |until| Some(leasehold_core::clock::Deadline::At(at(until)));
    assert_eq!(contender.deadline(), lasts(880));
    let mut unserved = contender.clone();
    assert!(unserved.over(at(880)).is_some(), "{unserved:?}");
    assert_eq!(contender.requests(at(402)), [(2, AGAIN)]);
    contender.answered(at(403), 2, (1, at(402)), VoteReply::Voted { n: 6 });
    assert_eq!(contender.deadline(), lasts(1180));
    contender.renewed(at(410), 0, at(410), false);
    assert!(contender.over(at(410)).is_some(), "no others are left: {contender:?}");
}

/// A vote does not count if it was requested before the loss, or arrives when the others are no quorum any more.
#[test]
fn a_lost_server_votes_again_beside_a_quorum() {
    let renew = |contender: &mut Contender, millis: u64, kept: [bool; 3]| {
        for (server, kept) in kept.into_iter().enumerate() {
            contender.renewed(at(millis), server, at(millis), kept);
        }
    };
    let mut contender = holding(&[VOTED; 3]);
    renew(&mut contender, 300, [true, false, true]);
    contender.answered(at(301), 1, (1, at(299)), VoteReply::Voted { n: 6 });
    assert_eq!(contender.number_at(1), None, "it was asked before");
    assert_eq!(contender.requests(at(399)), [], "{contender:?}");
    assert_eq!(contender.requests(at(400)), [(1, AGAIN)]);
    contender.answered(at(401), 1, (1, at(400)), VoteReply::Abstains { ask_in: Duration::from_millis(50) });
    assert_eq!(contender.requests(at(451)), [(1, AGAIN)]);
    let mut late = contender.clone();
    late.renewed(at(452), 2, at(452), false);
    assert!(late.over(at(452)).is_some(), "two are lost");
    let mut expired = contender.clone();
    expired.renewed(at(700), 0, at(700), true);
    expired.answered(at(1_190), 1, (1, at(451)), VoteReply::Voted { n: 6 });
    assert_eq!(expired.number_at(1), None, "the others were no quorum any more: {expired:?}");
    contender.answered(at(452), 1, (1, at(451)), VoteReply::Voted { n: 6 });
    assert_eq!(contender.number_at(1), Some(6));
    renew(&mut contender, 600, [true, true, false]);
    assert!(contender.over(at(600)).is_none(), "{contender:?}");
    renew(&mut contender, 1_200, [true, true, true]);
    assert!(contender.over(at(1_300)).is_none(), "{contender:?}");
}

/// The caller waits for the confirmation without asking all the time.
#[test]
fn a_token_is_confirmed_where_it_is_not() {
    let mut contender = answered(true, &[VOTED, VoteReply::Voted { n: 7 }]);
    let confirming = Confirming { round: 1, n: 5, token: 7 };
    assert_eq!(contender.requests(at(1)), [(0, VoteRequest::Confirm(confirming))]);
    let Step::Wait(until) = contender.step(at(1)) else { panic!("{contender:?}") };
    assert!(until > at(1), "{until:?}");
    contender.confirmed(at(2), 0, (confirming, at(1)), Some(true));
    assert!(matches!(contender.step(at(2)), Step::Take { token: 7, .. }));
}

/// An answer to a repeated request is the same vote; a larger number is another one.
#[test]
fn a_repeated_vote_is_confirmed_once() {
    let mut contender = answered(true, &[VOTED]);
    (1..3).for_each(|server| contender.failed(at(1), server));
    contender.requests(at(1));
    // A third of the ttl later it is asked for again, with the others.
    assert_eq!(contender.requests(at(301)).len(), 3);
    contender.answered(at(302), 1, (1, at(301)), VoteReply::Voted { n: 7 });
    let confirming = Confirming { round: 1, n: 5, token: 7 };
    assert_eq!(contender.requests(at(302)), [(0, VoteRequest::Confirm(confirming))]);
    contender.answered(at(303), 0, (1, at(301)), VOTED);
    assert_eq!(contender.requests(at(303)), [], "{contender:?}");
    contender.confirmed(at(304), 0, (confirming, at(302)), Some(true));
    assert!(matches!(contender.step(at(304)), Step::Take { token: 7, .. }));
    contender.confirmed(at(305), 0, (confirming, at(302)), Some(false));
    assert!(contender.over(at(305)).is_none(), "{contender:?}");
    // That one was lost in between.
    contender.answered(at(306), 0, (1, at(305)), VoteReply::Voted { n: 9 });
    assert_eq!(contender.number_at(0), None, "{contender:?}");
    contender.renewed(at(307), 1, at(306), false);
    assert!(contender.over(at(307)).is_some(), "{contender:?}");
}

/// That server is not asked again, and the deadline stays.
#[test]
fn a_server_that_refuses_a_hold_has_lost_it() {
    for refusal in [held(9), PAUSES] {
        let mut contender = answered(true, &[VOTED]);
        (1..3).for_each(|server| contender.failed(at(1), server));
        contender.requests(at(1));
        assert_eq!(contender.requests(at(301)).len(), 3);
        contender.answered(at(302), 1, (1, at(301)), VOTED);
        contender.requests(at(302));
        assert!(matches!(contender.step(at(302)), Step::Take { token: 5, .. }));
        contender.renewed(at(303), 0, at(303), true);
        let deadline = contender.deadline();
        contender.answered(at(304), 0, (1, at(301)), refusal);
        assert_eq!((contender.deadline(), contender.number_at(0)), (deadline, None), "{refusal:?}");
        contender.failed(at(305), 2);
        assert_eq!(contender.requests(at(800)), [(2, AGAIN)], "{refusal:?}");
    }
}

#[test]
fn a_holder_asks_a_server_that_refuses_once() {
    let mut contender = contender(true);
    contender.requests(at(0));
    contender.freed(at(1), 2);
    (0..2).for_each(|server| contender.answered(at(1), server, (1, at(0)), VOTED));
    contender.requests(at(1));
    assert!(matches!(contender.step(at(1)), Step::Take { token: 5, .. }));
    let mut requests = 0;
    for millis in 2..12 {
        contender.answered(at(millis), 2, (1, at(millis - 1)), held(9));
        requests += contender.requests(at(millis)).len();
    }
    assert_eq!(requests, 1);
}

#[test]
fn an_election_outlasts_the_loss_of_a_server() {
    let mut contender = answered(true, &[VOTED, VoteReply::Voted { n: 7 }, held(9)]);
    let confirming = |n, token| VoteRequest::Confirm(Confirming { round: 1, n, token });
    assert_eq!(contender.requests(at(1)), [(0, confirming(5, 7))]);
    contender.freed(at(2), 2);
    assert_eq!(contender.requests(at(2)), [(2, AGAIN)]);
    contender.answered(at(3), 2, (1, at(2)), VoteReply::Voted { n: 8 });
    assert_eq!(contender.requests(at(3)), [(1, confirming(7, 8))]);
    contender.confirmed(at(4), 1, (Confirming { round: 1, n: 7, token: 8 }, at(3)), Some(true));
    assert!(matches!(contender.step(at(4)), Step::Take { token: 8, .. }));
}

/// A waiter may be in a server's queue from its first request on, however that ends. A try never is.
#[test]
fn a_queue_entry_is_looked_for_if_one_may_exist() {
    for waits in [true, false] {
        let mut contender = contender(waits);
        let first = VoteRequest::Vote { round: 1, again: false };
        assert_eq!(contender.requests(at(0)), [(0, first), (1, first), (2, first)]);
        contender.answered(at(1), 0, (1, at(0)), held(11));
        contender.failed(at(1), 1);
        contender.answered(at(1), 2, (1, at(0)), held(12));
        contender.requests(at(1));
        let next = VoteRequest::Vote { round: 1, again: waits };
        assert_eq!(contender.requests(at(101)), [(0, next), (1, next), (2, next)]);
    }
}

/// Late answers, as to a process that was stopped, bring nothing back.
#[test]
fn a_hold_that_is_over_stays_so() {
    for (server, n) in [(0, 5), (2, 9)] {
        let mut contender = holding(&[VOTED, VOTED]);
        (0..2).for_each(|server| contender.renewed(at(901), server, at(300), true));
        contender.answered(at(901), server, (1, at(300)), VoteReply::Voted { n });
        assert!(contender.over(at(901)).is_some());
    }
}

#[test]
fn unsent_request_is_no_failure() {
    let mut contender = answered(true, &[held(9)]);
    contender.unsent(1);
    contender.failed(at(1), 2);
    contender.requests(at(1));
    assert_ne!(contender.step(at(1)), Step::Unreachable);
}

#[test]
fn first_request_is_pending_until_its_answer() {
    let mut contender = answered(true, &[VOTED, held(9)]);
    let first = |contender: &Contender| [0, 1, 2].map(|server| contender.is_first_pending(server));
    assert_eq!(first(&contender), [false, false, true]);
    contender.freed(at(2), 1);
    contender.failed(at(2), 2);
    assert_eq!(contender.requests(at(200)).len(), 2, "they are asked again");
    assert_eq!(first(&contender), [false; 3]);
    // The second has a vote, and its first request may still arrive. It loses the vote before its token is confirmed.
    contender.answered(at(201), 1, (1, at(200)), VoteReply::Voted { n: 4 });
    let confirming = Confirming { round: 1, n: 4, token: 5 };
    assert!(contender.requests(at(201)).contains(&(1, VoteRequest::Confirm(confirming))), "{contender:?}");
    contender.confirmed(at(202), 1, (confirming, at(201)), Some(false));
    contender.answered(at(202), 2, (1, at(200)), VOTED);
    assert!(contender.requests(at(302)).contains(&(1, AGAIN)), "{contender:?}");
    assert_eq!(first(&contender), [false; 3]);
}

#[test]
fn the_later_contender_returns_its_votes() {
    for (other, gives_back) in [(9, true), (11, false)] {
        let mut contender = answered(true, &[VOTED, held(other)]);
        contender.failed(at(1), 2);
        let requests = contender.requests(at(1));
        assert_eq!(requests.contains(&(0, VoteRequest::Return { round: 1 })), gives_back, "{requests:?}");
        assert_eq!(contender.number_at(0).is_some(), !gives_back);
        assert!(contender.has_quorum_of_answers(), "both have answered");
    }
}

#[test]
fn a_message_that_overtakes_an_answer_is_not_lost() {
    let mut contender = contender(true);
    contender.requests(at(0));
    for server in 0..3 {
        contender.freed(at(1), server);
        contender.answered(at(1), server, (1, at(0)), held(9));
    }
    assert_eq!(contender.requests(at(1)).len(), 3, "{contender:?}");
}

/// A process that stood still receives all messages at once; the servers are asked again, and were not silent.
#[test]
fn a_message_is_an_answer() {
    let mut contender = answered(true, &[held(5), held(5), held(5)]);
    assert!(contender.has_quorum_of_answers());
    contender.freed(at(200), 0);
    contender.freed(at(200), 1);
    assert_eq!(contender.requests(at(200)).len(), 3);
    assert!(contender.has_quorum_of_answers() && matches!(contender.step(at(200)), Step::Wait(_)));
    contender.requests(at(300));
    assert_eq!(contender.step(at(300)), Step::Unreachable, "they are silent");
}

/// No server is asked until the lease may have expired, or a quorum of the servers is free.
#[test]
fn a_held_lock_is_waited_for() {
    let mut contender = answered(true, &[held(9), held(9), held(9)]);
    assert!(contender.requests(at(1)).is_empty());
    // A third of the ttl: what frees it may go unheard.
    assert_eq!(contender.step(at(1)), Step::Wait(at(301)));
    contender.freed(at(50), 1);
    assert!(contender.requests(at(50)).is_empty());
    contender.freed(at(51), 2);
    assert_eq!(contender.requests(at(51)).len(), 3);
    assert_eq!(answered(false, &[held(9), held(9), held(9)]).requests(at(1)), []);
}

#[test]
fn a_try_ends() {
    let mut busy = answered(false, &[held(9), held(9)]);
    busy.requests(at(101));
    assert_eq!(busy.step(at(101)), Step::Busy);
    // redis.quorum-11
    let mut split = answered(false, &[VOTED, held(9)]);
    split.requests(at(101));
    assert!(matches!(split.step(at(101)), Step::Wait(_)), "the third is silent: {split:?}");
    assert_eq!(split.requests(at(201)).len(), 2, "{split:?}");
    split.answered(at(202), 0, (2, at(201)), VOTED);
    let mut freed = split.clone();
    freed.answered(at(202), 1, (2, at(201)), VOTED);
    freed.requests(at(202));
    assert!(matches!(freed.step(at(202)), Step::Take { .. }), "{freed:?}");
    split.answered(at(202), 1, (2, at(201)), held(9));
    split.requests(at(202));
    assert_eq!(split.step(at(202)), Step::Busy, "{split:?}");
    let mut cut_off = answered(false, &[held(9)]);
    (1..3).for_each(|server| cut_off.failed(at(1), server));
    cut_off.requests(at(1));
    assert_eq!(cut_off.step(at(1)), Step::Unreachable);
    let mut alone = answered(false, &[VOTED]);
    (1..3).for_each(|server| alone.failed(at(1), server));
    alone.requests(at(1));
    assert_eq!(alone.step(at(1)), Step::Unreachable);
    let mut silent = answered(false, &[held(9), PAUSES]);
    silent.requests(at(1));
    assert!(matches!(silent.step(at(1)), Step::Wait(_)), "the third may answer: {silent:?}");
    silent.requests(at(100));
    assert_eq!(silent.step(at(100)), Step::Unreachable);
}

/// A try that sees an earlier contender at a single server is busy if one of the others can be used.
#[test]
fn a_try_ends_the_same_in_every_order() {
    let all = [None, Some(PAUSES), Some(held(9)), Some(held(11)), Some(VOTED)];
    let told = |answers: [Option<VoteReply>; 3], order: [usize; 3]| {
        let mut contender = answered(false, &[]);
        for server in order {
            match answers[server] {
                Some(answer) => contender.answered(at(1), server, (1, at(0)), answer),
                None => contender.failed(at(1), server),
            }
            contender.requests(at(1));
            match contender.step(at(1)) {
                Step::Wait(_) => {}
                told => return Some(told),
            }
        }
        None
    };
    for cases in 0..125 {
        let answers = [cases / 25, cases / 5 % 5, cases % 5].map(|case| all[case]);
        let first = told(answers, [0, 1, 2]);
        for order in [[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            assert_eq!(told(answers, order), first, "{answers:?} in the order {order:?}");
        }
    }
    let earlier = |others: [Option<VoteReply>; 2]| told([Some(held(9)), others[0], others[1]], [0, 1, 2]);
    assert_eq!(earlier([Some(PAUSES), None]), Some(Step::Unreachable));
    for usable in [VOTED, held(11)] {
        assert_eq!(earlier([Some(PAUSES), Some(usable)]), Some(Step::Busy), "{usable:?}");
    }
    assert_eq!(earlier([Some(held(8)), None]), Some(Step::Busy));
}

/// The hold was lost if too few of its servers had its vote.
#[test]
fn a_release_ends_with_a_quorum() {
    let outcome = |was_ours: Option<Vec<bool>>, answers: &[Option<bool>]| {
        let mut releasing = Releasing::new(THREE, was_ours);
        for (server, had) in answers.iter().enumerate() {
            assert_eq!(releasing.outcome(false), Outcome::Open);
            releasing.answered(server, *had);
        }
        (releasing.outcome(false), releasing.outcome(true))
    };
    let (all, two) = (Some(vec![true; 3]), Some(vec![true, true, false]));
    // It has lost a server, and goes on until its deadline.
    let one = Some(vec![true, false, false]);
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
        (one.clone(), &[yes, no], Outcome::Released),
        (one, &[no, no], Outcome::Lost),
        (None, &[no, no], Outcome::Lost),
        (None, &[no, None, no], Outcome::Lost),
    ] {
        assert_eq!(outcome(was_ours.clone(), answers).0, expected, "{was_ours:?}, {answers:?}");
    }
    assert_eq!(outcome(all, &[yes]).1, Outcome::Unconfirmed);
}

/// A clock that is far from the others moves no name, and a number that is far from the clocks only its own.
#[test]
fn a_proposal_is_above_all_known_numbers() {
    let (mut bound, lead) = (ProposalBound::default(), Duration::from_millis(20));
    let [name, other] = ["a", "b"].map(|name| name.parse().unwrap());
    assert_eq!((bound.time(at(5)), bound.proposal(at(5), &name, lead)), (None, 1));
    bound.learn_time(0, at(5), at(3), 1_000_000);
    bound.learn_time(1, at(5), at(3), 900_000);
    assert_eq!(bound.time(at(6)), Some(1_003_000));
    assert_eq!(bound.proposal(at(6), &name, lead), 1_023_000);
    bound.learn_number(at(6), &other, 7_000_000);
    assert_eq!(bound.proposal(at(6), &name, lead), 7_000_001);
    let year = 31_536_000_000_000;
    bound.learn_time(2, at(6), at(6), year);
    assert_eq!(bound.time(at(6)), Some(1_003_000));
    bound.learn_number(at(6), &other, year);
    assert_eq!([&name, &other].map(|name| bound.proposal(at(6), name, lead)), [7_000_001, year + 1]);
}
