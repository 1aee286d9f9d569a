//! Which instance of the in-memory store.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;

use super::backend::MemoryBackend;
use super::store::{MemoryStore, Shared};
use crate::backend::env::Env;
use crate::backend::url::StoreUrl;
use crate::backend::{LockBackend, StoreConfig};
use crate::words::error::Result;

/// The configuration of the in-memory store, `memory://[NAME][?prefix=P]`.
///
#[doc = include_str!("url_options.md")]
#[derive(Clone, Debug)]
pub struct MemoryConfig {
    store: MemoryStore,
}

impl MemoryConfig {
    /// The shortest ttl: below it the drift margin eats the lease.
    pub const MIN_TTL: Duration = Duration::from_millis(100);

    /// An instance of its own.
    pub fn private() -> Self {
        Self::on(MemoryStore::new())
    }

    /// The instance `name`, which all users of this process share while one of them lives.
    pub fn shared(name: impl Into<String>) -> Self {
        static SHARED: Mutex<BTreeMap<String, Weak<Shared>>> = Mutex::new(BTreeMap::new());
        let mut instances = SHARED.lock();
        instances.retain(|_, instance| instance.strong_count() > 0);
        let name = name.into();
        if let Some(shared) = instances.get(&name).and_then(Weak::upgrade) {
            return Self::on(MemoryStore { shared });
        }
        let store = MemoryStore::new();
        instances.insert(name, Arc::downgrade(&store.shared));
        Self::on(store)
    }

    /// A given instance.
    pub fn on(store: MemoryStore) -> Self {
        Self { store }
    }

    /// The instance, to share it or to do it harm.
    pub fn store(&self) -> &MemoryStore {
        &self.store
    }

    pub(crate) fn from_url(url: &mut StoreUrl) -> Result<Self> {
        let prefix = url.take_prefix_or_path()?;
        let name = url.hosts().join(",");
        Ok(match (name.as_str(), prefix) {
            ("", _) => Self::private(),
            (name, None) => Self::shared(name),
            // A host has no `?`, so no plain name is ever this one.
            (name, Some(prefix)) => Self::shared(format!("{name}?prefix={prefix}")),
        })
    }
}

#[async_trait]
impl StoreConfig for MemoryConfig {
    fn min_ttl(&self) -> Duration {
        Self::MIN_TTL
    }

    /// Two names of one instance are one namespace.
    fn namespace(&self) -> Option<String> {
        Some(format!("memory:{:p}", Arc::as_ptr(&self.store.shared)))
    }

    async fn open(&self, env: Env) -> Result<Arc<dyn LockBackend>> {
        Ok(Arc::new(MemoryBackend::open(self.store.clone(), env)?))
    }
}
