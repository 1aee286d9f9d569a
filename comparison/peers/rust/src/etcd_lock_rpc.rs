//! The Lock RPC of etcd, through etcd-client: the server waits. A session is a connection with a lease
//! that is kept alive.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use contender_protocol::{Failure, Session};
use etcd_client::{Client, LockOptions};
use tokio::task::JoinSet;

pub struct Connection {
    client: Client,
    ttl: Duration,
    lease: i64,
    idle: Arc<Mutex<Idle>>,
    keeping: Mutex<JoinSet<()>>,
}

/// For each name that was ever wanted, the leases that nobody wants it with now.
type Idle = HashMap<String, Vec<i64>>;

/// Whoever shares the connection and wants the same lock has a lease of its own: a lock's owner is a lease,
/// and asking again with the same one is answered at once.
pub struct Lock {
    name: String,
    lease: i64,
    idle: Arc<Mutex<Idle>>,
}

impl Drop for Lock {
    fn drop(&mut self) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.entry(self.name.clone()).or_default().push(self.lease);
    }
}

impl Connection {
    /// A lease that is lost shows when its lock is released.
    fn keep(&self, lease: i64) {
        let (mut client, pause) = (self.client.clone(), self.ttl / 3);
        let mut keeping = self.keeping.lock().unwrap_or_else(PoisonError::into_inner);
        keeping.spawn(async move {
            let Ok((mut keeper, mut answers)) = client.lease_keep_alive(lease).await else { return };
            while keeper.keep_alive().await.is_ok() && answers.message().await.is_ok() {
                tokio::time::sleep(pause).await;
            }
        });
    }

    fn idle(&self, name: &str) -> Option<i64> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.entry(name.to_owned()).or_insert_with(|| vec![self.lease]).pop()
    }
}

impl Session for Connection {
    type Lock = Lock;
    type Held = Vec<u8>;

    const VERSION: &'static str = "etcd-client 0.21.1";

    async fn open(urls: &[String], ttl: Duration) -> Result<Self, Failure> {
        let client = Client::connect(crate::addresses(urls), None).await?;
        let lease = grant(&client, ttl).await?;
        let connection = Self { client, ttl, lease, idle: Arc::default(), keeping: Mutex::default() };
        connection.keep(lease);
        Ok(connection)
    }

    async fn lock(&self, name: &str) -> Result<Lock, Failure> {
        let lease = match self.idle(name) {
            Some(lease) => lease,
            None => {
                let lease = grant(&self.client, self.ttl).await?;
                self.keep(lease);
                lease
            }
        };
        Ok(Lock { name: name.to_owned(), lease, idle: Arc::clone(&self.idle) })
    }

    async fn acquire(&self, lock: &Lock) -> Result<Vec<u8>, Failure> {
        let leased = LockOptions::new().with_lease(lock.lease);
        let answer = self.client.lock_client().lock(lock.name.as_str(), Some(leased)).await?;
        Ok(answer.key().to_vec())
    }

    async fn release(&self, key: Vec<u8>) -> Result<(), Failure> {
        self.client.lock_client().unlock(key).await?;
        Ok(())
    }
}

async fn grant(client: &Client, ttl: Duration) -> Result<i64, Failure> {
    let seconds = ttl.as_secs().max(1).cast_signed();
    Ok(client.lease_client().grant(seconds, None).await?.id())
}
