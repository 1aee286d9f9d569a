//! The stores of URL schemes; also for stores of other crates.

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
/// A store of your own, in addition to the ones that come with the library:
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

/// The options of every URL, which apply to the whole manager.
const COMMON: [&str; 7] =
    ["ttl", "op_timeout", "connect_timeout", "connect_wait", "drift_margin", "handoff_limit", "owner"];

#[derive(Clone)]
enum Scheme {
    Store(Factory),
    /// How to get the store.
    Missing(&'static str),
}

impl Registry {
    /// Creates a registry with `memory://` only.
    pub fn new() -> Self {
        let mut registry = Self::default();
        registry.register("memory", |url| Ok(Box::new(MemoryConfig::from_url(url)?)));
        registry
    }

    /// Registers the store of `scheme`. `factory` takes its own options from the URL; the common options are
    /// taken before it is called.
    pub fn register(
        &mut self,
        scheme: &'static str,
        factory: impl Fn(&mut StoreUrl) -> Result<Box<dyn StoreConfig>> + Send + Sync + 'static,
    ) -> &mut Self {
        self.schemes.insert(scheme, Scheme::Store(Arc::new(factory)));
        self
    }

    /// Registers how to get the store of `scheme`, which this build lacks.
    pub fn missing(&mut self, scheme: &'static str, remedy: &'static str) -> &mut Self {
        self.schemes.insert(scheme, Scheme::Missing(remedy));
        self
    }

    /// Registers the option `name` of every store. `wrap` gets the store of the URL and the option's value, and
    /// returns the store to open instead. The value may be a URL, which [`store`](Self::store) reads.
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
    /// - [`ErrorKind::InvalidOption`]: the URL, its scheme or an option is unknown or invalid.
    /// - [`ErrorKind::Unsupported`]: the store of the scheme is not part of this build.
    /// - As [`Builder::build`].
    ///
    /// # Cancel safety
    ///
    /// As [`Builder::build`].
    pub async fn connect(&self, url: &str) -> Result<LockManager> {
        self.configure(url)?.build().await
    }

    /// Reads a URL into a [`Builder`], to set options that a URL cannot contain; without a request.
    ///
    /// The options of every store:
    ///
    #[doc = include_str!("url_options.md")]
    ///
    /// # Errors
    ///
    /// As [`Registry::connect`], without the store's.
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
        builder.ttl = ttl.unwrap_or(builder.ttl);
        builder.connect_wait = connect_wait.unwrap_or(builder.connect_wait);
        (builder.op_timeout, builder.connect_timeout) = (op_timeout, connect_timeout);
        (builder.drift_margin, builder.handoff_limit) = (drift_margin, handoff_limit);
        builder.label = owner;
        Ok(builder)
    }

    /// Returns the store of a URL inside another URL, without a request. It has only the store's own options;
    /// the manager's options belong to the outer URL and apply to both.
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

    /// Returns the schemes of the stores in this build, in order.
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
