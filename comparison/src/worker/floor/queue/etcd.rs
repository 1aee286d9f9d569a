//! etcd: a transaction that puts a key with a lease and answers the older ones, which a standing watch tells
//! the end of; one that deletes the key if it is ours.

use std::collections::HashMap;
use std::time::Duration;

use contender_protocol::{Failure, Session};
use etcd_client::{
    Client, Compare, CompareOp, EventType, GetOptions, PutOptions, Txn, TxnOp, TxnOpResponse,
    WatchFilterType, WatchOptions,
};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::worker::floor::etcd::{leased, leave};
use crate::worker::floor::taken;

pub(in crate::worker::floor) struct Leased {
    client: Client,
    lease: i64,
}

pub(in crate::worker::floor) struct Queue {
    prefix: String,
    key: String,
    /// When each key was deleted last.
    ends: watch::Receiver<HashMap<Vec<u8>, i64>>,
    _watching: JoinSet<()>,
}

pub(in crate::worker::floor) struct Held {
    key: String,
    revision: i64,
}

impl Session for Leased {
    type Lock = Queue;
    type Held = Held;

    const VERSION: &'static str = "etcd-client 0.21";

    async fn open(urls: &[String], _ttl: Duration) -> Result<Self, Failure> {
        let (client, lease) = leased(urls).await?;
        Ok(Self { client, lease })
    }

    async fn lock(&self, name: &str) -> Result<Queue, Failure> {
        let prefix = format!("floor/{name}-queue/");
        let options = WatchOptions::new().with_prefix().with_filters([WatchFilterType::NoPut]);
        let mut watching = self.client.watch_client().watch(prefix.as_str(), Some(options)).await?;
        let (told, ends) = watch::channel(HashMap::new());
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
        Ok(Queue { key: format!("{prefix}{:x}", self.lease), prefix, ends, _watching: tasks })
    }

    async fn acquire(&self, queue: &Queue) -> Result<Held, Failure> {
        let key = queue.key.as_str();
        let put = TxnOp::put(key, "0123456789abcdef", Some(PutOptions::new().with_lease(self.lease)));
        let all = GetOptions::new().with_prefix().with_keys_only();
        let ask = [put, TxnOp::get(queue.prefix.as_str(), Some(all))];
        let new = Compare::create_revision(key, CompareOp::Equal, 0);
        let answer = self.client.kv_client().txn(Txn::new().when([new]).and_then(ask)).await?;
        let revision = answer.header().map(etcd_client::ResponseHeader::revision);
        let Some(revision) = revision.filter(|_| answer.succeeded()) else { return Err(taken()) };
        let mut older = Vec::new();
        for response in answer.op_responses() {
            if let TxnOpResponse::Get(found) = response {
                let before = found.kvs().iter().filter(|kv| kv.create_revision() < revision);
                older.extend(before.map(|kv| (kv.key().to_vec(), kv.create_revision())));
            }
        }
        let first = |ends: &HashMap<Vec<u8>, i64>| {
            older.iter().all(|(key, created)| ends.get(key).is_some_and(|end| end > created))
        };
        queue.ends.clone().wait_for(first).await?;
        Ok(Held { key: queue.key.clone(), revision })
    }

    fn token(held: &Held) -> Option<u64> {
        Some(held.revision.cast_unsigned())
    }

    async fn release(&self, held: Held) -> Result<(), Failure> {
        leave(&self.client, held.key, held.revision).await
    }
}
