//! A backend that is another one but for what it changes: the base of the kit's wrappers.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use lockcore::backend::{
    AcquireRequest, Attempt, Finding, Grant, LeaseId, LockBackend, LockState, Renewal, Revocation, StoreEvent,
};
use lockcore::{Guarantees, LockName, Result};

/// A change to a backend; what is not written passes through to [`inner`](Self::inner).
///
/// # Contract
///
/// That of [`LockBackend`], as far as the change is meant to keep it.
#[async_trait]
pub trait Layer: fmt::Debug + Send + Sync + 'static {
    /// What is changed.
    fn inner(&self) -> &Arc<dyn LockBackend>;

    /// As [`LockBackend::guarantees`].
    fn guarantees(&self) -> Guarantees {
        self.inner().guarantees()
    }

    /// As [`LockBackend::try_acquire`].
    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        self.inner().try_acquire(request).await
    }

    /// As [`LockBackend::acquire`].
    async fn acquire(&self, request: &AcquireRequest) -> Result<Grant> {
        self.inner().acquire(request).await
    }

    /// As [`LockBackend::renew`].
    async fn renew(&self, leases: &[LeaseId]) -> Vec<Renewal> {
        self.inner().renew(leases).await
    }

    /// As [`LockBackend::release`].
    async fn release(&self, grant: &Grant) -> Result<()> {
        self.inner().release(grant).await
    }

    /// As [`LockBackend::events`].
    fn events(&self) -> BoxStream<'static, StoreEvent> {
        self.inner().events()
    }

    /// As [`LockBackend::revoke`].
    async fn revoke(&self, name: &LockName, force: bool) -> Result<Revocation> {
        self.inner().revoke(name, force).await
    }

    /// As [`LockBackend::close`].
    async fn close(&self) -> Result<()> {
        self.inner().close().await
    }
}

/// The backend that a [`Layer`] makes.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "a layer is all there is to it")]
pub struct Layered<L>(pub L);

#[async_trait]
impl<L: Layer> LockBackend for Layered<L> {
    fn guarantees(&self) -> Guarantees {
        self.0.guarantees()
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        self.0.try_acquire(request).await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Grant> {
        self.0.acquire(request).await
    }

    async fn renew(&self, leases: &[LeaseId]) -> Vec<Renewal> {
        self.0.renew(leases).await
    }

    async fn release(&self, grant: &Grant) -> Result<()> {
        self.0.release(grant).await
    }

    fn events(&self) -> BoxStream<'static, StoreEvent> {
        self.0.events()
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState> {
        self.0.inner().inspect(name).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockState>> {
        self.0.inner().list(prefix).await
    }

    async fn revoke(&self, name: &LockName, force: bool) -> Result<Revocation> {
        self.0.revoke(name, force).await
    }

    async fn diagnose(&self) -> Result<Vec<Finding>> {
        self.0.inner().diagnose().await
    }

    async fn close(&self) -> Result<()> {
        self.0.close().await
    }
}
