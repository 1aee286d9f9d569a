//! ZooKeeper: create an ephemeral sequential node and list its siblings, in one flight; delete it.

use std::time::Duration;

use contender_protocol::{Failure, Session};
use futures_util::future::try_join;
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
        let connector = Client::connector().with_session_timeout(ttl);
        Ok(Self(connector.connect(super::address(urls)).await?))
    }

    async fn lock(&self, name: &str) -> Result<String, Failure> {
        let directory = format!("/floor/{name}");
        self.0.mkdir(&directory, &CreateMode::Persistent.with_acls(Acls::anyone_all())).await?;
        Ok(directory)
    }

    async fn acquire(&self, directory: &String) -> Result<Held, Failure> {
        let stem = format!("{directory}/_c_0123456789abcdef-lock-");
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let created = self.0.create(&stem, b"0123456789abcdef", &options);
        let ((stat, sequence), siblings) = try_join(created, self.0.list_children(directory)).await?;
        if siblings.len() == 1 {
            return Ok(Held { node: format!("{stem}{sequence}"), created: stat.czxid });
        }
        Err(super::taken())
    }

    fn token(held: &Held) -> Option<u64> {
        Some(held.created.cast_unsigned())
    }

    async fn release(&self, held: Held) -> Result<(), Failure> {
        Ok(self.0.delete(&held.node, None).await?)
    }
}
