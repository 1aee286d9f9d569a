//! Without holders and waiters, every key on the server ends by itself.

use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use leasehold_core::{LockManager, Revoke};
use libtest_mimic::Trial;
use testbed::redis::{Reply, Server};

use crate::fixture::{
    BOUND, LONG, NAME, TTL, Waiter, command, direct, hold, ok, open, open_for, server, trial, trial_within,
};
use crate::revocation::{Asking, GRACE, is_asked};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial_within(
            BOUND + names() * Duration::from_millis(1),
            "litter::names_that_were_used_leave_only_what_expires",
            names_that_were_used_leave_only_what_expires,
        ),
        trial(
            "litter::after_every_kind_of_end_only_counters_are_left",
            after_every_kind_of_end_only_counters_are_left,
        ),
    ]
}

fn names() -> u32 {
    testbed::Depth::of_run().pick(10_000, 20_000, 1_000_000)
}

/// Every key that is left has an expiry, at most a day and a little away; and the next token of a name
/// is larger, also when everything was deleted.
async fn names_that_were_used_leave_only_what_expires() {
    let server = server().await;
    let locks = open_for(direct(&server), LONG).await;
    let last = cycle(&locks, 0).await;
    stream::iter(0..names())
        .for_each_concurrent(256, async |index| {
            cycle(&locks, index).await;
        })
        .await;
    assert_all_expire(&server, names()).await;
    ok(&server, &["FLUSHALL"]).await;
    assert!(cycle(&locks, 0).await > last);
}

async fn cycle(locks: &LockManager, index: u32) -> leasehold_core::FencingToken {
    let guard = locks.lock(format!("name/{index}")).unwrap().acquire().await.unwrap();
    let token = guard.token();
    guard.release().await.unwrap();
    token
}

/// The server counts keys and keys with an expiry; a sample of them says how far away that is.
async fn assert_all_expire(server: &Server, at_most: u32) {
    const DAY_AND_A_LITTLE: i64 = 86_400_000 + 1_060_000;
    let keyspace = server.info("keyspace").await.unwrap();
    let counted = |field: &str| -> u32 {
        let pairs = keyspace["db0"].split(',').filter_map(|pair| pair.split_once('='));
        pairs.into_iter().find(|(name, _)| *name == field).unwrap().1.parse().unwrap()
    };
    assert_eq!(counted("keys"), counted("expires"));
    assert!(counted("keys") <= at_most, "{} keys of {at_most} names", counted("keys"));
    for _ in 0..100 {
        let key = command(server, &["RANDOMKEY"]).await.text().unwrap();
        let Reply::Integer(left) = command(server, &["PTTL", &key]).await else { panic!("no number") };
        assert!((0..=DAY_AND_A_LITTLE).contains(&left), "{key} for {left} ms");
    }
}

/// Released, handed on, abandoned in the queue, dropped, revoked, refused, shut down: what stays is one
/// counter per name.
async fn after_every_kind_of_end_only_counters_are_left() {
    let server = server().await;
    let (a, b, c) = (open(direct(&server)).await, open(direct(&server)).await, open(direct(&server)).await);
    let guard = hold(&a).await;
    let waiting = Waiter::queued(&b, 0, &a).await;
    drop(Waiter::queued(&c, 1, &a).await);
    assert!(c.lock("tried").unwrap().try_acquire().await.unwrap().is_some());
    assert!(c.lock(NAME).unwrap().try_acquire().await.unwrap().is_none());
    c.lock(NAME).unwrap().wait(TTL / 8).acquire().await.unwrap_err();
    guard.release().await.unwrap();
    drop(waiting.held().await);
    let revoked = hold(&a).await;
    c.revoke(NAME, Revoke::AT_ONCE).await.unwrap();
    let forced = hold(&b).await;
    c.revoke(NAME, Revoke::Force).await.unwrap();
    drop((revoked, forced));
    let finishing = hold(&a).await;
    let asked = Asking::start(&c, GRACE);
    is_asked(&finishing).await;
    finishing.release().await.unwrap();
    asked.answered().await;
    let _held = hold(&c).await;
    for locks in [a, b, c] {
        locks.shutdown().await.unwrap();
    }
    let mut keys = command(&server, &["KEYS", "*"]).await.elements();
    keys.sort_by_key(Reply::text);
    let left: Vec<_> = keys.iter().filter_map(Reply::text).collect();
    assert_eq!(left, ["leasehold:{invoice/42}:n", "leasehold:{tried}:n"]);
    assert_all_expire(&server, 2).await;
}
