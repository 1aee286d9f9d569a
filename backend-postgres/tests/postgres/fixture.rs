//! A server of a trial's own, managers on it, and connections of users.

use std::time::Duration;

use leasehold_core::{LockGuard, LockManager, Result};
use leasehold_postgres::PostgresConfig;
use testbed::postgres::{Server, Setup};
pub(crate) use testbed::{BOUND, Beside, eventually, pass, trials, within};
use tokio_postgres::{Client, NoTls};

/// The name of every lock here.
pub(crate) const NAME: &str = "invoice/42";

pub(crate) struct Fixture {
    pub(crate) server: Server,
}

impl Fixture {
    pub(crate) async fn start() -> Self {
        Self { server: Setup::new().start().await.unwrap() }
    }

    pub(crate) fn config(&self) -> PostgresConfig {
        let (addr, mut server) = (self.server.addr(), tokio_postgres::Config::new());
        server.host(addr.ip().to_string()).port(addr.port()).user("postgres").dbname("postgres");
        PostgresConfig::from(server)
    }

    pub(crate) async fn manager(&self) -> LockManager {
        open(self.config()).await.unwrap()
    }

    /// A connection of a user's own program.
    pub(crate) async fn user(&self) -> (Client, Beside<()>) {
        let addr = self.server.addr();
        let mut config = tokio_postgres::Config::new();
        config.host(addr.ip().to_string()).port(addr.port()).user("postgres");
        let (client, connection) = config.connect(NoTls).await.unwrap();
        (client, Beside::start(async move { connection.await.unwrap() }))
    }
}

pub(crate) async fn open(config: PostgresConfig) -> Result<LockManager> {
    LockManager::builder(config).ttl(TTL).connect_timeout(BOUND).build().await
}

pub(crate) async fn hold(locks: &LockManager) -> LockGuard {
    locks.lock(NAME).unwrap().wait(BOUND).acquire().await.unwrap()
}

/// A third of it bounds a request: a busy machine takes a while to open a connection.
pub(crate) const TTL: Duration = Duration::from_secs(6);
