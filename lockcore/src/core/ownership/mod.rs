//! One grant of the store, for as long as this process keeps it: held, at risk or lost, and until when.
//!
//! It lasts across local hand-offs, and all holds that share the grant have it. Guards read it with one atomic load: it
//! keeps a copy of its lease's deadline, and reads the [`LeaseDeadline`] itself only once the copy has passed, which
//! is once a renewal. It knows no queue and no store: whatever ends it makes the release pending.
//!
//! # Invariants
//! - **ownership-1** Once ended, an ownership is never held again, whatever arrives later (G2).
//! - **ownership-2** Exactly one call of [`Ownership::end`] succeeds.
//! - **ownership-3** The copy is never later than the lease's deadline, nor than the end of ownership-4.
//! - **ownership-4** Whatever its lease, it is not held beyond the deadline of a requested revocation, which never moves
//!   to a later time, nor beyond its guard's `max_hold`. (A guard with one shares it with no other.)
//! - **ownership-5** No watcher is woken with `status` locked: a waker may call in here.
//!
//! Checked by the tests below and the conformance cases of `g2`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::sync::watch;

use crate::backend::Grant;
use crate::backend::panic::waking;
use crate::clock::{Deadline, Moment};
use crate::core::deadline::{ENDLESS, LeaseDeadline};
use crate::core::metrics;
use crate::words::loss::{GuardState, LostReason};
use crate::words::mode::Mode;

#[derive(Debug)]
pub(crate) struct Ownership {
    grant: Grant,
    mode: Mode,
    lease_deadline: Arc<LeaseDeadline>,
    /// Certainly held before this moment, in nanoseconds: what the lease deadline said last, `ENDED` once the
    /// ownership is over. Written with `status` locked; read without.
    held_before: AtomicU64,
    status: Mutex<Status>,
    /// Its place among the ownerships of its lease; belongs to the watchdog's table.
    slot: AtomicUsize,
}

#[derive(Debug)]
struct Status {
    state: GuardState,
    /// The deadline of a requested revocation.
    asked: Option<Moment>,
    /// When its present guard has held it for its `max_hold`.
    too_long: Option<Moment>,
    /// Of each guard, by its index: made when its changes are first watched.
    watchers: Watchers,
}

type Watchers = SmallVec<[(u16, watch::Sender<Standing>); 1]>;

/// The state of a guard, as its watchers get it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) state: GuardState,
    pub(crate) asked: Option<Moment>,
}

const ENDED: u64 = 0;

impl Ownership {
    pub(crate) fn new(grant: Grant, mode: Mode, lease_deadline: Arc<LeaseDeadline>, slot: usize) -> Self {
        let (state, watchers) = (on_lease(&lease_deadline), Watchers::new());
        let status = Status { state, asked: None, too_long: None, watchers };
        let (status, slot) = (Mutex::new(status), AtomicUsize::new(slot));
        Self {
            grant,
            mode,
            held_before: AtomicU64::new(lease_deadline.held_before()),
            status,
            lease_deadline,
            slot,
        }
    }

    pub(crate) fn grant(&self) -> &Grant {
        &self.grant
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    pub(crate) fn is_held(&self, now: Moment) -> bool {
        // ORDERING: acquire pairs with the release in `end`, so that a reader who sees the end also
        // sees its reason.
        now.as_nanos() < self.held_before.load(Ordering::Acquire) || self.is_held_on(now)
    }

    /// Whether the lease was renewed since the copy was made, or the ownership has ended.
    #[cold]
    fn is_held_on(&self, now: Moment) -> bool {
        // RACE: with `status` locked, as `end` has it: an ended ownership's copy is not made anew (ownership-1).
        let status = self.status.lock();
        if status.is_lost() {
            return false;
        }
        let held_before = self.lease_deadline.held_before().min(status.ends_before());
        self.held_before.store(held_before, Ordering::Release);
        now.as_nanos() < held_before
    }

    pub(crate) fn remaining(&self, now: Moment) -> Duration {
        let status = self.status.lock();
        if status.is_lost() {
            return Duration::ZERO;
        }
        let ends_in = Moment::from_nanos(status.ends_before()).since(now);
        match self.lease_deadline.last().remaining(now) {
            left if status.ends_before() == ENDLESS => left,
            left => left.min(ends_in),
        }
    }

    /// The deadline of its lease, which may move on for others after this ownership has ended.
    pub(crate) fn last_deadline(&self) -> Deadline {
        self.lease_deadline.last()
    }

    /// Why it is not held at `now`, if it is not.
    pub(crate) fn lost(&self, now: Moment) -> Option<LostReason> {
        if self.is_held(now) {
            return None;
        }
        let status = self.status.lock();
        match status.state {
            GuardState::Lost(reason) => Some(reason),
            GuardState::Held | GuardState::AtRisk => {
                Some(status.passed(now, &self.lease_deadline).unwrap_or(LostReason::Expired))
            }
        }
    }

    /// Whether one more guard may have it: held, no revocation requested, not at risk, a sixth of its ttl left.
    pub(crate) fn is_healthy(&self, now: Moment) -> bool {
        self.is_well(&self.status.lock(), now)
    }

    fn is_well(&self, status: &Status, now: Moment) -> bool {
        let left = self.lease_deadline.last().remaining(now);
        status.state == GuardState::Held
            && status.asked.is_none()
            && left >= self.grant.lease.ttl / 6
            && now.as_nanos() < self.lease_deadline.held_before().min(status.ends_before())
    }

    /// Ends it at `at`, or when it was to end before that; whether this changes anything.
    pub(crate) fn request_revocation(&self, at: Moment) -> bool {
        let watchers = {
            let mut status = self.status.lock();
            if status.is_lost() || status.asked.is_some_and(|earlier| earlier <= at) {
                return false;
            }
            status.asked = Some(at);
            self.shorten(&status);
            status.watchers.clone()
        };
        self.tell(watchers);
        true
    }

    /// The deadline of a requested revocation.
    pub(crate) fn asked(&self) -> Option<Moment> {
        self.status.lock().asked
    }

    /// When it ends by itself (ownership-4), if it does and has not ended.
    pub(crate) fn ends_at(&self) -> Option<Moment> {
        let status = self.status.lock();
        status.ends_at().filter(|_| !status.is_lost())
    }

    /// Its present guard holds it until `at`, and no longer.
    pub(crate) fn hold_until(&self, at: Moment) {
        let mut status = self.status.lock();
        status.too_long = Some(at);
        if !status.is_lost() {
            self.shorten(&status);
        }
    }

    /// With `status` locked.
    fn shorten(&self, status: &Status) {
        let copy = self.held_before.load(Ordering::Relaxed).min(status.ends_before());
        self.held_before.store(copy, Ordering::Release);
    }

    /// The lease has come to be at risk, or out of it: tells the watchers how it stands by now.
    pub(crate) fn follow(&self) {
        // ORDERING: each change of the lease deadline is followed by the one that made it. The last one here has locked
        // `status` after all others, so it reads the last change, whichever came first.
        let watchers = {
            let mut status = self.status.lock();
            if status.is_lost() {
                return;
            }
            status.state = on_lease(&self.lease_deadline);
            status.watchers.clone()
        };
        self.tell(watchers);
    }

    fn tell(&self, watchers: Watchers) {
        for (_, watchers) in watchers {
            // RACE: another change may be told at the same time. Each tells how it stands by then, and nothing
            // to watchers that were taken away: the one that took them tells them.
            let news = |told: &mut Standing| {
                let status = self.status.lock();
                let theirs = status.watchers.iter().any(|(_, present)| present.same_channel(&watchers));
                let standing = status.standing();
                theirs && std::mem::replace(told, standing) != standing
            };
            waking(|| watchers.send_if_modified(news));
        }
    }

    /// Ends the ownership; whether this call did (ownership-2).
    pub(crate) fn end(&self, reason: LostReason) -> bool {
        self.end_if(|_| Some(reason)).is_some()
    }

    /// Ends it if ownership-4 does by now, and says why.
    pub(crate) fn end_in_time(&self, now: Moment) -> Option<LostReason> {
        self.end_if(|status| status.passed(now, &self.lease_deadline))
    }

    fn end_if(&self, why: impl FnOnce(&Status) -> Option<LostReason>) -> Option<LostReason> {
        let (watchers, last, reason) = {
            let mut status = self.status.lock();
            if status.is_lost() {
                return None;
            }
            let reason = why(&status)?;
            self.held_before.store(ENDED, Ordering::Release);
            status.state = GuardState::Lost(reason);
            let is_watched = !status.watchers.is_empty();
            (is_watched.then(|| std::mem::take(&mut status.watchers)), status.standing(), reason)
        };
        metrics::let_go();
        for (_, watchers) in watchers.iter().flatten() {
            waking(|| watchers.send_replace(last));
        }
        Some(reason)
    }

    /// Passes it from its only guard to another, if it is healthy: returns the watchers of the released guard, to be
    /// told so. Decided in one piece: a revocation that is requested from here on is requested of the other guard.
    pub(crate) fn pass_on(&self, guard: u16, now: Moment) -> Option<Option<Passed>> {
        let mut status = self.status.lock();
        self.is_well(&status, now).then(|| {
            status.too_long = None;
            status.without(guard)
        })
    }

    /// One of several guards is released: its watchers, to be told so.
    pub(crate) fn without(&self, guard: u16) -> Option<Passed> {
        self.status.lock().without(guard)
    }

    /// How a guard stands; after the last word the sender is gone.
    pub(crate) fn watch(&self, guard: u16) -> watch::Receiver<Standing> {
        let mut status = self.status.lock();
        let standing = status.standing();
        if status.is_lost() {
            return watch::channel(standing).1;
        }
        if let Some((_, watchers)) = status.watchers.iter().find(|(watched, _)| *watched == guard) {
            return watchers.subscribe();
        }
        let (sender, watcher) = watch::channel(standing);
        status.watchers.push((guard, sender));
        watcher
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

/// The watchers of a guard that was released.
pub(crate) struct Passed {
    watchers: watch::Sender<Standing>,
    last: Standing,
}

impl Passed {
    /// Not under any mutex (ownership-5).
    pub(crate) fn tell(self) {
        waking(|| self.watchers.send_replace(self.last));
    }
}

impl Status {
    fn is_lost(&self) -> bool {
        matches!(self.state, GuardState::Lost(_))
    }

    fn standing(&self) -> Standing {
        Standing { state: self.state, asked: self.asked }
    }

    /// The first moment at which ownership-4 ends it, in nanoseconds; `ENDLESS` if it does not.
    fn ends_before(&self) -> u64 {
        self.ends_at().map_or(ENDLESS, Moment::as_nanos)
    }

    fn ends_at(&self) -> Option<Moment> {
        self.asked.into_iter().chain(self.too_long).min()
    }

    fn without(&mut self, guard: u16) -> Option<Passed> {
        let place = self.watchers.iter().position(|(watched, _)| *watched == guard)?;
        let (_, watchers) = self.watchers.swap_remove(place);
        Some(Passed {
            watchers,
            last: Standing { state: GuardState::Lost(LostReason::Released), ..self.standing() },
        })
    }

    /// Why ownership-4 has ended it at `now`, if it has, and not its lease before that.
    fn passed(&self, now: Moment, lease_deadline: &LeaseDeadline) -> Option<LostReason> {
        let asked = self.asked.map(|at| (at, LostReason::Revoked));
        let too_long = self.too_long.map(|at| (at, LostReason::MaxHold));
        let (at, reason) = asked.into_iter().chain(too_long).min()?;
        (at <= now && at.as_nanos() <= lease_deadline.held_before()).then_some(reason)
    }
}

/// Ends with a guard.
pub(crate) async fn ended(mut standings: watch::Receiver<Standing>) -> LostReason {
    loop {
        if let GuardState::Lost(reason) = standings.borrow_and_update().state {
            return reason;
        }
        if standings.changed().await.is_err() {
            // The sender goes only after its last word, which was read above.
            return LostReason::Released;
        }
    }
}

/// How a hold stands whose lease is not lost.
fn on_lease(lease_deadline: &LeaseDeadline) -> GuardState {
    if lease_deadline.is_at_risk() { GuardState::AtRisk } else { GuardState::Held }
}

#[cfg(test)]
mod tests;
