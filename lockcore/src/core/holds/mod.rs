//! The callers of this process that hold a lock, request it, wait for it, or still have to release it.
//!
//! Each is a value with its own clean-up when it is dropped: a [`Hold`] releases the lock, a [`Leader`] passes the
//! request to the next waiter, a [`Waiting`] leaves the queue, a [`PendingRelease`] continues as a task.
//! All of them have the [`Shared`] parts of the core. A change of a name's queue and the calls that follow from it
//! are one step ([`Shared::change`]), and a loss is one function for all reasons ([`Shared::end`]).
//!
//! # Invariants
//! - **holds-1** A grant is in a [`Hold`] from the instant the core has it: a receiver that is gone passes the hold on
//!   by dropping it (G8).
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

use crate::backend::LeaseScope;
use crate::backend::panic::waking;
use crate::clock::Moment;
use crate::core::context::Context;
use crate::core::leases::{Leases, Lost};
use crate::core::metrics;
use crate::core::names::{self, Names};
use crate::core::ownership::Ownership;
use crate::core::queue::{Call, Claim, WaiterId, Wish};
use crate::words::error::{Error, Result};
use crate::words::loss::LostReason;

pub(crate) use leader::{Join, Leader, Rejected};
pub(crate) use release::{Hold, PendingRelease};

/// The parts of the core, for all that holds, waits or releases.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) context: Context,
    pub(crate) names: Names<Waiter>,
    pub(crate) leases: Arc<Leases>,
    pub(crate) guards_dropped: AtomicU64,
    /// How many ttls have passed.
    pub(crate) rounds: AtomicU32,
    /// How many have waited; the id of the next one.
    waiters: AtomicU64,
}

pub(crate) type Name = names::Name<Waiter>;
pub(crate) type NameState = names::NameState<Waiter>;

/// A caller of this process that waits for a name.
#[derive(Debug)]
pub(crate) struct Waiter {
    turn: oneshot::Sender<Turn>,
    /// The round in which the wait began.
    pub(crate) since_round: u32,
}

/// What a claim comes to, at once or when a waiter is called.
#[derive(Debug)]
pub(crate) enum Turn {
    /// The lock is held.
    Hold(Hold),
    /// Ask the store.
    Lead(Leader),
    /// Wait for the request of a leader that has left.
    Join(Join),
    /// The store refuses everybody.
    Refused(Error),
}

impl Shared {
    pub(crate) fn new(context: Context) -> Self {
        let leases = Leases::new(context.env.timing(), context.closing.clone());
        Self {
            context,
            names: Names::new(),
            leases: Arc::new(leases),
            guards_dropped: AtomicU64::new(0),
            rounds: AtomicU32::new(0),
            waiters: AtomicU64::new(0),
        }
    }

    /// Waits for its turn. A `try` waits only for the confirmation of this process's own release, and answers
    /// `None` if another one is ahead.
    pub(crate) async fn claim(
        self: &Arc<Self>,
        name: &Arc<Name>,
        wish: Wish,
        is_try: bool,
    ) -> Result<Option<Turn>> {
        let mut place = None;
        let claim = name.wait(|state| {
            // RACE: under the name's mutex, so that no waiter comes after `refuse_all`.
            if self.context.is_closed() {
                return (Err(Context::closed_error()), false);
            }
            let queue = &mut state.queue;
            let claim =
                if is_try { queue.try_claim(wish, self.joins()) } else { queue.claim(wish, self.joins()) };
            // A leader, too, waits for the release of another share: once the store has answered, it is not
            // found any more.
            let waits = match &claim {
                Claim::Lead => {
                    if let Some(news) = state.news() {
                        (news.holder, news.lost_early, news.asked_early) = (None, None, None);
                    }
                    true
                }
                Claim::Wait => {
                    place = Some(self.enqueue(name, state, wish));
                    true
                }
                Claim::Hold(..) | Claim::Busy => false,
            };
            (Ok(claim), waits)
        })?;
        match (claim, place) {
            (_, Some(place)) => place.turn().await.map(Some),
            (claim, None) => Ok(self.turn(name, claim)),
        }
    }

    /// Changes a queue, and calls the waiters whose turn it is after that (holds-3).
    pub(crate) fn change<R>(
        self: &Arc<Self>,
        name: &Arc<Name>,
        change: impl FnOnce(&mut NameState) -> R,
    ) -> R {
        let mut calls = None;
        let result = name.with(|state| {
            let result = change(state);
            if state.queue.may_call() {
                calls = Some(self.calls(state));
            }
            result
        });
        if let Some(calls) = calls {
            self.call(name, calls);
        }
        result
    }

    /// Ends an ownership for another reason than the release of its holds, and cleans up behind it.
    pub(crate) fn end(self: &Arc<Self>, ownership: &Arc<Ownership>, reason: LostReason) {
        if ownership.end(reason) {
            self.has_ended(ownership, reason);
        }
    }

    /// Ends an ownership if its own time is over (ownership-4).
    pub(crate) fn end_in_time(self: &Arc<Self>, ownership: &Arc<Ownership>) {
        if let Some(reason) = ownership.end_in_time(self.context.env.now()) {
            self.has_ended(ownership, reason);
        }
    }

    /// Ends what was lost with its lease.
    pub(crate) fn end_all(self: &Arc<Self>, lost: Option<Lost>) {
        let Some((ownerships, reason)) = lost else {
            return;
        };
        for ownership in ownerships {
            self.end(&ownership, reason);
        }
    }

    fn has_ended(self: &Arc<Self>, ownership: &Arc<Ownership>, reason: LostReason) {
        metrics::lost(reason);
        let grant = ownership.grant();
        if reason == LostReason::Shutdown {
            tracing::debug!(lock = %grant.name, grant = grant.counter, "ended by shutdown");
        } else {
            tracing::warn!(lock = %grant.name, grant = grant.counter, %reason, "lost");
        }
        self.leases.deregister(ownership);
        let Some(name) = self.names.known(&grant.name) else {
            debug_assert!(false, "names-1: a name with a grant is not forgotten");
            return;
        };
        if !name.with(|state| state.queue.lose(|held| Arc::ptr_eq(held, ownership))) {
            return;
        }
        // A guard's clock may have ended it while a renewal that came in time was handled.
        let now = self.context.env.now();
        let lives = self.leases.session_deadline(&grant.lease).is_some_and(|until| !until.has_passed(now));
        let session_over =
            grant.lease.scope == LeaseScope::Session && reason == LostReason::Expired && !lives;
        if session_over || reason == LostReason::SessionLost {
            // The backend ends a session that is over as a whole (B3).
            self.change(&name, |state| state.released(ownership));
        } else {
            PendingRelease::new(self, &name, ownership).in_background();
        }
    }

    /// Whether one more guard may have an ownership, which is so until a given moment.
    fn joins(&self) -> impl Fn(&Arc<Ownership>, Moment) -> bool {
        |ownership, until| {
            let now = self.context.env.now();
            now < until && ownership.is_healthy(now)
        }
    }

    #[inline(never)]
    fn calls(&self, state: &mut NameState) -> Vec<Call<Arc<Ownership>, Waiter>> {
        iter::from_fn(|| state.queue.call_next(self.joins())).collect()
    }

    #[inline(never)]
    fn call(
        self: &Arc<Self>,
        name: &Arc<Name>,
        calls: impl IntoIterator<Item = Call<Arc<Ownership>, Waiter>>,
    ) {
        for (claim, waiter) in calls {
            if let Some(turn) = self.turn(name, claim) {
                waiter.call(turn);
            }
        }
    }

    fn turn(self: &Arc<Self>, name: &Arc<Name>, claim: Claim<Arc<Ownership>>) -> Option<Turn> {
        match claim {
            Claim::Hold(ownership, token) => Some(Turn::Hold(Hold::new(self, name, ownership, token))),
            Claim::Lead => Some(Turn::Lead(Leader::new(self, name))),
            Claim::Wait | Claim::Busy => None,
        }
    }

    fn enqueue<'a>(
        self: &'a Arc<Self>,
        name: &'a Arc<Name>,
        state: &mut NameState,
        wish: Wish,
    ) -> Waiting<'a> {
        let (turn, called) = oneshot::channel();
        let since_round = self.rounds.load(Ordering::Relaxed);
        let id = WaiterId(self.waiters.fetch_add(1, Ordering::Relaxed));
        state.queue.enqueue(id, wish, Waiter { turn, since_round });
        Waiting { shared: self, name, id, called, is_over: false }
    }
}

impl Waiter {
    /// Calls a waiter. One that has vanished drops the turn, which passes it on.
    pub(crate) fn call(self, turn: Turn) {
        let unheard = waking(|| self.turn.send(turn).err());
        drop(unheard);
    }

    /// Ends the wait of one whose manager is shut down.
    pub(crate) fn dismiss(self) {
        waking(|| drop(self.turn));
    }
}

/// A place in the queue of a name; dropped, it leaves.
struct Waiting<'a> {
    shared: &'a Arc<Shared>,
    name: &'a Arc<Name>,
    id: WaiterId,
    called: oneshot::Receiver<Turn>,
    /// The caller has taken it out of the queue.
    is_over: bool,
}

impl Waiting<'_> {
    async fn turn(mut self) -> Result<Turn> {
        tracing::debug!(lock = %self.name.lock_name(), "waiting in the local queue");
        let called = (&mut self.called).await;
        self.is_over = true;
        called.map_err(|_| Context::closed_error())
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            // A turn that was sent already drops with `called`, which passes it on.
            let left = self.shared.change(self.name, |state| state.queue.leave(self.id));
            drop(left);
        }
    }
}
