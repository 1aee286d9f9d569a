//! ZooKeeper: the earlier version's nodes, messages and rules, as they were.

mod inbox;
mod sharing;

use std::time::Duration;

use libtest_mimic::Trial;
use testbed::eventually;
use testbed::zookeeper::{Server, Setup};
use zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Error, Permission, Stat};

use crate::played::{NAME, Process, Store};

pub(crate) fn trials() -> Vec<Trial> {
    sharing::trials()
}

/// What its notes say; longer than the session of anybody here.
const NOTED: Duration = Duration::from_millis(75_500);

const ROOT: &str = "/billing/leasehold";

/// A server with a place that is closed to all but its administrator and a user, who has below it the rights
/// that the documents name.
pub(crate) struct Nodes(Server);

impl Nodes {
    async fn client(&self, user: &str, session: Duration) -> Client {
        let identity = format!("{user}:secret");
        let connector = Client::connector().with_session_timeout(session);
        let connector = connector.with_auth("digest", identity.as_bytes());
        connector.connect(&self.0.addr().to_string()).await.unwrap()
    }
}

impl Store for Nodes {
    const NAME: &str = "zk";
    const TTL: Duration = Duration::from_secs(3);
    const ORDERED: bool = true;
    const NOTED: Option<Duration> = Some(NOTED);
    type Process = Earlier;

    async fn start() -> Self {
        let store = Self(Setup::new().start().await.unwrap());
        let (admin, user) =
            (store.client("admin", Self::TTL).await, store.client("billing", Self::TTL).await);
        let closed = CreateMode::Persistent.with_acls(Acls::creator_all());
        admin.create("/billing", b"", &closed).await.unwrap();
        admin.create(ROOT, b"", &closed).await.unwrap();
        // Says how the server writes who the user is.
        user.create("/digest", b"", &closed).await.unwrap();
        let (acl, _) = user.get_acl("/digest").await.unwrap();
        let rights = Permission::READ | Permission::WRITE | Permission::CREATE | Permission::DELETE;
        let rights = Acl::new(rights, AuthId::new(acl[0].scheme(), acl[0].id()));
        admin.set_acl(ROOT, &[rights], None).await.unwrap();
        store
    }

    fn url(&self, options: &str) -> String {
        format!("zk://billing:secret@{}/billing?acl=auth::rwcd&{options}", self.0.addr())
    }

    async fn process(&self, ttl: Duration) -> Earlier {
        let client = self.client("billing", ttl).await;
        let id = client.session_id().0;
        let earlier = Earlier { client, id, own: None };
        earlier.make_directory("%sessions").await;
        earlier.make_directory("%inboxes").await;
        for node in [format!("{ROOT}/%sessions/{id:016x}"), inbox_of(id)] {
            let options = CreateMode::Ephemeral.with_acls(Acls::creator_all());
            earlier.client.create(&node, b"", &options).await.unwrap();
        }
        earlier
    }

    /// They lie in the inboxes of sessions, and go with those.
    async fn messages(&self) -> usize {
        0
    }
}

fn inbox_of(session: i64) -> String {
    format!("{ROOT}/%inboxes/{session:016x}")
}

/// A manager.
pub(crate) struct Earlier {
    client: Client,
    id: i64,
    /// The name of its node, and the transaction.
    own: Option<(String, i64)>,
}

impl Earlier {
    /// A container, without data.
    async fn make_directory(&self, name: &str) {
        let options = CreateMode::Container.with_acls(Acls::creator_all());
        match self.client.create(&format!("{ROOT}/{name}"), b"", &options).await {
            Ok(_) | Err(Error::NodeExists) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Whoever it takes for the holder.
    async fn first(&self) -> Option<String> {
        let children = self.client.list_children(&format!("{ROOT}/{NAME}")).await.unwrap();
        let numbered = children.into_iter().filter_map(|child| Some((sequence(&child)?, child)));
        numbered.min().map(|(_, child)| child)
    }

    async fn is_first(&self) -> bool {
        self.first().await.as_ref() == self.own.as_ref().map(|(node, _)| node)
    }

    fn counter(&self) -> u64 {
        self.own.as_ref().expect("it has a place").1.cast_unsigned()
    }

    /// Tells the holder; what its node is known by.
    async fn revokes(&self) -> Stat {
        let holder = format!("{ROOT}/{NAME}/{}", self.first().await.expect("it is held"));
        let (_, holder) = self.client.get_data(&holder).await.unwrap();
        let path = inbox_of(holder.ephemeral_owner);
        let (data, stat) = self.client.get_data(&path).await.unwrap();
        let data = inbox::with_transaction(&data, holder.czxid);
        self.client.set_data(&path, &data, Some(stat.version)).await.unwrap();
        holder
    }
}

/// The place of a contender.
fn sequence(node: &str) -> Option<i32> {
    let (_, digits) = node.rsplit_once("lock-")?;
    let plain = digits.strip_prefix('-').unwrap_or(digits);
    let all_digits = plain.len() >= 9 && plain.bytes().all(|byte| byte.is_ascii_digit());
    if all_digits { digits.parse().ok() } else { None }
}

impl Process for Earlier {
    async fn enters(&mut self) -> Option<u64> {
        self.make_directory(NAME).await;
        let uuid = format!("{:08x}-2c4c-4d0e-9c0e-8f3c1a5b7d21", self.id & 0xffff_ffff);
        let stem = format!("{ROOT}/{NAME}/_c_{uuid}-lock-");
        let note = format!("leasehold 1\n{}\n{}", NOTED.as_millis(), Nodes::LABEL);
        let options = CreateMode::EphemeralSequential.with_acls(Acls::creator_all());
        let (stat, number) = self.client.create(&stem, note.as_bytes(), &options).await.unwrap();
        self.own = Some((format!("_c_{uuid}-lock-{number}"), stat.czxid));
        self.is_first().await.then(|| self.counter())
    }

    async fn is_next(&mut self) -> u64 {
        eventually("it is first", async || self.is_first().await).await;
        self.counter()
    }

    async fn leaves(&mut self) {
        let (node, _) = self.own.take().expect("it has a place");
        self.client.delete(&format!("{ROOT}/{NAME}/{node}"), None).await.unwrap();
    }

    async fn sees_a_holder(&mut self) -> bool {
        !self.is_first().await
    }

    async fn is_asked(&mut self) {
        let inbox = inbox_of(self.id);
        eventually("it is asked to let go", async || {
            let (data, _) = self.client.get_data(&inbox).await.unwrap();
            inbox::transactions(&data).contains(&self.counter().cast_signed())
        })
        .await;
    }

    async fn asks(&mut self) -> Option<u64> {
        Some(self.revokes().await.czxid.cast_unsigned())
    }

    async fn ends(self) {}
}
