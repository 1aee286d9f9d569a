//! The in-memory store behind a layer that plays tricks: it panics, refuses, or never answers, once
//! for every trick it was told. It needs a runtime, as stores with a network do.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use leasehold::backend::{
    AcquireRequest, Attempt, Events, Grant, Holder, Inbox, LeaseId, Renewal, Revoke, StoreConfig, StoreEvent,
};
use leasehold::clock::Deadline;
use leasehold::memory::MemoryConfig;
use leasehold::{Effect, Error, ErrorKind, Guarantees, LockName, OwnerId, Result};
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
    /// The request waits for this on its way.
    PassOn(Arc<Notify>),
    /// Asked as always; the answer waits for this, unless the lock is granted before.
    RefuseQueued(Arc<Notify>, ErrorKind),
    /// As the store does it, but for the lease, which is over when the grant arrives.
    GrantLate,
    /// It says that it has queued the request, and refuses it in the same breath.
    QueueAndRefuse(ErrorKind),
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

#[derive(Debug)]
struct Hand {
    acquires: Tricks,
    tries: Tricks,
    releases: Tricks,
    renewals: Tricks,
    revokes: Tricks,
    closes: Tricks,
    /// Of every acquisition, tries apart.
    owners: Mutex<Vec<OwnerId>>,
    /// When the events panic, if they do.
    outcry: Mutex<Option<Arc<Notify>>>,
    /// What is told besides the store's own events.
    events: Events,
    inbox: Inbox,
}

impl Default for Trickster {
    fn default() -> Self {
        let (events, inbox) = Events::new();
        let hand = Hand {
            acquires: Tricks::default(),
            tries: Tricks::default(),
            releases: Tricks::default(),
            renewals: Tricks::default(),
            revokes: Tricks::default(),
            closes: Tricks::default(),
            owners: Mutex::default(),
            outcry: Mutex::default(),
            events,
            inbox,
        };
        Self { memory: MemoryConfig::private(), hand: Arc::new(hand) }
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

    /// Told to the manager besides the store's own events.
    pub(crate) fn tell(&self, event: StoreEvent) {
        self.hand.events.tell(event);
    }

    /// The events of the next session panic on this.
    pub(crate) fn panic_in_events(&self, gate: Arc<Notify>) {
        *locked(&self.hand.outcry) = Some(gate);
    }

    /// How often the store was asked for a lock, tries apart.
    pub(crate) fn acquires(&self) -> usize {
        *locked(&self.hand.acquires.asked)
    }

    /// Whose the acquisitions were, in order.
    pub(crate) fn owners(&self) -> Vec<OwnerId> {
        locked(&self.hand.owners).clone()
    }

    pub(crate) fn tries(&self) -> usize {
        *locked(&self.hand.tries.asked)
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

    fn next(&self) -> Trick {
        *locked(&self.asked) += 1;
        locked(&self.told).pop_front().unwrap_or(Trick::Pass)
    }

    async fn play(&self) -> Result<()> {
        self.next().play().await
    }
}

impl Trick {
    async fn play(self) -> Result<()> {
        let kind = match self {
            Self::Pass | Self::GrantLate => return Ok(()),
            Self::PassOn(gate) => {
                gate.notified().await;
                return Ok(());
            }
            Self::Panic => panic!("a fault in the store's code"),
            Self::Refuse(kind) | Self::QueueAndRefuse(kind) => kind,
            Self::RefuseAfter(span, kind) => {
                tokio::time::sleep(span).await;
                kind
            }
            Self::RefuseOn(gate, kind) | Self::RefuseQueued(gate, kind) => {
                gate.notified().await;
                kind
            }
            Self::PanicOn(gate) => {
                gate.notified().await;
                panic!("a fault in the store's code")
            }
            Self::NeverAnswer => std::future::pending().await,
        };
        Err(refusal(kind))
    }
}

#[async_trait]
impl Layer for Hand {
    fn guarantees(&self, below: &Below) -> Guarantees {
        below.backend.guarantees() - Guarantees::RUNTIME_FREE
    }

    async fn try_acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Attempt> {
        let trick = self.tries.next();
        let is_late = matches!(trick, Trick::GrantLate);
        trick.play().await?;
        Ok(match below.backend.try_acquire(request).await? {
            Attempt::Granted(grant) if is_late => Attempt::Granted(over(grant, below)),
            attempt => attempt,
        })
    }

    async fn acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Grant> {
        locked(&self.owners).push(request.owner);
        match self.acquires.next() {
            Trick::GrantLate => Ok(over(below.backend.acquire(request).await?, below)),
            Trick::RefuseQueued(gate, kind) => tokio::select! {
                biased;
                granted = below.backend.acquire(request) => granted,
                () = gate.notified() => Err(refusal(kind)),
            },
            trick => {
                if matches!(trick, Trick::QueueAndRefuse(_)) {
                    let (name, holder) = (request.name.clone(), Holder::new("another"));
                    self.events.tell(StoreEvent::Queued { name, holder });
                }
                trick.play().await?;
                below.backend.acquire(request).await
            }
        }
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
            return stream::select(below.backend.events(), self.inbox.stream()).boxed();
        };
        stream::once(async move {
            gate.notified().await;
            panic!("a fault in the store's events")
        })
        .boxed()
    }

    async fn revoke(&self, below: &Below, name: &LockName, how: Revoke) -> Result<Vec<Holder>> {
        self.revokes.play().await?;
        below.backend.revoke(name, how).await
    }

    async fn close(&self, below: &Below) -> Result<()> {
        self.closes.play().await?;
        below.backend.close().await
    }
}

fn refusal(kind: ErrorKind) -> Error {
    Error::new(kind, Effect::Unknown, "a trick")
}

/// A grant whose lease ends as it arrives.
fn over(mut grant: Grant, below: &Below) -> Grant {
    grant.lease.deadline = Deadline::At(below.env.now());
    grant
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
