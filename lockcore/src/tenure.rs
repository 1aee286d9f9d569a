//! The time a process keeps one grant of the store, across its local hand-offs.
//!
//! Guards read their deadline here with one atomic load; the watchdog moves it. Whoever ends a
//! tenure, exactly once, owes the store its release.
//!
//! # Invariants
//! - **T1** Once ended, a tenure is never held again, whatever arrives later (G2).
//! - **T2** Exactly one caller of [`Tenure::end`] succeeds.
//!
//! Checked by the tests below and the conformance cases of `g2`.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::backend::Grant;
use crate::clock::{Deadline, Moment};
use crate::loss::{GuardState, LostReason};
use crate::meters;

#[derive(Debug)]
pub(crate) struct Tenure {
    grant: Grant,
    /// Held before this moment, in nanoseconds: `ENDED` once it is over, `ENDLESS` without lease.
    /// Written with `status` locked; read without.
    held_before: AtomicU64,
    status: Mutex<Status>,
    /// Its place among the tenures of its lease; belongs to the watchdog's table.
    slot: AtomicUsize,
}

#[derive(Debug)]
struct Status {
    state: GuardState,
    /// What `held_before` was when the tenure ended.
    last_held_before: u64,
    /// Made when somebody first asks for the current guard's changes.
    watchers: Option<watch::Sender<GuardState>>,
}

const ENDED: u64 = 0;
const ENDLESS: u64 = u64::MAX;

impl Tenure {
    pub(crate) fn new(grant: Grant) -> Self {
        let held_before = encode(grant.lease.deadline);
        meters::taken();
        Self {
            grant,
            held_before: AtomicU64::new(held_before),
            status: Mutex::new(Status {
                state: GuardState::Held,
                last_held_before: held_before,
                watchers: None,
            }),
            slot: AtomicUsize::new(0),
        }
    }

    pub(crate) fn grant(&self) -> &Grant {
        &self.grant
    }

    pub(crate) fn is_held(&self, now: Moment) -> bool {
        // ORDERING: acquire pairs with the release in `end`, so that a reader who sees the end also
        // sees its reason.
        now.as_nanos() < self.held_before.load(Ordering::Acquire)
    }

    pub(crate) fn remaining(&self, now: Moment) -> Duration {
        match self.held_before.load(Ordering::Acquire) {
            ENDLESS => Duration::MAX,
            nanos => Moment::from_nanos(nanos).since(now),
        }
    }

    /// The deadline, or what it was when the tenure ended.
    pub(crate) fn last_deadline(&self) -> Deadline {
        let status = self.status.lock();
        let ended = matches!(status.state, GuardState::Lost(_));
        match if ended { status.last_held_before } else { self.held_before.load(Ordering::Acquire) } {
            ENDLESS => Deadline::Never,
            nanos => Deadline::At(Moment::from_nanos(nanos)),
        }
    }

    /// Why it is not held at `now`, if it is not.
    pub(crate) fn lost(&self, now: Moment) -> Option<LostReason> {
        match self.status.lock().state {
            GuardState::Lost(reason) => Some(reason),
            _ if !self.is_held(now) => Some(LostReason::Expired),
            GuardState::Held | GuardState::AtRisk => None,
        }
    }

    /// Whether it may pass to another guard: held, not at risk, a sixth of its ttl left.
    pub(crate) fn is_healthy(&self, now: Moment) -> bool {
        self.status.lock().state == GuardState::Held
            && self.remaining(now) >= self.grant.lease.ttl / 6
            && self.is_held(now)
    }

    /// The lease was renewed.
    pub(crate) fn extend(&self, deadline: Deadline) {
        let mut status = self.status.lock();
        if matches!(status.state, GuardState::Lost(_)) {
            return;
        }
        // Answers are applied in any order; a deadline never moves back.
        self.held_before.fetch_max(encode(deadline), Ordering::Release);
        status.turn(GuardState::Held);
    }

    /// A renewal is overdue.
    pub(crate) fn put_at_risk(&self) {
        let mut status = self.status.lock();
        if status.state == GuardState::Held {
            status.turn(GuardState::AtRisk);
        }
    }

    /// Ends the tenure; whether this call did (T2).
    pub(crate) fn end(&self, reason: LostReason) -> bool {
        let mut status = self.status.lock();
        if matches!(status.state, GuardState::Lost(_)) {
            return false;
        }
        status.last_held_before = self.held_before.swap(ENDED, Ordering::AcqRel);
        status.turn(GuardState::Lost(reason));
        meters::let_go();
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
        if matches!(state, GuardState::Lost(_)) {
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
    fn turn(&mut self, state: GuardState) {
        if self.state == state {
            return;
        }
        self.state = state;
        if let Some(watchers) = &self.watchers {
            watchers.send_replace(state);
        }
        if matches!(state, GuardState::Lost(_)) {
            self.watchers = None;
        }
    }
}

fn encode(deadline: Deadline) -> u64 {
    match deadline {
        Deadline::At(at) => at.as_nanos(),
        Deadline::Never => ENDLESS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Lease, LeaseId, LeaseScope};
    use crate::{LockName, OwnerId};

    fn tenure() -> Tenure {
        Tenure::new(Grant {
            name: LockName::new("a").unwrap(),
            owner: OwnerId::from_random([1; 16]),
            lease: Lease {
                id: LeaseId::new(1),
                scope: LeaseScope::Entry,
                ttl: Duration::from_nanos(60),
                deadline: Deadline::At(Moment::from_nanos(100)),
            },
            counter: 1,
        })
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
        tenure.extend(Deadline::At(at(1_000)));
        assert!(!tenure.is_held(at(1)));
        assert_eq!(tenure.lost(at(1)), Some(LostReason::Gone));
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
        tenure.extend(Deadline::At(at(200)));
        tenure.extend(Deadline::At(at(150)));
        assert!(tenure.is_held(at(199)) && !tenure.is_held(at(200)));
        assert_eq!(tenure.remaining(at(150)), Duration::from_nanos(50));
    }

    /// Hand-off needs a sixth of the ttl, and no overdue renewal.
    #[test]
    fn a_tenure_near_its_end_or_at_risk_is_not_healthy() {
        let tenure = tenure();
        assert!(tenure.is_healthy(at(90)));
        assert!(!tenure.is_healthy(at(91)));
        tenure.put_at_risk();
        assert!(!tenure.is_healthy(at(1)));
        tenure.extend(Deadline::At(at(200)));
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
