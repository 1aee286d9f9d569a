//! How one request travels to the store and its answer back, whoever still waits for it.
//!
//! # Invariants
//! - **F1** A request on its way arrives, also when its sender has gone or given up: it flies in a
//!   task of its own. What it then takes, it gives back.
//! - **F2** An acquisition is sent only when no earlier one of that name is on its way or owes a
//!   clean-up, so the store sees one entry per name as far as the core keeps to that (B1).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use lockcore::backend::{Grant, LeaseScope, LockBackend, StoreEvent};
use lockcore::{Effect, Env, Error, ErrorKind, LockName, LostReason, Result};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot};

use super::plan::{Fault, Faults};

/// The way between one backend and its core.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) store: Arc<dyn LockBackend>,
    pub(super) faults: Faults,
    pub(super) env: Env,
    /// Into the event stream of the backend.
    pub(super) tell: mpsc::UnboundedSender<StoreEvent>,
    pub(super) lanes: Arc<Lanes>,
}

/// One request.
pub(super) struct Trip<T> {
    /// Asks the store; called once for every time that the request arrives.
    pub(super) ask: Ask<T>,
    /// Whether the store hears that the sender has gone, by the drop of its future.
    pub(super) hears_drop: bool,
    /// What an answer granted, to be given back when nobody hears of it.
    pub(super) taken: fn(T) -> Option<Grant>,
    /// The lane that an acquisition occupies.
    pub(super) lane: Option<LockName>,
}

pub(super) type Ask<T> = Box<dyn Fn(Arc<dyn LockBackend>) -> BoxFuture<'static, Result<T>> + Send + Sync>;

impl Link {
    /// Sends a request and waits for its answer, without end; `fault` happens to it.
    pub(super) async fn send<T: Send + 'static>(&self, trip: Trip<T>, fault: Option<Fault>) -> Result<T> {
        let bound = self.env.timing().op_timeout;
        let lane = match trip.lane.clone() {
            Some(name) => Some(Lanes::enter(&self.lanes, name).await),
            None => None,
        };
        if fault == Some(Fault::LoseRequest) {
            drop(lane);
            self.env.sleep(bound).await;
            return Err(self.no_answer());
        }
        let never_in_time = matches!(fault, Some(Fault::DelayRequest(delay)) if delay > bound);
        let (reply, answer) = oneshot::channel();
        self.env.spawn(self.clone().fly(trip, fault, reply, lane));
        tokio::select! {
            biased;
            answer = answer => answer.unwrap_or_else(|_| Err(self.no_answer())),
            () = self.env.sleep(bound), if never_in_time => Err(self.no_answer()),
        }
    }

    async fn fly<T: Send + 'static>(
        self,
        trip: Trip<T>,
        fault: Option<Fault>,
        mut reply: oneshot::Sender<Result<T>>,
        lane: Option<Lane>,
    ) {
        let bound = self.env.timing().op_timeout;
        if let Some(Fault::DelayRequest(delay)) = fault {
            self.env.sleep(delay).await;
        }
        let mut exchange = (trip.ask)(Arc::clone(&self.store));
        // The store is asked before the sender is looked for: the request is on its way (F1).
        let mut result = tokio::select! {
            biased;
            result = self.faults.while_audible(&mut exchange) => result,
            () = reply.closed(), if trip.hears_drop => {
                self.faults.audible().await;
                drop(exchange);
                drop(lane);
                return;
            }
        };
        drop(exchange);
        if fault == Some(Fault::Duplicate) && !trip.hears_drop {
            // Only the first answer finds the one who asked.
            let _ = self.faults.while_audible((trip.ask)(Arc::clone(&self.store))).await;
        }
        let arrives_after = match fault {
            Some(Fault::LoseReply) => None,
            Some(Fault::DelayReply(delay)) => Some(delay).filter(|delay| *delay <= bound),
            _ => Some(Duration::ZERO),
        };
        if arrives_after != Some(Duration::ZERO) {
            tokio::select! {
                biased;
                () = self.env.sleep(arrives_after.unwrap_or(bound)) => {}
                () = reply.closed() => {}
            }
        }
        if arrives_after.is_some() {
            self.faults.audible().await;
            match reply.send(result) {
                Ok(()) => return,
                Err(unheard) => result = unheard,
            }
        } else {
            drop(reply);
        }
        if let Some(grant) = result.ok().and_then(trip.taken) {
            self.give_back(&grant).await;
        }
        drop(lane);
    }

    /// Releases what nobody heard of, until that is certain.
    async fn give_back(&self, grant: &Grant) {
        let mut pause = self.env.timing().op_timeout / 32;
        loop {
            match self.faults.while_audible(self.store.release(grant)).await {
                Ok(()) => break,
                Err(error) if error.lost_reason().is_some() || *error.kind() == ErrorKind::Closed => {
                    break;
                }
                Err(_) => {}
            }
            self.env.sleep(pause).await;
            pause = (pause * 2).min(self.env.timing().op_timeout);
        }
        if grant.lease.scope == LeaseScope::Entry {
            // A core that has stopped listening renews nothing.
            let _ =
                self.tell.send(StoreEvent::LeaseLost { lease: grant.lease.id, reason: LostReason::Released });
        }
    }

    pub(super) fn no_answer(&self) -> Error {
        Error::new(
            ErrorKind::Unavailable,
            Effect::Unknown,
            format!("no answer came within {:?}", self.env.timing().op_timeout),
        )
    }
}

/// The names for which an acquisition is on its way or owes a clean-up.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    taken: Mutex<BTreeSet<LockName>>,
    left: Notify,
}

/// A name that is taken until this is dropped.
#[derive(Debug)]
pub(super) struct Lane {
    lanes: Arc<Lanes>,
    name: LockName,
}

impl Lanes {
    async fn enter(lanes: &Arc<Self>, name: LockName) -> Lane {
        loop {
            // RACE: listen before looking, so that no exit is missed.
            let left = lanes.left.notified();
            if lanes.taken.lock().insert(name.clone()) {
                return Lane { lanes: Arc::clone(lanes), name };
            }
            left.await;
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.lanes.taken.lock().remove(&self.name);
        self.lanes.left.notify_waiters();
    }
}
