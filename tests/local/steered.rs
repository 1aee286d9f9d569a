//! The in-memory store behind a wrapper that can hold answers back, fail releases, speak up, and look
//! like a store with one session for all locks.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt};
use leasehold::backend::{
    AcquireRequest, Attempt, Grant, LeaseId, LeaseScope, Renewal, StoreConfig, StoreEvent,
};
use leasehold::memory::MemoryConfig;
use leasehold::{Effect, Error, ErrorKind, Guarantees, Result};
use leasehold_conformance::layer::{Below, Layer, shared};
use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::UnboundedReceiverStream;

#[derive(Clone, Debug)]
pub(crate) struct Steered {
    pub(crate) memory: MemoryConfig,
    wheel: Arc<Wheel>,
}

#[derive(Debug, Default)]
struct Wheel {
    /// Whether every grant hangs on one session.
    session: bool,
    leases: Mutex<Vec<LeaseId>>,
    gate: Mutex<Option<Arc<Notify>>>,
    release_gate: Mutex<Option<Arc<Notify>>>,
    refusal: Mutex<Option<Refusal>>,
    releases: AtomicU32,
    renewals: AtomicU32,
    closes: AtomicU32,
    given_up: Mutex<Vec<LeaseId>>,
    said: Mutex<Option<mpsc::UnboundedReceiver<StoreEvent>>>,
    unread: Arc<AtomicUsize>,
    flood: Mutex<Option<Arc<Notify>>>,
}

/// How releases fail.
#[derive(Clone, Debug)]
struct Refusal {
    kind: ErrorKind,
    effect: Effect,
}

/// Says something as the store.
pub(crate) struct Voice {
    sender: mpsc::UnboundedSender<StoreEvent>,
    unread: Arc<AtomicUsize>,
}

impl Voice {
    pub(crate) fn send(&self, event: StoreEvent) -> std::result::Result<(), ()> {
        self.unread.fetch_add(1, Relaxed);
        self.sender.send(event).map_err(drop)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

impl Default for Steered {
    fn default() -> Self {
        Self { memory: MemoryConfig::private(), wheel: Arc::default() }
    }
}

impl Steered {
    pub(crate) fn with_session() -> Self {
        let wheel = Wheel { session: true, ..Wheel::default() };
        Self { memory: MemoryConfig::private(), wheel: Arc::new(wheel) }
    }

    /// The steered way to the store.
    pub(crate) fn config(&self) -> Box<dyn StoreConfig> {
        let wheel: Arc<dyn Layer> = Arc::<Wheel>::clone(&self.wheel);
        shared(wheel)(Box::new(self.memory.clone()))
    }

    /// From here on a try is carried out and its answer held back, until the gate is opened.
    pub(crate) fn hold_tries(&self) -> Arc<Notify> {
        let gate = Arc::new(Notify::new());
        *locked(&self.wheel.gate) = Some(Arc::clone(&gate));
        gate
    }

    /// From here on a release is answered only when the gate is opened.
    pub(crate) fn hold_releases(&self) -> Arc<Notify> {
        let gate = Arc::new(Notify::new());
        *locked(&self.wheel.release_gate) = Some(Arc::clone(&gate));
        gate
    }

    /// From here on every release fails like this.
    pub(crate) fn fail_releases(&self, kind: ErrorKind, effect: Effect) {
        *locked(&self.wheel.refusal) = Some(Refusal { kind, effect });
    }

    pub(crate) fn pass_releases(&self) {
        *locked(&self.wheel.refusal) = None;
    }

    /// How many releases were asked for.
    pub(crate) fn releases(&self) -> u32 {
        self.wheel.releases.load(Relaxed)
    }

    /// How often a session was closed.
    pub(crate) fn closes(&self) -> u32 {
        self.wheel.closes.load(Relaxed)
    }

    /// How often the session was given up; nothing else is.
    pub(crate) fn given_up(&self) -> usize {
        let given_up = locked(&self.wheel.given_up);
        assert!(given_up.iter().all(|lease| *lease == SESSION), "{given_up:?}");
        given_up.len()
    }

    /// How many leases were asked to be renewed.
    pub(crate) fn renewals(&self) -> u32 {
        self.wheel.renewals.load(Relaxed)
    }

    /// A voice in the events of the next session that is opened.
    pub(crate) fn add_events(&self) -> Voice {
        let (sender, receiver) = mpsc::unbounded_channel();
        *locked(&self.wheel.said) = Some(receiver);
        Voice { sender, unread: Arc::clone(&self.wheel.unread) }
    }

    /// As many events, always ready and never making way for anybody, from when the gate is opened; for
    /// the next session that is opened.
    pub(crate) fn add_flood(&self, events: usize) -> Arc<Notify> {
        let gate = Arc::new(Notify::new());
        *locked(&self.wheel.flood) = Some(Arc::clone(&gate));
        self.wheel.unread.store(events, Relaxed);
        gate
    }

    /// How many events were said and not read.
    pub(crate) fn events_unread(&self) -> usize {
        self.wheel.unread.load(Relaxed)
    }
}

impl Wheel {
    fn dressed(&self, mut grant: Grant) -> Grant {
        if self.session {
            locked(&self.leases).push(grant.lease.id);
            (grant.lease.id, grant.lease.scope) = (SESSION, LeaseScope::Session);
        }
        grant
    }
}

#[async_trait]
impl Layer for Wheel {
    fn guarantees(&self, below: &Below) -> Guarantees {
        below.backend.guarantees() - Guarantees::RUNTIME_FREE
    }

    async fn try_acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Attempt> {
        let attempt = below.backend.try_acquire(request).await?;
        let gate = locked(&self.gate).clone();
        if let Some(gate) = gate {
            gate.notified().await;
        }
        Ok(match attempt {
            Attempt::Granted(grant) => Attempt::Granted(self.dressed(grant)),
            held @ Attempt::Held { .. } => held,
        })
    }

    async fn acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Grant> {
        below.backend.acquire(request).await.map(|grant| self.dressed(grant))
    }

    async fn renew(&self, below: &Below, leases: &[LeaseId]) -> Vec<Renewal> {
        self.renewals.fetch_add(1, Relaxed);
        if leases != [SESSION] {
            return below.backend.renew(leases).await;
        }
        let inner = locked(&self.leases).clone();
        below.backend.renew(&inner).await.into_iter().take(1).collect()
    }

    async fn release(&self, below: &Below, grant: &Grant) -> Result<()> {
        self.releases.fetch_add(1, Relaxed);
        let refusal = locked(&self.refusal).clone();
        if let Some(Refusal { kind, effect }) = refusal {
            return Err(Error::new(kind, effect, "refused"));
        }
        let gate = locked(&self.release_gate).take();
        if let Some(gate) = gate {
            gate.notified().await;
        }
        below.backend.release(grant).await
    }

    fn give_up(&self, _below: &Below, lease: LeaseId) {
        locked(&self.given_up).push(lease);
    }

    async fn close(&self, below: &Below) -> Result<()> {
        self.closes.fetch_add(1, Relaxed);
        below.backend.close().await
    }

    fn events(&self, below: &Below) -> BoxStream<'static, StoreEvent> {
        let unread = Arc::clone(&self.unread);
        if let Some(gate) = locked(&self.flood).take() {
            let opened = stream::once(async move { gate.notified().await });
            let events = opened.flat_map(move |()| {
                let unread = Arc::clone(&unread);
                stream::iter(0..unread.load(Relaxed)).map(move |event| {
                    unread.fetch_sub(1, Relaxed);
                    StoreEvent::Warning(format!("event {event} of a flood").into())
                })
            });
            return events.boxed();
        }
        let Some(said) = locked(&self.said).take() else {
            return below.backend.events();
        };
        let said = UnboundedReceiverStream::new(said).inspect(move |_| {
            unread.fetch_sub(1, Relaxed);
        });
        stream::select(below.backend.events(), said).boxed()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const SESSION: LeaseId = LeaseId::new(1 << 40);
