//! The contract: one manager's way to the ensemble, through one session at a time.
//!
//! # Invariants
//! - **zk.backend-1** There is at most one session that has not ended; the next request that needs one
//!   opens it.
//! - **zk.backend-2** An acquisition goes on in a task of its own until what it made is handed over or
//!   removed.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::stream::BoxStream;
use leasehold_core::backend::{
    AcquireRequest, Attempt, Backoff, Events, Finding, Grant, Holder, Inbox, LeaseId, LockBackend, LockState,
    Renewal, Revoke, StoreConfig, StoreEvent, TokenBase,
};
use leasehold_core::{Effect, Env, Error, ErrorKind, Guarantees, LockName, LostReason, Result};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::config::ZkConfig;
use crate::error;
use crate::session::{Barred, Offer, Outcome, Session};

/// The ZooKeeper store, as one manager sees it.
#[derive(Debug)]
pub(crate) struct ZkBackend {
    shared: Arc<Shared>,
    guarantees: Guarantees,
    inbox: Inbox,
}

/// What outlives the manager for as long as something is to be cleaned up.
#[derive(Debug)]
struct Shared {
    config: ZkConfig,
    env: Env,
    current: Mutex<Option<Arc<Session>>>,
    /// Who opens a session.
    opening: tokio::sync::Mutex<()>,
    failed: Mutex<Failures>,
    barred: Barred,
    closed: CancellationToken,
    events: Events,
}

/// How often no session could be opened, and why the last time.
#[derive(Debug, Default)]
struct Failures {
    times: u64,
    last: Option<Error>,
}

impl Failures {
    fn note(&mut self, error: &Error) {
        self.times += 1;
        self.last = Some(error.clone());
    }

    /// The last failure, if there was one since there had been so many.
    fn since(&self, times: u64) -> Option<Error> {
        self.last.clone().filter(|_| times < self.times)
    }
}

/// What an acquisition tells its caller.
type Reply = Result<std::result::Result<Offer, Option<Holder>>>;

impl ZkBackend {
    pub(crate) async fn open(config: ZkConfig, env: Env) -> Result<Self> {
        let (events, inbox) = Events::new();
        let shared = Shared {
            config,
            env,
            current: Mutex::new(None),
            opening: tokio::sync::Mutex::new(()),
            failed: Mutex::default(),
            barred: Barred::default(),
            closed: CancellationToken::new(),
            events,
        };
        let mut guarantees = Guarantees::FENCED
            | Guarantees::FIFO
            | Guarantees::LEASED
            | Guarantees::CROSS_PROCESS
            | Guarantees::CROSS_HOST
            | Guarantees::SURVIVES_RESTART;
        let session = shared.session().await?;
        guarantees.set(Guarantees::SURVIVES_FAILOVER, session.members(&shared.config).await.survive_a_loss());
        Ok(Self { shared: Arc::new(shared), guarantees, inbox })
    }

    /// Starts an acquisition, which goes on without its caller.
    fn start(&self, request: &AcquireRequest, waits: bool) -> oneshot::Receiver<Reply> {
        let (told, hears) = oneshot::channel();
        let (shared, request) = (Arc::clone(&self.shared), request.clone());
        self.shared.env.spawn(async move { shared.acquire(&request, waits, told).await });
        hears
    }
}

#[async_trait]
impl StoreConfig for ZkConfig {
    fn min_ttl(&self) -> Duration {
        Self::MIN_TTL
    }

    fn server(&self) -> Option<String> {
        Some(self.servers()).filter(|servers| !servers.is_empty())
    }

    async fn open(&self, env: Env) -> Result<Arc<dyn LockBackend>> {
        self.validate()?;
        Ok(Arc::new(ZkBackend::open(self.clone(), env).await?))
    }
}

#[async_trait]
impl LockBackend for ZkBackend {
    fn guarantees(&self) -> Guarantees {
        self.guarantees
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        self.shared.open_or_refuse()?;
        let hears = self.start(request, false);
        let told = self.shared.env.bounded(async { hears.await.unwrap_or_else(|_| Err(ended())) }).await?;
        Ok(match told {
            Ok(offer) => Attempt::Granted(offer.take()),
            Err(holder) => Attempt::Held { holder },
        })
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Grant> {
        self.shared.open_or_refuse()?;
        match self.start(request, true).await.unwrap_or_else(|_| Err(ended()))? {
            Ok(offer) => Ok(offer.take()),
            Err(_) => Err(ended()),
        }
    }

    async fn renew(&self, leases: &[LeaseId]) -> Vec<Renewal> {
        let session = self.shared.current.lock().clone();
        let mut answers = Vec::with_capacity(leases.len());
        for lease in leases {
            answers.push(match &session {
                Some(session) if session.lease_id() == *lease => session.renew().await,
                _ => Renewal::Gone(LostReason::SessionLost),
            });
        }
        answers
    }

    async fn release(&self, grant: &Grant) -> Result<()> {
        self.shared.open_or_refuse()?;
        let session = self.shared.current.lock().clone();
        match session {
            Some(session) if session.lease_id() == grant.lease.id => match session.why_over() {
                None => session.release(grant).await,
                Some(reason) => Err(Error::lost(reason)),
            },
            _ => Err(Error::lost(LostReason::SessionLost)),
        }
    }

    fn give_up(&self, lease: LeaseId) {
        let session = self.shared.current.lock().clone();
        if let Some(session) = session.filter(|session| session.lease_id() == lease) {
            session.end(LostReason::SessionLost);
        }
    }

    fn events(&self) -> BoxStream<'static, StoreEvent> {
        self.inbox.stream()
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState> {
        self.shared.session().await?.inspect(name).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockState>> {
        self.shared.session().await?.list(prefix).await
    }

    async fn revoke(&self, name: &LockName, how: Revoke) -> Result<Option<Holder>> {
        self.shared.session().await?.revoke(name, how).await
    }

    async fn diagnose(&self) -> Result<Vec<Finding>> {
        let session = self.shared.session().await?;
        Ok(session.diagnose(&self.shared.config).await)
    }

    async fn token_base(&self) -> Result<TokenBase> {
        self.shared.session().await?.read_base().await
    }

    async fn raise_token_base(&self, at_least: u64) -> Result<()> {
        self.shared.session().await?.raise_base(at_least).await
    }

    async fn close(&self) -> Result<()> {
        self.shared.close().await
    }
}

impl Shared {
    fn open_or_refuse(&self) -> Result<()> {
        if self.closed.is_cancelled() { Err(error::closed()) } else { Ok(()) }
    }

    /// The session that is open.
    fn open_session(&self) -> Option<Arc<Session>> {
        self.current.lock().as_ref().filter(|session| session.why_over().is_none()).cloned()
    }

    /// The session that is open, or a new one.
    async fn session(&self) -> Result<Arc<Session>> {
        self.open_or_refuse()?;
        if let Some(session) = self.open_session() {
            return Ok(session);
        }
        let failed_before = self.failed.lock().times;
        let _one_at_a_time = self.opening.lock().await;
        if let Some(session) = self.open_session() {
            return Ok(session);
        }
        // Whoever waited for an opening that failed has waited for as long as opening may take.
        if let Some(error) = self.failed.lock().since(failed_before) {
            return Err(error);
        }
        let was_a_session = self.current.lock().is_some();
        let session = tokio::select! {
            biased;
            () = self.closed.cancelled() => return Err(error::closed()),
            opened = Session::open(&self.config, &self.env, &self.events, &self.closed, &self.barred, was_a_session) => {
                opened.inspect_err(|error| self.failed.lock().note(error))?
            }
        };
        *self.current.lock() = Some(Arc::clone(&session));
        // RACE: in place before `closed` is read, so that `close` finds it or is seen here.
        if self.closed.is_cancelled() {
            session.end(LostReason::Shutdown);
            return Err(error::closed());
        }
        Ok(session)
    }

    /// Waits for the lock, or tries once, in one session after the other.
    async fn acquire(&self, request: &AcquireRequest, waits: bool, told: oneshot::Sender<Reply>) {
        let mut told = told;
        let mut owner = request.owner;
        let mut had_a_place = false;
        let bound = self.env.timing().op_timeout;
        let mut retries = Backoff::new(bound / 32, bound / 4);
        loop {
            let session = tokio::select! {
                biased;
                () = told.closed() => return,
                session = self.session() => session,
            };
            let session = match session {
                Ok(session) => {
                    retries.reset();
                    session
                }
                // Whoever has waited already goes on when the ensemble is back.
                Err(error) if had_a_place && !is_final(error.kind()) => {
                    tokio::select! {
                        biased;
                        () = told.closed() => return,
                        () = retries.pause(&self.env) => continue,
                    }
                }
                Err(error) => return drop(told.send(Err(error))),
            };
            let allowed = tokio::select! {
                biased;
                () = told.closed() => return,
                allowed = session.may_enter(&request.name) => allowed,
            };
            if let Err(error) = allowed {
                return drop(told.send(Err(error)));
            }
            let outcome = {
                let mut abandoned = std::pin::pin!(told.closed());
                session.acquire(request, owner, waits, &mut abandoned).await
            };
            let answer = match outcome {
                Outcome::Granted(offer) => Ok(Ok(offer)),
                Outcome::Busy(holder) => Ok(Err(holder)),
                Outcome::Refused(error) => Err(error),
                Outcome::Left => return,
                Outcome::Again => {
                    if self.closed.is_cancelled() {
                        return drop(told.send(Err(error::closed())));
                    }
                    if told.is_closed() {
                        return;
                    }
                    // What is left of the old id must never be taken for ours.
                    owner = self.env.owner_id();
                    had_a_place = true;
                    continue;
                }
            };
            // A caller who has left drops the offer, which gives the lock back.
            return drop(told.send(answer));
        }
    }

    async fn close(&self) -> Result<()> {
        self.closed.cancel();
        let Some(session) = self.current.lock().take() else {
            return Ok(());
        };
        let ended = session.connection.closed();
        session.end(LostReason::Shutdown);
        let bounded = self.env.bounded(ended.map(Ok)).await;
        bounded.map_err(|_| {
            Error::new(
                ErrorKind::Unavailable,
                Effect::Unknown,
                "ZooKeeper was not told that the session is over; its timeout ends it",
            )
        })
    }
}

/// Whether it is of no use to try again.
fn is_final(kind: &ErrorKind) -> bool {
    matches!(kind, ErrorKind::Closed | ErrorKind::Denied | ErrorKind::InvalidOption)
}

/// The error of an acquisition whose task was dropped with its runtime.
fn ended() -> Error {
    Error::new(ErrorKind::Unavailable, Effect::Unknown, "the runtime of the store is gone")
}
