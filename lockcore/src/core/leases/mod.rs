//! The leases of a manager: the ownerships of each, and the time of its next check.
//!
//! The table is pure ([`table`]); here is its mutex. Ownerships whose lease comes to be at risk, or out of it, are notified
//! here; lost ones are returned to the caller, which ends them. The watchdog's task takes the next step, and is woken when one
//! is due earlier.
//!
//! No mutex is held while an ownership is notified. Checked by the tests of [`table`] and of the conformance
//! cases of `g2`.

mod ends;
mod table;

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::backend::{Grant, Lease, LeaseId, Renewal};
use crate::clock::timing::Timing;
use crate::clock::{Deadline, Moment};
use crate::core::context::Context;
use crate::core::lease::Change;
use crate::core::metrics;
use crate::core::ownership::Ownership;
use crate::words::error::Error;
use crate::words::loss::LostReason;
use crate::words::mode::Mode;
use table::{Due, LeaseChange, LeaseTable};

/// Ownerships that have lost their lease, and why: the receiver ends them.
pub(crate) type Lost = (Vec<Arc<Ownership>>, LostReason);

pub(crate) struct Leases {
    table: Mutex<LeaseTable>,
    /// When and why the last renewal failed, if none has succeeded since.
    last_failure: Mutex<Option<(Moment, Error)>>,
    /// A timer is due before the watchdog would wake, or a listener came.
    sooner: Notify,
    /// Dropped when the watchdog has handled all events that it had when they came.
    pub(crate) listeners: Mutex<Vec<oneshot::Sender<()>>>,
}

impl Leases {
    pub(crate) fn new(timing: &Timing) -> Self {
        Self {
            table: Mutex::new(LeaseTable::new(timing.op_timeout, timing.ttl / 12, timing.ttl / 3)),
            last_failure: Mutex::default(),
            sooner: Notify::new(),
            listeners: Mutex::default(),
        }
    }

    /// Puts a grant on its lease. The ownership has ended already if the lease is lost.
    pub(crate) fn register(&self, grant: Grant, mode: Mode, now: Moment) -> Arc<Ownership> {
        metrics::add(metrics::HELD, 1.0);
        let (ownership, lost) = self.change(now, |table| table.register(grant, mode, now));
        // Outside of the table: an end calls the recorder of metrics, which is the user's.
        if let Some(reason) = lost {
            ownership.end(reason);
        }
        ownership
    }

    /// Takes an ownership that has ended off its lease, which is renewed on only for others.
    pub(crate) fn deregister(&self, ownership: &Arc<Ownership>) {
        self.table.lock().deregister(ownership);
    }

    /// Has the watchdog report an ownership at the time at which it ends by itself, which was just set.
    pub(crate) fn end_at(&self, ownership: &Arc<Ownership>, now: Moment) {
        self.change(now, |table| table.ends.set(ownership));
    }

    /// Adds a lease that the store has announced.
    pub(crate) fn opened(&self, lease: Lease, now: Moment) {
        self.change(now, |table| table.opened(lease, now));
    }

    /// Ends a lease, by the store's report or on request.
    #[must_use = "lost ownerships are to be ended"]
    pub(crate) fn lose(&self, lease: LeaseId, reason: LostReason) -> Option<Lost> {
        let change = self.table.lock().lose(lease, reason);
        change?.lost()
    }

    /// Takes in the answer to a renewal.
    #[must_use = "lost ownerships are to be ended"]
    pub(crate) fn answered(
        &self,
        lease: LeaseId,
        now: Moment,
        sent_at: Moment,
        answer: &Renewal,
    ) -> Option<Lost> {
        let outcome = match answer {
            Renewal::Until(_) => {
                *self.last_failure.lock() = None;
                "renewed"
            }
            Renewal::Gone(_) => "gone",
            Renewal::Unknown(error) => {
                tracing::debug!(error = ?format!("{error:#}"), "retrying renewal");
                *self.last_failure.lock() = Some((now, error.clone()));
                "unknown"
            }
        };
        metrics::count(metrics::RENEWALS, &[("outcome", outcome)]);
        self.change(now, |table| table.answered(lease, now, sent_at, answer))?.lost()
    }

    /// Why the last renewal failed, if that was at `since` or later and none has succeeded after it.
    pub(crate) fn last_failure(&self, since: Moment) -> Option<Error> {
        let failure = self.last_failure.lock();
        failure.as_ref().filter(|(at, _)| since <= *at).map(|(_, error)| error.clone())
    }

    /// Returns when a session ends that is not lost.
    pub(crate) fn session_deadline(&self, lease: &Lease) -> Option<Deadline> {
        self.table.lock().session_deadline(lease)
    }

    /// Every live ownership.
    pub(crate) fn ownerships(&self) -> Vec<Arc<Ownership>> {
        self.table.lock().ownerships()
    }

    /// Ends when the watchdog has handled every event that the store has sent, or has ended. A store that sends
    /// without end is waited for as for a request.
    pub(crate) async fn has_heard(&self, context: &Context) {
        let (listener, taken_in) = oneshot::channel::<()>();
        self.listeners.lock().push(listener);
        self.sooner.notify_one();
        let heard = context.bounded(async {
            let _dropped = taken_in.await;
            Ok(())
        });
        drop(heard.await);
    }

    /// Returns the next step, and when to ask again.
    pub(crate) fn step(&self, now: Moment) -> Due {
        self.table.lock().step(now)
    }

    /// Ends when there is something to do before the time that [`step`](Self::step) has named.
    pub(crate) async fn sooner(&self) {
        self.sooner.notified().await;
    }

    fn change<R>(&self, now: Moment, change: impl FnOnce(&mut LeaseTable) -> R) -> R {
        let mut table = self.table.lock();
        let result = change(&mut table);
        if table.must_wake(now) {
            self.sooner.notify_one();
        }
        result
    }
}

impl LeaseChange {
    /// Notifies the ownerships of a lease that is at risk, or no more; returns them if it is lost.
    pub(crate) fn lost(self) -> Option<Lost> {
        let Self { change, ownerships } = self;
        if let Change::Lost(reason) = change {
            return Some((ownerships, reason));
        }
        for ownership in &ownerships {
            if change == Change::AtRisk {
                tracing::warn!(lock = %ownership.grant.name, "at risk: a renewal is overdue");
            }
            ownership.follow();
        }
        None
    }
}
