use super::*;
use crate::backend::{Lease, LeaseId, LeaseScope};
use crate::{LockName, OwnerId};

fn ownership() -> Ownership {
    let deadline = Deadline::At(Moment::from_nanos(100));
    let lease =
        Lease { id: LeaseId::new(1), scope: LeaseScope::Entry, ttl: Duration::from_nanos(60), deadline };
    let (name, owner) = (LockName::new("a").unwrap(), OwnerId::from_random([1; 16]));
    Ownership::new(
        Grant { name, owner, lease, counter: 1 },
        Mode::EXCLUSIVE,
        Arc::new(LeaseDeadline::new(deadline)),
        0,
    )
}

fn at(nanos: u64) -> Moment {
    Moment::from_nanos(nanos)
}

/// A renewal that arrives after the end does not revive (ownership-1), and only one end counts (ownership-2).
#[test]
fn ended_ownership_is_never_held_again() {
    let ownership = ownership();
    assert!(ownership.end(LostReason::Gone));
    assert!(!ownership.end(LostReason::Expired));
    ownership.lease_deadline.extend(Deadline::At(at(1_000)));
    for _ in 0..2 {
        assert!(!ownership.is_held(at(1)));
        assert_eq!(ownership.remaining(at(1)), Duration::ZERO);
        assert_eq!(ownership.lost(at(1)), Some(LostReason::Gone));
    }
    ownership.follow();
    assert_eq!(ownership.state(at(1)), GuardState::Lost(LostReason::Gone));
}

/// It has ended for its guard only, and ends once more (ownership-6); a requested revocation comes first.
#[test]
fn put_off_ownership_ends_once_more() {
    let kept = || Box::new(()) as Kept;
    let put_off = |ownership: &Ownership, now| ownership.put_off(LostReason::Released, at(now), kept);
    let ownership = ownership();
    assert!(!put_off(&ownership, 1), "without a `hold_at_least`");
    ownership.hold_at_least_until(at(50));
    assert!(!put_off(&ownership, 50) && !ownership.is_put_off());
    assert!(put_off(&ownership, 49) && ownership.is_put_off() && !put_off(&ownership, 49));
    assert_eq!((ownership.lost(at(49)), ownership.ends_at()), (Some(LostReason::Released), Some(at(50))));
    assert!(!ownership.end(LostReason::Expired) && ownership.end_in_time(at(50)).is_none());
    assert!(!ownership.request_revocation(at(49)));
    assert!(!ownership.end_put_off_in_time(at(49)) && ownership.end_put_off_in_time(at(50)));
    assert!(!ownership.end_put_off() && !ownership.is_put_off());
    assert_eq!(ownership.ends_at(), None);
    let revoked = self::ownership();
    revoked.hold_at_least_until(at(50));
    revoked.request_revocation(at(60));
    assert!(!put_off(&revoked, 1));
}

#[test]
fn the_deadline_ends_it_without_being_told() {
    let ownership = ownership();
    assert_eq!(ownership.lost(at(99)), None);
    assert_eq!(ownership.lost(at(100)), Some(LostReason::Expired));
}

/// Answers to two renewals may come in any order (lease-2).
#[test]
fn an_earlier_deadline_takes_nothing_back() {
    let ownership = ownership();
    ownership.lease_deadline.extend(Deadline::At(at(200)));
    ownership.lease_deadline.extend(Deadline::At(at(150)));
    assert_eq!(ownership.remaining(at(150)), Duration::from_nanos(50));
    assert!(ownership.is_held(at(199)) && !ownership.is_held(at(200)));
    assert_eq!(ownership.last_deadline(), Deadline::At(at(200)));
}

/// A renewal is seen when the copy has passed, and only then looked for.
#[test]
fn the_copy_follows_the_lease_when_it_has_passed() {
    let ownership = ownership();
    ownership.lease_deadline.extend(Deadline::At(at(200)));
    assert!(ownership.is_held(at(99)));
    assert_eq!(ownership.held_before.load(Ordering::Relaxed), 100);
    assert!(ownership.is_held(at(100)));
    assert_eq!(ownership.held_before.load(Ordering::Relaxed), 200);
}

/// Hand-off needs a sixth of the ttl, and no overdue renewal.
#[test]
fn ownership_near_its_end_or_at_risk_is_not_healthy() {
    let ownership = ownership();
    assert!(ownership.is_healthy(at(90)));
    assert!(!ownership.is_healthy(at(91)));
    ownership.lease_deadline.set_at_risk(true);
    ownership.follow();
    assert!(!ownership.is_healthy(at(1)));
    ownership.lease_deadline.extend(Deadline::At(at(200)));
    assert!(!ownership.is_healthy(at(100)));
    ownership.lease_deadline.set_at_risk(false);
    ownership.follow();
    assert!(ownership.is_healthy(at(100)));
}

#[test]
fn watchers_follow_their_guard_only() {
    let ownership = ownership();
    let first = ownership.watch(0);
    tell_released(&ownership.pass_on(0, at(1)).expect("it is healthy").unwrap());
    assert_eq!(first.borrow().state, GuardState::Lost(LostReason::Released));
    let second = ownership.watch(1);
    assert_eq!(second.borrow().state, GuardState::Held);
    ownership.end(LostReason::Expired);
    assert_eq!(second.borrow().state, GuardState::Lost(LostReason::Expired));
    assert_eq!(first.borrow().state, GuardState::Lost(LostReason::Released));
}

/// A revoked ownership ends at the revocation deadline, whatever its lease; the earliest of several counts, and no
/// other guard gets it before (ownership-4).
#[test]
fn revoked_ownership_ends_at_its_deadline() {
    let ownership = ownership();
    let watched = ownership.watch(0);
    assert!(ownership.request_revocation(at(80)) && ownership.request_revocation(at(50)));
    assert!(!ownership.request_revocation(at(50)) && !ownership.request_revocation(at(70)));
    assert_eq!(*watched.borrow(), Standing { state: GuardState::Held, revocation_deadline: Some(at(50)) });
    ownership.lease_deadline.extend(Deadline::At(at(1_000)));
    assert!(ownership.is_held(at(49)) && !ownership.is_held(at(50)));
    assert!(!ownership.is_healthy(at(1)));
    assert_eq!(ownership.remaining(at(40)), Duration::from_nanos(10));
    assert_eq!((ownership.lost(at(49)), ownership.lost(at(50))), (None, Some(LostReason::Revoked)));
    ownership.end(LostReason::Released);
    assert!(!ownership.request_revocation(at(1)));
}

/// A revocation before a hand-off prevents it, and one after it is the next guard's. The bound of a guard ends with
/// that guard.
#[test]
fn revoked_ownership_is_not_passed_on() {
    let ownership = ownership();
    let first = ownership.watch(0);
    ownership.hold_until(at(30));
    tell_released(&ownership.pass_on(0, at(10)).expect("it is healthy").unwrap());
    assert_eq!(first.borrow().state, GuardState::Lost(LostReason::Released));
    assert_eq!(ownership.end_in_time(at(30)), None, "the bound was the guard's before");
    let second = ownership.watch(1);
    assert!(ownership.request_revocation(at(50)));
    assert!(ownership.pass_on(1, at(10)).is_none());
    assert_eq!(
        (ownership.end_in_time(at(49)), ownership.end_in_time(at(50))),
        (None, Some(LostReason::Revoked))
    );
    assert_eq!(second.borrow().state, GuardState::Lost(LostReason::Revoked));
    assert_eq!(ownership.end_in_time(at(50)), None);
}

/// A lease that was over before is the reason, whatever was requested.
#[test]
fn the_earliest_end_is_the_reason() {
    let ownership = ownership();
    ownership.request_revocation(at(150));
    assert_eq!((ownership.lost(at(160)), ownership.end_in_time(at(160))), (Some(LostReason::Expired), None));
    ownership.lease_deadline.extend(Deadline::At(at(200)));
    assert_eq!(ownership.end_in_time(at(160)), Some(LostReason::Revoked));
}

/// The bound of a guard ends with it; a requested revocation applies to the next one, too (ownership-4).
#[test]
fn a_guard_is_bounded_by_itself() {
    let ownership = ownership();
    ownership.hold_until(at(40));
    assert!(ownership.is_healthy(at(39)), "another guard may have it longer");
    assert_eq!((ownership.lost(at(39)), ownership.lost(at(40))), (None, Some(LostReason::MaxHold)));
    assert!(ownership.pass_on(0, at(39)).expect("it is healthy").is_none());
    assert!(ownership.is_held(at(40)) && !ownership.is_held(at(100)));
    ownership.hold_until(at(90));
    ownership.request_revocation(at(60));
    assert_eq!(ownership.lost(at(95)), Some(LostReason::Revoked));
    assert!(ownership.pass_on(1, at(50)).is_none());
    assert_eq!(ownership.lost(at(60)), Some(LostReason::Revoked));
}

/// Guards that share an ownership are lost together, and released each for itself (ownership-1).
#[test]
fn guards_that_share_it_let_go_each_for_itself() {
    let ownership = ownership();
    let (first, second) = (ownership.watch(0), ownership.watch(1));
    tell_released(&ownership.without(0).expect("it is watched"));
    assert!(ownership.without(0).is_none());
    let released = GuardState::Lost(LostReason::Released);
    assert_eq!([&first, &second].map(|told| told.borrow().state), [released, GuardState::Held]);
    ownership.request_revocation(at(50));
    assert_eq!([&first, &second].map(|told| told.borrow().revocation_deadline), [None, Some(at(50))]);
    ownership.end(LostReason::Revoked);
    let revoked = GuardState::Lost(LostReason::Revoked);
    assert_eq!([&first, &second].map(|told| told.borrow().state), [released, revoked]);
}

#[test]
fn ownership_without_a_lease_has_no_end() {
    let Ownership { grant, mode, .. } = ownership();
    let endless = Ownership::new(grant, mode, Arc::new(LeaseDeadline::new(Deadline::Never)), 0);
    assert_eq!(endless.remaining(at(7)), Duration::MAX);
    assert!(endless.is_held(at(u64::MAX - 2)));
    assert!(endless.request_revocation(at(20)));
    assert_eq!(endless.remaining(at(7)), Duration::from_nanos(13));
}
