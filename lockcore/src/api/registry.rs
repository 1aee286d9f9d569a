//! Which store a URL's scheme means; open to stores of others.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::api::builder::Builder;
use crate::api::manager::LockManager;
use crate::backend::StoreConfig;
use crate::backend::url::StoreUrl;
use crate::memory::MemoryConfig;
use crate::words::error::{Error, ErrorKind, Result};

/// The stores that URLs can name.
///
/// # Examples
///
/// A store of your own, beside the ones that come with the library:
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leasehold_core::Result<()> {
/// # use leasehold_core::{Registry, memory::MemoryConfig};
/// let mut registry = Registry::new();
/// registry.register("mine", |_url| Ok(Box::new(MemoryConfig::private())));
/// let locks = registry.connect("mine://?ttl=15s").await?;
/// # locks.shutdown().await
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Registry {
    schemes: BTreeMap<&'static str, Scheme>,
    options: BTreeMap<&'static str, Wrap>,
}

type Factory = Arc<dyn Fn(&mut StoreUrl) -> Result<Box<dyn StoreConfig>> + Send + Sync>;

type Wrap = Arc<dyn Fn(&Registry, Box<dyn StoreConfig>, &str) -> Result<Box<dyn StoreConfig>> + Send + Sync>;

/// What every URL may say, whatever its store, and only for the whole manager.
const COMMON: [&str; 7] =
    ["ttl", "op_timeout", "connect_timeout", "connect_wait", "drift_margin", "handoff_limit", "owner"];

#[derive(Clone)]
enum Scheme {
    Store(Factory),
    /// What has to be done to have it.
    Missing(&'static str),
}

impl Registry {
    /// A registry that knows `memory://` only.
    pub fn new() -> Self {
        let mut registry = Self::default();
        registry.register("memory", |url| Ok(Box::new(MemoryConfig::from_url(url)?)));
        registry
    }

    /// Makes `scheme` mean a store. `factory` takes its own options from the URL; the common ones
    /// are taken before it is called.
    pub fn register(
        &mut self,
        scheme: &'static str,
        factory: impl Fn(&mut StoreUrl) -> Result<Box<dyn StoreConfig>> + Send + Sync + 'static,
    ) -> &mut Self {
        self.schemes.insert(scheme, Scheme::Store(Arc::new(factory)));
        self
    }

    /// Says what to do to have a store for `scheme`, which this build lacks.
    pub fn missing(&mut self, scheme: &'static str, remedy: &'static str) -> &mut Self {
        self.schemes.insert(scheme, Scheme::Missing(remedy));
        self
    }

    /// Makes the option `name` mean something on every store: `wrap` gets the store of the URL and the option's value,
    /// and gives what is opened instead. The value may be a URL itself, which [`store`](Self::store) reads.
    pub fn option(
        &mut self,
        name: &'static str,
        wrap: impl Fn(&Self, Box<dyn StoreConfig>, &str) -> Result<Box<dyn StoreConfig>> + Send + Sync + 'static,
    ) -> &mut Self {
        self.options.insert(name, Arc::new(wrap));
        self
    }

    /// Opens the store that `url` names.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`] for a URL, scheme or option that is not known or cannot work;
    /// [`ErrorKind::Unsupported`] for a scheme whose store is not part of this build; then as
    /// [`Builder::build`].
    ///
    /// # Cancel safety
    ///
    /// As [`Builder::build`].
    pub async fn connect(&self, url: &str) -> Result<LockManager> {
        self.configure(url)?.build().await
    }

    /// Reads a URL into a [`Builder`], to set by hand what a URL cannot say. Contacts nobody.
    ///
    /// # Errors
    ///
    /// As [`Registry::connect`], the store's apart.
    pub fn configure(&self, url: &str) -> Result<Builder> {
        let mut url: StoreUrl = url.parse()?;
        let factory = self.factory(url.scheme())?;
        let ttl = url.take_duration("ttl")?;
        let op_timeout = url.take_duration("op_timeout")?;
        let connect_timeout = url.take_duration("connect_timeout")?;
        let connect_wait = url.take_duration("connect_wait")?;
        let drift_margin = url.take_duration("drift_margin")?;
        let handoff_limit = url.take_parsed("handoff_limit", "a whole number from 0 to 1023")?;
        let owner = url.take("owner")?;
        let mut store = factory(&mut url)?;
        let mut wraps = Vec::new();
        for (name, wrap) in &self.options {
            wraps.extend(url.take(name)?.map(|value| (name, wrap, value)));
        }
        // Before the rest of a value that a `&` has cut short is read as a URL.
        url.all_taken()?;
        for (name, wrap, value) in wraps {
            store = wrap(self, store, &value).map_err(|error| error.with_context("option", name))?;
        }
        let mut builder = Builder::new(store);
        if let Some(ttl) = ttl {
            builder = builder.ttl(ttl);
        }
        if let Some(bound) = op_timeout {
            builder = builder.op_timeout(bound);
        }
        if let Some(bound) = connect_timeout {
            builder = builder.connect_timeout(bound);
        }
        if let Some(wait) = connect_wait {
            builder = builder.connect_wait(wait);
        }
        if let Some(margin) = drift_margin {
            builder = builder.drift_margin(margin);
        }
        if let Some(limit) = handoff_limit {
            builder = builder.handoff_limit(limit);
        }
        if let Some(owner) = owner {
            builder = builder.owner_label(owner);
        }
        Ok(builder)
    }

    /// The store of a URL that is an option of another one: with the store's own options, as those of the manager stand
    /// in the other one and hold for both. Contacts nobody.
    ///
    /// # Errors
    ///
    /// As [`Registry::configure`]; [`ErrorKind::InvalidOption`] for an option of the manager.
    pub fn store(&self, url: &str) -> Result<Box<dyn StoreConfig>> {
        let mut url: StoreUrl = url.parse()?;
        let factory = self.factory(url.scheme())?;
        for name in COMMON.iter().chain(self.options.keys()) {
            if url.take(name)?.is_some() {
                return Err(Error::invalid_option(format!(
                    "option `{name}` is inside the inner URL: give it in the outer URL, where it applies to \
                     both stores"
                )));
            }
        }
        let store = factory(&mut url)?;
        url.all_taken()?;
        Ok(store)
    }

    /// The schemes of the stores in this build, in order.
    pub fn schemes(&self) -> impl Iterator<Item = &'static str> {
        let in_this_build = |(scheme, store): (&&'static str, &Scheme)| match store {
            Scheme::Store(_) => Some(*scheme),
            Scheme::Missing(_) => None,
        };
        self.schemes.iter().filter_map(in_this_build)
    }

    fn factory(&self, scheme: &str) -> Result<Factory> {
        match self.schemes.get(scheme) {
            Some(Scheme::Store(factory)) => Ok(Arc::clone(factory)),
            Some(Scheme::Missing(remedy)) => Err(Error::not_applied(
                ErrorKind::Unsupported,
                format!("this build has no store for {scheme}://: {remedy}"),
            )),
            None => {
                let known: Vec<_> = self.schemes().map(|scheme| format!("{scheme}://")).collect();
                Err(Error::invalid_option(format!("unknown scheme {scheme:?}; known: {}", known.join(", "))))
            }
        }
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.schemes.keys()).finish()
    }
}
