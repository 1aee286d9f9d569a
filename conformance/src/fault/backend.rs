//! A backend behind a bad network.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use lockcore::backend::{
    AcquireRequest, Attempt, Finding, Grant, Holder, LeaseId, LockBackend, LockState, Renewal, Revoke,
    StoreConfig, StoreEvent,
};
use lockcore::{Env, Guarantees, LockName, Result};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::flight::{Ask, Link, Trip};
use super::plan::{Faults, Operation};

/// Opens a store behind a network of which [`Faults`] says what it does.
///
/// The guarantees are those of the store, [`Guarantees::RUNTIME_FREE`] apart: messages travel in
/// tasks. An acquisition waits for the clean-up of earlier ones of its name that nobody heard of.
#[derive(Debug)]
pub struct FaultConfig {
    inner: Box<dyn StoreConfig>,
    faults: Faults,
}

impl FaultConfig {
    /// The store of `inner`, with `faults` in between.
    pub fn new(inner: Box<dyn StoreConfig>, faults: Faults) -> Self {
        Self { inner, faults }
    }
}

#[async_trait]
impl StoreConfig for FaultConfig {
    fn min_ttl(&self) -> Duration {
        self.inner.min_ttl()
    }

    fn server(&self) -> Option<String> {
        self.inner.server()
    }

    async fn open(&self, env: Env) -> Result<Arc<dyn LockBackend>> {
        self.faults.audible().await;
        let store = self.inner.open(env.clone()).await?;
        let (tell, told) = self.faults.listen();
        let faults = self.faults.clone();
        let link = Link { store, faults, env, tell, lanes: Arc::default() };
        Ok(Arc::new(FaultBackend { link, told: Mutex::new(Some(told)) }))
    }
}

#[derive(Debug)]
struct FaultBackend {
    link: Link,
    /// Events that do not come from the store; taken with the first stream.
    told: Mutex<Option<mpsc::UnboundedReceiver<StoreEvent>>>,
}

impl FaultBackend {
    /// A request that nothing has to be undone for.
    async fn ask<T: Send + 'static>(&self, operation: Operation, hears_drop: bool, ask: Ask<T>) -> Result<T> {
        let fault = self.link.faults.draw(operation);
        let trip = Trip { ask, hears_drop, taken: |_| None, lane: None };
        self.link.send(trip, fault).await
    }

    /// The same, within the bound of a request.
    async fn ask_bounded<T: Send + 'static>(&self, operation: Operation, ask: Ask<T>) -> Result<T> {
        let hears_drop = !matches!(operation, Operation::Renew | Operation::Release | Operation::Close);
        self.link.env.bounded(self.ask(operation, hears_drop, ask)).await
    }
}

#[async_trait]
impl LockBackend for FaultBackend {
    fn guarantees(&self) -> Guarantees {
        self.link.store.guarantees() - Guarantees::RUNTIME_FREE
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        let fault = self.link.faults.draw(Operation::TryAcquire);
        let lane = Some(request.name.clone());
        let request = request.clone();
        let trip = Trip {
            ask: Box::new(move |store| {
                let request = request.clone();
                Box::pin(async move { store.try_acquire(&request).await })
            }),
            hears_drop: true,
            taken: |attempt| match attempt {
                Attempt::Granted(grant) => Some(grant),
                Attempt::Held { .. } => None,
            },
            lane,
        };
        self.link.env.bounded(self.link.send(trip, fault)).await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Grant> {
        let fault = self.link.faults.draw(Operation::Acquire);
        let lane = Some(request.name.clone());
        let request = request.clone();
        let trip = Trip {
            ask: Box::new(move |store| {
                let request = request.clone();
                Box::pin(async move { store.acquire(&request).await })
            }),
            hears_drop: true,
            taken: Some,
            lane,
        };
        self.link.send(trip, fault).await
    }

    async fn renew(&self, leases: &[LeaseId]) -> Vec<Renewal> {
        let asked = leases.to_vec();
        let ask: Ask<_> = Box::new(move |store| {
            let leases = asked.clone();
            Box::pin(async move { Ok(store.renew(&leases).await) })
        });
        self.ask_bounded(Operation::Renew, ask)
            .await
            .unwrap_or_else(|_| leases.iter().map(|_| Renewal::Unknown(self.link.no_answer())).collect())
    }

    async fn release(&self, grant: &Grant) -> Result<()> {
        let grant = grant.clone();
        let ask: Ask<_> = Box::new(move |store| {
            let grant = grant.clone();
            Box::pin(async move { store.release(&grant).await })
        });
        self.ask_bounded(Operation::Release, ask).await
    }

    /// Said within one process, so nothing of it gets lost.
    fn give_up(&self, lease: LeaseId) {
        self.link.store.give_up(lease);
    }

    fn events(&self) -> BoxStream<'static, StoreEvent> {
        let Some(told) = self.told.lock().take() else {
            return stream::empty().boxed();
        };
        let told = stream::unfold(told, async |mut told| Some((told.recv().await?, told)));
        let from_store = stream::unfold(
            (self.link.store.events(), self.link.faults.clone()),
            async |(mut events, faults)| {
                let event = faults.while_audible(events.next()).await?;
                Some((event, (events, faults)))
            },
        );
        stream::select(from_store, told).boxed()
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState> {
        let name = name.clone();
        let ask: Ask<_> = Box::new(move |store| {
            let name = name.clone();
            Box::pin(async move { store.inspect(&name).await })
        });
        self.ask_bounded(Operation::Inspect, ask).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockState>> {
        let prefix = prefix.to_owned();
        let ask: Ask<_> = Box::new(move |store| {
            let prefix = prefix.clone();
            Box::pin(async move { store.list(&prefix).await })
        });
        self.ask_bounded(Operation::List, ask).await
    }

    async fn revoke(&self, name: &LockName, how: Revoke) -> Result<Option<Holder>> {
        let name = name.clone();
        let ask: Ask<_> = Box::new(move |store| {
            let name = name.clone();
            Box::pin(async move { store.revoke(&name, how).await })
        });
        self.ask(Operation::Revoke, true, ask).await
    }

    async fn diagnose(&self) -> Result<Vec<Finding>> {
        let ask: Ask<_> = Box::new(|store| Box::pin(async move { store.diagnose().await }));
        self.ask_bounded(Operation::Diagnose, ask).await
    }

    async fn close(&self) -> Result<()> {
        let ask: Ask<_> = Box::new(|store| Box::pin(async move { store.close().await }));
        self.ask_bounded(Operation::Close, ask).await
    }
}
