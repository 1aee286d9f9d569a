//! The contract on top of a session with several servers.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use leasehold_core::backend::{
    AcquireRequest, Attempt, Events, Finding, Grant, Holder, Inbox, LeaseId, LockBackend, LockState, Renewal,
    Revoke, StoreConfig, StoreEvent,
};
use leasehold_core::{Env, Guarantees, LockName, Result};

use super::config::QuorumConfig;
use super::session::Session;
use crate::config::RedisConfig;
use crate::session::Opened;

#[async_trait]
impl StoreConfig for QuorumConfig {
    fn min_ttl(&self) -> Duration {
        RedisConfig::MIN_TTL
    }

    fn server(&self) -> Option<String> {
        Some(self.addresses())
    }

    async fn open(&self, env: Env) -> Result<Arc<dyn LockBackend>> {
        self.checked()?;
        let (tell, events) = Events::new();
        let session = Session::open(self, env, tell).await?;
        Ok(Arc::new(QuorumBackend { session, events }))
    }
}

#[derive(Debug)]
struct QuorumBackend {
    session: Opened<Session>,
    events: Inbox,
}

#[async_trait]
impl LockBackend for QuorumBackend {
    /// Not `FIFO`: each server votes for the first contender that reaches it.
    fn guarantees(&self) -> Guarantees {
        let reach = Guarantees::CROSS_PROCESS | Guarantees::CROSS_HOST | Guarantees::SURVIVES_RESTART;
        let mut guarantees = reach | Guarantees::FENCED | Guarantees::LEASED | Guarantees::PER_LOCK_TTL;
        guarantees.set(Guarantees::SURVIVES_FAILOVER, self.session.agreed.survives_restarts());
        guarantees
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        self.session.contend(request, false).await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Grant> {
        self.session.contend(request, true).await?.granted()
    }

    async fn renew(&self, leases: &[LeaseId]) -> Vec<Renewal> {
        self.session.renew(leases).await
    }

    async fn release(&self, grant: &Grant) -> Result<()> {
        self.session.release(grant).await
    }

    fn events(&self) -> BoxStream<'static, StoreEvent> {
        self.events.stream()
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState> {
        self.session.inspect(name).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockState>> {
        self.session.list(prefix).await
    }

    async fn revoke(&self, name: &LockName, how: Revoke) -> Result<Vec<Holder>> {
        self.session.revoke(name, how).await.map(Vec::from_iter)
    }

    async fn diagnose(&self) -> Result<Vec<Finding>> {
        self.session.diagnose().await
    }

    async fn close(&self) -> Result<()> {
        self.session.close().await
    }
}
