//! Requests to release: messages that come early or late, and the number of requests.

use std::time::Duration;

use etcd_client::PutOptions;
use leasehold_core::backend::Revocation;
use leasehold_core::{LockManager, LostReason, Revoke};

use crate::fixture::{
    BOUND, Beside, EARLY, Fixture, Key, PREFIX, TTL, eventually, hold, hold_aside, now, trials, until,
    within, without_renewals,
};

trials![revocation_before_the_grant_arrives_with_it, a_message_about_nobody_goes, requests_of_a_revocation,];

const GRACE: Duration = EARLY.saturating_mul(2);

fn inbox(entry: &Key) -> String {
    format!("{PREFIX}/%session/{:x}/{:x}", entry.lease, entry.created)
}

/// A message with that grace in the inbox of an entry's session.
async fn ask(fixture: &Fixture, entry: &Key, message: &str) {
    let on_lease = PutOptions::new().with_lease(entry.lease);
    fixture.store.client.kv_client().put(inbox(entry), message, Some(on_lease)).await.unwrap();
}

fn revoke_aside(admin: &LockManager, name: &'static str, grace: Duration) -> Beside<Revocation> {
    let admin = admin.clone();
    Beside::start(async move { admin.revoke(name, Revoke::Ask { grace }).await.unwrap() })
}

/// The grace counts from when the request was received, before the hold began; without one the grant is lost at once.
async fn revocation_before_the_grant_arrives_with_it() {
    let fixture = Fixture::start().await;
    let (holder, waiter) = (fixture.manager().await, fixture.manager().await);
    let asked_of_a_waiter = async |message: &str| {
        let guard = hold(&holder, "n").await;
        let next = hold_aside(&waiter, "n");
        fixture.store.queued("n", 2).await;
        let entry = fixture.store.queue("n").await.remove(1);
        ask(&fixture, &entry, message).await;
        (guard, next, inbox(&entry))
    };
    let (guard, next, inbox) = asked_of_a_waiter("").await;
    guard.release().await.unwrap();
    let next = next.end("it is granted").await;
    assert_eq!(within(BOUND, "it is lost", next.lost()).await, LostReason::Revoked);
    eventually("its key is deleted", async || fixture.store.queue("n").await.is_empty()).await;
    assert_eq!(fixture.store.keys(&inbox).await, []);

    let (guard, next, inbox) = asked_of_a_waiter(&GRACE.as_millis().to_string()).await;
    let asked_at = now();

    tokio::time::sleep(TTL).await; // This part of the grace is over when it holds.
    guard.release().await.unwrap();
    let next = next.end("it is granted").await;
    let until = within(BOUND, "it is asked", next.revocation_requested()).await.expect("it holds");
    let left = until.remaining(asked_at);
    assert!(left < GRACE + TTL, "{left:?} from the message, of {GRACE:?}");
    next.ensure_held().unwrap();
    next.release().await.unwrap();
    assert_eq!(fixture.store.keys(&inbox).await, []);
}

/// A message that crosses a release is about a deleted entry: its session deletes it. One about an entry that waits
/// stays.
async fn a_message_about_nobody_goes() {
    let fixture = Fixture::start().await;
    let (one, other) = (fixture.manager().await, fixture.manager().await);
    let guard = hold(&one, "n").await;
    let next = hold_aside(&other, "n");
    fixture.store.queued("n", 2).await;
    let bystander = hold(&other, "m").await;
    let released = fixture.store.queue("m").await.remove(0);
    bystander.release().await.unwrap();
    let waits = fixture.store.queue("n").await.remove(1);

    ask(&fixture, &waits, "60000").await;
    ask(&fixture, &released, "60000").await;
    let gone = until(async || fixture.store.keys(&inbox(&released)).await.is_empty());
    within(BOUND, "the message goes", gone).await;
    assert_eq!(fixture.store.keys(&inbox(&waits)).await.len(), 1);
    guard.release().await.unwrap();
    let next = next.end("it is granted").await;
    within(BOUND, "it is asked", next.revocation_requested()).await.expect("it holds");
    next.release().await.unwrap();
    assert_eq!(fixture.store.keys(&inbox(&waits)).await, []);
}

/// A contender of "n" without a process.
async fn holds_deaf(fixture: &Fixture) {
    let lease = fixture.store.client.lease_client().grant(300, None).await.unwrap().id();
    let on_lease = PutOptions::new().with_lease(lease);
    let record = format!("leasehold 1\n{lease:032x}\n300000\ndeaf");
    fixture
        .store
        .client
        .kv_client()
        .put(format!("{PREFIX}/n/{lease:x}"), record, Some(on_lease))
        .await
        .unwrap();
}

/// A request is a read and a write, whatever the grace, and the release after it costs no more than without; force is a
/// read and two writes.
async fn requests_of_a_revocation() {
    let fixture = Fixture::start().await;
    let (holder, admin) = (fixture.patient().await, fixture.patient().await);
    let guard = hold(&holder, "n").await;
    fixture.quiet().await;
    let before = fixture.etcd.requests().await.unwrap();
    let revoked = revoke_aside(&admin, "n", GRACE);
    within(BOUND, "it is asked", guard.revocation_requested()).await.expect("it holds");
    guard.release().await.unwrap();
    assert_eq!(revoked.end("it is released").await, Revocation::Released);
    let made = fixture.etcd.requests().await.unwrap() - &before;
    // The other requests read whether it is still held.
    assert_eq!((made.of("Txn"), without_renewals(&made)), (2, made.of("Range") + 2), "{made}");

    holds_deaf(&fixture).await;
    fixture.quiet().await;
    let before = fixture.etcd.requests().await.unwrap();
    assert_eq!(admin.revoke("n", Revoke::Force).await.unwrap(), Revocation::Released);
    let made = fixture.etcd.requests().await.unwrap() - &before;
    assert_eq!((made.of("Range"), made.of("Txn"), without_renewals(&made)), (1, 2, 3), "{made}");
}
