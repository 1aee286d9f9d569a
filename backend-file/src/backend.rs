//! The contract on top of a session.
//!
//! No task runs in the background: the session reads its directory while the core polls
//! [`events`](LockBackend::events), only while something is held, and once more.
//! Requests work in place, so a release is complete at its first poll, without a runtime.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use leasehold_core::backend::{
    AcquireRequest, Attempt, Events, Finding, Grant, Holder, Inbox, LeaseId, LockBackend, LockState, Renewal,
    Revoke, StoreConfig, StoreEvent, TokenBase,
};
use leasehold_core::clock::Deadline;
use leasehold_core::{Env, Guarantees, LockName, LostReason, Result};

use crate::config::FileConfig;
use crate::directory::{Scope, mount};
use crate::session::Session;
use crate::session::renewer::Listener;

#[async_trait]
impl StoreConfig for FileConfig {
    fn min_ttl(&self) -> Duration {
        Self::MIN_TTL
    }

    async fn open(&self, env: Env) -> Result<Arc<dyn LockBackend>> {
        let (tell, events) = Events::new();
        let session = Arc::new(Session::open(self, env, tell)?);
        let directory = &session.directory;
        if let Some(finding) = directory.file_system.warning() {
            session.events.tell(StoreEvent::Condition(finding.detail.into()));
        }
        for finding in [directory.hands()?, mount::private(directory.path())].into_iter().flatten() {
            session.events.tell(StoreEvent::Warning(finding.detail.into()));
        }
        Ok(Arc::new(FileBackend { session, events }))
    }
}

#[derive(Debug)]
pub(crate) struct FileBackend {
    session: Arc<Session>,
    events: Inbox,
}

#[async_trait]
impl LockBackend for FileBackend {
    fn guarantees(&self) -> Guarantees {
        let everywhere = Guarantees::FENCED | Guarantees::CROSS_PROCESS | Guarantees::RUNTIME_FREE;
        match self.session.directory.file_system.scope {
            Scope::Memory => everywhere,
            Scope::Local | Scope::Network | Scope::Program => everywhere | Guarantees::SURVIVES_RESTART,
        }
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        self.session.try_acquire(request).await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Grant> {
        self.session.acquire(request).await
    }

    async fn renew(&self, leases: &[LeaseId]) -> Vec<Renewal> {
        let renew = |lease: &LeaseId| match self.session.is_held(*lease) {
            true => Renewal::Until(Deadline::Never),
            false => Renewal::Gone(LostReason::Gone),
        };
        leases.iter().map(renew).collect()
    }

    async fn release(&self, grant: &Grant) -> Result<()> {
        self.session.release(grant)
    }

    fn events(&self) -> BoxStream<'static, StoreEvent> {
        Listener::stream(&self.session, self.events.stream())
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState> {
        self.session.inspect(name).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockState>> {
        self.session.list(prefix).await
    }

    async fn revoke(&self, name: &LockName, how: Revoke) -> Result<Vec<Holder>> {
        self.session.open_or_refuse()?;
        self.session.revoke(name, how).await.map(Vec::from_iter)
    }

    async fn diagnose(&self) -> Result<Vec<Finding>> {
        self.session.open_or_refuse()?;
        self.session.directory.diagnose().await
    }

    async fn token_base(&self) -> Result<TokenBase> {
        self.session.open_or_refuse()?;
        self.session.read_base().await
    }

    async fn raise_token_base(&self, at_least: u64) -> Result<()> {
        self.session.open_or_refuse()?;
        self.session.raise_base(at_least).await
    }

    async fn close(&self) -> Result<()> {
        self.session.close();
        Ok(())
    }
}
