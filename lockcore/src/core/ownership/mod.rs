//! One grant of the store, for as long as this process keeps it: held, at risk or lost, and until when.
//!
//! It lasts across local hand-offs, and all holds that share the grant have it. Guards read it with one atomic load: it keeps a
//! copy of its lease's deadline, and reads the [`LeaseDeadline`] itself only once the copy has passed, which is once a renewal.
//! It knows no queue and no store: its end makes the release pending.
//!
//! # Invariants
//! - **ownership-1** Once ended, an ownership is never held again, even if a late answer extends its lease (G2).
//! - **ownership-2** Exactly one call of [`Ownership::end`] succeeds.
//! - **ownership-3** The copy is never later than the lease's deadline, nor than the end of ownership-4.
//! - **ownership-4** Independent of its lease, it is not held beyond the deadline of a requested revocation, which never moves
//!   to a later time, nor beyond its guard's `max_hold`. (A guard with one shares it with no other.)
//! - **ownership-5** No watcher is woken with `status` locked: a waker may call in here.
//! - **ownership-6** An ownership whose release is put off has ended for its guard only: it is held at the store
//!   and in its queue until it ends once more, at its time or with its lease (ownership-2 holds of that end).
//!
//! Checked by the tests below and the conformance cases of `g2`.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::backend::Grant;
use crate::backend::panic::waking;
use crate::clock::{Deadline, Moment};
use crate::core::deadline::{LeaseDeadline, encode};
use crate::core::metrics;
use crate::words::loss::{GuardState, LostReason};
use crate::words::mode::Mode;

pub(crate) struct Ownership {
    pub(crate) grant: Grant,
    pub(crate) mode: Mode,
    lease_deadline: Arc<LeaseDeadline>,
    /// Certainly held before this moment, in nanoseconds: the last value of the lease deadline, `ENDED` once the ownership has
    /// ended. Written with `status` locked; read without.
    held_before: AtomicU64,
    status: Mutex<Status>,
    /// Its place among the ownerships of its lease; belongs to the watchdog's table.
    slot: AtomicUsize,
}

struct Status {
    standing: Standing,
    /// Made when it is first needed: most holds have none of it.
    extras: Option<Box<Extras>>,
}

#[derive(Default)]
struct Extras {
    /// When its present guard has held it for its `max_hold`.
    max_hold: Option<Moment>,
    /// Of a guard with a `hold_at_least`.
    at_least: Option<AtLeast>,
    /// Counts the works that run under it; made with the first one, and closed.
    works: Option<TaskTracker>,
    /// Of each guard, by its index: made when its changes are first watched.
    watchers: SmallVec<[(u16, Watchers); 1]>,
}

struct AtLeast {
    until: Moment,
    /// The guard is done, and the release is put off: what has to stay until then.
    put_off: Option<Kept>,
}

/// Whatever an ownership has to keep alive, which this file does not know.
pub(crate) type Kept = Box<dyn Any + Send + Sync>;

/// The watchers of one guard.
pub(crate) type Watchers = watch::Sender<Standing>;

/// The state of a guard, as its watchers get it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) state: GuardState,
    /// The deadline of a requested revocation.
    pub(crate) revocation_deadline: Option<Moment>,
}

const ENDED: u64 = 0;

impl Standing {
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self.state, GuardState::Lost(_))
    }
}

impl Ownership {
    pub(crate) fn new(grant: Grant, mode: Mode, lease_deadline: Arc<LeaseDeadline>, slot: usize) -> Self {
        let standing = Standing { state: on_lease(&lease_deadline), revocation_deadline: None };
        let status = Status { standing, extras: None };
        let (status, slot) = (Mutex::new(status), AtomicUsize::new(slot));
        Self {
            grant,
            mode,
            held_before: AtomicU64::new(encode(lease_deadline.last())),
            status,
            lease_deadline,
            slot,
        }
    }

    pub(crate) fn is_held(&self, now: Moment) -> bool {
        // ORDERING: acquire pairs with the release in `end`, so that a reader of the end also reads its reason.
        now.as_nanos() < self.held_before.load(Ordering::Acquire) || self.is_held_on(now)
    }

    /// Whether the lease was renewed since the copy was made, or the ownership has ended.
    #[cold]
    fn is_held_on(&self, now: Moment) -> bool {
        // RACE: with `status` locked, as `end` has it: an ended ownership's copy is not made anew (ownership-1).
        let status = self.status.lock();
        if status.standing.is_lost() {
            return false;
        }
        let deadline = self.deadline(&status);
        self.held_before.store(encode(deadline), Ordering::Release);
        !deadline.has_passed(now)
    }

    pub(crate) fn remaining(&self, now: Moment) -> Duration {
        let status = self.status.lock();
        if status.standing.is_lost() { Duration::ZERO } else { self.deadline(&status).remaining(now) }
    }

    /// Until when it is held, unless it has ended: by its lease, or by ownership-4 before that.
    fn deadline(&self, status: &Status) -> Deadline {
        self.last_deadline().min(status.ends().map_or(Deadline::Never, |(at, _)| Deadline::At(at)))
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
        Some(match status.standing.state {
            GuardState::Lost(reason) => reason,
            _ => status.passed(now, self.last_deadline()).unwrap_or(LostReason::Expired),
        })
    }

    /// Whether one more guard may have it: held, no revocation requested, not at risk, a sixth of its ttl left.
    pub(crate) fn is_healthy(&self, now: Moment) -> bool {
        self.is_well(&self.status.lock(), now)
    }

    fn is_well(&self, status: &Status, now: Moment) -> bool {
        let left = self.last_deadline().remaining(now);
        status.standing.state == GuardState::Held
            && status.standing.revocation_deadline.is_none()
            && left >= self.grant.lease.ttl / 6
            && !self.deadline(status).has_passed(now)
    }

    /// Ends it at `at`, or when it was to end before that; whether this changes anything.
    pub(crate) fn request_revocation(&self, at: Moment) -> bool {
        self.change(|status| {
            let is_earlier = status.standing.revocation_deadline.is_none_or(|earlier| at < earlier);
            if is_earlier {
                status.standing.revocation_deadline = Some(at);
                self.shorten(status);
            }
            is_earlier
        })
    }

    /// The deadline of a requested revocation.
    pub(crate) fn revocation_deadline(&self) -> Option<Moment> {
        self.status.lock().standing.revocation_deadline
    }

    /// When it ends by itself (ownership-4), if it does and has not ended.
    pub(crate) fn ends_at(&self) -> Option<Moment> {
        let status = self.status.lock();
        let ends = || status.ends().filter(|_| !status.standing.is_lost()).map(|(at, _)| at);
        status.put_off_until().or_else(ends)
    }

    /// Its present guard holds it until `at`, and no longer.
    pub(crate) fn hold_until(&self, at: Moment) {
        self.change(|status| {
            status.extras().max_hold = Some(at);
            self.shorten(status);
            true
        });
    }

    /// Its present guard is not released before `until`.
    pub(crate) fn hold_at_least_until(&self, until: Moment) {
        self.status.lock().extras().at_least = Some(AtLeast { until, put_off: None });
    }

    /// Ends it for its guard, for `reason`, and puts its release off, if its `hold_at_least` says so at `now`. `kept` stays until
    /// its end. A requested revocation comes first.
    pub(crate) fn put_off(&self, reason: LostReason, now: Moment, kept: impl FnOnce() -> Kept) -> bool {
        let (watchers, last) = {
            let mut status = self.status.lock();
            let is_over = status.standing.is_lost() || self.deadline(&status).has_passed(now);
            if is_over || status.standing.revocation_deadline.is_some() {
                return false;
            }
            let at_least = status.extras.as_mut().and_then(|extras| extras.at_least.as_mut());
            let Some(at_least) = at_least.filter(|at_least| now < at_least.until) else {
                return false;
            };
            at_least.put_off = Some(kept());
            self.held_before.store(ENDED, Ordering::Release);
            status.standing.state = GuardState::Lost(reason);
            (status.take_watchers(), status.standing)
        };
        for (_, watchers) in watchers {
            waking(|| watchers.send_replace(last));
        }
        true
    }

    /// Counts work under it until that is dropped; `None` once it has ended.
    pub(crate) fn begin_work(&self) -> Option<TaskTrackerToken> {
        // RACE: with `status` locked, as `end` has it: work that its end does not wait for never begins (release-6).
        let mut status = self.status.lock();
        let begun = !status.standing.is_lost();
        begun.then(|| status.extras().works.get_or_insert_with(closed_tracker).token())
    }

    /// The works that were begun under it and are not dropped, if there are any.
    pub(crate) fn works(&self) -> Option<TaskTracker> {
        let works = self.status.lock().extras.as_ref()?.works.clone();
        works.filter(|works| !works.is_empty())
    }

    /// Whether its guard is done and its release is put off.
    pub(crate) fn is_put_off(&self) -> bool {
        self.status.lock().put_off_until().is_some()
    }

    /// Ends an ownership that is put off, at once; whether this call did.
    pub(crate) fn end_put_off(&self) -> bool {
        self.end_put_off_if(|_| true)
    }

    /// Ends an ownership that is put off, if its time has come by now.
    pub(crate) fn end_put_off_in_time(&self, now: Moment) -> bool {
        self.end_put_off_if(|until| until <= now)
    }

    fn end_put_off_if(&self, is_due: impl FnOnce(Moment) -> bool) -> bool {
        let kept = {
            let mut status = self.status.lock();
            let is_due = status.put_off_until().is_some_and(is_due);
            let extras = status.extras.as_mut().filter(|_| is_due);
            extras.and_then(|extras| extras.at_least.take()?.put_off)
        };
        let ended = kept.is_some();
        if ended {
            metrics::add(metrics::HELD, -1.0);
        }
        // Not under the mutex: it may be the last part of the manager.
        drop(kept);
        ended
    }

    /// With `status` locked.
    fn shorten(&self, status: &Status) {
        self.held_before.fetch_min(encode(self.deadline(status)), Ordering::Release);
    }

    /// The lease has come to be at risk, or out of it.
    pub(crate) fn follow(&self) {
        // ORDERING: each change of the lease deadline is followed by the one that made it. The last one here has locked
        // `status` after all others, so it reads the last change, whichever came first.
        self.change(|status| {
            status.standing.state = on_lease(&self.lease_deadline);
            true
        });
    }

    /// Changes it unless it has ended, and notifies the watchers; returns whether `change` has changed it.
    fn change(&self, change: impl FnOnce(&mut Status) -> bool) -> bool {
        let all = {
            let mut status = self.status.lock();
            if status.standing.is_lost() || !change(&mut status) {
                return false;
            }
            status.watchers().to_vec()
        };
        for (_, watchers) in all {
            // RACE: another change may be reported at the same time. Each reports the state by then, and nothing
            // to watchers that were taken away: the call that took them notifies them.
            let news = |told: &mut Standing| {
                let status = self.status.lock();
                let theirs = status.watchers().iter().any(|(_, present)| present.same_channel(&watchers));
                let standing = status.standing;
                theirs && std::mem::replace(told, standing) != standing
            };
            waking(|| watchers.send_if_modified(news));
        }
        true
    }

    /// Ends the ownership; whether this call did (ownership-2).
    pub(crate) fn end(&self, reason: LostReason) -> bool {
        self.end_if(|_| Some(reason)).is_some()
    }

    /// Ends it if ownership-4 does by now, and returns the reason.
    pub(crate) fn end_in_time(&self, now: Moment) -> Option<LostReason> {
        self.end_if(|status| status.passed(now, self.last_deadline()))
    }

    fn end_if(&self, why: impl FnOnce(&Status) -> Option<LostReason>) -> Option<LostReason> {
        let (watchers, last, reason) = {
            let mut status = self.status.lock();
            if status.standing.is_lost() {
                return None;
            }
            let reason = why(&status)?;
            self.held_before.store(ENDED, Ordering::Release);
            status.standing.state = GuardState::Lost(reason);
            (status.take_watchers(), status.standing, reason)
        };
        metrics::add(metrics::HELD, -1.0);
        for (_, watchers) in watchers {
            waking(|| watchers.send_replace(last));
        }
        Some(reason)
    }

    /// Passes it from its only guard to another, if it is healthy: returns the watchers of the released guard, to be
    /// notified. Decided in one piece: a revocation that is requested from here on is requested of the other guard.
    pub(crate) fn pass_on(&self, guard: u16, now: Moment) -> Option<Option<Watchers>> {
        let mut status = self.status.lock();
        self.is_well(&status, now).then(|| {
            if let Some(extras) = &mut status.extras {
                (extras.max_hold, extras.at_least) = (None, None);
            }
            status.without(guard)
        })
    }

    /// One of several guards is released: returns its watchers, to be notified.
    pub(crate) fn without(&self, guard: u16) -> Option<Watchers> {
        self.status.lock().without(guard)
    }

    /// Returns the state of a guard, and its changes; the sender is dropped after the last one.
    pub(crate) fn watch(&self, guard: u16) -> watch::Receiver<Standing> {
        let mut status = self.status.lock();
        let standing = status.standing;
        if status.standing.is_lost() {
            return watch::channel(standing).1;
        }
        if let Some((_, watchers)) = status.watchers().iter().find(|(watched, _)| *watched == guard) {
            return watchers.subscribe();
        }
        let (sender, watcher) = watch::channel(standing);
        status.extras().watchers.push((guard, sender));
        watcher
    }

    pub(crate) fn state(&self, now: Moment) -> GuardState {
        self.lost(now).map_or_else(|| self.status.lock().standing.state, GuardState::Lost)
    }

    pub(crate) fn slot(&self) -> usize {
        self.slot.load(Ordering::Relaxed)
    }

    pub(crate) fn set_slot(&self, slot: usize) {
        self.slot.store(slot, Ordering::Relaxed);
    }
}

impl Status {
    fn extras(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }

    fn watchers(&self) -> &[(u16, Watchers)] {
        self.extras.as_ref().map_or(&[][..], |extras| &extras.watchers)
    }

    fn take_watchers(&mut self) -> SmallVec<[(u16, Watchers); 1]> {
        self.extras.as_mut().map(|extras| std::mem::take(&mut extras.watchers)).unwrap_or_default()
    }

    /// When ownership-4 ends it, if it does, and the reason.
    fn ends(&self) -> Option<(Moment, LostReason)> {
        let revoked = self.standing.revocation_deadline.map(|at| (at, LostReason::Revoked));
        let max_hold = self.extras.as_ref().and_then(|extras| extras.max_hold);
        let max_hold = max_hold.map(|at| (at, LostReason::MaxHold));
        revoked.into_iter().chain(max_hold).min()
    }

    /// When its release is sent, if that is put off.
    fn put_off_until(&self) -> Option<Moment> {
        let at_least = self.extras.as_ref()?.at_least.as_ref()?;
        at_least.put_off.as_ref().map(|_| at_least.until)
    }

    /// Why ownership-4 has ended it at `now`, if it has, and not its lease before that.
    fn passed(&self, now: Moment, lease: Deadline) -> Option<LostReason> {
        let (at, reason) = self.ends()?;
        (at <= now && Deadline::At(at) <= lease).then_some(reason)
    }

    fn without(&mut self, guard: u16) -> Option<Watchers> {
        let watchers = &mut self.extras.as_mut()?.watchers;
        let place = watchers.iter().position(|(watched, _)| *watched == guard)?;
        Some(watchers.swap_remove(place).1)
    }
}

/// One whose `wait` ends whenever it is empty.
fn closed_tracker() -> TaskTracker {
    let tracker = TaskTracker::new();
    tracker.close();
    tracker
}

/// Notifies the watchers of a guard of its release; not under any mutex (ownership-5).
pub(crate) fn tell_released(watchers: &Watchers) {
    waking(|| watchers.send_modify(|told| told.state = GuardState::Lost(LostReason::Released)));
}

/// Ends with a guard.
pub(crate) async fn ended(mut standings: watch::Receiver<Standing>) -> LostReason {
    match standings.wait_for(|standing| standing.is_lost()).await.map(|standing| standing.state) {
        Ok(GuardState::Lost(reason)) => reason,
        // The sender goes only after its last word.
        Ok(GuardState::Held | GuardState::AtRisk) | Err(_) => LostReason::Released,
    }
}

/// The state of a hold whose lease is not lost.
fn on_lease(lease_deadline: &LeaseDeadline) -> GuardState {
    if lease_deadline.is_at_risk() { GuardState::AtRisk } else { GuardState::Held }
}

#[cfg(test)]
mod tests;
