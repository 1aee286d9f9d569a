//! Keeps every lease of a manager alive, and tells its guards when one is gone.
//!
//! One task per manager, and the only renewal timer there is. It knows leases, not locks: those
//! that grants name and those that the store announces. Due renewals go out in one call; a call
//! that hangs is given up after the bound of a request, and never delays a deadline. The table of
//! leases is in [`table`], the life of one lease in [`crate::core::lease`].
//!
//! # Invariants
//! - **watchdog-1** A guard is told "lost" at its deadline at the latest, before any other contender can
//!   hold the lock (G2), provided clocks drift less than the margin per ttl (A1) and timers fire.
//! - **watchdog-2** A renewal answered late never moves a deadline: the store counts it from sending, and
//!   [`crate::core::lease`] refuses it after the deadline.
//! - **watchdog-3** A released lock is not renewed: it leaves the table before the release is sent. (Only an
//!   announcement that is handled after that costs one renewal, which finds nothing.)
//! - **watchdog-4** However much the store tells, deadlines and renewals come first, and other tasks get their turn.
//!
//! Not promised: that the server still lists us. Checked by the conformance cases of `g2` and `g6`, and
//! `tests/local`.

mod table;

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use crate::backend::env::Env;
use crate::backend::panic::{Panicked, waking};
use crate::backend::{Grant, Lease, LeaseId, LockBackend, Renewal};
use crate::clock::{Deadline, Moment};
use crate::core::Core;
use crate::core::lease::{Change, RenewalOutcome};
use crate::core::metrics;
use crate::core::names::Name;
use crate::core::ownership::Ownership;
use crate::words::loss::LostReason;
use crate::words::mode::Mode;
use table::{LeaseChange, LeaseTable};

/// The handle of the task; the table is shared with it.
#[derive(Debug)]
pub(crate) struct Watchdog {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    table: Mutex<LeaseTable>,
    /// A timer is due before the task would wake, or somebody wants an answer.
    sooner: Notify,
    /// Who wait until what was told is taken in.
    listeners: Mutex<Vec<oneshot::Sender<()>>>,
    closing: CancellationToken,
}

impl Watchdog {
    pub(crate) fn new(env: &Env, closing: CancellationToken) -> Self {
        let table = Mutex::new(LeaseTable::new(env.timing().op_timeout, env.timing().ttl / 12));
        let listeners = Mutex::default();
        Self { shared: Arc::new(Shared { table, sooner: Notify::new(), listeners, closing }) }
    }

    /// Starts the task; it ends with the manager, and ends the manager if the runtime drops it.
    pub(crate) fn start(&self, core: &Arc<Core>) {
        let guard = RuntimeGuard { core: Arc::downgrade(core), closing: self.shared.closing.clone() };
        let task = Task {
            shared: Arc::clone(&self.shared),
            core: Arc::downgrade(core),
            backend: Arc::clone(core.backend()),
            env: core.env().clone(),
        };
        core.env().spawn(task.run(guard));
    }

    /// A grant, which names a lease, becomes a ownership; one that has ended if that lease is lost.
    pub(crate) fn register(
        &self,
        queue: &Arc<Name>,
        grant: Grant,
        mode: Mode,
        now: Moment,
    ) -> Arc<Ownership> {
        let (ownership, lost) = self.change(|table| table.register(queue, grant, mode, now));
        metrics::taken();
        if let Some(reason) = lost {
            ownership.end(reason);
        }
        ownership
    }

    /// A hold has ended: its lease is renewed on only for others.
    pub(crate) fn deregister(&self, ownership: &Arc<Ownership>) {
        self.change(|table| table.deregister(ownership));
    }

    /// The store announces a lease.
    pub(crate) fn opened(&self, lease: Lease, now: Moment) {
        self.change(|table| table.opened(lease, now));
    }

    /// The store says that a lease is over.
    pub(crate) fn lease_lost(&self, core: &Arc<Core>, lease: LeaseId, reason: LostReason) {
        let outcome = self.change(|table| table.lose(lease, reason));
        apply(core, outcome);
    }

    /// A renewal was answered.
    pub(crate) fn answered(&self, core: &Arc<Core>, lease: LeaseId, sent_at: Moment, answer: RenewalOutcome) {
        metrics::renewed(answer.word());
        let now = core.env().now();
        let outcome = self.change(|table| table.answered(lease, now, sent_at, answer));
        apply(core, outcome);
    }

    /// Ends when all that the store has told is taken in, or the watchdog ends. A store that tells without
    /// end is waited for as for a request.
    pub(crate) async fn has_heard(&self, env: &Env) {
        let (listener, taken_in) = oneshot::channel::<()>();
        self.shared.listeners.lock().push(listener);
        self.shared.sooner.notify_one();
        let heard = env.bounded(async {
            tokio::select! {
                biased;
                _dropped = taken_in => {}
                () = self.shared.closing.cancelled() => {}
            }
            Ok(())
        });
        drop(heard.await);
    }

    /// Until when a session that is not lost lives.
    pub(crate) fn session_deadline(&self, lease: &Lease) -> Option<Deadline> {
        self.shared.table.lock().session_deadline(lease)
    }

    /// Every live ownership.
    pub(crate) fn ownerships(&self) -> Vec<Arc<Ownership>> {
        self.shared.table.lock().ownerships()
    }

    fn change<R>(&self, change: impl FnOnce(&mut LeaseTable) -> R) -> R {
        let mut table = self.shared.table.lock();
        let result = change(&mut table);
        if table.must_wake() {
            self.shared.sooner.notify_one();
        }
        result
    }
}

struct Task {
    shared: Arc<Shared>,
    core: Weak<Core>,
    backend: Arc<dyn LockBackend>,
    env: Env,
}

/// Leases that were renewed by one call, when it was sent, and its answers.
type Renewed = (Vec<LeaseId>, Moment, Vec<Renewal>);

impl Task {
    /// `_guard` was made before, so that it also tells of a task that was never polled.
    async fn run(self, _guard: RuntimeGuard) {
        let mut events = AssertUnwindSafe(self.backend.events()).catch_unwind().fuse();
        let mut renewals = FuturesUnordered::new();
        let ttl = self.env.timing().ttl;
        let mut round_at = self.env.now() + ttl;
        let mut listeners = Vec::new();
        loop {
            listeners.append(&mut self.shared.listeners.lock());
            let now = self.env.now();
            let step = self.shared.table.lock().step(now);
            let Some(core) = self.core.upgrade() else {
                return;
            };
            for outcome in step.outcomes {
                apply(&core, Some(outcome));
            }
            if round_at <= now {
                core.queues.trim();
                core.warn_of_self_deadlock();
                round_at = now + ttl;
            }
            drop(core);
            if !step.due.is_empty() {
                renewals.push(self.renew(step.due, now));
            }
            let wake_at = step.wake_at.map_or(round_at, |at| at.min(round_at));
            tokio::select! {
                biased;
                () = self.shared.closing.cancelled() => return,
                // Before the events, of which there may always be one more. Renewals end: of each lease one
                // is in flight (lease-3).
                Some(renewed) = renewals.next() => self.with_core(|core| settle(core, renewed)),
                Some(event) = events.next() => {
                    match event {
                        Ok(event) => self.with_core(|core| core.on_event(event)),
                        Err(panic) => tracing::warn!(
                            error = ?Panicked::new(&*panic),
                            "the store's code panicked; from here on it tells nothing without being asked"
                        ),
                    }
                    // A stream that is always ready need not let others have their turn: we do.
                    tokio::task::coop::consume_budget().await;
                }
                // Behind the events: what was told before they asked is taken in.
                () = std::future::ready(()), if !listeners.is_empty() => {
                    for listener in listeners.drain(..) {
                        waking(|| drop(listener));
                    }
                }
                () = self.shared.sooner.notified() => {}
                () = self.env.sleep_until(wake_at) => {}
            }
        }
    }

    /// Renews `leases` in one call; what is not answered within the bound is unknown.
    fn renew(&self, leases: Vec<LeaseId>, sent_at: Moment) -> impl Future<Output = Renewed> + Send + 'static {
        let (backend, env) = (Arc::clone(&self.backend), self.env.clone());
        async move {
            let renewal = async { Ok(backend.renew(&leases).await) };
            let answers = env.bounded(renewal).await;
            let answers = answers
                .unwrap_or_else(|error| leases.iter().map(|_| Renewal::Unknown(error.clone())).collect());
            (leases, sent_at, answers)
        }
    }

    fn with_core(&self, act: impl FnOnce(&Arc<Core>)) {
        if let Some(core) = self.core.upgrade() {
            act(&core);
        }
    }
}

/// Tells when the runtime drops the task, which nobody else would notice.
struct RuntimeGuard {
    core: Weak<Core>,
    closing: CancellationToken,
}

impl Drop for RuntimeGuard {
    fn drop(&mut self) {
        if self.closing.is_cancelled() {
            return;
        }
        if let Some(core) = self.core.upgrade() {
            core.runtime_ended();
        }
    }
}

fn settle(core: &Arc<Core>, (leases, sent_at, answers): Renewed) {
    let mut answers = answers.into_iter();
    for lease in leases {
        let answer = match answers.next() {
            Some(Renewal::Until(deadline)) => {
                *core.unconfirmed.lock() = None;
                RenewalOutcome::Until(deadline)
            }
            Some(Renewal::Gone(reason)) => RenewalOutcome::Gone(reason),
            Some(Renewal::Unknown(error)) => {
                tracing::debug!(error = ?format!("{error:#}"), "a renewal is tried again");
                *core.unconfirmed.lock() = Some((core.env().now(), error));
                RenewalOutcome::Unknown
            }
            None => RenewalOutcome::Unknown,
        };
        core.watchdog.answered(core, lease, sent_at, answer);
    }
}

fn apply(core: &Arc<Core>, outcome: Option<LeaseChange>) {
    let Some(LeaseChange { change, ownerships }) = outcome else {
        return;
    };
    for ownership in ownerships {
        match change {
            Change::Nothing => {}
            Change::AtRisk => {
                tracing::warn!(lock = %ownership.grant().name, "at risk: a renewal is overdue");
                ownership.follow();
            }
            Change::Safe => ownership.follow(),
            Change::Lost(reason) => core.lose(&ownership, reason),
        }
    }
}
