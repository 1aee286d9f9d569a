//! Keys of ours that an administrator deletes or writes, and keys of foreign clients.

use std::time::Duration;

use etcd_client::{LeaseGrantOptions, PutOptions};
use leasehold_core::LostReason;
use leasehold_etcd::EtcdConfig;

use crate::fixture::{
    BOUND, Fixture, PREFIX, TTL, eventually, hold, hold_aside, open_with_ttl, trials, within,
};

trials![
    a_waiter_far_behind_whose_key_was_deleted_queues_again,
    a_deleted_key_that_is_watched_is_noticed_at_once,
    another_cluster_with_the_same_keys_ends_the_session,
    an_entry_of_an_earlier_acquisition_is_not_adopted,
    long_values_of_others_are_listed,
];

/// Renewed once in a third of it.
const PATIENT: Duration = TTL.saturating_mul(10);

/// Behind so many its watch is on the past, and no watch reports the end of its own entry: it reads that.
async fn a_waiter_far_behind_whose_key_was_deleted_queues_again() {
    const OTHERS: usize = 70;
    let fixture = Fixture::start().await;
    for other in 0..OTHERS {
        fixture.store.client.kv_client().put(format!("{PREFIX}/n/{other}"), "", None).await.unwrap();
    }
    let manager = fixture.manager().await;
    let waiting = hold_aside(&manager, "n");
    fixture.store.queued("n", OTHERS + 1).await;
    let lost = fixture.store.queue("n").await.remove(OTHERS);

    fixture.store.delete(&lost.key).await;
    fixture.store.queued("n", OTHERS + 1).await;
    fixture.store.delete_all(&format!("{PREFIX}/n/")).await;
    drop(waiting);
}

/// Once a lock has been held for a while its key is watched, so the deletion is noticed without a renewal, and so is that of
/// the key of the session.
async fn a_deleted_key_that_is_watched_is_noticed_at_once() {
    let fixture = Fixture::start().await;
    let manager = open_with_ttl(fixture.config(), PATIENT).await.unwrap();
    let watches = async || fixture.etcd.requests().await.unwrap().of("Watch");
    let before = watches().await;
    let guard = hold(&manager, "n").await;
    eventually("its key is watched", async || watches().await > before).await;
    fixture.quiet().await;

    fixture.store.delete(&fixture.store.queue("n").await[0].key).await;
    assert_eq!(within(PATIENT / 4, "it is lost", guard.lost()).await, LostReason::Gone);

    // The session whose key is deleted ends its lease: the next one does not wait for its expiry.
    let (guard, other) = (hold(&manager, "n").await, fixture.manager().await);
    let next = hold_aside(&other, "n");
    fixture.store.queued("n", 2).await;
    let lease = fixture.store.queue("n").await[0].lease;
    fixture.store.delete(&format!("{PREFIX}/%session/{lease:x}")).await;
    assert_eq!(within(PATIENT / 2, "it is lost", guard.lost()).await, LostReason::SessionLost);
    let _next = within(PATIENT / 2, "the next one holds", next.end("it holds")).await;
}

/// The lease and the keys of a restored cluster are no hold: other clients may have held the lock since its backup.
async fn another_cluster_with_the_same_keys_ends_the_session() {
    let (fixture, restored) = (Fixture::start().await, Fixture::start().await);
    let (here, there) = (fixture.proxy(0), restored.proxy(0));
    there.refuse_new().await.unwrap();
    let endpoints = [here.addr(), there.addr()].map(|addr| addr.to_string());
    let manager = open_with_ttl(EtcdConfig::new(endpoints).prefix(PREFIX), PATIENT).await.unwrap();
    let guard = hold(&manager, "n").await;
    let keys = fixture.store.keys(PREFIX).await;
    let same = LeaseGrantOptions::new().with_id(keys[0].lease);
    restored.store.client.lease_client().grant(60, Some(same)).await.unwrap();
    for key in &keys {
        let on_lease = PutOptions::new().with_lease(key.lease);
        restored.store.client.kv_client().put(&*key.key, "", Some(on_lease)).await.unwrap();
    }
    assert_eq!(restored.store.keys(PREFIX).await, keys);

    there.accept_new().await.unwrap();
    here.refuse_new().await.unwrap();
    here.reset().await;
    assert_eq!(within(PATIENT / 2, "it is lost", guard.lost()).await, LostReason::SessionLost);
}

/// An entry under our own key that differs in the owner only is deleted, and is no grant (etcd.protocol-2): its token was
/// used before.
async fn an_entry_of_an_earlier_acquisition_is_not_adopted() {
    let fixture = Fixture::start().await;
    let manager = fixture.manager().await;
    let guard = hold(&manager, "n").await;
    let entry = fixture.store.queue("n").await.remove(0);
    let mut kv = fixture.store.client.kv_client();
    let record = kv.get(entry.key.as_str(), None).await.unwrap().kvs()[0].value().to_vec();
    guard.release().await.unwrap();
    let on_lease = PutOptions::new().with_lease(entry.lease);
    kv.put(entry.key.as_str(), record, Some(on_lease)).await.unwrap();
    let left = fixture.store.queue("n").await.remove(0);

    let guard = hold(&manager, "n").await;
    let ours = fixture.store.queue("n").await.remove(0);
    assert_eq!((ours.key, ours.lease), (left.key, left.lease));
    assert!(left.created < ours.created, "{} is held as {}", left.created, guard.token());
}

async fn long_values_of_others_are_listed() {
    const NAMES: usize = 6;
    let fixture = Fixture::start().await;
    // Six megabytes are slow beside all other tests, and a third of the lease is the bound of a request.
    let manager = open_with_ttl(fixture.config(), 2 * BOUND).await.unwrap();
    for index in 0..NAMES {
        let key = format!("{PREFIX}/long{index}/1");
        fixture.store.client.kv_client().put(key, vec![b'x'; 1_000_000], None).await.unwrap();
    }
    let listed = within(BOUND, "an answer", manager.list("long")).await.unwrap();
    assert_eq!(listed.len(), NAMES);
}
