//! A Redis Cluster as a subject of the kit: a namespace for each of the kit's, spread over three servers.

use std::fmt;
use std::time::Duration;

use leasehold::backend::StoreConfig;
use leasehold::redis::RedisClusterConfig;
use leasehold_conformance::{Pace, Subject};
use testbed::redis::{Cluster, Server};
use tokio::runtime::Runtime;

/// A cluster that goes with the test.
pub(crate) struct Shards {
    cluster: Cluster,
    /// Where the servers' processes are looked after.
    _runtime: Runtime,
}

impl Shards {
    pub(crate) fn start() -> Box<dyn Subject> {
        let runtime = Runtime::new().expect("there is room for a runtime");
        let cluster = runtime.block_on(Cluster::start(3, 0, Duration::from_secs(15)));
        Box::new(Self { cluster: cluster.unwrap_or_else(|error| panic!("{error}")), _runtime: runtime })
    }
}

impl Subject for Shards {
    fn name(&self) -> &str {
        "redis-cluster"
    }

    fn pace(&self) -> Pace {
        Pace::Real { ttl: <Server as testbed::Server>::TTL }
    }

    fn config(&self, namespace: &str) -> Box<dyn StoreConfig> {
        let servers = self.cluster.addrs().into_iter().map(|addr| addr.to_string());
        let config = RedisClusterConfig::new(servers).servers(|server| server.prefix(namespace));
        // Each namespace would begin with a pause.
        Box::new(config.pause_after_failover(Duration::ZERO))
    }
}

impl fmt::Debug for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shards").finish_non_exhaustive()
    }
}
