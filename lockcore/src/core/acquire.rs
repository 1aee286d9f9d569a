//! Waiting for a lock: the first caller of a name asks the store ([`Leader`]), the others wait in the name's
//! queue.
//!
//! Checked by the conformance cases of `g7` and `g8`, the simulation, and `tests/local`.

use std::iter;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::backend::Holder;
use crate::backend::panic::waking;
use crate::clock::Moment;
use crate::core::Core;
use crate::core::drive::{Join, Leader};
use crate::core::holds::Hold;
use crate::core::names::{Name, NameState, Waiter};
use crate::core::ownership::Ownership;
use crate::core::queue::{Call, HandoffBudget, Reply, WaiterId, Wish};
use crate::words::error::{Effect, Error, ErrorKind, Result};

/// What a caller wants, with every option resolved.
#[derive(Clone, Debug)]
pub(crate) struct Acquire {
    pub(crate) queue: Arc<Name>,
    pub(crate) wish: Wish,
    pub(crate) ttl: Duration,
    pub(crate) wait: Option<Duration>,
    pub(crate) budget: HandoffBudget,
    pub(crate) metadata: Option<Arc<str>>,
}

/// What a waiter is told.
#[derive(Debug)]
pub(crate) enum Turn {
    /// The lock is yours.
    Held(Hold),
    /// Ask the store.
    Lead(Leader),
    /// Somebody has asked the store, and left it to you.
    Join(Join),
    /// The store was asked, and is of no use to anybody now.
    Refused(Error),
}

/// What `try_acquire` came to.
#[derive(Debug)]
pub(crate) enum Tried {
    Granted(Hold),
    Held(Option<Holder>),
}

impl Core {
    /// Waits for the lock, for `wanted.wait` at most.
    pub(crate) async fn acquire(self: &Arc<Self>, wanted: &Acquire) -> Result<Hold> {
        let Some(wait) = wanted.wait else {
            return self.wait_turn(wanted).await.map_err(|error| self.about(wanted.queue.name(), error));
        };
        let started = self.env().now();
        if wait.is_zero() {
            return match self.try_acquire(wanted).await {
                Ok(Tried::Granted(guard)) => Ok(guard),
                Ok(Tried::Held(holder)) => Err(self.timed_out(wanted, started, holder)),
                Err(error) if error.lost_reason().is_some() => Err(self.timed_out(wanted, started, None)),
                Err(error) => Err(error),
            };
        }
        tokio::select! {
            biased;
            guard = self.wait_turn(wanted) => guard.map_err(|error| self.about(wanted.queue.name(), error)),
            () = async { self.env().sleep_until(started + wait).await } => {
                Err(self.timed_out(wanted, started, self.known_holder(&wanted.queue)))
            }
        }
    }

    /// Takes the lock if that needs no waiting for a holder.
    pub(crate) async fn try_acquire(self: &Arc<Self>, wanted: &Acquire) -> Result<Tried> {
        self.try_turn(wanted).await.map_err(|error| self.about(wanted.queue.name(), error))
    }

    async fn try_turn(self: &Arc<Self>, wanted: &Acquire) -> Result<Tried> {
        let claimed = self.claim(wanted, |state| state.queue.try_claim(wanted.wish, self.joins()))?;
        let turn = match claimed {
            Claimed::Turn(turn) => turn,
            Claimed::Busy => return Ok(Tried::Held(self.known_holder(&wanted.queue))),
            // Only the confirmation of this process's own release is waited for.
            Claimed::Wait(place) => place.turn().await?,
        };
        match turn {
            Turn::Held(guard) => Ok(Tried::Granted(guard)),
            Turn::Lead(drive) => drive.attempt(wanted).await,
            Turn::Join(_) => unreachable!("a `try` is called only when the store has nothing of ours"),
            Turn::Refused(error) => Err(error),
        }
    }

    /// Changes a queue, and calls whoever's turn it is after that: whatever may make it somebody's goes through
    /// here (queue-3).
    pub(crate) fn change<R>(
        self: &Arc<Self>,
        queue: &Arc<Name>,
        change: impl FnOnce(&mut NameState) -> R,
    ) -> R {
        let mut calls = None;
        let result = queue.with(|state| {
            let result = change(state);
            if state.queue.may_call() {
                calls = Some(self.calls(state));
            }
            result
        });
        if let Some(calls) = calls {
            self.call(queue, calls);
        }
        result
    }

    #[inline(never)]
    fn calls(&self, state: &mut NameState) -> Vec<Call<Arc<Ownership>, Waiter>> {
        iter::from_fn(|| state.queue.call_next(self.joins())).collect()
    }

    #[inline(never)]
    fn call(self: &Arc<Self>, queue: &Arc<Name>, calls: Vec<Call<Arc<Ownership>, Waiter>>) {
        for call in calls {
            match call {
                Call::Joined(ownership, token, waiter) => {
                    waiter.call(Turn::Held(Hold::new(Arc::clone(self), Arc::clone(queue), ownership, token)));
                }
                Call::Lead(waiter) => waiter.call(Turn::Lead(Leader::new(self, queue))),
            }
        }
    }

    /// Whether one more guard may have an ownership, which is so until a given moment.
    fn joins(&self) -> impl Fn(&Arc<Ownership>, Moment) -> bool {
        |ownership, until| {
            let now = self.env().now();
            now < until && ownership.is_healthy(now)
        }
    }

    async fn wait_turn(self: &Arc<Self>, wanted: &Acquire) -> Result<Hold> {
        let turn = match self.claim(wanted, |state| state.queue.claim(wanted.wish, self.joins()))? {
            Claimed::Turn(turn) => turn,
            Claimed::Wait(place) => place.turn().await?,
            Claimed::Busy => unreachable!("only `try_claim` answers busy"),
        };
        match turn {
            Turn::Held(guard) => Ok(guard),
            Turn::Lead(drive) => drive.run(wanted).await,
            Turn::Join(join) => join.ready().await,
            Turn::Refused(error) => Err(error),
        }
    }

    fn claim<'a>(
        self: &'a Arc<Self>,
        wanted: &'a Acquire,
        claim: impl FnOnce(&mut NameState) -> Reply<Arc<Ownership>>,
    ) -> Result<Claimed<'a>> {
        let queue = &wanted.queue;
        let (mut place, mut ahead) = (None, None);
        let reply = queue.with(|state| {
            // RACE: under the queue's mutex, so that nobody enqueues after `refuse_all`.
            if self.is_closed() {
                return Err(Self::closed_error());
            }
            let reply = claim(state);
            match &reply {
                Reply::Lead => {
                    if let Some(news) = state.told() {
                        (news.heard, news.lost_early, news.asked_early) = (None, None, None);
                    }
                    // The release of another share: once the store has answered, nobody would find it any more.
                    ahead = state.under_way();
                }
                Reply::Wait => {
                    place = Some(self.place(queue, state, wanted.wish));
                    ahead = state.under_way();
                }
                Reply::Joined(..) | Reply::Busy => {}
            }
            Ok(reply)
        })?;
        if let Some(ahead) = ahead {
            ahead.move_to_task();
        }
        if let Some(place) = place {
            return Ok(Claimed::Wait(place));
        }
        Ok(match reply {
            Reply::Lead => Claimed::Turn(Turn::Lead(Leader::new(self, queue))),
            Reply::Joined(ownership, token) => {
                Claimed::Turn(Turn::Held(Hold::new(Arc::clone(self), Arc::clone(queue), ownership, token)))
            }
            Reply::Wait | Reply::Busy => Claimed::Busy,
        })
    }

    fn place<'a>(
        self: &'a Arc<Self>,
        queue: &'a Arc<Name>,
        state: &mut NameState,
        wish: Wish,
    ) -> Waiting<'a> {
        let (sender, called) = oneshot::channel();
        let since_round = self.rounds.load(Ordering::Relaxed);
        let id = WaiterId(self.waiters.fetch_add(1, Ordering::Relaxed));
        state.queue.enqueue(id, wish, Waiter { turn: sender, since_round });
        Waiting { core: self, queue, id, called, is_over: false }
    }

    fn timed_out(&self, wanted: &Acquire, started: Moment, holder: Option<Holder>) -> Error {
        let waited = self.env().now().since(started);
        let held_by = match &holder {
            Some(holder) => format!("held by {:?}", holder.label),
            None => "its holder is not known".to_owned(),
        };
        let within = match wanted.wait {
            Some(wait) if !wait.is_zero() => format!("within {wait:?}"),
            _ => "at once".to_owned(),
        };
        let message = format!("not granted {within}; {held_by}");
        let error = Error::not_applied(ErrorKind::Timeout { waited, holder }, message);
        let refused = wanted.queue.with(|state| state.told()?.refused.clone());
        // What is older says nothing of the store as it is now.
        let recent = self.env().now().saturating_sub(self.env().timing().ttl);
        let error = match refused.or_else(|| self.leases.last_failure(recent)) {
            // That nothing is left of it is what this error says.
            Some(refused) => error.with_source(self.placed(refused.with_effect(Effect::NotApplied))),
            None => error,
        };
        self.about(wanted.queue.name(), error)
    }
}

enum Claimed<'a> {
    Turn(Turn),
    Wait(Waiting<'a>),
    Busy,
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

/// A place in the queue; leaves it when dropped.
struct Waiting<'a> {
    core: &'a Arc<Core>,
    queue: &'a Arc<Name>,
    id: WaiterId,
    called: oneshot::Receiver<Turn>,
    /// Whoever called has taken it out of the queue.
    is_over: bool,
}

impl Waiting<'_> {
    async fn turn(mut self) -> Result<Turn> {
        tracing::debug!(lock = %self.queue.name(), "waiting behind this process");
        let called = (&mut self.called).await;
        self.is_over = true;
        called.map_err(|_| Core::closed_error())
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            // A turn that was sent already drops with `called`, which passes it on.
            let left = self.core.change(self.queue, |state| state.queue.leave(self.id));
            drop(left);
        }
    }
}
