//! A store that refuses every release, in one way; everything else passes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use async_trait::async_trait;
use leasehold_core::backend::Grant;
use leasehold_core::{Effect, Error, ErrorKind, Result};

use crate::layer::{Below, Layer, Wrap, shared};

/// How it refuses.
#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    Says(ErrorKind, Effect),
    NeverAnswers,
    Panics,
}

/// The layer; clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct Refusals {
    refusal: Arc<Refusal>,
    is_over: Arc<AtomicBool>,
}

impl Refusals {
    pub(crate) fn new(refusal: Refusal) -> Self {
        Self { refusal: Arc::new(refusal), is_over: Arc::default() }
    }

    /// The wrap that refuses.
    pub(crate) fn wrap(&self) -> Wrap {
        shared(Arc::new(self.clone()))
    }

    /// From here on releases pass.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Relaxed);
    }

    /// What the caller must hear in the end.
    pub(crate) fn heard(&self) -> (ErrorKind, Effect) {
        match &*self.refusal {
            Refusal::Says(kind, effect) => (kind.clone(), *effect),
            Refusal::NeverAnswers => (ErrorKind::Unavailable, Effect::Unknown),
            Refusal::Panics => (ErrorKind::Protocol, Effect::Unknown),
        }
    }
}

#[async_trait]
impl Layer for Refusals {
    async fn release(&self, below: &Below, grant: &Grant) -> Result<()> {
        if self.is_over.load(Relaxed) {
            return below.backend.release(grant).await;
        }
        match &*self.refusal {
            Refusal::Says(kind, effect) => Err(Error::new(kind.clone(), *effect, "refused")),
            Refusal::NeverAnswers => std::future::pending().await,
            // Without the hook, which would print a backtrace for every try.
            Refusal::Panics => std::panic::resume_unwind(Box::new("a fault in the store's code")),
        }
    }
}
