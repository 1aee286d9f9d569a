//! The stores that processes contend on here, and how they differ.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use libtest_mimic::Trial;
use testbed::trial;

use crate::fixture::Fixture;

/// The ttl of most locks here: short, because the locks of dead processes are waited for.
pub(crate) const TTL: Duration = Duration::from_secs(3);

/// One that is kept, also by a machine that stands still for a while.
pub(crate) const STEADY: Duration = Duration::from_secs(6);

/// A store, its server running, with a namespace for each test.
#[derive(Clone)]
pub(crate) struct Store {
    pub(crate) name: &'static str,
    url: Arc<Url>,
    namespaces: Arc<AtomicUsize>,
}

/// Where a namespace is, with options.
type Url = dyn Fn(&str, &str) -> String + Send + Sync;

impl Store {
    /// `url` is that of a namespace, with options.
    pub(crate) fn new(
        name: &'static str,
        url: impl Fn(&str, &str) -> String + Send + Sync + 'static,
    ) -> Self {
        Self { name, url: Arc::new(url), namespaces: Arc::default() }
    }

    /// That of a new namespace.
    pub(crate) fn fresh_url(&self, ttl: Duration) -> String {
        let namespace = format!("cross-{}", self.namespaces.fetch_add(1, Ordering::Relaxed));
        (self.url)(&namespace, &format!("ttl={}s", ttl.as_secs()))
    }

    /// A test on this store.
    pub(crate) fn trial<F: Future<Output = ()> + 'static>(
        &self,
        name: &str,
        test: fn(Fixture) -> F,
    ) -> Trial {
        let store = self.clone();
        trial(format!("{}::{name}", self.name), move || test(Fixture::new(store)))
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("name", &self.name).finish_non_exhaustive()
    }
}
