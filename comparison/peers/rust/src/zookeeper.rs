//! The lock recipe of zookeeper-client.

use std::time::Duration;

use contender_protocol::{Failure, Session};
use zookeeper_client::{Acls, Client, CreateMode, LockPrefix, OwnedLockClient};

pub struct Connection(Client);

impl Session for Connection {
    type Lock = String;
    type Held = OwnedLockClient;

    const VERSION: &'static str = "0.11.2";

    async fn open(urls: &[String], ttl: Duration) -> Result<Self, Failure> {
        let connector = Client::connector().with_session_timeout(ttl);
        Ok(Self(connector.connect(&crate::addresses(urls).join(",")).await?))
    }

    async fn lock(&self, name: &str) -> Result<String, Failure> {
        let directory = format!("/locks/{name}");
        self.0.mkdir(&directory, &CreateMode::Persistent.with_acls(Acls::anyone_all())).await?;
        Ok(directory)
    }

    async fn acquire(&self, directory: &String) -> Result<OwnedLockClient, Failure> {
        let prefix = LockPrefix::new_curator(directory, "lock-")?;
        Ok(self.0.lock(prefix, b"", Acls::anyone_all()).await?.into_owned())
    }

    async fn release(&self, held: OwnedLockClient) -> Result<(), Failure> {
        // Dropping it deletes the node in the background; here the deletion is waited for, and then
        // there is nothing left to drop.
        let deleted = self.0.delete(held.lock_path(), None).await;
        std::mem::forget(held);
        Ok(deleted?)
    }
}
