//! A Redis primary that sentinels watch as a subject of the kit: a namespace of the primary for each of the kit's.

use std::fmt;
use std::time::Duration;

use leasehold::backend::StoreConfig;
use leasehold::redis::SentinelConfig;
use leasehold_conformance::{Pace, Subject};
use testbed::redis::{Sentinels, Server, Settings};
use tokio::runtime::Runtime;

/// A primary, its replica and three sentinels that go with the test.
pub(crate) struct Watched {
    _servers: [Server; 2],
    sentinels: Sentinels,
    /// Where the processes are looked after.
    _runtime: Runtime,
}

impl Watched {
    pub(crate) fn start() -> Box<dyn Subject> {
        let runtime = Runtime::new().expect("there is room for a runtime");
        let started = runtime.block_on(async {
            let primary = Settings::new().start().await?;
            let replica = Settings::new().replica_of(primary.addr()).start().await?;
            replica.follows().await?;
            // Nothing fails here: a busy machine is not taken for a dead primary.
            let sentinels = Sentinels::start(primary.addr(), 1, 3, Duration::from_secs(60)).await?;
            std::io::Result::Ok(([primary, replica], sentinels))
        });
        let (servers, sentinels) = started.unwrap_or_else(|error| panic!("{error}"));
        Box::new(Self { _servers: servers, sentinels, _runtime: runtime })
    }
}

impl Subject for Watched {
    fn name(&self) -> &str {
        "redis-sentinel"
    }

    fn pace(&self) -> Pace {
        Pace::Real { ttl: <Server as testbed::Server>::TTL }
    }

    /// Without a pause, which namespaces that are new would wait for; nothing is promoted here.
    fn config(&self, namespace: &str) -> Box<dyn StoreConfig> {
        let sentinels = self.sentinels.addrs().into_iter().map(|sentinel| sentinel.to_string());
        let config = SentinelConfig::new(Sentinels::MASTER, sentinels).pause_after_failover(Duration::ZERO);
        Box::new(config.servers(|server| server.prefix(namespace)))
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").finish_non_exhaustive()
    }
}
