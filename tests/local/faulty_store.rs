//! The in-memory store behind a layer with faults: it panics, refuses, holds replies back or never answers, sends events
//! of its own, and can look like a store with one session for all locks. It needs a runtime, as stores with a network do.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use leasehold::backend::{
    AcquireRequest, Attempt, Events, Grant, Holder, Inbox, LeaseId, LeaseScope, OwnerId, Renewal, Revoke,
    StoreConfig, StoreEvent,
};
use leasehold::clock::Deadline;
use leasehold::memory::MemoryConfig;
use leasehold::{Effect, Error, ErrorKind, Guarantees, LockName, Result};
use leasehold_conformance::layer::{Below, Layer, shared};
use tokio::sync::Notify;

#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// The request passes.
    None,
    Panic,
    Refuse(ErrorKind),
    /// The reply takes so long.
    RefuseAfter(Duration, ErrorKind),
    /// The reply waits for this.
    RefuseOn(Arc<Notify>, ErrorKind),
    PanicOn(Arc<Notify>),
    NeverAnswer,
    /// The request waits for this before it reaches the store.
    PassOn(Arc<Notify>),
    /// The store carries out the try; its reply waits for this.
    AnswerOn(Arc<Notify>),
    /// The store gets the request; the reply waits for this, unless the lock is granted before.
    RefuseQueued(Arc<Notify>, ErrorKind),
    /// The lease of the grant is over on arrival.
    GrantLate,
    /// The store reports the request as queued, and refuses it at the same time.
    QueueAndRefuse(ErrorKind),
}

/// The calls of one method: the faults of the next ones, in order, and the number so far.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    faults: Mutex<VecDeque<Fault>>,
    count: AtomicUsize,
}

#[derive(Clone, Debug)]
pub(crate) struct FaultyStore {
    pub(crate) memory: MemoryConfig,
    faults: Arc<Faults>,
}

#[derive(Debug)]
pub(crate) struct Faults {
    pub(crate) acquires: Calls,
    pub(crate) tries: Calls,
    pub(crate) releases: Calls,
    pub(crate) renewals: Calls,
    pub(crate) revokes: Calls,
    pub(crate) closes: Calls,
    /// Whether every grant is in one session.
    has_session: bool,
    leases: Mutex<Vec<LeaseId>>,
    /// The error of every release.
    refusal: Mutex<Option<(ErrorKind, Effect)>>,
    ended_sessions: AtomicUsize,
    /// Of every acquisition, tries apart.
    owners: Mutex<Vec<OwnerId>>,
    /// When the events panic, if they do.
    outcry: Mutex<Option<Arc<Notify>>>,
    /// When the flood of events begins, if there is one.
    flood: Mutex<Option<Arc<Notify>>>,
    /// What the store sends besides its own events.
    events: Events,
    inbox: Inbox,
    unread: Arc<AtomicUsize>,
}

impl Default for Faults {
    fn default() -> Self {
        let (events, inbox) = Events::new();
        Self {
            acquires: Calls::default(),
            tries: Calls::default(),
            releases: Calls::default(),
            renewals: Calls::default(),
            revokes: Calls::default(),
            closes: Calls::default(),
            has_session: false,
            leases: Mutex::default(),
            refusal: Mutex::default(),
            ended_sessions: AtomicUsize::default(),
            owners: Mutex::default(),
            outcry: Mutex::default(),
            flood: Mutex::default(),
            events,
            inbox,
            unread: Arc::default(),
        }
    }
}

impl Deref for FaultyStore {
    type Target = Faults;

    fn deref(&self) -> &Faults {
        &self.faults
    }
}

impl Default for FaultyStore {
    fn default() -> Self {
        Self { memory: MemoryConfig::private(), faults: Arc::default() }
    }
}

impl FaultyStore {
    pub(crate) fn with_session() -> Self {
        let faults = Faults { has_session: true, ..Faults::default() };
        Self { faults: Arc::new(faults), ..Self::default() }
    }

    pub(crate) fn config(&self) -> Box<dyn StoreConfig> {
        let faults: Arc<dyn Layer> = Arc::<Faults>::clone(&self.faults);
        shared(faults)(Box::new(self.memory.clone()))
    }
}

impl Faults {
    /// Every release fails like this from here on, or none does.
    pub(crate) fn fail_releases(&self, refusal: Option<(ErrorKind, Effect)>) {
        *locked(&self.refusal) = refusal;
    }

    /// How often the manager has ended the session.
    pub(crate) fn ended_sessions(&self) -> usize {
        self.ended_sessions.load(Relaxed)
    }

    /// The owners of the acquisitions, in order.
    pub(crate) fn owners(&self) -> Vec<OwnerId> {
        locked(&self.owners).clone()
    }

    /// Sends an event besides the store's own.
    pub(crate) fn tell(&self, event: StoreEvent) {
        self.unread.fetch_add(1, Relaxed);
        self.events.tell(event);
    }

    /// The events of the next session panic on this.
    pub(crate) fn panic_in_events(&self, gate: &Arc<Notify>) {
        *locked(&self.outcry) = Some(Arc::clone(gate));
    }

    /// The next session has so many events, always ready, once the gate is opened.
    pub(crate) fn flood(&self, events: usize) -> Arc<Notify> {
        let gate = Arc::new(Notify::new());
        *locked(&self.flood) = Some(Arc::clone(&gate));
        self.unread.store(events, Relaxed);
        gate
    }

    /// The number of events that were sent and not read.
    pub(crate) fn events_unread(&self) -> usize {
        self.unread.load(Relaxed)
    }

    fn grant(&self, mut grant: Grant, is_late: bool, below: &Below) -> Grant {
        if is_late {
            grant.lease.deadline = Deadline::At(below.env.now());
        }
        if self.has_session {
            locked(&self.leases).push(grant.lease.id);
            (grant.lease.id, grant.lease.scope) = (SESSION, LeaseScope::Session);
        }
        grant
    }
}

impl Calls {
    /// The next call without a fault has this one.
    pub(crate) fn fail(&self, fault: Fault) {
        locked(&self.faults).push_back(fault);
    }

    /// So do the next `calls` of them.
    pub(crate) fn fail_times(&self, calls: usize, fault: &Fault) {
        locked(&self.faults).extend(std::iter::repeat_n(fault.clone(), calls));
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    fn next(&self) -> Fault {
        self.count.fetch_add(1, Relaxed);
        locked(&self.faults).pop_front().unwrap_or(Fault::None)
    }
}

impl Fault {
    async fn happen(self) -> Result<()> {
        let kind = match self {
            Self::None | Self::AnswerOn(_) | Self::GrantLate => return Ok(()),
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
impl Layer for Faults {
    fn guarantees(&self, below: &Below) -> Guarantees {
        below.backend.guarantees() - Guarantees::RUNTIME_FREE
    }

    async fn try_acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Attempt> {
        let fault = self.tries.next();
        fault.clone().happen().await?;
        let attempt = below.backend.try_acquire(request).await?;
        if let Fault::AnswerOn(gate) = &fault {
            gate.notified().await;
        }
        Ok(match attempt {
            Attempt::Granted(grant) => {
                Attempt::Granted(self.grant(grant, matches!(fault, Fault::GrantLate), below))
            }
            held @ Attempt::Held { .. } => held,
        })
    }

    async fn acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Grant> {
        locked(&self.owners).push(request.owner);
        let fault = self.acquires.next();
        let is_late = matches!(fault, Fault::GrantLate);
        if let Fault::RefuseQueued(gate, kind) = fault {
            return tokio::select! {
                biased;
                granted = below.backend.acquire(request) => granted,
                () = gate.notified() => Err(refusal(kind)),
            };
        }
        if matches!(fault, Fault::QueueAndRefuse(_)) {
            let (name, holder) = (request.name.clone(), Holder::new("another"));
            self.tell(StoreEvent::Queued { name, holder });
        }
        fault.happen().await?;
        Ok(self.grant(below.backend.acquire(request).await?, is_late, below))
    }

    async fn renew(&self, below: &Below, leases: &[LeaseId]) -> Vec<Renewal> {
        if self.renewals.next().happen().await.is_err() {
            return Vec::new();
        }
        if leases != [SESSION] {
            return below.backend.renew(leases).await;
        }
        let leases = locked(&self.leases).clone();
        below.backend.renew(&leases).await.into_iter().take(1).collect()
    }

    async fn release(&self, below: &Below, grant: &Grant) -> Result<()> {
        let fault = self.releases.next();
        let refusal = locked(&self.refusal).clone();
        if let Some((kind, effect)) = refusal {
            return Err(Error::new(kind, effect, "refused"));
        }
        fault.happen().await?;
        below.backend.release(grant).await
    }

    fn end_session(&self, _below: &Below, lease: LeaseId) {
        assert_eq!(lease, SESSION);
        self.ended_sessions.fetch_add(1, Relaxed);
    }

    fn events(&self, below: &Below) -> BoxStream<'static, StoreEvent> {
        let unread = Arc::clone(&self.unread);
        if let Some(gate) = locked(&self.outcry).take() {
            return stream::once(async move {
                gate.notified().await;
                panic!("a fault in the store's events")
            })
            .boxed();
        }
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
        let sent = self.inbox.stream().inspect(move |_| _ = unread.fetch_sub(1, Relaxed));
        stream::select(below.backend.events(), sent).boxed()
    }

    async fn revoke(&self, below: &Below, name: &LockName, how: Revoke) -> Result<Vec<Holder>> {
        self.revokes.next().happen().await?;
        below.backend.revoke(name, how).await
    }

    async fn close(&self, below: &Below) -> Result<()> {
        self.closes.next().happen().await?;
        below.backend.close().await
    }
}

fn refusal(kind: ErrorKind) -> Error {
    Error::new(kind, Effect::Unknown, "a fault")
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const SESSION: LeaseId = LeaseId::new(1 << 40);
