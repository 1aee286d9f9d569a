//! The Redis store as a subject of the kit: one server, a key prefix for each namespace.

use std::time::Duration;

use conformance::{Pace, Subject};
use leasehold::backend::StoreConfig;
use leasehold::redis::RedisConfig;
use tokio::runtime::Runtime;

/// A server that goes with the test.
#[derive(Debug)]
pub(crate) struct Server {
    server: testbed::redis::Server,
    /// Where the server's process is looked after.
    _runtime: Runtime,
}

impl Server {
    pub(crate) fn start() -> Self {
        let runtime = Runtime::new().expect("there is room for a runtime");
        let server = runtime.block_on(testbed::redis::Settings::new().start());
        let server = server.unwrap_or_else(|error| panic!("{error}"));
        Self { server, _runtime: runtime }
    }
}

impl Subject for Server {
    fn name(&self) -> &str {
        "redis"
    }

    fn pace(&self) -> Pace {
        Pace::Real { ttl: Duration::from_secs(2) }
    }

    fn config(&self, namespace: &str) -> Box<dyn StoreConfig> {
        let addr = self.server.addr();
        Box::new(RedisConfig::new(addr.ip().to_string(), addr.port()).prefix(namespace))
    }
}
