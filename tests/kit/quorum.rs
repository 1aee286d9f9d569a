//! A quorum of Redis servers as a subject of the kit: a namespace at each of three for each of the kit's.

use std::fmt;
use std::time::Duration;

use leasehold::backend::StoreConfig;
use leasehold::redis::{QuorumConfig, RedisConfig};
use leasehold_conformance::{Pace, Subject};
use testbed::redis::{Server, Settings};
use tokio::runtime::Runtime;

/// Three servers that go with the test.
pub(crate) struct Quorum {
    name: &'static str,
    servers: Vec<Server>,
    /// Where the servers' processes are looked after.
    _runtime: Runtime,
}

impl Quorum {
    pub(crate) fn start() -> Box<dyn Subject> {
        Self::of("redis-quorum", &Settings::new())
    }

    /// Of Valkey servers, where there is one.
    pub(crate) fn of_valkey() -> Option<Box<dyn Subject>> {
        let program = testbed::redis::valkey()?;
        Some(Self::of("valkey-quorum", &Settings::new().program(program)))
    }

    fn of(name: &'static str, settings: &Settings) -> Box<dyn Subject> {
        let runtime = Runtime::new().expect("there is room for a runtime");
        let servers = runtime.block_on(async {
            let mut servers = Vec::new();
            for _ in 0..3 {
                servers.push(settings.clone().start().await.unwrap_or_else(|error| panic!("{error}")));
            }
            servers
        });
        Box::new(Self { name, servers, _runtime: runtime })
    }
}

impl Subject for Quorum {
    fn name(&self) -> &str {
        self.name
    }

    fn pace(&self) -> Pace {
        Pace::Real { ttl: <Server as testbed::Server>::TTL }
    }

    /// Without a pause of servers that came up, which namespaces that are new would wait for; nothing is restarted here.
    fn config(&self, namespace: &str) -> Box<dyn StoreConfig> {
        let one = |server: &Server| {
            let addr = testbed::Server::addr(server);
            RedisConfig::new(addr.ip().to_string(), addr.port()).prefix(namespace)
        };
        Box::new(QuorumConfig::new(self.servers.iter().map(one)).pause_after_restart(Duration::ZERO))
    }
}

impl fmt::Debug for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quorum").finish_non_exhaustive()
    }
}
