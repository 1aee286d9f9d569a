//! etcd: one transaction that puts a key with a lease if it is not there, and one that deletes it if it is ours. With a
//! queue the first one also answers the older keys, which a standing watch tells the end of.

use std::collections::HashMap;
use std::time::Duration;

use contender_protocol::{Failure, Session};
use etcd_client::{
    Client, Compare, CompareOp, EventType, GetOptions, PutOptions, Txn, TxnOp, TxnOpResponse,
    WatchFilterType, WatchOptions,
};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub(super) struct Leased<const QUEUES: bool> {
    client: Client,
    lease: i64,
}

pub(super) struct Lock {
    key: String,
    queue: Option<Queue>,
}

struct Queue {
    prefix: String,
    /// When each key was deleted last.
    ends: watch::Receiver<Ends>,
    _watching: JoinSet<()>,
}

/// Keys and revisions.
type Ends = HashMap<Vec<u8>, i64>;

pub(super) struct Held {
    key: String,
    revision: i64,
}

impl<const QUEUES: bool> Session for Leased<QUEUES> {
    type Lock = Lock;
    type Held = Held;

    const VERSION: &'static str = "etcd-client 0.21";

    async fn open(urls: &[String], _ttl: Duration) -> Result<Self, Failure> {
        let endpoint = super::address(urls).split(',').next().unwrap_or_default();
        let mut client = Client::connect([format!("http://{endpoint}")], None).await?;
        let lease = client.lease_grant(LEASE_SECONDS, None).await?.id();
        Ok(Self { client, lease })
    }

    async fn lock(&self, name: &str) -> Result<Lock, Failure> {
        if !QUEUES {
            return Ok(Lock { key: format!("floor/{name}"), queue: None });
        }
        let prefix = format!("floor/{name}-queue/");
        let (ends, _watching) = watch_ends(&self.client, &prefix).await?;
        Ok(Lock { key: format!("{prefix}{:x}", self.lease), queue: Some(Queue { prefix, ends, _watching }) })
    }

    async fn acquire(&self, lock: &Lock) -> Result<Held, Failure> {
        let key = lock.key.as_str();
        let put = TxnOp::put(key, "0123456789abcdef", Some(PutOptions::new().with_lease(self.lease)));
        let list = lock.queue.as_ref().map(|queue| {
            TxnOp::get(queue.prefix.as_str(), Some(GetOptions::new().with_prefix().with_keys_only()))
        });
        let ask: Vec<_> = [put].into_iter().chain(list).collect();
        let new = Compare::create_revision(key, CompareOp::Equal, 0);
        let answer = self.client.kv_client().txn(Txn::new().when([new]).and_then(ask)).await?;
        let revision = answer.header().map(etcd_client::ResponseHeader::revision);
        let Some(revision) = revision.filter(|_| answer.succeeded()) else { return Err(super::taken()) };
        if let Some(queue) = &lock.queue {
            let mut older = Vec::new();
            for response in answer.op_responses() {
                if let TxnOpResponse::Get(found) = response {
                    let before = found.kvs().iter().filter(|kv| kv.create_revision() < revision);
                    older.extend(before.map(|kv| (kv.key().to_vec(), kv.create_revision())));
                }
            }
            let first = |ends: &Ends| {
                older.iter().all(|(key, created)| ends.get(key).is_some_and(|end| end > created))
            };
            queue.ends.clone().wait_for(first).await?;
        }
        Ok(Held { key: lock.key.clone(), revision })
    }

    fn token(held: &Held) -> Option<u64> {
        Some(held.revision.cast_unsigned())
    }

    async fn release(&self, Held { key, revision }: Held) -> Result<(), Failure> {
        let mine = Compare::create_revision(key.as_str(), CompareOp::Equal, revision);
        let txn = Txn::new().when([mine]).and_then([TxnOp::delete(key, None)]);
        let answer = self.client.kv_client().txn(txn).await?;
        if answer.succeeded() { Ok(()) } else { Err(Failure::new("the key was not ours")) }
    }
}

async fn watch_ends(client: &Client, prefix: &str) -> Result<(watch::Receiver<Ends>, JoinSet<()>), Failure> {
    let options = WatchOptions::new().with_prefix().with_filters([WatchFilterType::NoPut]);
    let mut watching = client.watch_client().watch(prefix, Some(options)).await?;
    let (told, ends) = watch::channel(Ends::new());
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        while let Ok(Some(news)) = watching.message().await {
            let deleted = news.events().iter().filter(|event| event.event_type() == EventType::Delete);
            let deleted: Vec<_> = deleted
                .filter_map(|event| event.kv().map(|kv| (kv.key().to_vec(), kv.mod_revision())))
                .collect();
            if !deleted.is_empty() {
                told.send_modify(|ends| ends.extend(deleted));
            }
        }
    });
    Ok((ends, tasks))
}

/// Longer than a comparison, as a floor renews nothing.
const LEASE_SECONDS: i64 = 3600;
