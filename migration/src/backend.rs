//! The contract of a store, on top of two: `protocol` decides the requests to them, and `session` sends these.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use leasehold_core::backend::{
    AcquireRequest, Attempt, Finding, Grant, Holder, LeaseId, LockBackend, LockState, Renewal, Revoke,
    StoreEvent, TokenBase,
};
use leasehold_core::{Error, ErrorKind, Guarantees, LockName, Result};

use crate::session::Session;

/// A session of a namespace whose locks are moved.
#[derive(Debug)]
pub(crate) struct Moving {
    session: Arc<Session>,
}

impl Moving {
    pub(crate) fn new(session: Arc<Session>) -> Self {
        Self { session }
    }
}

#[async_trait]
impl LockBackend for Moving {
    fn guarantees(&self) -> Guarantees {
        self.session.guarantees()
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        self.session.acquire(request, false).await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Grant> {
        self.session.acquire(request, true).await?.granted()
    }

    async fn renew(&self, leases: &[LeaseId]) -> Vec<Renewal> {
        self.session.renew(leases).await
    }

    async fn release(&self, grant: &Grant) -> Result<()> {
        self.session.release(grant).await
    }

    fn end_session(&self, lease: LeaseId) {
        self.session.end_session(lease);
    }

    fn events(&self) -> BoxStream<'static, StoreEvent> {
        self.session.inbox.stream()
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
        Err(no_token_base())
    }

    async fn raise_token_base(&self, _at_least: u64) -> Result<()> {
        Err(no_token_base())
    }

    async fn close(&self) -> Result<()> {
        self.session.close().await
    }
}

impl Drop for Moving {
    /// Sends no further requests.
    fn drop(&mut self) {
        self.session.stop();
    }
}

fn no_token_base() -> Error {
    let message = "cannot change the token base during a move: `leasehold migrate` raises it";
    Error::not_applied(ErrorKind::Unsupported, message)
}
