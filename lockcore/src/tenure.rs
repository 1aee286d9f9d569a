//! The time a process keeps one grant of the store, across its local hand-offs.
//!
//! Guards ask it with one atomic load: it keeps a copy of its lease's deadline, and looks at the
//! [`Term`] itself only once the copy has passed, which is once a renewal. Whoever ends a tenure,
//! exactly once, owes the store its release.
//!
//! # Invariants
//! - **T1** Once ended, a tenure is never held again, whatever arrives later (G2).
//! - **T2** Exactly one caller of [`Tenure::end`] succeeds.
//! - **T3** The copy is never later than the term's deadline.
//! - **T4** Nobody is woken with `status` locked: a waker may ask.
//!
//! Checked by the tests below and the conformance cases of `g2`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::backend::Grant;
use crate::clock::{Deadline, Moment};
use crate::loss::{GuardState, LostReason};
use crate::meters;
use crate::term::Term;

#[derive(Debug)]
pub(crate) struct Tenure {
    grant: Grant,
    term: Arc<Term>,
    /// Certainly held before this moment, in nanoseconds: what the term said last, `ENDED` once the
    /// tenure is over. Written with `status` locked; read without.
    held_before: AtomicU64,
    status: Mutex<Status>,
    /// Its place among the tenures of its lease; belongs to the watchdog's table.
    slot: AtomicUsize,
}

#[derive(Debug)]
struct Status {
    state: GuardState,
    /// Made when somebody first asks for the current guard's changes.
    watchers: Option<watch::Sender<GuardState>>,
}

const ENDED: u64 = 0;

impl Tenure {
    pub(crate) fn new(grant: Grant, term: Arc<Term>, slot: usize) -> Self {
        Self {
            grant,
            held_before: AtomicU64::new(term.held_before()),
            status: Mutex::new(Status { state: standing(&term), watchers: None }),
            term,
            slot: AtomicUsize::new(slot),
        }
    }

    pub(crate) fn grant(&self) -> &Grant {
        &self.grant
    }

    pub(crate) fn is_held(&self, now: Moment) -> bool {
        // ORDERING: acquire pairs with the release in `end`, so that a reader who sees the end also
        // sees its reason.
        now.as_nanos() < self.held_before.load(Ordering::Acquire) || self.is_held_on(now)
    }

    /// Whether the lease was renewed since the copy was made, or the tenure has ended.
    #[cold]
    fn is_held_on(&self, now: Moment) -> bool {
        // RACE: with `status` locked, as `end` has it: an ended tenure's copy is not made anew (T1).
        let status = self.status.lock();
        if status.is_lost() {
            return false;
        }
        let held_before = self.term.held_before();
        self.held_before.store(held_before, Ordering::Release);
        now.as_nanos() < held_before
    }

    pub(crate) fn remaining(&self, now: Moment) -> Duration {
        match self.held_before.load(Ordering::Acquire) {
            ENDED => Duration::ZERO,
            _not_ended => self.term.deadline().remaining(now),
        }
    }

    /// The deadline of its lease, which may move on for others after this tenure has ended.
    pub(crate) fn last_deadline(&self) -> Deadline {
        self.term.deadline()
    }

    /// Why it is not held at `now`, if it is not.
    pub(crate) fn lost(&self, now: Moment) -> Option<LostReason> {
        let state = self.status.lock().state;
        match state {
            GuardState::Lost(reason) => Some(reason),
            _ if !self.is_held(now) => Some(LostReason::Expired),
            GuardState::Held | GuardState::AtRisk => None,
        }
    }

    /// Whether it may pass to another guard: held, not at risk, a sixth of its ttl left.
    pub(crate) fn is_healthy(&self, now: Moment) -> bool {
        let state = self.status.lock().state;
        state == GuardState::Held && self.remaining(now) >= self.grant.lease.ttl / 6 && self.is_held(now)
    }

    /// The lease has come to be at risk, or out of it: tells the watchers how it stands by now.
    pub(crate) fn follow(&self) {
        // ORDERING: each change of the term is followed by whoever made it. The last one here has locked
        // `status` after all others, so it reads the last change, whichever came first.
        let watchers = {
            let mut status = self.status.lock();
            if status.is_lost() {
                return;
            }
            status.state = standing(&self.term);
            status.watchers.clone()
        };
        let Some(watchers) = watchers else {
            return;
        };
        // RACE: another change may be told at the same time. Each tells how it stands by then, and nothing
        // to watchers who were taken away, who are told their last by whoever took them.
        watchers.send_if_modified(|told| {
            let status = self.status.lock();
            let theirs = status.watchers.as_ref().is_some_and(|present| present.same_channel(&watchers));
            theirs && std::mem::replace(told, status.state) != status.state
        });
    }

    /// Ends the tenure; whether this call did (T2).
    pub(crate) fn end(&self, reason: LostReason) -> bool {
        let state = GuardState::Lost(reason);
        let watchers = {
            let mut status = self.status.lock();
            if status.is_lost() {
                return false;
            }
            self.held_before.store(ENDED, Ordering::Release);
            status.state = state;
            status.watchers.take()
        };
        meters::let_go();
        if let Some(watchers) = watchers {
            watchers.send_replace(state);
        }
        true
    }

    /// Who watches the current guard, which is released while the tenure goes on. Taken under the
    /// queue's mutex, so that nobody who watches the next guard is among them.
    pub(crate) fn take_watchers(&self) -> Option<watch::Sender<GuardState>> {
        self.status.lock().watchers.take()
    }

    /// The states of the current guard; after the last one the sender is gone.
    pub(crate) fn watch(&self) -> watch::Receiver<GuardState> {
        let mut status = self.status.lock();
        let state = status.state;
        if status.is_lost() {
            return watch::channel(state).1;
        }
        status.watchers.get_or_insert_with(|| watch::Sender::new(state)).subscribe()
    }

    pub(crate) fn state(&self, now: Moment) -> GuardState {
        match self.lost(now) {
            Some(reason) => GuardState::Lost(reason),
            None => self.status.lock().state,
        }
    }

    pub(crate) fn slot(&self) -> usize {
        self.slot.load(Ordering::Relaxed)
    }

    pub(crate) fn set_slot(&self, slot: usize) {
        self.slot.store(slot, Ordering::Relaxed);
    }
}

impl Status {
    fn is_lost(&self) -> bool {
        matches!(self.state, GuardState::Lost(_))
    }
}

/// How a hold stands whose lease is not lost.
fn standing(term: &Term) -> GuardState {
    if term.is_at_risk() { GuardState::AtRisk } else { GuardState::Held }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Lease, LeaseId, LeaseScope};
    use crate::{LockName, OwnerId};

    fn tenure() -> Tenure {
        let deadline = Deadline::At(Moment::from_nanos(100));
        let lease =
            Lease { id: LeaseId::new(1), scope: LeaseScope::Entry, ttl: Duration::from_nanos(60), deadline };
        let (name, owner) = (LockName::new("a").unwrap(), OwnerId::from_random([1; 16]));
        Tenure::new(Grant { name, owner, lease, counter: 1 }, Arc::new(Term::new(deadline)), 0)
    }

    fn at(nanos: u64) -> Moment {
        Moment::from_nanos(nanos)
    }

    /// A renewal that arrives after the end does not revive (T1), and only one end counts (T2).
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

    /// Answers to two renewals may come in any order (L2).
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
        let first = tenure.watch();
        tenure.take_watchers().unwrap().send_replace(GuardState::Lost(LostReason::Released));
        assert_eq!(*first.borrow(), GuardState::Lost(LostReason::Released));
        let second = tenure.watch();
        assert_eq!(*second.borrow(), GuardState::Held);
        tenure.end(LostReason::Expired);
        assert_eq!(*second.borrow(), GuardState::Lost(LostReason::Expired));
        assert_eq!(*first.borrow(), GuardState::Lost(LostReason::Released));
    }
}
