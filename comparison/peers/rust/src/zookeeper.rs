//! The lock recipe of zookeeper-client.

use std::time::Duration;

use contender_protocol::{Failure, Implementation, Session};
use zookeeper_client::{Acls, Client, CreateMode, LockPrefix, OwnedLockClient};

pub struct Recipe {
    cluster: String,
}

impl Recipe {
    pub fn new(urls: Vec<String>) -> Self {
        Self { cluster: crate::addresses(&urls).join(",") }
    }
}

impl Implementation for Recipe {
    type Session = Connection;

    fn version(&self) -> String {
        "0.11.2".to_owned()
    }

    async fn open(&self, ttl: Duration) -> Result<Connection, Failure> {
        let connector = Client::connector().with_session_timeout(ttl);
        Ok(Connection(connector.connect(&self.cluster).await?))
    }
}

pub struct Connection(Client);

impl Session for Connection {
    type Lock = String;
    type Held = OwnedLockClient;

    async fn lock(&self, name: &str) -> Result<String, Failure> {
        let directory = format!("/locks/{name}");
        self.0.mkdir(&directory, &CreateMode::Persistent.with_acls(Acls::anyone_all())).await?;
        Ok(directory)
    }

    async fn acquire(&self, directory: &String) -> Result<OwnedLockClient, Failure> {
        let prefix = LockPrefix::new_curator(directory, "lock-")?;
        Ok(self.0.lock(prefix, b"", Acls::anyone_all()).await?.into_owned())
    }

    fn token(_held: &OwnedLockClient) -> Option<u64> {
        None
    }

    async fn release(&self, held: OwnedLockClient) -> Result<(), Failure> {
        // Dropping it deletes the node in the background; here the deletion is waited for, and then
        // there is nothing left to drop.
        let deleted = self.0.delete(held.lock_path(), None).await;
        std::mem::forget(held);
        Ok(deleted?)
    }
}
