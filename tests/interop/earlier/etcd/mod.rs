//! etcd: the earlier version's keys and messages, as they were.

use std::time::Duration;

use etcd_client::{
    Client, Compare, CompareOp, ConnectOptions, GetOptions, PutOptions, SortOrder, SortTarget,
};
use etcd_client::{Txn, TxnOp, TxnResponse, WatchOptions, WatchStream};
use leasehold::{Lock, LostReason, Revocation, Revoke};
use libtest_mimic::Trial;
use testbed::etcd::Etcd;
use testbed::{BOUND, Beside, eventually, trial, within};

use crate::ours::{LONG, manager, open, options, take};
use crate::played::{NAME, Process, Store};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("etcd::a_holder_that_knows_no_grace_is_forced_out", a_holder_that_knows_no_grace_is_forced_out),
        trial(
            "etcd::a_holder_is_forced_out_by_one_that_knows_no_grace",
            a_holder_is_forced_out_by_one_that_knows_no_grace,
        ),
        trial("etcd::sharers_and_it_wait_for_each_other", sharers_and_it_wait_for_each_other),
    ]
}

/// What a contender's key held.
const RECORD: &str = include_str!("contender");

const PREFIX: &str = "billing";

/// A server with the user and the role of the documents.
pub(crate) struct Keys {
    server: Etcd,
    client: Client,
}

impl Store for Keys {
    const NAME: &str = "etcd";
    const TTL: Duration = Duration::from_secs(3);
    const ORDERED: bool = true;
    const LABEL: &str = "an earlier process%";
    const METADATA: Option<&str> = Some("build 7\nof 9");
    type Process = Earlier;

    async fn start() -> Self {
        let mut server = Etcd::start().await.unwrap();
        server.enable_auth("billing", "secret", "billing/").await.unwrap();
        let options = ConnectOptions::new().with_user("billing", "secret");
        let client = Client::connect(server.endpoints(), Some(options)).await.unwrap();
        Self { server, client }
    }

    fn url(&self, options: &str) -> String {
        format!("etcd://billing:secret@{}/{PREFIX}?{options}", self.server.addr(0))
    }

    async fn process(&self, ttl: Duration) -> Earlier {
        Earlier::new(self.client.clone(), ttl).await
    }

    async fn messages(&self) -> usize {
        let options = GetOptions::new().with_prefix();
        let answer = self.client.kv_client().get(format!("{PREFIX}/%session/"), Some(options)).await.unwrap();
        let slashes = |key: &str| key.matches('/').count();
        answer.kvs().iter().filter(|kv| slashes(kv.key_str().unwrap()) == 3).count()
    }
}

/// A session, with a contender.
pub(crate) struct Earlier {
    client: Client,
    lease: i64,
    session: String,
    own: String,
    create: i64,
    inbox: WatchStream,
}

impl Earlier {
    async fn new(client: Client, ttl: Duration) -> Self {
        let ttl = ttl.as_secs().cast_signed();
        let lease = client.lease_client().grant(ttl, None).await.unwrap().id();
        let session = format!("{PREFIX}/%session/{lease:x}");
        let range = WatchOptions::new().with_range(format!("{session}0")).with_prev_key();
        let mut inbox = client.watch_client().watch(session.clone(), Some(range)).await.unwrap();
        assert!(inbox.message().await.unwrap().unwrap().created());
        let on_lease = PutOptions::new().with_lease(lease);
        client.kv_client().put(session.clone(), "", Some(on_lease)).await.unwrap();
        Self { client, lease, own: format!("{PREFIX}/{NAME}/{lease:x}"), session, create: 0, inbox }
    }

    async fn txn(&self, txn: Txn) -> TxnResponse {
        self.client.kv_client().txn(txn).await.unwrap()
    }

    /// The keys of the queue, the oldest first: key, revision, lease and record.
    async fn queue(&self) -> Vec<(String, i64, i64, String)> {
        let first = GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Ascend);
        let answer = self.client.kv_client().get(format!("{PREFIX}/{NAME}/"), Some(first)).await.unwrap();
        let text = |text: Result<&str, etcd_client::Error>| text.unwrap().to_owned();
        let keys = answer.kvs().iter();
        keys.map(|kv| (text(kv.key_str()), kv.create_revision(), kv.lease(), text(kv.value_str()))).collect()
    }

    /// Whether no key of the queue is older.
    async fn is_first(&self) -> bool {
        let queue = self.queue().await;
        assert!(queue.iter().any(|(key, created, ..)| *key == self.own && *created == self.create));
        queue.iter().all(|(_, created, ..)| *created >= self.create)
    }

    /// Whether its key was there to be deleted.
    async fn releases(&self) -> bool {
        let same = Compare::create_revision(self.own.clone(), CompareOp::Equal, self.create);
        let delete = TxnOp::delete(self.own.clone(), None);
        self.txn(Txn::new().when([same]).and_then([delete])).await.succeeded()
    }

    /// The message with which it asks the holder, and the holder.
    async fn ask(&self, force: bool) -> (String, i64) {
        let (key, create, lease, record) = self.queue().await.remove(0);
        assert!(is_a_record(&record), "{record:?}");
        if force {
            let same = Compare::create_revision(key.as_str(), CompareOp::Equal, create);
            self.txn(Txn::new().when([same]).and_then([TxnOp::delete(key, None)])).await;
        }
        let inbox = format!("{PREFIX}/%session/{lease:x}/{create:x}");
        let put = TxnOp::put(inbox.clone(), "", Some(PutOptions::new().with_lease(lease)));
        self.txn(Txn::new().and_then([put])).await;
        (inbox, create)
    }
}

/// Whether the earlier version takes it for one of its kind: others it did not ask.
fn is_a_record(value: &str) -> bool {
    let lines: Vec<_> = value.split('\n').collect();
    let hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    matches!(lines.as_slice(), ["leasehold 1", owner, ttl, _label] | ["leasehold 1", owner, ttl, _label, _]
        if owner.len() == 32 && owner.chars().all(hex) && ttl.parse::<u64>().is_ok())
}

impl Process for Earlier {
    async fn enters(&mut self) -> Option<u64> {
        let absent = Compare::create_revision(self.own.clone(), CompareOp::Equal, 0);
        let put = TxnOp::put(self.own.clone(), RECORD, Some(PutOptions::new().with_lease(self.lease)));
        let answer = self.txn(Txn::new().when([absent]).and_then([put])).await;
        assert!(answer.succeeded());
        self.create = answer.header().unwrap().revision();
        self.is_first().await.then_some(self.create.cast_unsigned())
    }

    async fn is_next(&mut self) -> u64 {
        eventually("it is first", async || self.is_first().await).await;
        self.create.cast_unsigned()
    }

    async fn leaves(&mut self) {
        assert!(self.releases().await);
    }

    async fn sees_a_holder(&mut self) -> bool {
        !self.is_first().await
    }

    /// By the key alone, whatever its value is.
    async fn is_asked(&mut self) {
        let inbox = format!("{}/", self.session);
        loop {
            let message = within(BOUND, "it is asked", self.inbox.message()).await.unwrap().unwrap();
            for event in message.events() {
                let kv = event.kv().unwrap();
                if let Some(create) = kv.key_str().unwrap().strip_prefix(&inbox)
                    && kv.version() != 0
                {
                    return assert_eq!(i64::from_str_radix(create, 16).unwrap(), self.create);
                }
            }
        }
    }

    async fn asks(&mut self) -> Option<u64> {
        Some(self.ask(false).await.1.cast_unsigned())
    }

    /// What it was asked stays until then, as it never takes that back.
    async fn ends(self) {
        self.client.lease_client().revoke(self.lease).await.unwrap();
    }
}

/// Its entry goes at once, and it is told.
async fn a_holder_that_knows_no_grace_is_forced_out() {
    let store = Keys::start().await;
    let locks = manager(&store).await;
    let mut theirs = store.process(LONG).await;
    theirs.enters().await.expect("it is free");
    assert_eq!(locks.revoke(NAME, Revoke::Force).await.unwrap(), Revocation::Released);
    theirs.is_asked().await;
    assert!(!theirs.releases().await);
}

/// The message that comes after the deletion is about nobody any more, and goes with a renewal.
async fn a_holder_is_forced_out_by_one_that_knows_no_grace() {
    let store = Keys::start().await;
    let locks = open(&store.url(&options(3 * Keys::TTL))).await;
    let theirs = store.process(LONG).await;
    let guard = take(&locks).await;
    let (message, _) = theirs.ask(true).await;
    assert_eq!(within(BOUND, "it is lost", guard.lost()).await, LostReason::Revoked);
    take(&locks).await.release().await.unwrap();
    let is_gone =
        async || store.client.kv_client().get(message.as_str(), None).await.unwrap().kvs().is_empty();
    eventually("the message goes", is_gone).await;
}

/// It takes every key below the name for one to wait for, and is waited for by all: who shares does so before it
/// and after it.
async fn sharers_and_it_wait_for_each_other() {
    let store = Keys::start().await;
    let managers = [manager(&store).await, manager(&store).await, manager(&store).await];
    let [one, other, behind] = [0, 1, 2].map(|which| {
        let lock = managers[which].lock(NAME).unwrap().handoff_limit(0);
        [lock.clone().shared(), lock.permits(1, 3)]
    });
    for mode in [0, 1] {
        let take = async |lock: &Lock| lock.clone().wait(BOUND).acquire().await.unwrap();
        let (mut theirs, mut last) = (store.process(LONG).await, store.process(LONG).await);
        let (first, second) = (take(&one[mode]).await, take(&other[mode]).await);
        assert_eq!(theirs.enters().await, None, "beside two who share");
        assert!(theirs.sees_a_holder().await);
        let lock = behind[mode].clone();
        let waiting = Beside::start(async move { lock.acquire().await.unwrap() });
        let contenders = async || managers[0].inspect(NAME).await.unwrap().contenders;
        eventually("it is in the queue", async || contenders().await == 2).await;
        assert!(one[mode].try_acquire().await.unwrap().is_none(), "past one that waits");

        second.release().await.unwrap();
        assert!(!theirs.is_first().await && !waiting.is_finished());
        let token = first.token().counter();
        first.release().await.unwrap();
        let next = theirs.is_next().await;
        assert!(token < next && !waiting.is_finished());
        assert_eq!(last.enters().await, None);
        theirs.leaves().await;
        let guard = waiting.end("we hold after it").await;
        assert!(next < guard.token().counter());
        assert!(!last.is_first().await);
        guard.release().await.unwrap();
        last.is_next().await;
        last.leaves().await;
    }
}
