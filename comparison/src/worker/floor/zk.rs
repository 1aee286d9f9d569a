//! ZooKeeper: create an ephemeral node of a fixed name, whose creation numbers it; delete it.

use std::time::Duration;

use contender_protocol::{Failure, Session};
use zookeeper_client::{Acls, Client, CreateMode};

pub(super) struct Connection(Client);

pub(super) struct Held {
    node: String,
    created: i64,
}

impl Session for Connection {
    type Lock = String;
    type Held = Held;

    const VERSION: &'static str = "zookeeper-client 0.11";

    async fn open(urls: &[String], ttl: Duration) -> Result<Self, Failure> {
        Ok(Self(connect(urls, ttl).await?))
    }

    async fn lock(&self, name: &str) -> Result<String, Failure> {
        Ok(format!("{}/lock", directory(&self.0, name).await?))
    }

    async fn acquire(&self, node: &String) -> Result<Held, Failure> {
        let options = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        let (stat, _sequence) = self.0.create(node, b"0123456789abcdef", &options).await?;
        Ok(Held { node: node.clone(), created: stat.czxid })
    }

    fn token(held: &Held) -> Option<u64> {
        Some(held.created.cast_unsigned())
    }

    async fn release(&self, held: Held) -> Result<(), Failure> {
        Ok(self.0.delete(&held.node, None).await?)
    }
}

pub(super) async fn connect(urls: &[String], ttl: Duration) -> Result<Client, Failure> {
    let connector = Client::connector().with_session_timeout(ttl);
    Ok(connector.connect(super::address(urls)).await?)
}

/// Makes the directory of a lock.
pub(super) async fn directory(client: &Client, name: &str) -> Result<String, Failure> {
    let directory = format!("/floor/{name}");
    client.mkdir(&directory, &CreateMode::Persistent.with_acls(Acls::anyone_all())).await?;
    Ok(directory)
}
