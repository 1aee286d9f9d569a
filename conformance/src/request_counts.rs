//! Counts what the core asks of a store.

use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::Result;
use leasehold_core::backend::{AcquireRequest, Attempt, Grant};
use parking_lot::Mutex;

use crate::failure::Outcome;
use crate::layer::{Below, Layer, Wrap, shared};
use crate::session::Session;
use crate::world::World;

/// Counters of the requests that are part of a lock's life; clones share them.
#[derive(Clone, Debug, Default)]
pub struct RequestCounts {
    counts: Arc<Mutex<Counts>>,
}

/// How often each was asked. Not renewals: they come with time, not with use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// `try_acquire`.
    pub tries: usize,
    /// `acquire`.
    pub acquires: usize,
    /// `release`.
    pub releases: usize,
}

impl RequestCounts {
    /// The wrap that counts.
    pub fn wrap(&self) -> Wrap {
        shared(Arc::new(self.clone()))
    }

    /// The requests since the last call.
    pub fn take(&self) -> Counts {
        std::mem::take(&mut *self.counts.lock())
    }

    /// What is asked when `holder` lets go of `grant`, and of what that leads to.
    pub(crate) async fn of_a_release(
        &self,
        world: &World,
        holder: &Session,
        grant: &Grant,
    ) -> Outcome<Counts> {
        world.settle().await;
        self.take();
        holder.backend.release(grant).await?;
        world.settle().await;
        Ok(self.take())
    }
}

#[async_trait]
impl Layer for RequestCounts {
    async fn try_acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Attempt> {
        self.counts.lock().tries += 1;
        below.backend.try_acquire(request).await
    }

    async fn acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Grant> {
        self.counts.lock().acquires += 1;
        below.backend.acquire(request).await
    }

    async fn release(&self, below: &Below, grant: &Grant) -> Result<()> {
        self.counts.lock().releases += 1;
        below.backend.release(grant).await
    }
}
