//! The contract on top of the session.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use futures_util::stream::BoxStream;
use leasehold_core::backend::ledger::MoveLedger;
use leasehold_core::backend::{
    AcquireRequest, Attempt, Events, Finding, Grant, Holder, Inbox, LeaseId, LockBackend, LockState, Renewal,
    Revoke, StoreConfig, TokenBase,
};
use leasehold_core::{Env, Guarantees, LockName, LostReason, Result};

use crate::admin::diagnosis;
use crate::config::PostgresConfig;
use crate::protocol::Demand;
use crate::session::{OpenSessions, Sessions, acquire};

#[async_trait]
impl StoreConfig for PostgresConfig {
    fn min_ttl(&self) -> Duration {
        Self::MIN_TTL
    }

    fn server(&self) -> Option<String> {
        Some(self.hosts().join(","))
    }

    fn namespace(&self) -> Option<String> {
        let mut hosts = self.hosts();
        hosts.sort();
        let (hosts, database) = (hosts.join(","), self.database());
        Some(format!("{hosts}/{database}/{}/{}", self.schema, self.prefix))
    }

    async fn open(&self, env: Env) -> Result<Arc<dyn LockBackend>> {
        Ok(Arc::new(PostgresBackend::open(&self.clone().checked()?, env).await?))
    }
}

#[derive(Debug)]
pub(crate) struct PostgresBackend {
    sessions: Arc<OpenSessions>,
    guarantees: Guarantees,
    inbox: Inbox,
}

impl PostgresBackend {
    pub(crate) async fn open(config: &PostgresConfig, env: Env) -> Result<Self> {
        let (events, inbox) = Events::new();
        let sessions = Sessions::new(config, env, events)?;
        let reach = Guarantees::CROSS_PROCESS | Guarantees::CROSS_HOST | Guarantees::SURVIVES_RESTART;
        let modes = Guarantees::SHARED | Guarantees::PERMITS;
        let order = Guarantees::FENCED | Guarantees::FIFO | Guarantees::LEASED;
        let survives =
            if config.needs_replicas { Guarantees::SURVIVES_FAILOVER } else { Guarantees::empty() };
        let guarantees = reach | modes | order | survives;
        // From here on, dropping it ends the started tasks.
        let backend = Self { sessions: Arc::new(OpenSessions(sessions)), guarantees, inbox };
        backend.sessions.0.begin().await?;
        Ok(backend)
    }
}

#[async_trait]
impl LockBackend for PostgresBackend {
    fn guarantees(&self) -> Guarantees {
        self.guarantees
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        acquire(&self.sessions.0, request, Demand::Tries).await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Grant> {
        acquire(&self.sessions.0, request, Demand::Waits).await?.granted()
    }

    async fn renew(&self, leases: &[LeaseId]) -> Vec<Renewal> {
        let renew = async |lease: &LeaseId| match self.sessions.0.of_lease(*lease) {
            Ok(session) => session.renew().await,
            Err(_gone) => Renewal::Gone(LostReason::SessionLost),
        };
        join_all(leases.iter().map(renew)).await
    }

    async fn release(&self, grant: &Grant) -> Result<()> {
        self.sessions.unless_closed()?.of_lease(grant.lease.id)?.release(grant).await
    }

    fn end_session(&self, lease: LeaseId) {
        if let Ok(session) = self.sessions.0.of_lease(lease) {
            session.lose(LostReason::SessionLost);
        }
    }

    fn events(&self) -> BoxStream<'static, leasehold_core::backend::StoreEvent> {
        self.inbox.stream()
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState> {
        self.sessions.unless_closed()?.inspect(name).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockState>> {
        self.sessions.unless_closed()?.list(prefix).await
    }

    async fn revoke(&self, name: &LockName, how: Revoke) -> Result<Vec<Holder>> {
        self.sessions.unless_closed()?.revoke(name, how).await
    }

    async fn diagnose(&self) -> Result<Vec<Finding>> {
        Box::pin(diagnosis::diagnose(self.sessions.unless_closed()?)).await
    }

    async fn token_base(&self) -> Result<TokenBase> {
        self.sessions.unless_closed()?.read_base().await
    }

    async fn raise_token_base(&self, at_least: u64) -> Result<()> {
        self.sessions.unless_closed()?.raise_base(at_least).await
    }

    fn ledger(&self) -> Option<Arc<dyn MoveLedger>> {
        Some(Arc::<OpenSessions>::clone(&self.sessions))
    }

    async fn close(&self) -> Result<()> {
        self.sessions.0.close().await
    }
}
