//! Waiting for a lock and asking the store for it.
//!
//! The first caller of a name drives the store's `acquire` in its own poll; the others wait in the
//! name's queue. A driver that leaves while others wait hands its request in flight to the next of
//! them, who polls it on: the place in the store's queue belongs to the process.
//!
//! # Invariants
//! - **A1** Whoever holds a [`Drive`] either adopts a grant or calls the next waiter, by `Drop` at
//!   the latest: no wake-up is lost (G8).
//! - **A2** A request in flight is dropped, which abandons it, before its queue turns idle (B1).
//! - **A3** What an `acquire` hears about the store, and not about its own request, everybody hears
//!   who is queued behind it then: a store that is down is not asked once for each of them.
//!
//! Checked by the conformance cases of `g7` and `g8`, the simulation, and `tests/bystanders`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use crate::backend::{AcquireRequest, Attempt, Grant, Holder, Mode};
use crate::clock::Moment;
use crate::core::{Core, may_pass};
use crate::env::Panicked;
use crate::error::{Error, ErrorKind, Result};
use crate::guard::LockGuard;
use crate::name::LockName;
use crate::names::{Entry, Waiter};
use crate::queue::{Claim, HandoffBudget, WaiterId};
use crate::tenure::Tenure;

/// What a caller wants, with every option resolved.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) name: LockName,
    pub(crate) ttl: Duration,
    pub(crate) wait: Option<Duration>,
    pub(crate) budget: HandoffBudget,
    pub(crate) metadata: Option<Arc<str>>,
}

/// What a waiter is told.
#[derive(Debug)]
pub(crate) enum Turn {
    /// The lock is yours.
    Guard(LockGuard),
    /// Ask the store.
    Drive(Drive),
    /// The store was asked, and is of no use to anybody now.
    Refused(Error),
}

/// What `try_acquire` came to.
#[derive(Debug)]
pub(crate) enum Tried {
    Granted(LockGuard),
    Held(Option<Holder>),
}

impl Core {
    /// Waits for the lock, for `wanted.wait` at most.
    pub(crate) async fn acquire(self: &Arc<Self>, wanted: &Wanted) -> Result<LockGuard> {
        let started = self.env().now();
        if wanted.wait == Some(Duration::ZERO) {
            return match self.try_acquire(wanted).await? {
                Tried::Granted(guard) => Ok(guard),
                Tried::Held(holder) => Err(self.timed_out(wanted, started, holder)),
            };
        }
        tokio::select! {
            biased;
            guard = self.wait_turn(wanted, started) => guard,
            () = self.closing.cancelled() => Err(Self::closed_error()),
            () = async {
                match wanted.wait {
                    Some(wait) => self.env().sleep_until(started + wait).await,
                    None => std::future::pending().await,
                }
            } => Err(self.timed_out(wanted, started, self.heard_holder(&wanted.name))),
        }
    }

    /// Takes the lock if that needs no waiting for a holder.
    pub(crate) async fn try_acquire(self: &Arc<Self>, wanted: &Wanted) -> Result<Tried> {
        tokio::select! {
            biased;
            tried = self.try_turn(wanted) => tried,
            () = self.closing.cancelled() => Err(Self::closed_error()),
        }
    }

    async fn try_turn(self: &Arc<Self>, wanted: &Wanted) -> Result<Tried> {
        let now = self.env().now();
        let claimed = self.claim(wanted, |entry| entry.queue.try_claim(now, may_pass(now)))?;
        let turn = match claimed {
            Claimed::Turn(turn) => turn,
            Claimed::Busy => return Ok(Tried::Held(self.heard_holder(&wanted.name))),
            // Only the confirmation of this process's own release is waited for.
            Claimed::Wait(slot) => slot.turn().await?,
        };
        match turn {
            Turn::Guard(guard) => Ok(Tried::Granted(guard)),
            Turn::Drive(drive) => drive.attempt(wanted).await,
            Turn::Refused(error) => Err(error),
        }
    }

    /// The store has no more to do for this name: the next waiter asks it.
    pub(crate) fn call_next(self: &Arc<Self>, name: &LockName) {
        if let Some(waiter) = self.names.with(name, |entry| entry.queue.next()) {
            waiter.call(Turn::Drive(Drive::new(self, name)));
        }
    }

    async fn wait_turn(self: &Arc<Self>, wanted: &Wanted, now: Moment) -> Result<LockGuard> {
        let turn = match self.claim(wanted, |entry| entry.queue.claim(now, may_pass(now)))? {
            Claimed::Turn(turn) => turn,
            Claimed::Wait(slot) => slot.turn().await?,
            Claimed::Busy => unreachable!("only `try_claim` answers busy"),
        };
        match turn {
            Turn::Guard(guard) => Ok(guard),
            Turn::Drive(drive) => drive.run(wanted).await,
            Turn::Refused(error) => Err(error),
        }
    }

    fn claim(
        self: &Arc<Self>,
        wanted: &Wanted,
        claim: impl FnOnce(&mut Entry) -> Claim<Arc<Tenure>>,
    ) -> Result<Claimed> {
        let name = &wanted.name;
        self.names.with(name, |entry| {
            // RACE: under the queue's mutex, so that nobody enqueues after `refuse_everybody`.
            if self.is_closed() {
                return Err(Self::closed_error());
            }
            Ok(match claim(entry) {
                Claim::Drive => {
                    (entry.heard, entry.lost_early) = (None, None);
                    Claimed::Turn(Turn::Drive(Drive::new(self, name)))
                }
                Claim::TakeOver(tenure, token) => {
                    Claimed::Turn(Turn::Guard(LockGuard::new(Arc::clone(self), tenure, token)))
                }
                Claim::Busy => Claimed::Busy,
                Claim::Wait => {
                    let (sender, called) = oneshot::channel();
                    let since_patrol = self.patrols.load(Ordering::Relaxed);
                    let id = WaiterId(self.waiters.fetch_add(1, Ordering::Relaxed));
                    entry.queue.enqueue(id, Waiter { turn: sender, since_patrol });
                    Claimed::Wait(Slot { core: Arc::clone(self), name: name.clone(), id, called })
                }
            })
        })
    }

    fn timed_out(&self, wanted: &Wanted, started: Moment, holder: Option<Holder>) -> Error {
        let waited = self.env().now().since(started);
        let held_by = match &holder {
            Some(holder) => format!("held by {:?}", holder.label),
            None => "its holder is not known".to_owned(),
        };
        let error = Error::not_applied(
            ErrorKind::Timeout { waited, holder },
            format!("not granted within {waited:?}; {held_by}"),
        )
        .with_context("lock", &wanted.name);
        match self.names.with_known(&wanted.name, |entry| entry.refused.clone()).flatten() {
            Some(refused) => error.with_source(refused),
            None => error,
        }
    }
}

enum Claimed {
    Turn(Turn),
    Wait(Slot),
    Busy,
}

impl Waiter {
    /// Calls a waiter. One that has vanished drops the turn, which passes it on.
    pub(crate) fn call(self, turn: Turn) {
        drop(self.turn.send(turn));
    }
}

/// A place in the queue; leaves it when dropped.
struct Slot {
    core: Arc<Core>,
    name: LockName,
    id: WaiterId,
    called: oneshot::Receiver<Turn>,
}

impl Slot {
    async fn turn(mut self) -> Result<Turn> {
        tracing::debug!(lock = %self.name, "waiting behind this process");
        (&mut self.called).await.map_err(|_| Core::closed_error())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // A turn that was sent already drops with `called`, which passes it on.
        let left = self.core.names.with(&self.name, |entry| entry.queue.leave(self.id));
        drop(left);
    }
}

/// The duty to ask the store for one name; there is one per queue at a time.
pub(crate) struct Drive {
    core: Arc<Core>,
    name: LockName,
    flight: Option<Flight>,
    over: bool,
}

/// A request for which the store may have an entry; dropping it abandons that.
type Flight = BoxFuture<'static, Result<Grant>>;

impl Drive {
    fn new(core: &Arc<Core>, name: &LockName) -> Self {
        Self { core: Arc::clone(core), name: name.clone(), flight: None, over: false }
    }

    /// Waits in the store's queue.
    async fn run(mut self, wanted: &Wanted) -> Result<LockGuard> {
        let core = Arc::clone(&self.core);
        let flight = self.flight.get_or_insert_with(|| {
            let (core, request) = (Arc::clone(&core), core.request(wanted));
            Box::pin(async move { core.env().answer_to(core.backend().acquire(&request)).await })
        });
        let granted = flight.await;
        self.flight = None;
        match granted {
            Ok(grant) => self.adopt(grant, wanted),
            Err(error) => Err(self.refused(error)),
        }
    }

    /// The store refused: whom that concerns hears the same (A3).
    fn refused(mut self, error: Error) -> Error {
        if concerns_everybody(&error) {
            self.over = true;
            let waiters: Vec<_> = self.core.names.with(&self.name, |entry| {
                entry.refused = Some(error.clone());
                let waiters = entry.queue.drain().collect();
                let nobody = entry.queue.next();
                debug_assert!(nobody.is_none(), "all were taken out");
                waiters
            });
            for waiter in waiters {
                waiter.call(Turn::Refused(error.clone()));
            }
        }
        error
    }

    /// Asks the store once.
    async fn attempt(self, wanted: &Wanted) -> Result<Tried> {
        debug_assert!(self.flight.is_none(), "a `try` is called only when the store has nothing of ours");
        let core = Arc::clone(&self.core);
        let attempt = {
            let request = core.request(wanted);
            core.env().bounded(core.backend().try_acquire(&request)).await?
        };
        match attempt {
            Attempt::Granted(grant) => self.adopt(grant, wanted).map(Tried::Granted),
            Attempt::Held { holder } => Ok(Tried::Held(holder)),
        }
    }

    fn adopt(mut self, grant: Grant, wanted: &Wanted) -> Result<LockGuard> {
        self.over = true;
        self.core.adopt(grant, wanted.budget)
    }
}

/// Whether an error says something about the store: that it cannot be reached, speaks nonsense, is
/// closed, or refuses us or what we ask. The rest is about one request: its name, its options, the
/// lease it lost, or a panic on its way.
fn concerns_everybody(error: &Error) -> bool {
    use ErrorKind::{Closed, Denied, Protocol, Unavailable, Unsupported};
    let panicked = std::error::Error::source(error).is_some_and(|source| source.is::<Panicked>());
    !panicked && matches!(error.kind(), Closed | Denied | Protocol | Unavailable | Unsupported)
}

impl Drop for Drive {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let waiter = self.core.names.with(&self.name, |entry| {
            let waited_for = entry.queue.waiters().next().is_some();
            if waited_for { entry.queue.next() } else { None }
        });
        if let Some(waiter) = waiter {
            let mut next = Self::new(&self.core, &self.name);
            next.flight = self.flight.take();
            waiter.call(Turn::Drive(next));
            return;
        }
        self.flight = None;
        self.core.call_next(&self.name);
    }
}

impl std::fmt::Debug for Drive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Drive").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Core {
    fn request(&self, wanted: &Wanted) -> AcquireRequest {
        AcquireRequest {
            name: wanted.name.clone(),
            mode: Mode::Exclusive,
            owner: self.env().owner_id(),
            ttl: wanted.ttl,
            label: Arc::clone(&self.label),
            metadata: wanted.metadata.clone(),
        }
    }
}
