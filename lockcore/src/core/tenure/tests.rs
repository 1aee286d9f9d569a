use super::*;
use crate::backend::{Lease, LeaseId, LeaseScope};
use crate::core::queues::Queues;
use crate::{LockName, OwnerId};

fn tenure() -> Tenure {
    let deadline = Deadline::At(Moment::from_nanos(100));
    let lease =
        Lease { id: LeaseId::new(1), scope: LeaseScope::Entry, ttl: Duration::from_nanos(60), deadline };
    let (name, owner) = (LockName::new("a").unwrap(), OwnerId::from_random([1; 16]));
    let queue = Queues::new().of(&name);
    Tenure::new(
        Grant { name, owner, lease, counter: 1 },
        Mode::EXCLUSIVE,
        queue,
        Arc::new(Term::new(deadline)),
        0,
    )
}

fn at(nanos: u64) -> Moment {
    Moment::from_nanos(nanos)
}

/// A renewal that arrives after the end does not revive (tenure-1), and only one end counts (tenure-2).
#[test]
fn an_ended_tenure_is_never_held_again() {
    let tenure = tenure();
    assert!(tenure.end(LostReason::Gone));
    assert!(!tenure.end(LostReason::Expired));
    tenure.term.extend(Deadline::At(at(1_000)));
    for _ in 0..2 {
        assert!(!tenure.is_held(at(1)));
        assert_eq!(tenure.remaining(at(1)), Duration::ZERO);
        assert_eq!(tenure.lost(at(1)), Some(LostReason::Gone));
    }
    tenure.follow();
    assert_eq!(tenure.state(at(1)), GuardState::Lost(LostReason::Gone));
}

/// With no watchdog running, the clock alone ends it.
#[test]
fn the_deadline_ends_it_without_being_told() {
    let tenure = tenure();
    assert_eq!(tenure.lost(at(99)), None);
    assert_eq!(tenure.lost(at(100)), Some(LostReason::Expired));
}

/// Answers to two renewals may come in any order (lease-2).
#[test]
fn an_earlier_deadline_takes_nothing_back() {
    let tenure = tenure();
    tenure.term.extend(Deadline::At(at(200)));
    tenure.term.extend(Deadline::At(at(150)));
    assert_eq!(tenure.remaining(at(150)), Duration::from_nanos(50));
    assert!(tenure.is_held(at(199)) && !tenure.is_held(at(200)));
    assert_eq!(tenure.last_deadline(), Deadline::At(at(200)));
}

/// A renewal is seen when the copy has passed, and only then looked for.
#[test]
fn the_copy_follows_the_lease_when_it_has_passed() {
    let tenure = tenure();
    tenure.term.extend(Deadline::At(at(200)));
    assert!(tenure.is_held(at(99)));
    assert_eq!(tenure.held_before.load(Ordering::Relaxed), 100);
    assert!(tenure.is_held(at(100)));
    assert_eq!(tenure.held_before.load(Ordering::Relaxed), 200);
}

/// Hand-off needs a sixth of the ttl, and no overdue renewal.
#[test]
fn a_tenure_near_its_end_or_at_risk_is_not_healthy() {
    let tenure = tenure();
    assert!(tenure.is_healthy(at(90)));
    assert!(!tenure.is_healthy(at(91)));
    tenure.term.set_at_risk(true);
    tenure.follow();
    assert!(!tenure.is_healthy(at(1)));
    tenure.term.extend(Deadline::At(at(200)));
    assert!(!tenure.is_healthy(at(100)));
    tenure.term.set_at_risk(false);
    tenure.follow();
    assert!(tenure.is_healthy(at(100)));
}

/// The watchers of one guard see its release, not the life of the next guard.
#[test]
fn watchers_follow_their_guard_only() {
    let tenure = tenure();
    let first = tenure.watch(0);
    tenure.pass_on_if_healthy(0, at(1)).expect("it is healthy").unwrap().tell();
    assert_eq!(first.borrow().state, GuardState::Lost(LostReason::Released));
    let second = tenure.watch(1);
    assert_eq!(second.borrow().state, GuardState::Held);
    tenure.end(LostReason::Expired);
    assert_eq!(second.borrow().state, GuardState::Lost(LostReason::Expired));
    assert_eq!(first.borrow().state, GuardState::Lost(LostReason::Released));
}

/// Who wants it has it at the deadline it set, whatever the lease; the earliest of several counts, and
/// nobody of this process gets it before (tenure-4).
#[test]
fn a_tenure_that_is_asked_for_ends_in_time() {
    let tenure = tenure();
    let watched = tenure.watch(0);
    assert!(tenure.ask(at(80)) && tenure.ask(at(50)));
    assert!(!tenure.ask(at(50)) && !tenure.ask(at(70)));
    assert_eq!(*watched.borrow(), Standing { state: GuardState::Held, asked: Some(at(50)) });
    tenure.term.extend(Deadline::At(at(1_000)));
    assert!(tenure.is_held(at(49)) && !tenure.is_held(at(50)));
    assert!(!tenure.is_healthy(at(1)));
    assert_eq!(tenure.remaining(at(40)), Duration::from_nanos(10));
    assert_eq!((tenure.lost(at(49)), tenure.lost(at(50))), (None, Some(LostReason::Revoked)));
    tenure.end(LostReason::Released);
    assert!(!tenure.ask(at(1)));
}

/// Whether the next guard may have it is decided with what ends it: who asks before that has it, who asks
/// after that asks the next one; and a bound that is over with its guard ends nobody.
#[test]
fn what_is_asked_for_is_not_passed_on() {
    let tenure = tenure();
    let first = tenure.watch(0);
    tenure.hold_until(at(30));
    tenure.pass_on_if_healthy(0, at(10)).expect("it is healthy").unwrap().tell();
    assert_eq!(first.borrow().state, GuardState::Lost(LostReason::Released));
    assert_eq!(tenure.end_in_time(at(30)), None, "the bound was the guard's before");
    let second = tenure.watch(1);
    assert!(tenure.ask(at(50)));
    assert!(tenure.pass_on_if_healthy(1, at(10)).is_none());
    assert_eq!((tenure.end_in_time(at(49)), tenure.end_in_time(at(50))), (None, Some(LostReason::Revoked)));
    assert_eq!(second.borrow().state, GuardState::Lost(LostReason::Revoked));
    assert_eq!(tenure.end_in_time(at(50)), None);
}

/// A lease that was over before is why it is lost, whoever asked.
#[test]
fn the_earliest_end_is_the_reason() {
    let tenure = tenure();
    tenure.ask(at(150));
    assert_eq!((tenure.lost(at(160)), tenure.end_in_time(at(160))), (Some(LostReason::Expired), None));
    tenure.term.extend(Deadline::At(at(200)));
    assert_eq!(tenure.end_in_time(at(160)), Some(LostReason::Revoked));
}

/// The bound of one guard is not the next one's; what an administrator wants is (tenure-4).
#[test]
fn a_guard_is_bounded_by_itself() {
    let tenure = tenure();
    tenure.hold_until(at(40));
    assert!(tenure.is_healthy(at(39)), "another guard may have it longer");
    assert_eq!((tenure.lost(at(39)), tenure.lost(at(40))), (None, Some(LostReason::TooLong)));
    assert!(tenure.pass_on_if_healthy(0, at(39)).expect("it is healthy").is_none());
    assert!(tenure.is_held(at(40)) && !tenure.is_held(at(100)));
    tenure.hold_until(at(90));
    tenure.ask(at(60));
    assert_eq!(tenure.lost(at(95)), Some(LostReason::Revoked));
    assert!(tenure.pass_on_if_healthy(1, at(50)).is_none());
    assert_eq!(tenure.lost(at(60)), Some(LostReason::Revoked));
}

/// Guards that share a tenure are lost together, and let go each for itself (tenure-1); who watches the tenure
/// hears of its end only.
#[test]
fn guards_that_share_it_let_go_each_for_itself() {
    let tenure = tenure();
    let [first, second, all] = [tenure.watch(0), tenure.watch(1), tenure.watch_all()];
    tenure.without(0).expect("it is watched").tell();
    assert!(tenure.without(0).is_none());
    let released = GuardState::Lost(LostReason::Released);
    assert_eq!(
        [&first, &second, &all].map(|told| told.borrow().state),
        [released, GuardState::Held, GuardState::Held]
    );
    tenure.ask(at(50));
    assert_eq!([&first, &second, &all].map(|told| told.borrow().asked), [None, Some(at(50)), Some(at(50))]);
    tenure.end(LostReason::Revoked);
    let revoked = GuardState::Lost(LostReason::Revoked);
    assert_eq!([&first, &second, &all].map(|told| told.borrow().state), [released, revoked, revoked]);
}

/// Without a lease nothing is left to count, until somebody asks for it.
#[test]
fn a_tenure_without_a_lease_has_no_end() {
    let Tenure { grant, mode, queue, .. } = tenure();
    let endless = Tenure::new(grant, mode, queue, Arc::new(Term::new(Deadline::Never)), 0);
    assert_eq!(endless.remaining(at(7)), Duration::MAX);
    assert!(endless.is_held(at(u64::MAX - 2)));
    assert!(endless.ask(at(20)));
    assert_eq!(endless.remaining(at(7)), Duration::from_nanos(13));
}
