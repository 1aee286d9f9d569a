//! A store on a server as a subject of the kit: a namespace of the server for each of the kit's.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use leasehold::backend::StoreConfig;
use leasehold_conformance::{Pace, Subject};
use testbed::Server;
use tokio::runtime::Runtime;

/// A server that goes with the test.
pub(crate) struct Served<S> {
    name: &'static str,
    server: S,
    config: Config,
    /// Where the server's process is looked after.
    _runtime: Runtime,
}

/// How a namespace of a server is opened.
type Config = fn(SocketAddr, &str) -> Box<dyn StoreConfig>;

impl<S: Server> Served<S> {
    pub(crate) fn start(config: Config) -> Box<dyn Subject> {
        Self::named(S::NAME, config)
    }

    /// One of several ways to use such a server.
    pub(crate) fn named(name: &'static str, config: Config) -> Box<dyn Subject> {
        Self::started(name, S::start(), config)
    }

    fn started(
        name: &'static str,
        starting: impl Future<Output = io::Result<S>>,
        config: Config,
    ) -> Box<dyn Subject> {
        let runtime = Runtime::new().expect("there is room for a runtime");
        let server = runtime.block_on(starting).unwrap_or_else(|error| panic!("{error}"));
        Box::new(Self { name, server, config, _runtime: runtime })
    }
}

/// Valkey in the place of Redis, where there is one.
#[cfg(feature = "redis")]
pub(crate) fn valkey(config: Config) -> Option<Box<dyn Subject>> {
    let Some(program) = testbed::redis::valkey() else {
        testbed::peers::skip("the kit on Valkey", "there is none in target/tools; run: make tools");
        return None;
    };
    let starting = testbed::redis::Settings::new().program(program).start();
    Some(Served::<testbed::redis::Server>::started("valkey", starting, config))
}

impl<S: Server> Subject for Served<S> {
    fn name(&self) -> &str {
        self.name
    }

    fn pace(&self) -> Pace {
        Pace::Real { ttl: S::TTL }
    }

    fn config(&self, namespace: &str) -> Box<dyn StoreConfig> {
        (self.config)(self.server.addr(), namespace)
    }

    fn expiry_granularity(&self) -> Duration {
        S::NOTICES_WITHIN
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
