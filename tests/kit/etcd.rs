//! The etcd store as a subject of the kit: one server, a key prefix for each namespace.

use std::time::Duration;

use conformance::{Pace, Subject};
use leasehold::backend::StoreConfig;
use leasehold::etcd::EtcdConfig;
use testbed::etcd::Etcd;
use tokio::runtime::Runtime;

/// A server that goes with the test.
#[derive(Debug)]
pub(crate) struct Server {
    server: Etcd,
    /// Where the server's process is looked after.
    _runtime: Runtime,
}

impl Server {
    pub(crate) fn start() -> Self {
        let runtime = Runtime::new().expect("there is room for a runtime");
        let server = runtime.block_on(Etcd::start());
        Self { server: server.unwrap_or_else(|error| panic!("{error}")), _runtime: runtime }
    }
}

impl Subject for Server {
    fn name(&self) -> &str {
        "etcd"
    }

    fn pace(&self) -> Pace {
        Pace::Real { ttl: Duration::from_secs(3) }
    }

    fn config(&self, namespace: &str) -> Box<dyn StoreConfig> {
        Box::new(EtcdConfig::new(self.server.endpoints()).prefix(namespace))
    }

    /// The server looks for leases that have run out twice a second.
    fn expiry_granularity(&self) -> Duration {
        Duration::from_millis(500)
    }
}
