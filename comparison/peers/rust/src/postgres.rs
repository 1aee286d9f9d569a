//! Postgres: its advisory locks by tokio-postgres, and distributed-lock (Postgres), which uses them, too.
//!
//! An advisory lock belongs to a connection, which may take it again. So each contender has a connection of its own.

use std::sync::Arc;
use std::time::Duration;

use contender_protocol::{Failure, Session};
use distributed_lock_core::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_postgres::PostgresLockProvider;
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls, Statement};

pub struct Server(String);

pub struct Advisory {
    client: Client,
    key: i64,
    lock: Statement,
    unlock: Statement,
    _connected: JoinSet<()>,
}

impl Session for Server {
    type Lock = Arc<Advisory>;
    type Held = Arc<Advisory>;

    const VERSION: &'static str = "tokio-postgres 0.7.18";

    async fn open(urls: &[String], _ttl: Duration) -> Result<Self, Failure> {
        let url = urls.first().ok_or_else(|| Failure::new("no server is named"))?;
        Ok(Self(url.clone()))
    }

    async fn lock(&self, name: &str) -> Result<Self::Lock, Failure> {
        let (client, connection) = tokio_postgres::connect(&self.0, NoTls).await?;
        let mut _connected = JoinSet::new();
        _connected.spawn(async move { drop(connection.await) });
        let key = client.query_one("SELECT hashtextextended($1, 0)", &[&name]).await?.try_get(0)?;
        let lock = client.prepare("SELECT pg_advisory_lock($1)").await?;
        let unlock = client.prepare("SELECT pg_advisory_unlock($1)").await?;
        Ok(Arc::new(Advisory { client, key, lock, unlock, _connected }))
    }

    async fn acquire(&self, lock: &Self::Lock) -> Result<Self::Held, Failure> {
        lock.client.execute(&lock.lock, &[&lock.key]).await?;
        Ok(Arc::clone(lock))
    }

    async fn release(&self, held: Self::Held) -> Result<(), Failure> {
        let row = held.client.query_one(&held.unlock, &[&held.key]).await?;
        if row.try_get(0)? { Ok(()) } else { Err(Failure::new("the lock was not ours")) }
    }
}

pub struct Provider(PostgresLockProvider);

type Lock = <PostgresLockProvider as LockProvider>::Lock;

impl Session for Provider {
    type Lock = Lock;
    type Held = <Lock as DistributedLock>::Handle;

    const VERSION: &'static str = "0.2.0";

    async fn open(urls: &[String], _ttl: Duration) -> Result<Self, Failure> {
        let url = urls.first().ok_or_else(|| Failure::new("no server is named"))?;
        Ok(Self(PostgresLockProvider::new(url.as_str()).await?))
    }

    async fn lock(&self, name: &str) -> Result<Lock, Failure> {
        Ok(self.0.create_lock(name))
    }

    async fn acquire(&self, lock: &Lock) -> Result<Self::Held, Failure> {
        Ok(lock.acquire(None).await?)
    }

    async fn release(&self, held: Self::Held) -> Result<(), Failure> {
        Ok(held.release().await?)
    }
}
