//! The ZooKeeper store as a subject of the kit: one server, a chroot for each namespace.

use std::time::Duration;

use conformance::{Pace, Subject};
use leasehold::backend::StoreConfig;
use leasehold::zk::ZkConfig;
use testbed::zookeeper::{self, Setup};
use tokio::runtime::Runtime;

/// A server that goes with the test.
#[derive(Debug)]
pub(crate) struct Server {
    server: zookeeper::Server,
    /// Where the server's process is looked after.
    _runtime: Runtime,
}

impl Server {
    pub(crate) fn start() -> Self {
        let runtime = Runtime::new().expect("there is room for a runtime");
        let server = runtime.block_on(Setup::new().tick(TICK).start());
        Self { server: server.unwrap_or_else(|error| panic!("{error}")), _runtime: runtime }
    }
}

impl Subject for Server {
    fn name(&self) -> &str {
        "zk"
    }

    fn pace(&self) -> Pace {
        Pace::Real { ttl: Duration::from_secs(3) }
    }

    fn config(&self, namespace: &str) -> Box<dyn StoreConfig> {
        Box::new(ZkConfig::new([self.server.addr().to_string()]).chroot(format!("/{namespace}")))
    }

    /// The server looks once a tick for sessions that have run out.
    fn expiry_granularity(&self) -> Duration {
        TICK
    }
}

const TICK: Duration = Duration::from_millis(100);
