//! The backend contract: one manager on an ensemble, by one session at a time.
//!
//! # Invariants
//! - **zk.backend-1** There is at most one session that has not ended; the next request that needs one
//!   opens it.
//! - **zk.backend-2** An acquisition continues, whether its caller waits or not, until its node is handed over or removed. It
//!   belongs to one session, and ends as lost with that; a caller that still wants the lock retries.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::join_all;
use futures_util::stream::BoxStream;
use leasehold_core::backend::ledger::{Entry, MoveLedger, Participant, Written, fits};
use leasehold_core::backend::{
    AcquireRequest, Attempt, Background, Events, Finding, Grant, Holder, Inbox, Lease, LeaseId, LockBackend,
    LockState, Renewal, Reopen, Revoke, StoreConfig, StoreEvent, TokenBase,
};
use leasehold_core::{Effect, Env, Error, ErrorKind, Guarantees, LockName, LostReason, OwnerId, Result};
use tokio_util::sync::CancellationToken;

use crate::config::ZkConfig;
use crate::error;
use crate::protocol::Patience;
use crate::session::{Session, Site};

/// The ZooKeeper store, as one manager sees it.
#[derive(Debug)]
pub(crate) struct ZkBackend {
    shared: Arc<Shared>,
    guarantees: Guarantees,
    inbox: Inbox,
}

/// The part that outlives the manager until the clean-up is done.
#[derive(Debug)]
struct Shared {
    site: Arc<Site>,
    sessions: Reopen<Arc<Session>>,
}

impl ZkBackend {
    /// Starts an acquisition, which goes on without its caller.
    fn start(&self, request: &AcquireRequest, patience: Patience) -> Background<Result<Attempt>> {
        let left = CancellationToken::new();
        let acquired = Arc::clone(&self.shared).acquire(request.clone(), patience, left.clone());
        Background::new(&self.shared.site.env, left, acquired.boxed())
    }
}

#[async_trait]
impl StoreConfig for ZkConfig {
    fn min_ttl(&self) -> Duration {
        Self::MIN_TTL
    }

    fn server(&self) -> Option<String> {
        self.servers().ok().map(|servers| servers.to_string())
    }

    fn namespace(&self) -> Option<String> {
        let mut hosts: Vec<_> = self.servers().ok()?.all.iter().map(ToString::to_string).collect();
        hosts.sort();
        Some(format!("{}{}", hosts.join(","), self.place()))
    }

    async fn open(&self, env: Env) -> Result<Arc<dyn LockBackend>> {
        let (events, inbox) = Events::new();
        let sessions = Reopen::new(env.clone());
        let site = Arc::new(Site::new(self.clone(), env, events)?);
        // The first one is opened here, so that its error comes before our own timeout.
        let first = Session::open(&site, false).await?;
        let members = first.members().await;
        sessions.get(|_| true, || std::future::ready(Ok(first))).await?;
        let reach = Guarantees::CROSS_PROCESS | Guarantees::CROSS_HOST | Guarantees::SURVIVES_RESTART;
        let mut guarantees =
            reach | Guarantees::FENCED | Guarantees::FIFO | Guarantees::LEASED | Guarantees::SHARED;
        guarantees.set(Guarantees::SURVIVES_FAILOVER, members.survive_a_loss());
        Ok(Arc::new(ZkBackend { shared: Arc::new(Shared { site, sessions }), guarantees, inbox }))
    }
}

#[async_trait]
impl LockBackend for ZkBackend {
    fn guarantees(&self) -> Guarantees {
        self.guarantees
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        self.shared.site.env.bounded(self.start(request, Patience::Tries)).await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Grant> {
        self.start(request, Patience::Waits).await?.granted()
    }

    async fn renew(&self, leases: &[LeaseId]) -> Vec<Renewal> {
        let renewed = leases.iter().map(async |lease| match self.shared.session_of(*lease) {
            Some(session) => session.renew().await,
            None => Renewal::Gone(LostReason::SessionLost),
        });
        join_all(renewed).await
    }

    async fn release(&self, grant: &Grant) -> Result<()> {
        self.shared.open_or_refuse()?;
        match self.shared.session_of(grant.lease.id) {
            Some(session) => session.release(grant).await,
            None => Err(Error::lost(LostReason::SessionLost)),
        }
    }

    fn end_session(&self, lease: LeaseId) {
        if let Some(session) = self.shared.session_of(lease) {
            session.end(LostReason::SessionLost);
        }
    }

    fn events(&self) -> BoxStream<'static, StoreEvent> {
        self.inbox.stream()
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState> {
        self.shared.session().await?.inspect(name.clone()).await
    }

    async fn inspect_for_watch(&self, name: &LockName, is_new: bool) -> Result<LockState> {
        self.shared.session().await?.inspect_for_watch(name.clone(), is_new).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockState>> {
        self.shared.session().await?.list(prefix).await
    }

    async fn revoke(&self, name: &LockName, how: Revoke) -> Result<Vec<Holder>> {
        self.shared.session().await?.revoke(name, how).await
    }

    async fn diagnose(&self) -> Result<Vec<Finding>> {
        Ok(self.shared.session().await?.diagnose().await)
    }

    async fn token_base(&self) -> Result<TokenBase> {
        self.shared.session().await?.read_base().await
    }

    async fn raise_token_base(&self, at_least: u64) -> Result<()> {
        self.shared.session().await?.raise_base(at_least).await
    }

    fn ledger(&self) -> Option<Arc<dyn MoveLedger>> {
        Some(Arc::<Shared>::clone(&self.shared))
    }

    async fn close(&self) -> Result<()> {
        self.shared.close().await
    }
}

#[async_trait]
impl MoveLedger for Shared {
    async fn read(&self) -> Result<Option<Entry>> {
        self.site.env.bounded(async { self.session().await?.read_record().await }).await
    }

    async fn write(&self, expected: Option<u64>, value: &[u8]) -> Result<Written> {
        fits(value)?;
        self.site.env.bounded(async { self.session().await?.write_record(expected, value).await }).await
    }

    async fn sign(&self, member: OwnerId, value: &[u8]) -> Result<Lease> {
        fits(value)?;
        // As for a grant: a lease that is nearly over is of no use.
        self.site.env.bounded(async { self.fresh_session().await?.sign(member, value).await }).await
    }

    async fn unsign(&self, member: OwnerId) -> Result<()> {
        self.site.env.bounded(async { self.session().await?.unsign(member).await }).await
    }

    async fn members(&self) -> Result<Vec<Participant>> {
        self.site.env.bounded(async { self.session().await?.list_members().await }).await
    }
}

impl Shared {
    fn open_or_refuse(&self) -> Result<()> {
        if self.site.closed.is_cancelled() { Err(error::closed()) } else { Ok(()) }
    }

    /// The session whose lease this is, if it was not followed by another.
    fn session_of(&self, lease: LeaseId) -> Option<Arc<Session>> {
        self.sessions.last().filter(|session| session.lease_id() == lease)
    }

    /// The session that is open, or a new one.
    async fn session(&self) -> Result<Arc<Session>> {
        self.open_or_refuse()?;
        let open = || {
            let (site, was_a_session) = (Arc::clone(&self.site), self.sessions.last().is_some());
            async move {
                tokio::select! {
                    // First: nothing more is opened once it is closed.
                    biased;
                    () = site.closed.cancelled() => Err(error::closed()),
                    opened = Session::open(&site, was_a_session) => opened,
                }
            }
        };
        self.sessions.get(|session| session.why_over().is_none(), open).await
    }

    /// A session that has enough left.
    async fn fresh_session(&self) -> Result<Arc<Session>> {
        loop {
            let session = self.session().await?;
            if session.freshened().await {
                return Ok(session);
            }
        }
    }

    /// A session in which `name` may be acquired.
    async fn session_for(&self, name: &LockName) -> Result<Arc<Session>> {
        let session = self.fresh_session().await?;
        session.may_enter(name).await.map(|()| session)
    }

    /// Waits for the lock, or tries once, in one session.
    async fn acquire(
        self: Arc<Self>,
        request: AcquireRequest,
        patience: Patience,
        left: CancellationToken,
    ) -> Result<Attempt> {
        let session = tokio::select! {
            biased;
            session = self.session_for(&request.name) => session?,
            () = left.cancelled() => return Err(Error::lost(LostReason::Released)),
        };
        session.acquire(&request, patience, &left).await
    }

    async fn close(&self) -> Result<()> {
        // RACE: from here on the task of a session ends it, also the session that has just been opened.
        let session = self.sessions.take();
        let ended = session.as_ref().map(|session| session.connection.closed());
        self.site.closed.cancel();
        let (Some(session), Some(ended)) = (session, ended) else {
            return Ok(());
        };
        session.end(LostReason::Shutdown);
        self.site.env.bounded(ended.map(Ok)).await.map_err(|_| {
            Error::new(
                ErrorKind::Unavailable,
                Effect::Unknown,
                "timed out while ending the session; it ends with its timeout",
            )
        })
    }
}
