//! etcd: one transaction that puts a key with a lease if it is not there, and one that deletes it if it is ours. With a
//! queue the first one also answers the oldest key; the holder looks for the next one and writes to that one's own key, which
//! nobody else watches.

use std::sync::Arc;
use std::time::Duration;

use contender_protocol::{Failure, Session};
use etcd_client::{
    Client, Compare, CompareOp, GetOptions, PutOptions, SortOrder, SortTarget, Txn, TxnOp, TxnOpResponse,
    TxnResponse,
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

#[derive(Clone)]
struct Queue {
    prefix: String,
    /// Where the other clients write to the next one.
    inboxes: String,
    /// When that happened last.
    told: watch::Receiver<i64>,
    _watching: Arc<JoinSet<()>>,
}

pub(super) struct Held {
    key: String,
    revision: i64,
    queue: Option<Queue>,
}

impl Queue {
    /// The first two in the order of arrival.
    fn first(&self) -> TxnOp {
        let oldest = GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Ascend);
        TxnOp::get(self.prefix.as_str(), Some(oldest.with_limit(2).with_keys_only()))
    }
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
        let (prefix, inboxes) = (format!("floor/{name}-queue/"), format!("floor/{name}-inbox/"));
        let (told, _watching) = watch_inbox(&self.client, format!("{inboxes}{:x}", self.lease)).await?;
        let key = format!("{prefix}{:x}", self.lease);
        Ok(Lock { key, queue: Some(Queue { prefix, inboxes, told, _watching: Arc::new(_watching) }) })
    }

    async fn acquire(&self, lock: &Lock) -> Result<Held, Failure> {
        let key = lock.key.as_str();
        let put = TxnOp::put(key, "0123456789abcdef", Some(PutOptions::new().with_lease(self.lease)));
        let ask: Vec<_> = [put].into_iter().chain(lock.queue.as_ref().map(Queue::first)).collect();
        let new = Compare::create_revision(key, CompareOp::Equal, 0);
        let answer = self.client.kv_client().txn(Txn::new().when([new]).and_then(ask)).await?;
        let revision = answer.header().map(etcd_client::ResponseHeader::revision);
        let Some(revision) = revision.filter(|_| answer.succeeded()) else { return Err(super::taken()) };
        if let Some(queue) =
            lock.queue.as_ref().filter(|_| found(&answer).first().is_none_or(|first| first != key))
        {
            queue.told.clone().wait_for(|told| *told > revision).await?;
        }
        Ok(Held { key: lock.key.clone(), revision, queue: lock.queue.clone() })
    }

    fn token(held: &Held) -> Option<u64> {
        Some(held.revision.cast_unsigned())
    }

    async fn release(&self, Held { key, revision, queue }: Held) -> Result<(), Failure> {
        let mine = || Compare::create_revision(key.as_str(), CompareOp::Equal, revision);
        let delete = || TxnOp::delete(key.as_str(), None);
        let mut txn = Txn::new().when([mine()]).and_then([delete()]);
        if let Some(queue) = &queue {
            let last =
                Compare::create_revision(queue.prefix.as_str(), CompareOp::Less, revision + 1).with_prefix();
            txn = Txn::new().when([mine(), last]).and_then([delete()]).or_else([queue.first()]);
        }
        let mut answer = self.client.kv_client().txn(txn).await?;
        if let (Some(queue), [_, next]) = (&queue, &found(&answer)[..]) {
            let inbox = next.replacen(&queue.prefix, &queue.inboxes, 1);
            let hand_over = Txn::new().when([mine()]).and_then([delete(), TxnOp::put(inbox, "", None)]);
            answer = self.client.kv_client().txn(hand_over).await?;
        }
        if answer.succeeded() { Ok(()) } else { Err(Failure::new("the key was not ours")) }
    }
}

/// The keys that were answered.
fn found(answer: &TxnResponse) -> Vec<String> {
    let responses = answer.op_responses().into_iter();
    let found = responses
        .filter_map(|response| if let TxnOpResponse::Get(found) = response { Some(found) } else { None });
    found
        .flat_map(|found| {
            found.kvs().iter().map(|kv| String::from_utf8_lossy(kv.key()).into_owned()).collect::<Vec<_>>()
        })
        .collect()
}

async fn watch_inbox(client: &Client, inbox: String) -> Result<(watch::Receiver<i64>, JoinSet<()>), Failure> {
    let mut watching = client.watch_client().watch(inbox, None).await?;
    let (told, last) = watch::channel(0);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        while let Ok(Some(news)) = watching.message().await {
            if let Some(kv) = news.events().last().and_then(etcd_client::Event::kv) {
                told.send_replace(kv.mod_revision());
            }
        }
    });
    Ok((last, tasks))
}

/// Longer than a comparison, as a floor renews nothing.
const LEASE_SECONDS: i64 = 3600;
