//! Peers that answer without end in the place of a server: without encryption, any machine on the way can be one.

use leasehold_core::{ErrorKind, LockManager};
use leasehold_redis::RedisConfig;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use crate::fixture::{
    BOUND, Beside, TTL, Waiter, command, direct, eventually, hold, ok, open_for, server, trials,
};

trials![
    a_long_string_is_not_kept = || is_refused("$900000000\r\n", "x", "the reply is longer than 16 MiB"),
    a_negative_length_is_not_kept = || is_refused("!-1\r\n", "x", "a negative length"),
    a_message_that_is_too_long_costs_a_connection,
];

/// What begins with `head` and goes on with `again` is refused soon, and with it the peer.
async fn is_refused(head: &'static str, again: &str, why: &str) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = RedisConfig::new("127.0.0.1", listener.local_addr().unwrap().port());
    let again = again.repeat(1 << 14);
    let peer = Beside::start(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut sent = 0;
        while sent < MANY && stream.write_all(again.as_bytes()).await.is_ok() {
            sent += again.len();
        }
        sent
    });
    let refused = LockManager::builder(config).connect_timeout(BOUND).build().await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Unavailable, "{refused}");
    assert!(format!("{refused:#}").contains(why), "{refused:#}");
    let sent = peer.end("it is cut off").await;
    assert!(sent < MANY, "{sent} bytes");
}

/// And no lock: the next connection serves those that are held and waited for.
async fn a_message_that_is_too_long_costs_a_connection() {
    let server = server().await;
    let (a, b) = (open_for(direct(&server), 5 * TTL).await, open_for(direct(&server), 5 * TTL).await);
    let guard = hold(&a).await;
    let waiting = Waiter::queued(&b, 0, &a).await;
    ok(&server, &["CONFIG", "RESETSTAT"]).await;
    let long = "x".repeat(20 << 20);
    for inbox in command(&server, &["PUBSUB", "CHANNELS"]).await.elements() {
        command(&server, &["PUBLISH", &inbox.text().unwrap(), &long]).await;
    }
    let again = async || server.calls().await.unwrap().get("hello").is_some_and(|hellos| *hellos >= 2);
    eventually("both have come again", again).await;
    guard.renew().await.unwrap();
    guard.release().await.unwrap();
    waiting.held().await.release().await.unwrap();
}

/// More than is kept, and than is on the way.
const MANY: usize = 96 << 20;
