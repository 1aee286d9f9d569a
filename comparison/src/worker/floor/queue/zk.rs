//! ZooKeeper: create an ephemeral sequential node and list its siblings, in one flight; watch the one before,
//! which leaves only when it is our turn; delete the node.

use std::time::Duration;

use contender_protocol::{Failure, Session};
use futures_util::future::try_join;
use zookeeper_client::{Acls, Client, CreateMode};

use crate::worker::floor::zk::{connect, directory};

pub(in crate::worker::floor) struct Connection(Client);

pub(in crate::worker::floor) struct Held {
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
        directory(&self.0, &format!("{name}-queue")).await
    }

    async fn acquire(&self, directory: &String) -> Result<Held, Failure> {
        let stem = format!("{directory}/_c_0123456789abcdef-lock-");
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let created = self.0.create(&stem, b"0123456789abcdef", &options);
        let list = async { self.0.list_children(directory).await };
        let ((stat, sequence), siblings) = try_join(created, list).await?;
        let mine = format!("{stem}{sequence}");
        let before = siblings.iter().map(|name| format!("{directory}/{name}")).filter(|path| *path < mine);
        if let Some(before) = before.max() {
            let (there, gone) = self.0.check_and_watch_stat(&before).await?;
            if there.is_some() {
                gone.changed().await;
            }
        }
        Ok(Held { node: mine, created: stat.czxid })
    }

    fn token(held: &Held) -> Option<u64> {
        Some(held.created.cast_unsigned())
    }

    async fn release(&self, held: Held) -> Result<(), Failure> {
        Ok(self.0.delete(&held.node, None).await?)
    }
}
