//! The Lock RPC of etcd, through etcd-client: the server waits. A session is a lease that is kept alive.

use std::time::Duration;

use contender::{Failure, Implementation, Session};
use etcd_client::{Client, LockOptions};
use tokio::task::JoinSet;

pub struct LockRpc {
    endpoints: Vec<String>,
}

impl LockRpc {
    pub fn new(urls: Vec<String>) -> Self {
        Self { endpoints: crate::addresses(&urls) }
    }
}

impl Implementation for LockRpc {
    type Session = Leased;

    fn version(&self) -> String {
        "etcd-client 0.21.1".to_owned()
    }

    async fn open(&self, ttl: Duration) -> Result<Leased, Failure> {
        let mut client = Client::connect(&self.endpoints, None).await?;
        let lease = client.lease_grant(ttl.as_secs().max(1).cast_signed(), None).await?.id();
        let (mut keeper, mut answers) = client.lease_keep_alive(lease).await?;
        let mut keeping = JoinSet::new();
        keeping.spawn(async move {
            while keeper.keep_alive().await.is_ok() && answers.message().await.is_ok() {
                tokio::time::sleep(ttl / 3).await;
            }
        });
        Ok(Leased { client, lease, _keeping: keeping })
    }
}

pub struct Leased {
    client: Client,
    lease: i64,
    _keeping: JoinSet<()>,
}

impl Session for Leased {
    type Lock = String;
    type Held = Vec<u8>;

    async fn lock(&self, name: &str) -> Result<String, Failure> {
        Ok(name.to_owned())
    }

    async fn acquire(&self, name: &String) -> Result<Vec<u8>, Failure> {
        let leased = LockOptions::new().with_lease(self.lease);
        let answer = self.client.lock_client().lock(name.as_str(), Some(leased)).await?;
        Ok(answer.key().to_vec())
    }

    fn token(_held: &Vec<u8>) -> Option<u64> {
        None
    }

    async fn release(&self, key: Vec<u8>) -> Result<(), Failure> {
        self.client.lock_client().unlock(key).await?;
        Ok(())
    }
}
