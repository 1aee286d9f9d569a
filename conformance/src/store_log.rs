//! Writes down what a store really did.
//!
//! Sits directly on the store. Between it and the core the network may lose what is said here.

use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::backend::{AcquireRequest, Attempt, Grant};
use leasehold_core::{LockName, Result};

use crate::history::{Entry, Recorder, What};
use crate::layer::{Below, Layer, Wrap, shared};

/// The wrap that records a store's side of the truth: requests in the order of their arrival,
/// grants, releases.
///
/// A grant to an owner id other than the one that asked is taken as one of an entry that had lost
/// its place. A grant is recorded when the store's answer is looked at; in a process that stands
/// still that is late.
pub fn store_log(recorder: Recorder) -> Wrap {
    shared(Arc::new(StoreLog { recorder }))
}

#[derive(Debug)]
struct StoreLog {
    recorder: Recorder,
}

#[async_trait]
impl Layer for StoreLog {
    async fn try_acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Attempt> {
        let visit = Visit::begin(&self.recorder, request, false);
        let attempt = below.backend.try_acquire(request).await;
        if let Ok(Attempt::Granted(grant)) = &attempt {
            visit.granted(request, grant);
        }
        attempt
    }

    async fn acquire(&self, below: &Below, request: &AcquireRequest) -> Result<Grant> {
        let visit = Visit::begin(&self.recorder, request, true);
        let granted = below.backend.acquire(request).await;
        if let Ok(grant) = &granted {
            visit.granted(request, grant);
        }
        granted
    }

    async fn release(&self, below: &Below, grant: &Grant) -> Result<()> {
        let released = below.backend.release(grant).await;
        let done = released.is_ok();
        self.recorder.on(&grant.name, What::StoreReleased { counter: grant.counter, done });
        released
    }
}

/// A request at the store; gone when dropped without a grant.
struct Visit {
    recorder: Recorder,
    name: LockName,
    entry: Entry,
    granted: bool,
}

impl Visit {
    fn begin(recorder: &Recorder, request: &AcquireRequest, waits: bool) -> Self {
        let entry = recorder.entry();
        recorder.on(&request.name, What::StoreAsked { entry, mode: request.mode, waits });
        Self { recorder: recorder.clone(), name: request.name.clone(), entry, granted: false }
    }

    fn granted(mut self, request: &AcquireRequest, grant: &Grant) {
        self.granted = true;
        let requeued = grant.owner != request.owner;
        let what = What::StoreGranted { entry: self.entry, counter: grant.counter, requeued };
        self.recorder.on(&self.name, what);
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        if !self.granted {
            self.recorder.on(&self.name, What::StoreLeft { entry: self.entry });
        }
    }
}
