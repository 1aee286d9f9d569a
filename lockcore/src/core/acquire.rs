//! Waiting for a lock and asking the store for it.
//!
//! The first caller of a name asks the store, in its own poll for as long as nobody else waits for the
//! name; the others wait in the name's queue, and from then on a task polls the request. A caller that
//! leaves while others wait leaves its request to the next of them: the place in the store's queue
//! belongs to the process.
//!
//! # Invariants
//! - **acquire-1** A [`Drive`] either adopts a grant or calls the next waiter, by `Drop` at the latest: no
//!   wake-up is lost (G8).
//! - **acquire-2** A request is dropped, which abandons it, before its queue turns idle (B1): the drive is
//!   part of it, and goes last.
//! - **acquire-3** What an `acquire` hears about the store, and not about its own request, everybody hears
//!   who is queued behind it then, whether or not its caller looks: a store that is down is not asked
//!   once for each of them.
//!
//! Checked by the conformance cases of `g7` and `g8`, the simulation, and `tests/bystanders`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::backend::env::Panicked;
use crate::backend::{AcquireRequest, Attempt, Grant, Holder, Mode};
use crate::clock::Moment;
use crate::core::flight::{Flight, Flown};
use crate::core::held::Held;
use crate::core::queue::{HandoffBudget, Reply, WaiterId};
use crate::core::queues::{Entry, Waiter};
use crate::core::tenure::Tenure;
use crate::core::{Core, may_pass};
use crate::words::error::{Effect, Error, ErrorKind, Result};
use crate::words::name::LockName;

/// What a caller wants, with every option resolved.
#[derive(Clone, Debug)]
pub(crate) struct Acquire {
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
    Held(Held),
    /// Ask the store.
    Drive(Drive),
    /// Somebody has asked the store, and left it to you.
    Ride(Ride),
    /// The store was asked, and is of no use to anybody now.
    Refused(Error),
}

/// What `try_acquire` came to.
#[derive(Debug)]
pub(crate) enum Tried {
    Granted(Held),
    Held(Option<Holder>),
}

impl Core {
    /// Waits for the lock, for `wanted.wait` at most.
    pub(crate) async fn acquire(self: &Arc<Self>, wanted: &Acquire) -> Result<Held> {
        let started = self.env().now();
        if wanted.wait == Some(Duration::ZERO) {
            return match self.try_acquire(wanted).await? {
                Tried::Granted(guard) => Ok(guard),
                Tried::Held(holder) => Err(self.timed_out(wanted, started, holder)),
            };
        }
        tokio::select! {
            biased;
            guard = self.wait_turn(wanted, started) => guard.map_err(|error| self.about(&wanted.name, error)),
            () = async {
                match wanted.wait {
                    Some(wait) => self.env().sleep_until(started + wait).await,
                    None => std::future::pending().await,
                }
            } => Err(self.timed_out(wanted, started, self.heard_holder(&wanted.name))),
        }
    }

    /// Takes the lock if that needs no waiting for a holder.
    pub(crate) async fn try_acquire(self: &Arc<Self>, wanted: &Acquire) -> Result<Tried> {
        self.try_turn(wanted).await.map_err(|error| self.about(&wanted.name, error))
    }

    async fn try_turn(self: &Arc<Self>, wanted: &Acquire) -> Result<Tried> {
        let now = self.env().now();
        let claimed = self.claim(wanted, |entry| entry.queue.try_claim(now, may_pass(now)))?;
        let turn = match claimed {
            Claimed::Turn(turn) => turn,
            Claimed::Busy => return Ok(Tried::Held(self.heard_holder(&wanted.name))),
            // Only the confirmation of this process's own release is waited for.
            Claimed::Wait(slot) => slot.turn().await?,
        };
        match turn {
            Turn::Held(guard) => Ok(Tried::Granted(guard)),
            Turn::Drive(drive) => drive.attempt(wanted).await,
            Turn::Ride(_) => unreachable!("a `try` is called only when the store has nothing of ours"),
            Turn::Refused(error) => Err(error),
        }
    }

    /// The store has no more to do for this name: the next waiter asks it.
    pub(crate) fn call_next(self: &Arc<Self>, name: &LockName) {
        if let Some(waiter) = self.queues.with(name, Entry::next) {
            waiter.call(Turn::Drive(Drive::new(self, name)));
        }
    }

    async fn wait_turn(self: &Arc<Self>, wanted: &Acquire, now: Moment) -> Result<Held> {
        let turn = match self.claim(wanted, |entry| entry.queue.claim(now, may_pass(now)))? {
            Claimed::Turn(turn) => turn,
            Claimed::Wait(slot) => slot.turn().await?,
            Claimed::Busy => unreachable!("only `try_claim` answers busy"),
        };
        match turn {
            Turn::Held(guard) => Ok(guard),
            Turn::Drive(drive) => drive.run(wanted).await,
            Turn::Ride(ride) => ride.landed().await,
            Turn::Refused(error) => Err(error),
        }
    }

    fn claim(
        self: &Arc<Self>,
        wanted: &Acquire,
        claim: impl FnOnce(&mut Entry) -> Reply<Arc<Tenure>>,
    ) -> Result<Claimed> {
        let name = &wanted.name;
        let (claimed, ahead) = self.queues.with(name, |entry| {
            // RACE: under the queue's mutex, so that nobody enqueues after `refuse_everybody`.
            if self.is_closed() {
                return Err(Self::closed_error());
            }
            let claimed = match claim(entry) {
                Reply::Drive => {
                    (entry.heard, entry.lost_early, entry.asked_early) = (None, None, None);
                    Claimed::Turn(Turn::Drive(Drive::new(self, name)))
                }
                Reply::TakeOver(tenure, token) => {
                    Claimed::Turn(Turn::Held(Held::new(Arc::clone(self), tenure, token)))
                }
                Reply::Busy => Claimed::Busy,
                Reply::Wait => {
                    let (sender, called) = oneshot::channel();
                    let since_patrol = self.patrols.load(Ordering::Relaxed);
                    let id = WaiterId(self.waiters.fetch_add(1, Ordering::Relaxed));
                    entry.queue.enqueue(id, Waiter { turn: sender, since_patrol });
                    let slot = Waiting { core: Arc::clone(self), name: name.clone(), id, called };
                    return Ok((Claimed::Wait(slot), entry.under_way()));
                }
            };
            Ok((claimed, None))
        })?;
        if let Some(ahead) = ahead {
            ahead.detach();
        }
        Ok(claimed)
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
        let refused = self.queues.with_known(&wanted.name, |entry| entry.refused.clone()).flatten();
        // What is older says nothing of the store as it is now.
        let recent = self.env().now().saturating_sub(self.env().timing().ttl);
        let unconfirmed = || self.unconfirmed.lock().clone().filter(|(at, _)| recent <= *at);
        let error = match refused.or_else(|| unconfirmed().map(|(_, error)| error)) {
            // That nothing is left of it is what this error says.
            Some(refused) => error.with_source(self.placed(refused.with_effect(Effect::NotApplied))),
            None => error,
        };
        self.about(&wanted.name, error)
    }
}

enum Claimed {
    Turn(Turn),
    Wait(Waiting),
    Busy,
}

impl Waiter {
    /// Calls a waiter. One that has vanished drops the turn, which passes it on.
    pub(crate) fn call(self, turn: Turn) {
        drop(self.turn.send(turn));
    }
}

/// A place in the queue; leaves it when dropped.
struct Waiting {
    core: Arc<Core>,
    name: LockName,
    id: WaiterId,
    called: oneshot::Receiver<Turn>,
}

impl Waiting {
    async fn turn(mut self) -> Result<Turn> {
        tracing::debug!(lock = %self.name, "waiting behind this process");
        (&mut self.called).await.map_err(|_| Core::closed_error())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // A turn that was sent already drops with `called`, which passes it on.
        let left = self.core.queues.with(&self.name, |entry| entry.queue.leave(self.id));
        drop(left);
    }
}

/// The duty to ask the store for one name; there is one per queue at a time.
pub(crate) struct Drive {
    core: Arc<Core>,
    name: LockName,
    over: bool,
}

impl Drive {
    fn new(core: &Arc<Core>, name: &LockName) -> Self {
        Self { core: Arc::clone(core), name: name.clone(), over: false }
    }

    /// Waits in the store's queue.
    async fn run(self, wanted: &Acquire) -> Result<Held> {
        let (core, name) = (Arc::clone(&self.core), self.name.clone());
        let (request, budget) = (core.request(wanted), wanted.budget);
        let asked = Box::pin(async move {
            let core = Arc::clone(&self.core);
            let granted = core.env().answer_to(core.backend().acquire(&request));
            match core.until_closed(granted).await {
                Ok(grant) => self.adopt(grant, budget),
                Err(error) => Err(self.refused(error)),
            }
        });
        match core.fly(&name, asked, None).await {
            Flown::Landed(answer) => answer,
            Flown::Aloft(flight) => Ride { core, name, flight: Some(flight) }.landed().await,
        }
    }

    /// The store refused: whom that concerns hears the same (acquire-3).
    fn refused(mut self, error: Error) -> Error {
        if concerns_everybody(&error) {
            self.over = true;
            let waiters: Vec<_> = self.core.queues.with(&self.name, |entry| {
                entry.refused = Some(error.clone());
                let waiters = entry.queue.drain().collect();
                let nobody = entry.next();
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
    async fn attempt(self, wanted: &Acquire) -> Result<Tried> {
        let (core, name) = (Arc::clone(&self.core), self.name.clone());
        let (request, budget) = (core.request(wanted), wanted.budget);
        let asked = Box::pin(async move {
            let core = Arc::clone(&self.core);
            let attempt = core.env().bounded(core.backend().try_acquire(&request));
            match core.until_closed(attempt).await? {
                Attempt::Granted(grant) => self.adopt(grant, budget).map(Tried::Granted),
                Attempt::Held { holder } => {
                    core.queues.with_known(&self.name, |entry| entry.refused = None);
                    Ok(Tried::Held(holder))
                }
            }
        });
        match core.fly(&name, asked, None).await {
            Flown::Landed(answer) => answer,
            Flown::Aloft(flight) => flight.await,
        }
    }

    fn adopt(mut self, grant: Grant, budget: HandoffBudget) -> Result<Held> {
        self.over = true;
        self.core.adopt(grant, budget)
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
        if !self.over {
            self.core.call_next(&self.name);
        }
    }
}

impl std::fmt::Debug for Drive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Drive").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The wait for a request that is under way. Who leaves it leaves it to the next waiter; without one
/// the request is given up.
#[derive(Debug)]
pub(crate) struct Ride {
    core: Arc<Core>,
    name: LockName,
    /// Until it has landed.
    flight: Option<Flight<Result<Held>>>,
}

impl Ride {
    async fn landed(mut self) -> Result<Held> {
        let Some(flight) = &mut self.flight else {
            unreachable!("it is taken only here and by `drop`");
        };
        let answer = flight.await;
        self.flight = None;
        answer
    }
}

impl Drop for Ride {
    fn drop(&mut self) {
        let Some(flight) = self.flight.take() else {
            return;
        };
        let heir = self.core.queues.with(&self.name, |entry| {
            // RACE: one that was answered has left the entry under this mutex; what the queue does now
            // is no business of its.
            let undecided = entry.flight.as_ref().is_some_and(|under_way| flight.is(under_way));
            let waited_for = entry.queue.waiters().next().is_some();
            if undecided && waited_for { entry.queue.next() } else { None }
        });
        match heir {
            Some(heir) => {
                let (core, name) = (Arc::clone(&self.core), self.name.clone());
                heir.call(Turn::Ride(Self { core, name, flight: Some(flight) }));
            }
            None => drop(flight),
        }
    }
}

impl Core {
    /// Gives `request` up when the manager is shut down.
    async fn until_closed<T>(&self, request: impl Future<Output = Result<T>> + Send) -> Result<T> {
        tokio::select! {
            biased;
            answer = request => answer,
            () = self.closing.cancelled() => Err(Self::closed_error()),
        }
    }

    fn request(&self, wanted: &Acquire) -> AcquireRequest {
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
