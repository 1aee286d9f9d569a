//! A current server as a subject of the kit, where there is one; the installed one is a subject of
//! the kit that runs on all stores.

use std::time::Duration;

use leasehold_conformance::{Pace, Subject};
use leasehold_core::backend::StoreConfig;
use leasehold_etcd::EtcdConfig;
use testbed::etcd::{Etcd, Setup, current};
use tokio::runtime::Runtime;

#[derive(Debug)]
pub(crate) struct Server {
    server: Etcd,
    /// The runtime of the server's process.
    _runtime: Runtime,
}

impl Server {
    pub(crate) fn start() -> Option<Self> {
        let Some(program) = current() else {
            testbed::peers::skip("the kit on etcd 3.6", "there is none in target/tools; run: make tools");
            return None;
        };
        let runtime = Runtime::new().unwrap();
        let server = runtime.block_on(Setup::new().program(program).start()).unwrap();
        Some(Self { server, _runtime: runtime })
    }
}

impl Subject for Server {
    fn name(&self) -> &str {
        "etcd-3.6"
    }

    fn pace(&self) -> Pace {
        Pace::Real { ttl: Duration::from_secs(3) }
    }

    fn config(&self, namespace: &str) -> Box<dyn StoreConfig> {
        Box::new(EtcdConfig::new(self.server.endpoints()).prefix(namespace))
    }

    fn expiry_granularity(&self) -> Duration {
        Duration::from_millis(500)
    }
}
