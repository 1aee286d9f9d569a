//! The table, step by step.

use super::*;
use crate::backend::Grant;
use crate::words::loss::GuardState;
use crate::{LockName, OwnerId};

fn at(seconds: u64) -> Moment {
    Moment::from_nanos(seconds * 1_000_000_000)
}

fn session(deadline: u64) -> Lease {
    Lease {
        id: LeaseId::new(1),
        scope: LeaseScope::Session,
        ttl: Duration::from_secs(9),
        deadline: Deadline::At(at(deadline)),
    }
}

fn granted(lease: Lease) -> Grant {
    let (name, owner) = (LockName::new("a").unwrap(), OwnerId::from_random([1; 16]));
    Grant { name, owner, lease, counter: 1 }
}

/// Why a grant is lost from the beginning.
fn lost(table: &mut LeaseTable, lease: Lease, now: u64) -> Option<LostReason> {
    table.register(granted(lease), Mode::EXCLUSIVE, at(now)).1
}

fn empty() -> LeaseTable {
    LeaseTable::new(Duration::from_secs(1), Duration::from_millis(750), Duration::from_secs(3))
}

fn table() -> LeaseTable {
    let mut table = empty();
    table.opened(session(9), at(0));
    table
}

/// A backend that got a late reply keeps its session for longer than we do; a grant in that session is lost
/// (leases-2).
#[test]
fn a_session_that_expired_stays_lost() {
    let mut table = table();
    while table.step(at(9)).wake_at.is_some_and(|wake_at| wake_at <= at(9)) {}
    assert_eq!(lost(&mut table, session(17), 10), Some(LostReason::Expired));
    table.step(at(18));
    assert!(table.leases.is_empty());
}

/// An entry that was announced while it queued, and lost, is lost for the grant that comes late; for
/// a ttl after its deadline, as no request from before reaches further (leases-2). One that was given
/// back is no grant's.
#[test]
fn an_entry_that_was_lost_before_its_grant_stays_lost() {
    let entry = Lease { scope: LeaseScope::Entry, ..session(9) };
    let mut table = empty();
    table.opened(entry, at(0));
    assert!(table.lose(entry.id, LostReason::Gone).is_none());
    table.step(at(17));
    assert_eq!(lost(&mut table, entry, 17), Some(LostReason::Gone));
    table.step(at(18));
    assert!(table.leases.is_empty() && table.timers.is_empty());
    table.opened(entry, at(0));
    table.lose(entry.id, LostReason::Released);
    assert!(table.leases.is_empty());
}

/// Those of many leases do not, though all were granted at once (leases-4).
#[test]
fn many_renewals_are_spread_over_the_interval() {
    const MANY: u64 = 12_800;
    let mut table = empty();
    let entry = |id| Lease { id: LeaseId::new(id), scope: LeaseScope::Entry, ..session(9) };
    (0..MANY).for_each(|id| table.opened(entry(id), at(0)));
    for rounds in 1..=3 {
        let (mut renewed, mut now) = (0, at(0));
        while renewed < MANY {
            let due = table.step(now);
            assert!(due.renew.len() <= 300 && due.changes.is_empty(), "{} at {now:?}", due.renew.len());
            let renewed_until = Renewal::Until(Deadline::At(now + Duration::from_secs(9)));
            assert!(due.renew.iter().all(|id| table.answered(*id, now, now, &renewed_until).is_none()));
            renewed += due.renew.len() as u64;
            now = due.wake_at.expect("all are renewed");
        }
        assert_eq!(renewed, MANY, "{rounds}");
    }
}

#[test]
fn renewals_that_are_due_soon_go_out_together() {
    let mut table = empty();
    let entry = |id| Lease { id: LeaseId::new(id), scope: LeaseScope::Entry, ..session(9) };
    table.opened(entry(1), at(0));
    let due_at = table.step(at(0)).wake_at.expect("it is renewed");
    let soon = Duration::from_millis(750);
    let later = |lease: Lease, by: Duration| match lease.deadline {
        Deadline::At(deadline) => Lease { deadline: Deadline::At(deadline + by), ..lease },
        Deadline::Never => lease,
    };
    table.opened(later(entry(2), soon), at(0) + soon);
    table.opened(later(entry(3), soon * 2), at(0) + soon * 2);
    let due = table.step(due_at).renew;
    assert_eq!(due, [LeaseId::new(1), LeaseId::new(2)]);
}

#[test]
fn short_holds_do_not_wake_the_task_each_time() {
    let mut table = empty();
    let woken = (0..9).filter(|second| {
        let entry = Lease { scope: LeaseScope::Entry, ..session(9 + second) };
        let ownership = table.register(granted(entry), Mode::EXCLUSIVE, at(*second)).0;
        let woken = table.must_wake(at(*second));
        table.deregister(&ownership);
        table.step(at(*second));
        woken
    });
    // Set for a renewal three seconds later, it wakes by itself then.
    assert_eq!(woken.collect::<Vec<_>>(), [0, 4, 8]);
}

/// The timer of the task stood still in a suspend, so what comes after it wakes the task.
#[test]
fn timer_set_after_a_suspend_wakes_the_task() {
    let mut table = empty();
    let entry = |id| Lease { scope: LeaseScope::Entry, ..session(id) };
    table.register(granted(entry(1)), Mode::EXCLUSIVE, at(0));
    assert!(table.must_wake(at(0)));
    table.step(at(0));
    table.register(granted(entry(2)), Mode::EXCLUSIVE, at(1));
    assert!(!table.must_wake(at(1)), "it wakes before");
    table.register(granted(entry(3)), Mode::EXCLUSIVE, at(8));
    assert!(table.must_wake(at(8)));
}

#[test]
fn a_grant_on_a_lease_at_risk_is_at_risk() {
    let mut table = table();
    table.step(at(3));
    table.step(at(4));
    let late = table.register(granted(session(9)), Mode::EXCLUSIVE, at(5)).0;
    assert_eq!(late.state(at(5)), GuardState::AtRisk);
}

/// A renewal touches no ownership, however many hang on the lease; all of them see it (leases-3).
#[test]
fn a_renewal_costs_the_same_for_any_number_of_holds() {
    let mut table = table();
    let ownerships: Vec<_> =
        (0..1_000).map(|_| table.register(granted(session(9)), Mode::EXCLUSIVE, at(0)).0).collect();
    for (now, deadline) in [(3, 12), (6, 15)] {
        let step = table.step(at(now));
        assert_eq!((step.renew.len(), touched(&step.changes)), (1, 0));
        let renewed = Renewal::Until(Deadline::At(at(deadline)));
        assert!(table.answered(LeaseId::new(1), at(now), at(now), &renewed).is_none());
        assert!(ownerships.iter().all(|ownership| ownership.is_held(at(deadline - 1))));
        assert!(!ownerships.iter().any(|ownership| ownership.is_held(at(deadline))));
    }
    // A grant with a later deadline extends it for all, and touches no ownership either.
    let newest = table.register(granted(session(16)), Mode::EXCLUSIVE, at(7)).0;
    assert!(ownerships.iter().chain([&newest]).all(|ownership| ownership.is_held(at(15))));
    // Each change is reported once.
    assert_eq!(touched(&table.step(at(9)).changes), 0);
    assert_eq!(touched(&table.step(at(10)).changes), 1_001);
    assert_eq!(touched(&table.step(at(11)).changes), 0);
    let renewed = Renewal::Until(Deadline::At(at(20)));
    let safe = table.answered(LeaseId::new(1), at(12), at(11), &renewed).unwrap();
    assert_eq!((safe.change, safe.ownerships.len()), (Change::Safe, 1_001));
    assert_eq!(touched(&Vec::from_iter(table.lose(LeaseId::new(1), LostReason::Gone))), 1_001);
}

fn touched(changes: &[LeaseChange]) -> usize {
    changes.iter().map(|outcome| outcome.ownerships.len()).sum()
}

#[test]
fn risk_and_safety_may_be_told_in_any_order() {
    let mut table = table();
    let ownership = table.register(granted(session(9)), Mode::EXCLUSIVE, at(0)).0;
    table.step(at(3));
    let risk = table.step(at(4)).changes;
    let renewed = Renewal::Until(Deadline::At(at(12)));
    let safe = table.answered(LeaseId::new(1), at(5), at(3), &renewed).unwrap();
    assert_eq!((risk[0].change, safe.change), (Change::AtRisk, Change::Safe));
    for told in [&safe, &risk[0]] {
        told.ownerships.iter().for_each(|ownership| ownership.follow());
        assert_eq!(ownership.state(at(5)), GuardState::Held);
    }
}

/// A lease that is named again lasts longer, and its renewal is as overdue as before: a guard that is
/// said to be held again would not be said to be at risk any more.
#[test]
fn a_lease_that_is_named_again_stays_at_risk() {
    let mut table = table();
    let ownership = table.register(granted(session(9)), Mode::EXCLUSIVE, at(0)).0;
    table.step(at(3));
    table.step(at(4)).changes[0].ownerships[0].follow();
    table.opened(session(10), at(4));
    ownership.follow();
    assert_eq!(ownership.state(at(9)), GuardState::AtRisk);
}

#[test]
fn places_of_ended_ownerships_are_freed() {
    let mut table = table();
    let mut ownerships: Vec<_> =
        (0..10_000).map(|_| table.register(granted(session(9)), Mode::EXCLUSIVE, at(0)).0).collect();
    let left = ownerships.split_off(9_900);
    ownerships[0].hold_until(at(1));
    table.ends.set(&ownerships[0]);
    ownerships.iter().for_each(|ownership| table.deregister(ownership));
    let capacity = |table: &LeaseTable| table.leases[&LeaseId::new(1)].ownerships.capacity();
    assert!(capacity(&table) <= 4 * left.len(), "{} places", capacity(&table));
    assert!(table.ends.due(at(1)).is_empty());
    left.iter().for_each(|ownership| table.deregister(ownership));
    assert!(table.ownerships().is_empty() && capacity(&table) <= KEPT, "{} places", capacity(&table));
}
