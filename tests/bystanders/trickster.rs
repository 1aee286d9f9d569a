//! The in-memory store behind a layer that plays tricks: it panics, refuses, or never answers, once
//! for every trick it was told. It needs a runtime, as stores with a network do.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use leasehold::backend::{
    AcquireRequest, Attempt, Grant, Holder, LeaseId, Renewal, Revoke, StoreConfig, StoreEvent,
};
use leasehold::memory::MemoryConfig;
use leasehold::{Effect, Error, ErrorKind, Guarantees, LockName, Result};
use leasehold_conformance::layer::{Below, Layer, shared};
use tokio::sync::Notify;

#[derive(Clone, Debug)]
pub(crate) enum Trick {
    /// As the store does it.
    Pass,
    Panic,
    Refuse(ErrorKind),
    /// The answer takes so long.
    RefuseAfter(Duration, ErrorKind),
    /// The answer waits for this.
    RefuseOn(Arc<Notify>, ErrorKind),
    PanicOn(Arc<Notify>),
    NeverAnswer,
}

/// What is done to the calls of one method, in order; then they pass.
#[derive(Debug, Default)]
struct Tricks {
    told: Mutex<VecDeque<Trick>>,
    asked: Mutex<usize>,
}

#[derive(Clone, Debug)]
pub(crate) struct Trickster {
    pub(crate) memory: MemoryConfig,
    hand: Arc<Hand>,
}

#[derive(Debug, Default)]
struct Hand {
    acquires: Tricks,
    tries: Tricks,
    releases: Tricks,
    renewals: Tricks,
    revokes: Tricks,
    closes: Tricks,
    /// When the events panic, if they do.
    outcry: Mutex<Option<Arc<Notify>>>,
}

impl Default for Trickster {
    fn default() -> Self {
        Self { memory: MemoryConfig::private(), hand: Arc::default() }
    }
}

impl Trickster {
    pub(crate) fn config(&self) -> Box<dyn StoreConfig> {
        let hand: Arc<dyn Layer> = Arc::<Hand>::clone(&self.hand);
        shared(hand)(Box::new(self.memory.clone()))
    }

    pub(crate) fn next_acquire(&self, trick: Trick) {
        self.hand.acquires.tell(trick);
    }

    pub(crate) fn next_try(&self, trick: Trick) {
        self.hand.tries.tell(trick);
    }

    pub(crate) fn next_release(&self, trick: Trick) {
        self.hand.releases.tell(trick);
    }

    pub(crate) fn next_renewal(&self, trick: Trick) {
        self.hand.renewals.tell(trick);
    }

    pub(crate) fn next_revoke(&self, trick: Trick) {
        self.hand.revokes.tell(trick);
    }

    pub(crate) fn next_close(&self, trick: Trick) {
        self.hand.closes.tell(trick);
    }

    /// The events of the next session panic on this.
    pub(crate) fn panic_in_events(&self, gate: Arc<Notify>) {
        *locked(&self.hand.outcry) = Some(gate);
    }

    /// How often the store was asked for a lock, tries apart.
    pub(crate) fn acquires(&self) -> usize {
        *locked(&self.hand.acquires.asked)
    }

    pub(crate) fn releases(&self) -> usize {
        *locked(&self.hand.releases.asked)
    }

    pub(crate) fn renewals(&self) -> usize {
        *locked(&self.hand.renewals.asked)
    }

    pub(crate) fn revokes(&self) -> usize {
        *locked(&self.hand.revokes.asked)
    }

    pub(crate) fn closes(&self) -> usize {
        *locked(&self.hand.closes.asked)
    }
}

impl Tricks {
    fn tell(&self, trick: Trick) {
        locked(&self.told).push_back(trick);
    }

    async fn play(&self) -> Result<()> {
        *locked(&self.asked) += 1;
        let trick = locked(&self.told).pop_front().unwrap_or(Trick::Pass);
        let kind = match trick {
            Trick::Pass => return Ok(()),
            Trick::Panic => panic!("a fault in the store's code"),
            Trick::Refuse(kind) => kind,
            Trick::RefuseAfter(span, kind) => {
                tokio::time::sleep(span).await;
                kind
            }
            Trick::RefuseOn(gate, kind) => {
                gate.notified().await;
                kind
            }
            Trick::PanicOn(gate) => {
                gate.notified().await;
                panic!("a fault in the store's code")
            }
            Trick::NeverAnswer => std::future::pending().await,
        };
        Err(Error::new(kind, Effect::Unknown, "a trick"))
    }
}

#[async_trait]
impl Layer for Hand {
    fn guarantees(&self, below: &Below) -> Guarantees {
        below.backend.guarantees() - Guarantees::RUNTIME_FREE
    }

    async fn try_acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Attempt> {
        self.tries.play().await?;
        below.backend.try_acquire(request).await
    }

    async fn acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Grant> {
        self.acquires.play().await?;
        below.backend.acquire(request).await
    }

    async fn renew(&self, below: &Below, leases: &[LeaseId]) -> Vec<Renewal> {
        match self.renewals.play().await {
            Ok(()) => below.backend.renew(leases).await,
            Err(_) => Vec::new(),
        }
    }

    async fn release(&self, below: &Below, grant: &Grant) -> Result<()> {
        self.releases.play().await?;
        below.backend.release(grant).await
    }

    fn events(&self, below: &Below) -> BoxStream<'static, StoreEvent> {
        let Some(gate) = locked(&self.outcry).take() else {
            return below.backend.events();
        };
        stream::once(async move {
            gate.notified().await;
            panic!("a fault in the store's events")
        })
        .boxed()
    }

    async fn revoke(&self, below: &Below, name: &LockName, how: Revoke) -> Result<Option<Holder>> {
        self.revokes.play().await?;
        below.backend.revoke(name, how).await
    }

    async fn close(&self, below: &Below) -> Result<()> {
        self.closes.play().await?;
        below.backend.close().await
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
