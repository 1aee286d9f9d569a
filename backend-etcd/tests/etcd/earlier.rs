//! Processes of an earlier version on the same keys, which knew no grace: as a contender, as one that is asked
//! and as one that asks. What they write and how they read it is written down here, as it was.

use etcd_client::{Compare, CompareOp, GetOptions, PutOptions, SortOrder, SortTarget, Txn, TxnOp};
use etcd_client::{WatchOptions, WatchStream};
use leasehold_core::backend::Revocation;
use leasehold_core::{LostReason, Revoke};

use crate::rig::{BOUND, Beside, PREFIX, Rig, TTL, eventually, hold, hold_aside, trials, until, within};

trials![
    each_waits_for_the_other_in_turn,
    a_holder_that_knows_no_grace_is_asked,
    a_holder_that_knows_no_grace_is_forced_out,
    a_holder_is_asked_by_one_that_knows_no_grace,
    a_holder_is_forced_out_by_one_that_knows_no_grace,
];

/// What a contender's key held.
const RECORD: &str = include_str!("../../../tests/interop/earlier/etcd/contender");

/// A session of the earlier version, with a contender of `n`. Its lease outlasts the test.
pub(crate) struct Earlier<'a> {
    rig: &'a Rig,
    pub(crate) lease: i64,
    session: String,
    own: String,
    create: i64,
    inbox: WatchStream,
}

impl<'a> Earlier<'a> {
    pub(crate) async fn new(rig: &'a Rig) -> Self {
        let client = &rig.store.client;
        let lease = client.lease_client().grant(300, None).await.unwrap().id();
        let session = format!("{PREFIX}/%session/{lease:x}");
        let range = WatchOptions::new().with_range(format!("{session}0")).with_prev_key();
        let mut inbox = client.watch_client().watch(session.clone(), Some(range)).await.unwrap();
        assert!(inbox.message().await.unwrap().unwrap().created());
        let on_lease = PutOptions::new().with_lease(lease);
        client.kv_client().put(session.clone(), "", Some(on_lease)).await.unwrap();
        Self { rig, lease, own: format!("{PREFIX}/n/{lease:x}"), session, create: 0, inbox }
    }

    async fn txn(&self, txn: Txn) -> etcd_client::TxnResponse {
        self.rig.store.client.kv_client().txn(txn).await.unwrap()
    }

    /// Queues; whether it is the first.
    pub(crate) async fn acquires(&mut self) -> bool {
        let absent = Compare::create_revision(self.own.clone(), CompareOp::Equal, 0);
        let put = TxnOp::put(self.own.clone(), RECORD, Some(PutOptions::new().with_lease(self.lease)));
        let answer = self.txn(Txn::new().when([absent]).and_then([put])).await;
        assert!(answer.succeeded());
        self.create = answer.header().unwrap().revision();
        self.is_first().await
    }

    /// Whether no key of the queue is older.
    async fn is_first(&self) -> bool {
        let queue = self.rig.store.queue("n").await;
        assert!(queue.iter().any(|key| key.key == self.own && key.created == self.create));
        queue.iter().all(|key| key.created >= self.create)
    }

    /// Whether its key was there to be deleted.
    async fn releases(&self) -> bool {
        let same = Compare::create_revision(self.own.clone(), CompareOp::Equal, self.create);
        let delete = TxnOp::delete(self.own.clone(), None);
        self.txn(Txn::new().when([same]).and_then([delete])).await.succeeded()
    }

    /// The entry that it is asked to give up: what the key says, whatever its value is.
    async fn is_asked(&mut self) -> i64 {
        let inbox = format!("{}/", self.session);
        loop {
            let message = within(BOUND, "it is asked", self.inbox.message()).await.unwrap().unwrap();
            for event in message.events() {
                let kv = event.kv().unwrap();
                if let Some(create) = kv.key_str().unwrap().strip_prefix(&inbox)
                    && kv.version() != 0
                {
                    return i64::from_str_radix(create, 16).unwrap();
                }
            }
        }
    }

    async fn inbox(&self) -> usize {
        self.rig.store.keys(&format!("{}/", self.session)).await.len()
    }

    /// The message with which it asks the holder, and what is asked for.
    async fn asks(&self, force: bool) -> String {
        let first =
            GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Ascend).with_limit(1);
        let answer = self.rig.store.client.kv_client().get(format!("{PREFIX}/n/"), Some(first)).await;
        let holder = answer.unwrap().take_kvs().remove(0);
        assert!(is_a_record(holder.value_str().unwrap()), "{holder:?}");
        let (lease, create) = (holder.lease(), holder.create_revision());
        if force {
            let same = Compare::create_revision(holder.key(), CompareOp::Equal, create);
            self.txn(Txn::new().when([same]).and_then([TxnOp::delete(holder.key(), None)])).await;
        }
        let inbox = format!("{PREFIX}/%session/{lease:x}/{create:x}");
        let put = TxnOp::put(inbox.clone(), "", Some(PutOptions::new().with_lease(lease)));
        self.txn(Txn::new().and_then([put])).await;
        inbox
    }
}

/// Whether the earlier version takes it for one of its kind: others it did not ask.
fn is_a_record(value: &str) -> bool {
    let lines: Vec<_> = value.split('\n').collect();
    let hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    matches!(lines.as_slice(), ["leasehold 1", owner, ttl, _label] | ["leasehold 1", owner, ttl, _label, _]
        if owner.len() == 32 && owner.chars().all(hex) && ttl.parse::<u64>().is_ok())
}

/// Exclusion and order of arrival, both ways; tokens grow.
async fn each_waits_for_the_other_in_turn() {
    let rig = Rig::start().await;
    let manager = rig.manager().await;
    let (mut one, mut other) = (Earlier::new(&rig).await, Earlier::new(&rig).await);
    assert!(one.acquires().await);
    assert!(manager.lock("n").unwrap().try_acquire().await.unwrap().is_none());
    let shown = manager.inspect("n").await.unwrap().holder.unwrap();
    assert_eq!((&*shown.label, shown.metadata.as_deref()), ("an earlier process%", Some("build 7\nof 9")));

    let ours = hold_aside(&manager, "n");
    rig.store.queued("n", 2).await;
    assert!(!other.acquires().await);
    assert!(one.releases().await);
    let guard = ours.end("we hold after it").await;
    let counter = guard.token().counter();
    assert!(one.create.cast_unsigned() < counter && !other.is_first().await);
    guard.release().await.unwrap();
    assert!(other.is_first().await && counter < other.create.cast_unsigned());
    assert!(manager.lock("n").unwrap().try_acquire().await.unwrap().is_none());
    assert!(other.releases().await);
    hold(&manager, "n").await.release().await.unwrap();
}

/// It hears, and gives up at once. What asked it stays until its lease ends, as it never took that back.
async fn a_holder_that_knows_no_grace_is_asked() {
    let rig = Rig::start().await;
    let manager = rig.manager().await;
    for how in [Revoke::AT_ONCE, Revoke::Ask { grace: 4 * TTL }] {
        let mut theirs = Earlier::new(&rig).await;
        assert!(theirs.acquires().await);
        let admin = manager.clone();
        let revoked = Beside::start(async move { admin.revoke("n", how).await.unwrap() });
        assert_eq!(theirs.is_asked().await, theirs.create, "{how:?}");
        assert!(theirs.releases().await);
        assert_eq!(revoked.end("it has answered").await, Revocation::Released);
        hold(&manager, "n").await.release().await.unwrap();
        assert_eq!(theirs.inbox().await, 1);
        rig.store.revoke(theirs.lease).await;
        assert_eq!(theirs.inbox().await, 0);
    }
}

/// Its entry goes at once, and it is told.
async fn a_holder_that_knows_no_grace_is_forced_out() {
    let rig = Rig::start().await;
    let manager = rig.manager().await;
    let mut theirs = Earlier::new(&rig).await;
    assert!(theirs.acquires().await);
    assert_eq!(manager.revoke("n", Revoke::Force).await.unwrap(), Revocation::Released);
    assert_eq!(theirs.is_asked().await, theirs.create);
    assert!(!theirs.releases().await);
}

/// Its message is one without a grace, and goes with the hold.
async fn a_holder_is_asked_by_one_that_knows_no_grace() {
    let rig = Rig::start().await;
    let (manager, theirs) = (rig.manager().await, Earlier::new(&rig).await);
    let guard = hold(&manager, "n").await;
    let message = theirs.asks(false).await;
    assert_eq!(within(BOUND, "it is lost", guard.lost()).await, LostReason::Revoked);
    eventually("it is released", async || rig.store.queue("n").await.is_empty()).await;
    assert_eq!(rig.store.keys(&message).await, []);
    hold(&manager, "n").await.release().await.unwrap();
}

/// The message that comes after the deletion is about nobody any more, and goes with a renewal.
async fn a_holder_is_forced_out_by_one_that_knows_no_grace() {
    let rig = Rig::start().await;
    let (manager, theirs) = (rig.manager().await, Earlier::new(&rig).await);
    let guard = hold(&manager, "n").await;
    let message = theirs.asks(true).await;
    assert_eq!(within(BOUND, "it is lost", guard.lost()).await, LostReason::Revoked);
    hold(&manager, "n").await.release().await.unwrap();
    let gone = until(async || rig.store.keys(&message).await.is_empty());
    within(TTL, "the message goes", gone).await;
}
