//! A store on servers as a subject of the kit: a namespace of these for each of the kit's.

use std::fmt;
use std::io;
use std::time::Duration;

use leasehold::backend::StoreConfig;
use leasehold_conformance::{Pace, Subject};
use testbed::Server;
use tokio::runtime::Runtime;

/// Servers that go with the test.
pub(crate) struct Served<S> {
    name: &'static str,
    ttl: Duration,
    notices_within: Duration,
    servers: S,
    config: Config<S>,
    /// Where the servers' processes are looked after.
    _runtime: Runtime,
}

/// How a namespace of servers is opened.
type Config<S> = fn(&S, &str) -> Box<dyn StoreConfig>;

impl<S: Server> Served<S> {
    pub(crate) fn start(config: Config<S>) -> Box<dyn Subject> {
        Self::named(S::NAME, config)
    }

    /// One of several ways to use such a server.
    pub(crate) fn named(name: &'static str, config: Config<S>) -> Box<dyn Subject> {
        Self::of::<S>(name, S::start(), config)
    }
}

impl<S: Send + Sync + 'static> Served<S> {
    /// Several servers of one kind, or another program in their place.
    pub(crate) fn of<K: Server>(
        name: &'static str,
        starting: impl Future<Output = io::Result<S>>,
        config: Config<S>,
    ) -> Box<dyn Subject> {
        let runtime = Runtime::new().expect("there is room for a runtime");
        let servers = runtime.block_on(starting).unwrap_or_else(|error| panic!("{error}"));
        let (ttl, notices_within) = (K::TTL, K::NOTICES_WITHIN);
        Box::new(Self { name, ttl, notices_within, servers, config, _runtime: runtime })
    }
}

impl<S: Send + Sync + 'static> Subject for Served<S> {
    fn name(&self) -> &str {
        self.name
    }

    fn pace(&self) -> Pace {
        Pace::Real { ttl: self.ttl }
    }

    fn config(&self, namespace: &str) -> Box<dyn StoreConfig> {
        (self.config)(&self.servers, namespace)
    }

    fn expiry_granularity(&self) -> Duration {
        self.notices_within
    }

    fn periods(&self) -> (u32, u32) {
        crate::periods()
    }
}

impl<S> fmt::Debug for Served<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Served").finish_non_exhaustive()
    }
}
