//! The engine on a model of the store: requests that are lost, refused, answered late or applied long after
//! they were given up; watches that lag, repeat themselves, forget and are cut; sessions that end.

mod model;
mod mutant;
mod process;
mod store;

use leasehold_core::clock::Moment;
use proptest::prelude::*;

use super::*;
use model::World;
use mutant::Mutant;
use process::{AHEAD, NOW};

fn step(contender: &Contender) -> Step {
    contender.next(NOW, AHEAD)
}

fn queued(older: usize, watched: Option<Revision>) -> Contender {
    let mut contender = Contender::new(Patience::Waits);
    contender.asked(Answer { revision: 10, mine: Some((10, true)), older, in_epoch: true }, watched);
    contender
}

/// A hold that is given back.
fn leaving(create: Revision) -> Contender {
    Contender { entry: Entry::Stray(create), leaving: Some(End::Left), ..Contender::new(Patience::Waits) }
}

fn deletion(revision: Revision, key: u8, created: Option<Revision>) -> Change {
    Change { revision, key: [key].into(), kind: Kind::Deleted(created) }
}

/// A free lock is one request.
#[test]
fn a_free_lock_is_held_at_once() {
    let contender = Contender::new(Patience::Waits);
    assert_eq!(step(&contender), Step::Ask);
    assert_eq!(step(&queued(0, None)), Step::End(End::Granted(10)));
}

/// With a watch that stood before, waiting takes no request, and neither does the turn.
#[test]
fn a_standing_watch_is_enough() {
    let mut contender = queued(2, Some(9));
    assert_eq!(step(&contender), Step::Wait);
    contender.saw(&[deletion(11, b'b', Some(5))], b"m");
    assert_eq!(step(&contender), Step::Wait);
    contender.saw(&[deletion(12, b'a', Some(3))], b"m");
    assert_eq!(step(&contender), Step::End(End::Granted(10)));
}

/// A watch that began after the answer may have missed something: one read.
#[test]
fn a_late_watch_costs_a_read() {
    let mut contender = queued(1, None);
    assert_eq!(step(&contender), Step::Wait);
    contender.watched(Some(13));
    assert_eq!(step(&contender), Step::Look(10));
    contender.looked(12, true, 0);
    assert_eq!(step(&contender), Step::Look(10), "an answer older than the watch decides nothing");
    contender.looked(13, true, 0);
    assert_eq!(step(&contender), Step::End(End::Granted(10)));
}

/// What the next watch tells may be older than what was counted already: one read, whatever its revision.
#[test]
fn a_watch_after_another_costs_a_read() {
    let mut place = Place::new(10, 12, 2, Some(9));
    place.saw(&[deletion(13, b'a', Some(3))], b"m");
    assert_eq!(place.standing(), Standing::Behind);
    place.watched(None);
    place.watched(Some(8));
    assert_eq!(place.standing(), Standing::Doubtful);
    place.looked(13, true, 1);
    assert_eq!(place.standing(), Standing::Behind);
}

/// Deletions that the answer showed already, that are told twice, or that are of later entries do not count.
#[test]
fn only_new_deletions_of_older_entries_count() {
    let mut contender = queued(2, Some(9));
    contender.saw(&[deletion(10, b'a', Some(3)), deletion(11, b'z', Some(11))], b"m");
    for _ in 0..2 {
        contender.saw(&[deletion(12, b'b', Some(5))], b"m");
    }
    assert_eq!(step(&contender), Step::Wait);
}

/// All deletions of one revision are taken in before anything is decided.
#[test]
fn our_own_deletion_in_the_same_revision_counts() {
    let mut contender = queued(1, Some(9));
    contender.saw(&[deletion(11, b'a', Some(3)), deletion(11, b'm', Some(10))], b"m");
    assert_eq!(step(&contender), Step::End(End::Lost(LostReason::Gone)));
}

/// A deletion of which the store has forgotten what it deleted is looked into.
#[test]
fn a_deletion_without_its_past_costs_a_read() {
    let mut contender = queued(1, Some(9));
    contender.saw(&[deletion(11, b'a', None)], b"m");
    assert_eq!(step(&contender), Step::Look(10));
    contender.looked(12, true, 1);
    assert_eq!(step(&contender), Step::Wait);
}

/// What may still arrive is made harmless before it is asked again.
#[test]
fn a_lost_answer_moves_the_epoch() {
    let mut contender = Contender::new(Patience::Waits);
    contender.failed(Some(5));
    contender.in_epoch(5);
    assert_eq!(step(&contender), Step::Settle);
    // Whoever has moved it.
    contender.in_epoch(6);
    assert_eq!(step(&contender), Step::Ask);
    let answer = Answer { revision: 12, mine: Some((10, true)), older: 0, in_epoch: true };
    contender.asked(answer, None);
    assert_eq!(step(&contender), Step::End(End::Granted(10)));

    for settled in [false, true] {
        let mut abandoned = Contender::new(Patience::Waits);
        abandoned.failed(Some(5));
        if settled {
            abandoned.in_epoch(6);
        }
        abandoned.abandon();
        abandoned.found(None);
        if !settled {
            assert_eq!(step(&abandoned), Step::Settle);
            abandoned.in_epoch(6);
            assert_eq!(step(&abandoned), Step::Find);
            abandoned.found(Some(7));
            assert_eq!(step(&abandoned), Step::Delete(7));
            abandoned.deleted();
        }
        assert_eq!(step(&abandoned), Step::End(End::Left));
    }
}

/// A copy that may still apply can come after the look: what that found decides nothing.
#[test]
fn what_is_found_before_the_epoch_moved_decides_nothing() {
    let mut abandoned = Contender::new(Patience::Waits);
    abandoned.failed(Some(5));
    abandoned.abandon();
    abandoned.found(Some(7));
    // By an acquisition of another name, while the entry is being deleted.
    abandoned.in_epoch(6);
    assert_eq!(step(&abandoned), Step::Find);
    abandoned.found(None);
    assert_eq!(step(&abandoned), Step::End(End::Left));
}

/// What was refused for want of room may be there: it is looked for, without waiting for any copy.
#[test]
fn a_refusal_may_have_been_carried_out() {
    let mut contender = Contender::new(Patience::Waits);
    contender.failed(None);
    assert_eq!(step(&contender), Step::Ask, "what is there is ours");
    contender.abandon();
    assert_eq!(step(&contender), Step::Find);
    contender.found(Some(7));
    assert_eq!(step(&contender), Step::Delete(7));

    let mut doubtful = Contender::new(Patience::Waits);
    doubtful.failed(Some(5));
    doubtful.failed(None);
    assert_eq!(step(&doubtful), Step::Settle, "an earlier copy is still out there");
}

/// A server without room lets no copy in, and lets go of what is there: a lock that is not wanted is free
/// before the epoch can be moved, and the clean-up goes on until it is.
#[test]
fn a_full_server_lets_go_before_the_epoch_moves() {
    let mut abandoned = Contender::new(Patience::Waits);
    abandoned.failed(Some(5));
    abandoned.not_settled();
    assert_eq!(step(&abandoned), Step::Settle, "what is wanted stays");
    abandoned.abandon();
    for there in [Some(7), None] {
        abandoned.not_settled();
        assert_eq!(step(&abandoned), Step::Find);
        abandoned.found(there);
        if let Some(create) = there {
            assert_eq!(step(&abandoned), Step::Delete(create));
            abandoned.abandon();
            abandoned.deleted();
        }
        assert_eq!(step(&abandoned), Step::Settle, "a copy is still out there");
    }
    abandoned.in_epoch(6);
    assert_eq!(step(&abandoned), Step::Find);
    abandoned.found(None);
    assert_eq!(step(&abandoned), Step::End(End::Left));
}

/// What was not asked, or certainly was not done, needs no clean-up.
#[test]
fn a_request_that_was_not_applied_leaves_nothing() {
    let mut contender = Contender::new(Patience::Waits);
    contender.abandon();
    assert_eq!(step(&contender), Step::End(End::Left));
}

/// An entry of an earlier acquisition is not adopted (etcd.protocol-2).
#[test]
fn another_acquisitions_entry_is_replaced() {
    let mut contender = Contender::new(Patience::Waits);
    let answer = Answer { revision: 12, mine: Some((4, false)), older: 0, in_epoch: true };
    contender.asked(answer, None);
    assert_eq!(step(&contender), Step::Delete(4));
    contender.deleted();
    assert_eq!(step(&contender), Step::Ask);
}

/// A try does not stay in the queue.
#[test]
fn a_refused_try_leaves_nothing() {
    let refused = |mine| Answer { revision: 12, mine, older: 1, in_epoch: true };
    let mut contender = Contender::new(Patience::Tries);
    contender.asked(refused(None), None);
    assert_eq!(step(&contender), Step::End(End::Refused));

    let mut contender = Contender::new(Patience::Tries);
    contender.asked(refused(Some((10, true))), None);
    assert_eq!(step(&contender), Step::Delete(10));
    contender.deleted();
    assert_eq!(step(&contender), Step::End(End::Refused));
}

/// Past the deadline nothing is held, asked for or cleaned up: the lease ends it.
#[test]
fn a_session_that_is_over_ends_everything() {
    for contender in [Contender::new(Patience::Waits), queued(0, None), queued(1, Some(9)), leaving(3)] {
        assert_eq!(
            contender.next(Moment::from_nanos(2), AHEAD),
            Step::End(End::Lost(LostReason::SessionLost))
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// etcd.protocol-1 to 3 in every order of everything that can happen, and everybody holds in the end,
    /// or nothing of them is left on a server that is full.
    #[test]
    fn nothing_that_happens_breaks_a_promise(
        choices in prop::collection::vec(any::<u16>(), 0..250),
        is_full_then: bool,
    ) {
        let mut world = World::new(None);
        for choice in choices {
            world.act(choice).map_err(TestCaseError::fail)?;
        }
        let end = if is_full_then { world.fill_up() } else { world.calm_down() };
        end.map_err(TestCaseError::fail)?;
    }
}

/// Each planted fault breaks a promise within a few thousand random runs; a check that finds nothing
/// proves nothing.
#[test]
fn planted_faults_are_found() {
    for mutant in Mutant::ALL {
        let found = (0..20_000).any(|seed| {
            let mut dice = Dice(seed * 2 + 1);
            let mut world = World::new(Some(mutant));
            (0..250).any(|_| world.act(dice.roll()).is_err())
                || if seed % 2 == 0 { world.calm_down() } else { world.fill_up() }.is_err()
        });
        assert!(found, "{mutant:?} was not found out");
    }
}

/// A small generator: the runs with planted faults are the same every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u16 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 48) as u16
    }
}
