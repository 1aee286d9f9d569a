//! The way of one session through the network.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use leasehold_core::backend::ledger::MoveLedger;
use leasehold_core::backend::{
    AcquireRequest, Attempt, Finding, Grant, Holder, LeaseId, LockState, Renewal, Revoke, StoreEvent,
};
use leasehold_core::clock::Deadline;
use leasehold_core::{Guarantees, LockName, Result};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::flight::{Link, Trip, no_answer};
use super::ledger::FarLedger;
use super::{Network, Operation};
use crate::layer::{Below, For, Layer};

#[derive(Debug)]
pub(super) struct Line {
    link: Link,
    /// Events that do not come from the store; taken with the first stream.
    told: Mutex<Option<mpsc::UnboundedReceiver<StoreEvent>>>,
}

impl Line {
    pub(super) fn through(network: &Network) -> Self {
        let (tell, told) = network.listen();
        let link = Link { network: network.clone(), tell, lanes: Arc::default() };
        Self { link, told: Mutex::new(Some(told)) }
    }
}

#[async_trait]
impl Layer for Line {
    fn guarantees(&self, below: &Below) -> Guarantees {
        below.backend.guarantees() - Guarantees::RUNTIME_FREE
    }

    async fn try_acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Attempt> {
        let trip = Trip {
            operation: Operation::TryAcquire,
            question: request.clone(),
            ask: |store, request, way| async move {
                Ok(match store.try_acquire(&request).await? {
                    Attempt::Granted(grant) => Attempt::Granted(as_sent(grant, way)),
                    held @ Attempt::Held { .. } => held,
                })
            },
            taken: |attempt| match attempt {
                Attempt::Granted(grant) => Some(grant),
                Attempt::Held { .. } => None,
            },
            lane: Some(request.name.clone()),
        };
        self.link.send(below, trip).await
    }

    async fn acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Grant> {
        let trip = Trip {
            operation: Operation::Acquire,
            question: request.clone(),
            ask: |store, request, way| async move {
                store.acquire(&request).await.map(|grant| as_sent(grant, way))
            },
            taken: Some,
            lane: Some(request.name.clone()),
        };
        self.link.send(below, trip).await
    }

    async fn renew(&self, below: &Below, leases: &[LeaseId]) -> Vec<Renewal> {
        let renewed =
            self.link.ask(below, Operation::Renew, leases.to_vec(), |store, leases, way| async move {
                let as_sent = |answer| match answer {
                    Renewal::Until(deadline) => Renewal::Until(earlier(deadline, way)),
                    other => other,
                };
                Ok(store.renew(&leases).await.into_iter().map(as_sent).collect())
            });
        let unknown = |_| leases.iter().map(|_| Renewal::Unknown(no_answer(&below.env))).collect();
        renewed.await.unwrap_or_else(unknown)
    }

    async fn release(&self, below: &Below, grant: &Grant) -> Result<()> {
        self.link
            .ask(below, Operation::Release, grant.clone(), |store, grant, _| async move {
                store.release(&grant).await
            })
            .await
    }

    fn events(&self, below: &Below) -> BoxStream<'static, StoreEvent> {
        let Some(told) = self.told.lock().take() else {
            return stream::empty().boxed();
        };
        let told = stream::unfold(told, async |mut told| Some((told.recv().await?, told)));
        let from_store = stream::unfold(
            (below.backend.events(), self.link.network.clone(), below.env.clone()),
            async |(mut events, network, env)| {
                let mut event = network.while_whole(events.next()).await?;
                let way = network.cross(&env).await;
                if let StoreEvent::LeaseOpened(lease) = &mut event {
                    lease.deadline = earlier(lease.deadline, way);
                }
                Some((event, (events, network, env)))
            },
        );
        stream::select(from_store, told).boxed()
    }

    async fn inspect(&self, below: &Below, name: &LockName, whom: For) -> Result<LockState> {
        self.link
            .ask(below, Operation::Inspect, (name.clone(), whom), |store, (name, whom), _| async move {
                whom.inspect(&*store, &name).await
            })
            .await
    }

    async fn list(&self, below: &Below, prefix: &str) -> Result<Vec<LockState>> {
        self.link
            .ask(below, Operation::List, prefix.to_owned(), |store, prefix, _| async move {
                store.list(&prefix).await
            })
            .await
    }

    async fn revoke(&self, below: &Below, name: &LockName, how: Revoke) -> Result<Vec<Holder>> {
        self.link
            .ask(below, Operation::Revoke, (name.clone(), how), |store, (name, how), _| async move {
                store.revoke(&name, how).await
            })
            .await
    }

    async fn diagnose(&self, below: &Below) -> Result<Vec<Finding>> {
        self.link
            .ask(below, Operation::Diagnose, (), |store, (), _| async move { store.diagnose().await })
            .await
    }

    fn ledger(&self, below: &Below) -> Option<Arc<dyn MoveLedger>> {
        below.backend.ledger()?;
        Some(Arc::new(FarLedger { link: self.link.clone(), below: below.clone() }))
    }

    async fn close(&self, below: &Below) -> Result<()> {
        self.link.ask(below, Operation::Close, (), |store, (), _| async move { store.close().await }).await
    }
}

/// What was sent before the store had it, by the time that took (network-3).
pub(super) fn earlier(deadline: Deadline, way: Duration) -> Deadline {
    match deadline {
        Deadline::At(at) => Deadline::At(at.saturating_sub(way)),
        Deadline::Never => Deadline::Never,
    }
}

fn as_sent(mut grant: Grant, way: Duration) -> Grant {
    grant.lease.deadline = earlier(grant.lease.deadline, way);
    grant
}
