//! The contract on top of a session.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use leasehold_core::backend::ledger::MoveLedger;
use leasehold_core::backend::{
    AcquireRequest, Attempt, Events, Finding, Grant, Holder, Inbox, LeaseId, LockBackend, LockState, Renewal,
    Revoke, StoreConfig, StoreEvent, TokenBase,
};
use leasehold_core::{Env, Guarantees, LockName, Result};

use crate::config::{RedisClusterConfig, RedisConfig, SentinelConfig};
use crate::session::{Opened, Servers, Session};

#[async_trait]
impl StoreConfig for RedisConfig {
    fn min_ttl(&self) -> Duration {
        Self::MIN_TTL
    }

    fn server(&self) -> Option<String> {
        Some(self.address())
    }

    fn namespace(&self) -> Option<String> {
        Some(self.namespace())
    }

    async fn open(&self, env: Env) -> Result<Arc<dyn LockBackend>> {
        self.checked()?;
        let (tell, events) = Events::new();
        let session = Arc::new(Session::open(self, Servers::One, env, tell).await?);
        Ok(Arc::new(RedisBackend { session, events }))
    }
}

#[async_trait]
impl StoreConfig for SentinelConfig {
    fn min_ttl(&self) -> Duration {
        RedisConfig::MIN_TTL
    }

    fn server(&self) -> Option<String> {
        Some(self.place())
    }

    fn namespace(&self) -> Option<String> {
        Some(self.namespace())
    }

    async fn open(&self, env: Env) -> Result<Arc<dyn LockBackend>> {
        self.checked()?;
        let (tell, events) = Events::new();
        let session = Arc::new(Session::open(&self.of_servers(), Servers::Watched(self), env, tell).await?);
        Ok(Arc::new(RedisBackend { session, events }))
    }
}

#[async_trait]
impl StoreConfig for RedisClusterConfig {
    fn min_ttl(&self) -> Duration {
        RedisConfig::MIN_TTL
    }

    fn server(&self) -> Option<String> {
        Some(self.place())
    }

    fn namespace(&self) -> Option<String> {
        Some(self.namespace())
    }

    async fn open(&self, env: Env) -> Result<Arc<dyn LockBackend>> {
        self.checked()?;
        let (tell, events) = Events::new();
        let session = Arc::new(Session::open(&self.of_servers(), Servers::Cluster(self), env, tell).await?);
        Ok(Arc::new(RedisBackend { session, events }))
    }
}

#[derive(Debug)]
struct RedisBackend {
    session: Arc<Opened<Session>>,
    events: Inbox,
}

#[async_trait]
impl LockBackend for RedisBackend {
    fn guarantees(&self) -> Guarantees {
        self.session.guarantees()
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        self.session.try_acquire(request).await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Grant> {
        self.session.acquire(request).await
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
        self.session.revoke(name, how).await
    }

    async fn diagnose(&self) -> Result<Vec<Finding>> {
        self.session.diagnose().await
    }

    async fn diagnose_lock(&self, name: &LockName) -> Result<Vec<Finding>> {
        self.session.diagnose_lock(name).await
    }

    async fn token_base(&self) -> Result<TokenBase> {
        self.session.read_base().await
    }

    async fn raise_token_base(&self, at_least: u64) -> Result<()> {
        self.session.raise_base(at_least).await
    }

    fn ledger(&self) -> Option<Arc<dyn MoveLedger>> {
        let session: Arc<Opened<Session>> = Arc::clone(&self.session);
        Some(session)
    }

    async fn close(&self) -> Result<()> {
        self.session.close().await
    }
}
