//! A namespace of locks, and holders on it.

use testbed::Scratch;

use crate::child::Holder;
use crate::store::{STEADY, Store, TTL};

pub(crate) struct Fixture {
    scratch: Scratch,
    url: String,
    store: Store,
}

impl Fixture {
    pub(crate) fn new(store: Store) -> Self {
        let (scratch, url) = (Scratch::new("cross-process").unwrap(), store.fresh_url(TTL));
        Self { scratch, url, store }
    }

    /// The same, with leases that are to be kept.
    pub(crate) fn steady(self) -> Self {
        Self { url: self.store.fresh_url(STEADY), ..self }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Starts a holder and waits until its session is open.
    pub(crate) async fn holder(&self) -> Holder {
        Holder::start(&self.scratch, &self.url).await
    }
}
