//! ZooKeeper: create an ephemeral node of a fixed name, whose creation numbers it; delete it. With a queue: create an
//! ephemeral sequential node and list its siblings, in one flight; watch the one before, which leaves only when it is our
//! turn; delete the node.

use std::time::Duration;

use contender_protocol::{Failure, Session};
use futures_util::future::try_join;
use zookeeper_client::{Acls, Client, CreateMode};

pub(super) struct Connection<const QUEUES: bool>(Client);

pub(super) struct Held {
    node: String,
    created: i64,
}

impl<const QUEUES: bool> Session for Connection<QUEUES> {
    /// The directory of its nodes.
    type Lock = String;
    type Held = Held;

    const VERSION: &'static str = "zookeeper-client 0.11";

    async fn open(urls: &[String], ttl: Duration) -> Result<Self, Failure> {
        let connector = Client::connector().with_session_timeout(ttl);
        Ok(Self(connector.connect(super::address(urls)).await?))
    }

    async fn lock(&self, name: &str) -> Result<String, Failure> {
        let directory = format!("/floor/{name}{}", if QUEUES { "-queue" } else { "" });
        self.0.mkdir(&directory, &CreateMode::Persistent.with_acls(Acls::anyone_all())).await?;
        Ok(directory)
    }

    async fn acquire(&self, directory: &String) -> Result<Held, Failure> {
        if !QUEUES {
            let node = format!("{directory}/lock");
            let options = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
            let (stat, _sequence) = self.0.create(&node, OWNER, &options).await?;
            return Ok(Held { node, created: stat.czxid });
        }
        let stem = format!("{directory}/_c_0123456789abcdef-lock-");
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let created = self.0.create(&stem, OWNER, &options);
        let list = async { self.0.list_children(directory).await };
        let ((stat, sequence), siblings) = try_join(created, list).await?;
        let node = format!("{stem}{sequence}");
        let before = siblings.iter().map(|name| format!("{directory}/{name}")).filter(|path| *path < node);
        if let Some(before) = before.max() {
            let (there, gone) = self.0.check_and_watch_stat(&before).await?;
            if there.is_some() {
                gone.changed().await;
            }
        }
        Ok(Held { node, created: stat.czxid })
    }

    fn token(held: &Held) -> Option<u64> {
        Some(held.created.cast_unsigned())
    }

    async fn release(&self, held: Held) -> Result<(), Failure> {
        Ok(self.0.delete(&held.node, None).await?)
    }
}

const OWNER: &[u8] = b"0123456789abcdef";
