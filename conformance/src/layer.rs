//! Something between the core and a store that changes what passes through.
//!
//! A [`Layer`] says only what it changes; everything else goes straight through. The kit's network,
//! its counters and its bugs are layers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use leasehold_core::backend::ledger::MoveLedger;
use leasehold_core::backend::{
    AcquireRequest, Attempt, Finding, Grant, Holder, LeaseId, LockBackend, LockState, Renewal, Revoke,
    StoreConfig, StoreEvent, TokenBase,
};
use leasehold_core::{Env, Guarantees, LockName, Result};

/// One way to a store, wrapped around another.
pub type Wrap = Arc<dyn Fn(Box<dyn StoreConfig>) -> Box<dyn StoreConfig> + Send + Sync>;

/// What lies beneath a layer: one session of the store, and its surroundings.
#[derive(Clone, Debug)]
pub struct Below {
    /// The session.
    pub backend: Arc<dyn LockBackend>,
    /// The surroundings that the layer shares with it.
    pub env: Env,
}

/// What a lock is inspected for.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum For {
    /// [`LockBackend::inspect`].
    Caller,
    /// [`LockBackend::inspect_for_watch`], with its `is_new`.
    Watch(bool),
}

impl For {
    /// Inspects a lock.
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn inspect(self, store: &dyn LockBackend, name: &LockName) -> Result<LockState> {
        match self {
            Self::Caller => store.inspect(name).await,
            Self::Watch(is_new) => store.inspect_for_watch(name, is_new).await,
        }
    }
}

/// The contract, method by method, as a detour: see [`LockBackend`] for what each must do.
#[async_trait]
#[expect(missing_docs, reason = "as the methods of `LockBackend`")]
pub trait Layer: fmt::Debug + Send + Sync + 'static {
    fn guarantees(&self, below: &Below) -> Guarantees {
        below.backend.guarantees()
    }

    /// What becomes of a grant, of a try and of a wait alike.
    fn granted(&self, _below: &Below, grant: Grant) -> Grant {
        grant
    }

    async fn try_acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Attempt> {
        Ok(match below.backend.try_acquire(request).await? {
            Attempt::Granted(grant) => Attempt::Granted(self.granted(below, grant)),
            held @ Attempt::Held { .. } => held,
        })
    }

    async fn acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Grant> {
        below.backend.acquire(request).await.map(|grant| self.granted(below, grant))
    }

    async fn renew(&self, below: &Below, leases: &[LeaseId]) -> Vec<Renewal> {
        below.backend.renew(leases).await
    }

    async fn release(&self, below: &Below, grant: &Grant) -> Result<()> {
        below.backend.release(grant).await
    }

    fn end_session(&self, below: &Below, lease: LeaseId) {
        below.backend.end_session(lease);
    }

    fn events(&self, below: &Below) -> BoxStream<'static, StoreEvent> {
        below.backend.events()
    }

    async fn inspect(&self, below: &Below, name: &LockName, whom: For) -> Result<LockState> {
        whom.inspect(&*below.backend, name).await
    }

    async fn list(&self, below: &Below, prefix: &str) -> Result<Vec<LockState>> {
        below.backend.list(prefix).await
    }

    async fn revoke(&self, below: &Below, name: &LockName, how: Revoke) -> Result<Vec<Holder>> {
        below.backend.revoke(name, how).await
    }

    async fn diagnose(&self, below: &Below) -> Result<Vec<Finding>> {
        below.backend.diagnose().await
    }

    async fn token_base(&self, below: &Below) -> Result<TokenBase> {
        below.backend.token_base().await
    }

    async fn raise_token_base(&self, below: &Below, at_least: u64) -> Result<()> {
        below.backend.raise_token_base(at_least).await
    }

    fn ledger(&self, below: &Below) -> Option<Arc<dyn MoveLedger>> {
        below.backend.ledger()
    }

    async fn close(&self, below: &Below) -> Result<()> {
        below.backend.close().await
    }
}

/// The wrap that puts one and the same layer into every session.
pub fn shared(layer: Arc<dyn Layer>) -> Wrap {
    per_session(move || Arc::clone(&layer))
}

/// The wrap that makes a layer for every session.
pub fn per_session(make: impl Fn() -> Arc<dyn Layer> + Send + Sync + 'static) -> Wrap {
    let make: Make = Arc::new(make);
    Arc::new(move |below| Box::new(Layered { below, make: Make::clone(&make) }))
}

/// The session `below` with `layer` above it.
pub fn above(below: Below, layer: Arc<dyn Layer>) -> Arc<dyn LockBackend> {
    Arc::new(Session { layer, below })
}

type Make = Arc<dyn Fn() -> Arc<dyn Layer> + Send + Sync>;

struct Layered {
    below: Box<dyn StoreConfig>,
    make: Make,
}

impl fmt::Debug for Layered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layered").field("below", &self.below).finish_non_exhaustive()
    }
}

#[async_trait]
impl StoreConfig for Layered {
    fn min_ttl(&self) -> Duration {
        self.below.min_ttl()
    }

    fn server(&self) -> Option<String> {
        self.below.server()
    }

    fn namespace(&self) -> Option<String> {
        self.below.namespace()
    }

    async fn open(&self, env: Env) -> Result<Arc<dyn LockBackend>> {
        let backend = self.below.open(env.clone()).await?;
        Ok(above(Below { backend, env }, (self.make)()))
    }
}

#[derive(Debug)]
struct Session {
    layer: Arc<dyn Layer>,
    below: Below,
}

#[async_trait]
impl LockBackend for Session {
    fn guarantees(&self) -> Guarantees {
        self.layer.guarantees(&self.below)
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt> {
        self.layer.try_acquire(&self.below, request).await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<Grant> {
        self.layer.acquire(&self.below, request).await
    }

    async fn renew(&self, leases: &[LeaseId]) -> Vec<Renewal> {
        self.layer.renew(&self.below, leases).await
    }

    async fn release(&self, grant: &Grant) -> Result<()> {
        self.layer.release(&self.below, grant).await
    }

    fn end_session(&self, lease: LeaseId) {
        self.layer.end_session(&self.below, lease);
    }

    fn events(&self) -> BoxStream<'static, StoreEvent> {
        self.layer.events(&self.below)
    }

    async fn inspect(&self, name: &LockName) -> Result<LockState> {
        self.layer.inspect(&self.below, name, For::Caller).await
    }

    async fn inspect_for_watch(&self, name: &LockName, is_new: bool) -> Result<LockState> {
        self.layer.inspect(&self.below, name, For::Watch(is_new)).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockState>> {
        self.layer.list(&self.below, prefix).await
    }

    async fn revoke(&self, name: &LockName, how: Revoke) -> Result<Vec<Holder>> {
        self.layer.revoke(&self.below, name, how).await
    }

    async fn diagnose(&self) -> Result<Vec<Finding>> {
        self.layer.diagnose(&self.below).await
    }

    async fn token_base(&self) -> Result<TokenBase> {
        self.layer.token_base(&self.below).await
    }

    async fn raise_token_base(&self, at_least: u64) -> Result<()> {
        self.layer.raise_token_base(&self.below, at_least).await
    }

    fn ledger(&self) -> Option<Arc<dyn MoveLedger>> {
        self.layer.ledger(&self.below)
    }

    async fn close(&self) -> Result<()> {
        self.layer.close(&self.below).await
    }
}
