//! How one request travels to the store and its answer back, whether or not its caller still waits.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::{Grant, LeaseScope, LockBackend, StoreEvent};
use leasehold_core::{Effect, Env, Error, ErrorKind, LockName, LostReason, Result};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot};

use super::{Fault, Network, Operation};
use crate::layer::Below;

/// The way between one session and its core.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) network: Network,
    /// Into the event stream of the session.
    pub(super) tell: mpsc::UnboundedSender<StoreEvent>,
    pub(super) lanes: Arc<Lanes>,
}

/// One request.
pub(super) struct Trip<Q, T, F> {
    pub(super) operation: Operation,
    pub(super) question: Q,
    /// Asks the store, having been on the way for so long; called once for every time that the request arrives.
    pub(super) ask: fn(Arc<dyn LockBackend>, Q, Duration) -> F,
    /// What an answer granted, to be released if the answer is not received.
    pub(super) taken: fn(T) -> Option<Grant>,
    /// The lane that an acquisition occupies.
    pub(super) lane: Option<LockName>,
}

impl Link {
    /// A request that nothing has to be undone for.
    pub(super) async fn ask<Q, T, F>(
        &self,
        below: &Below,
        operation: Operation,
        question: Q,
        ask: fn(Arc<dyn LockBackend>, Q, Duration) -> F,
    ) -> Result<T>
    where
        Q: Clone + Send + Sync + 'static,
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        self.send(below, Trip { operation, question, ask, taken: |_| None, lane: None }).await
    }

    /// Sends a request and waits for its answer, without end; what the network draws happens to it.
    pub(super) async fn send<Q, T, F>(&self, below: &Below, trip: Trip<Q, T, F>) -> Result<T>
    where
        Q: Clone + Send + Sync + 'static,
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let fault = self.network.draw(trip.operation);
        let lane = match trip.lane.clone() {
            Some(name) => Some(Lanes::enter(&self.lanes, name).await),
            None => None,
        };
        let bound = below.env.timing().op_timeout;
        let never_in_time = matches!(fault, Some(Fault::DelayRequest(delay)) if delay > bound);
        let gives_up = never_in_time && !trip.operation.is_bounded();
        let (reply, answer) = oneshot::channel();
        below.env.spawn(self.clone().fly(below.clone(), trip, fault, reply, lane));
        tokio::select! {
            biased;
            parcel = answer => parcel.map_or_else(|_| Err(no_answer(&below.env)), Parcel::open),
            () = below.env.sleep(bound), if gives_up => Err(no_answer(&below.env)),
        }
    }

    async fn fly<Q, T, F>(
        self,
        below: Below,
        trip: Trip<Q, T, F>,
        fault: Option<Fault>,
        mut reply: oneshot::Sender<Parcel<T>>,
        lane: Option<Lane>,
    ) where
        Q: Clone + Send + Sync + 'static,
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let (network, env, operation) = (&self.network, &below.env, trip.operation);
        if fault == Some(Fault::LoseRequest) {
            drop(lane);
            return unanswered(env, operation, &mut reply).await;
        }
        if let Some(Fault::DelayRequest(delay)) = fault {
            env.sleep(delay).await;
        }
        let way = network.cross(env).await;
        let ask = || (trip.ask)(Arc::clone(&below.backend), trip.question.clone(), way);
        // The store is asked before the sender is looked for: the request is on its way (network-1).
        let answer = tokio::select! {
            biased;
            answer = network.while_whole(ask()) => answer,
            () = async {
                reply.closed().await;
                network.cross(env).await;
                network.whole().await;
            }, if operation.hears_drop() => return,
        };
        let (link, there) = (self.clone(), below.clone());
        let parcel = Parcel { answer: Some(answer), taken: trip.taken, link, below: there, lane };
        if fault == Some(Fault::Duplicate) && !operation.hears_drop() {
            // Only the first answer is used.
            let _ = network.while_whole(ask()).await;
        }
        match fault {
            Some(Fault::DelayReply(delay)) if delay <= env.timing().op_timeout => tokio::select! {
                biased;
                () = env.sleep(delay) => {}
                () = reply.closed() => {}
            },
            Some(Fault::LoseReply | Fault::DelayReply(_)) => {
                return unanswered(env, operation, &mut reply).await;
            }
            _ => {}
        }
        network.cross(env).await;
        network.whole().await;
        // A caller who has left drops the parcel.
        let _ = reply.send(parcel);
    }

    /// Releases a grant whose answer was not received, until that is certain.
    async fn give_back(&self, below: &Below, grant: &Grant) {
        let bound = below.env.timing().op_timeout;
        let mut pause = bound / 32;
        self.network.cross(&below.env).await;
        loop {
            match self.network.while_whole(below.backend.release(grant)).await {
                Ok(()) => break,
                Err(error) if error.lost_reason().is_some() || *error.kind() == ErrorKind::Closed => {
                    break;
                }
                Err(_) => {}
            }
            below.env.sleep(pause).await;
            pause = (pause * 2).min(bound);
        }
        if grant.lease.scope == LeaseScope::Entry {
            // A core that has stopped listening renews nothing.
            let _ =
                self.tell.send(StoreEvent::LeaseLost { lease: grant.lease.id, reason: LostReason::Released });
        }
    }
}

/// There is no answer: the core ends what it bounds, the rest fails after the bound of a request.
async fn unanswered<T>(env: &Env, operation: Operation, reply: &mut oneshot::Sender<T>) {
    tokio::select! {
        biased;
        () = env.sleep(env.timing().op_timeout), if !operation.is_bounded() => {}
        () = reply.closed() => {}
    }
}

pub(super) fn no_answer(env: &Env) -> Error {
    let message = format!("no answer came within {:?}", env.timing().op_timeout);
    Error::new(ErrorKind::Unavailable, Effect::Unknown, message)
}

/// An answer on its way; what it grants is released if it is not opened.
struct Parcel<T> {
    answer: Option<Result<T>>,
    taken: fn(T) -> Option<Grant>,
    link: Link,
    below: Below,
    lane: Option<Lane>,
}

impl<T> Parcel<T> {
    fn open(mut self) -> Result<T> {
        self.answer.take().expect("a parcel is opened once")
    }
}

impl<T> Drop for Parcel<T> {
    fn drop(&mut self) {
        let Some(grant) = self.answer.take().and_then(Result::ok).and_then(self.taken) else {
            return;
        };
        let (link, below, lane) = (self.link.clone(), self.below.clone(), self.lane.take());
        self.below.env.spawn(async move {
            link.give_back(&below, &grant).await;
            drop(lane);
        });
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
