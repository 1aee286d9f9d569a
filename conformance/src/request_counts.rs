//! Counts what the core asks of a store.

use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::Result;
use leasehold_core::backend::{AcquireRequest, Attempt, Grant};
use parking_lot::Mutex;

use crate::layer::{Below, Layer, Wrap, shared};

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
