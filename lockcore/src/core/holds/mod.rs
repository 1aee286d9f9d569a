//! The callers of this process that hold a lock, request it, wait for it, or still have to release it.
//!
//! Each is a value with its own clean-up when it is dropped: a [`Hold`] releases the lock, a [`Leader`] passes the
//! request to the next waiter, a [`Waiting`] leaves the queue, a [`PendingRelease`] continues as a task.
//! All of them have the [`LocalLock`]. A change of a name's queue and the calls that follow from it
//! are one step ([`LocalLock::change`]), and a loss is one function for all reasons ([`Core::end`]). The types are
//! defined here, as each names the others; what is done with them is in [`leader`] and [`release`].
//!
//! # Invariants
//! - **holds-1** A grant is in a [`Hold`] from the instant the core has it: if the receiver has left, dropping the hold passes
//!   it on (G8).
//! - **holds-2** The end of an ownership, for any reason, happens once, makes its release pending and updates the queue.
//! - **holds-3** Every change that may grant a waiter calls that waiter (queue-3).
//!
//! Mutexes are taken in the order shard → name → ownership, leases → ownership, never name and leases together, a
//! request's alone, and none is held while a guard or a future is dropped or awaited.
//!
//! Checked by the tests of [`release`], the conformance cases of `g4` to `g8`, the simulation, and `tests/local`.

mod leader;
mod release;

use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::backend::panic::waking;
use crate::backend::{Holder, LeaseScope};
use crate::clock::Moment;
use crate::core::context::Context;
use crate::core::leases::{Leases, Lost};
use crate::core::metrics::{self, Timer};
use crate::core::names::{self, Names};
use crate::core::ownership::{Kept, Ownership};
use crate::core::queue::{Call, Claim, WaiterId, Wish};
use crate::core::request::Request;
use crate::words::error::{Error, Result};
use crate::words::loss::LostReason;
use crate::words::token::FencingToken;

/// The parts of a manager, for all that holds, waits or releases.
pub(crate) struct Core {
    pub(crate) context: Context,
    pub(crate) names: Names<Waiter>,
    pub(crate) leases: Arc<Leases>,
    /// Counts the ownerships whose release is put off.
    pub(crate) put_off: TaskTracker,
    /// Counts the releases that wait for work.
    pub(crate) at_work: TaskTracker,
    pub(crate) guards_dropped: AtomicU64,
    /// How many ttls have passed.
    pub(crate) rounds: AtomicU32,
    /// How many have waited; the id of the next one.
    waiters: AtomicU64,
}

/// A lock as this process knows it: a name, and the parts of its manager.
#[derive(Clone)]
pub(crate) struct LocalLock {
    pub(crate) core: Arc<Core>,
    pub(crate) name: Arc<Name>,
}

pub(crate) type Name = names::Name<Waiter>;
pub(crate) type NameState = names::NameState<Waiter>;

/// A caller of this process that waits for a name.
pub(crate) struct Waiter {
    turn: oneshot::Sender<Turn>,
    /// The round in which the wait began.
    pub(crate) since_round: u32,
}

/// The answer to a claim, at once or when a waiter is called.
pub(crate) enum Turn {
    /// The lock is held.
    Hold(Hold),
    /// Ask the store.
    Lead(Leader),
    /// Wait for the request of a leader that has left.
    Join(Join),
    /// Another caller of this process is ahead, and a `try` does not wait for it.
    Busy,
    /// The store refuses every caller, or the manager is closed.
    Refused(Error),
}

/// The answer of the store.
pub(crate) enum Acquired {
    Held(Hold),
    /// Held by another, or another is ahead.
    Busy(Option<Holder>),
}

/// An ownership, for one guard; dropped, it is released in the background.
pub(crate) struct Hold {
    pub(crate) lock: LocalLock,
    pub(crate) ownership: Arc<Ownership>,
    pub(crate) token: FencingToken,
    timer: Timer,
    /// A release before this is put off.
    at_least: Option<Moment>,
    ended: bool,
}

/// The caller that sends requests for a name; there is one at a time.
pub(crate) struct Leader {
    lock: LocalLock,
    /// The queue does not wait for it any more.
    is_over: bool,
}

/// The wait for the request of a leader. Dropped, the request passes to the next waiter with the same wish; without
/// one it is cancelled.
pub(crate) struct Join {
    lock: LocalLock,
    wish: Wish,
    /// Until it is answered.
    request: Option<Request<Result<Acquired>>>,
}

/// A grant that cannot be used.
pub(crate) struct Rejected {
    pub(crate) error: Error,
    /// Another grant may be better.
    pub(crate) again: bool,
    pub(crate) release: PendingRelease,
}

/// A release that is sent to the store until that confirms it, and then frees the name (release-3). A shutdown waits
/// for it as for a task, wherever it is polled.
///
/// Dropped on the way, it continues in the background. A task that is dropped has lost its runtime: no request can
/// reach the store any more, and the name is freed at once.
pub(crate) struct PendingRelease {
    lock: LocalLock,
    ownership: Arc<Ownership>,
    /// What it waits for before it is sent (release-6), and how a shutdown counts that.
    works: Option<(TaskTracker, TaskTrackerToken)>,
    in_background: bool,
    /// The works are over, so the store is asked.
    is_sent: bool,
    /// The store has confirmed, or will not.
    is_over: bool,
    _awaited: TaskTrackerToken,
}

impl Core {
    pub(crate) fn new(context: Context) -> Self {
        let leases = Arc::new(Leases::new(context.env.timing()));
        Self {
            context,
            names: Names::new(),
            leases,
            put_off: TaskTracker::new(),
            at_work: TaskTracker::new(),
            guards_dropped: AtomicU64::new(0),
            rounds: AtomicU32::new(0),
            waiters: AtomicU64::new(0),
        }
    }

    /// Ends an ownership for another reason than the release of its holds, put off or not, and cleans up behind it.
    pub(crate) fn end(self: &Arc<Self>, ownership: &Arc<Ownership>, reason: LostReason) {
        if ownership.end(reason) || ownership.end_put_off() {
            self.has_ended(ownership, reason);
        }
    }

    /// Ends an ownership for its guard, for good unless its release is put off.
    pub(crate) fn end_or_put_off(self: &Arc<Self>, ownership: &Arc<Ownership>, reason: LostReason) {
        if !self.put_off(ownership, reason) && ownership.end(reason) {
            self.has_ended(ownership, reason);
        }
    }

    /// Puts the release of an ownership off, if its guard's `hold_at_least` says so; its guard is done.
    ///
    /// The manager lives until then, as the watchdog releases it, and a shutdown waits for that.
    fn put_off(self: &Arc<Self>, ownership: &Arc<Ownership>, reason: LostReason) -> bool {
        let now = self.context.env.now();
        let kept = || Box::new((self.put_off.token(), Arc::clone(self))) as Kept;
        let is_put_off = ownership.put_off(reason, now, kept);
        if is_put_off {
            tracing::debug!(lock = %ownership.grant.name, grant = ownership.grant.counter, "release put off");
            self.leases.end_at(ownership, now);
        }
        is_put_off
    }

    /// Ends an ownership if its own time has passed (ownership-4, ownership-6).
    pub(crate) fn end_in_time(self: &Arc<Self>, ownership: &Arc<Ownership>) {
        let now = self.context.env.now();
        if let Some(reason) = ownership.end_in_time(now) {
            self.has_ended(ownership, reason);
        } else if ownership.end_put_off_in_time(now) {
            self.has_ended(ownership, LostReason::Released);
        }
    }

    /// Ends the ownerships of a lost lease.
    pub(crate) fn end_all(self: &Arc<Self>, lost: Option<Lost>) {
        if let Some((ownerships, reason)) = lost {
            ownerships.iter().for_each(|ownership| self.end(ownership, reason));
        }
    }

    fn has_ended(self: &Arc<Self>, ownership: &Arc<Ownership>, reason: LostReason) {
        let grant = &ownership.grant;
        if reason == LostReason::Released {
            metrics::count(metrics::RELEASES, &[("to", "store")]);
        } else {
            metrics::lost(reason);
        }
        if matches!(reason, LostReason::Shutdown | LostReason::Released) {
            tracing::debug!(lock = %grant.name, grant = grant.counter, %reason, "ended");
        } else {
            tracing::warn!(lock = %grant.name, grant = grant.counter, %reason, "lost");
        }
        self.leases.deregister(ownership);
        // It was not forgotten (names-1).
        let lock = LocalLock { core: Arc::clone(self), name: self.names.of(&grant.name) };
        if !lock.name.with(|state| state.queue.lose(|held| Arc::ptr_eq(held, ownership))) {
            return;
        }
        // A guard's clock may have ended it while a renewal that came in time was handled.
        let now = self.context.env.now();
        let lives = || self.leases.session_deadline(&grant.lease).is_some_and(|until| !until.has_passed(now));
        let session_over = match reason {
            LostReason::SessionLost => true,
            LostReason::Expired => grant.lease.scope == LeaseScope::Session && !lives(),
            _ => false,
        };
        if session_over {
            // The backend ends a session as a whole (B3).
            lock.change(|state| state.released(ownership));
        } else if reason == LostReason::RuntimeGone {
            // Nothing is left that could wait for its works.
            PendingRelease::new(&lock, ownership).in_background();
        } else {
            PendingRelease::new(&lock, ownership).after_work().in_background();
        }
    }

    /// Whether one more guard may have an ownership, which is so until a given moment.
    fn joins(&self) -> impl Fn(&Arc<Ownership>, Moment) -> bool {
        |ownership, until| {
            let now = self.context.env.now();
            now < until && ownership.is_healthy(now)
        }
    }
}

impl LocalLock {
    pub(crate) fn now(&self) -> Moment {
        self.core.context.env.now()
    }

    /// Cleans up behind a loss that a guard, or its handle, has found.
    #[cold]
    pub(crate) fn found_lost(&self, ownership: &Arc<Ownership>, unless_known: LostReason) -> Error {
        let reason = ownership.lost(self.now()).unwrap_or(unless_known);
        // Not one that is put off: its guard has found out just that.
        if ownership.end(reason) {
            self.core.has_ended(ownership, reason);
        }
        Error::lost(reason).with_context("lock", &self.name.lock_name)
    }

    /// Waits for its turn. A `try` waits only for the confirmation of this process's own release.
    pub(crate) async fn claim(&self, wish: Wish, is_try: bool) -> Turn {
        let (core, mut place) = (&self.core, None);
        let claim = self.name.wait(|state| {
            // RACE: under the name's mutex, so that no waiter comes after a shutdown has called all.
            if core.context.is_closed() {
                return (None, false);
            }
            let queue = &mut state.queue;
            let claim =
                if is_try { queue.try_claim(wish, core.joins()) } else { queue.claim(wish, core.joins()) };
            match &claim {
                Claim::Lead => state.begin(),
                Claim::Wait => {
                    let (turn, called) = oneshot::channel();
                    let id = WaiterId(core.waiters.fetch_add(1, Ordering::Relaxed));
                    let since_round = core.rounds.load(Ordering::Relaxed);
                    queue.enqueue(id, wish, Waiter { turn, since_round });
                    place = Some(Waiting { lock: self, id, called, is_over: false });
                }
                Claim::Hold(..) | Claim::Busy => {}
            }
            // A leader, too, waits for the release of another share: once the store has answered, it is not
            // found any more.
            let waits = matches!(claim, Claim::Lead | Claim::Wait);
            (Some(claim), waits)
        });
        match (claim, place) {
            (_, Some(place)) => place.turn().await,
            (Some(claim), None) => self.turn(claim),
            (None, None) => Turn::Refused(Context::closed_error()),
        }
    }

    /// Changes the queue, and calls the waiters whose turn it is after that (holds-3).
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut NameState) -> R) -> R {
        let mut calls = Vec::new();
        let result = self.name.with(|state| {
            let result = change(state);
            if state.queue.may_call() {
                calls = self.calls(state);
            }
            result
        });
        self.call(calls);
        result
    }

    #[inline(never)]
    fn calls(&self, state: &mut NameState) -> Vec<Call<Arc<Ownership>, Waiter>> {
        iter::from_fn(|| state.queue.call_next(self.core.joins())).collect()
    }

    #[inline(never)]
    fn call(&self, calls: impl IntoIterator<Item = Call<Arc<Ownership>, Waiter>>) {
        for (claim, waiter) in calls {
            waiter.call(self.turn(claim));
        }
    }

    fn turn(&self, claim: Claim<Arc<Ownership>>) -> Turn {
        match claim {
            Claim::Hold(ownership, token) => Turn::Hold(Hold::new(self, ownership, token)),
            Claim::Lead => Turn::Lead(Leader::new(self)),
            Claim::Wait | Claim::Busy => Turn::Busy,
        }
    }
}

impl Waiter {
    /// Calls a waiter. A waiter that has left drops the turn, which passes it on.
    pub(crate) fn call(self, turn: Turn) {
        let unheard = waking(|| self.turn.send(turn).err());
        drop(unheard);
    }
}

/// A place in the queue of a name; dropped, it leaves.
struct Waiting<'a> {
    lock: &'a LocalLock,
    id: WaiterId,
    called: oneshot::Receiver<Turn>,
    /// The caller has taken it out of the queue.
    is_over: bool,
}

impl Waiting<'_> {
    async fn turn(mut self) -> Turn {
        tracing::debug!(lock = %self.lock.name.lock_name, "waiting in the local queue");
        let called = (&mut self.called).await;
        self.is_over = true;
        called.unwrap_or_else(|_| Turn::Refused(Context::closed_error()))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            // A turn that was sent already drops with `called`, which passes it on.
            let left = self.lock.change(|state| state.queue.leave(self.id));
            drop(left);
        }
    }
}
