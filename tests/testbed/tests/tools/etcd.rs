//! Real etcd servers: start, leader, counts, TLS, users, quota.

use std::sync::Arc;

use testbed::Certificates;
use testbed::etcd::{Etcd, Setup, current};

/// testbed.etcd-1, and that a request is counted once.
#[tokio::test]
async fn a_started_server_answers_and_counts() {
    let etcd = Etcd::start().await.unwrap();
    let before = etcd.requests().await.unwrap();
    etcd.ctl(["put", "a/b", "c"]).await.unwrap();

    let made = etcd.requests().await.unwrap() - &before;
    assert_eq!((made.of("Put"), made.total()), (1, 1), "{made}");
    assert_eq!(etcd.keys("a/").await.unwrap(), ["a/b"]);
}

/// testbed.etcd-2: down, others take over; up again, at the same place.
#[tokio::test]
async fn a_cluster_outlives_its_leader() {
    let mut etcd = Setup::new().members(3).start().await.unwrap();
    let first = etcd.leader().await.unwrap();
    etcd.ctl(["put", "k", "v"]).await.unwrap();

    etcd.kill(first).await.unwrap();
    let second = etcd.leader().await.unwrap();
    assert_ne!(first, second);
    etcd.restart(first).await.unwrap();
    etcd.stop(second).await.unwrap();
    let third = etcd.leader().await.unwrap();
    assert_ne!(second, third);
    etcd.cont(second).unwrap();
    assert_eq!(etcd.keys("k").await.unwrap(), ["k"]);
    etcd.restart_without_data().await.unwrap();
    assert_eq!(etcd.keys("k").await.unwrap(), [""; 0]);
}

/// The certificates serve etcd in both directions, and are asked for.
#[tokio::test]
async fn tls_is_demanded_of_both_sides() {
    let certificates = Arc::new(Certificates::new("client").unwrap());
    for setup in [Setup::new().tls(Arc::clone(&certificates)), Setup::new().mutual_tls(certificates)] {
        let etcd = setup.start().await.unwrap();
        etcd.ctl(["put", "k", "v"]).await.unwrap();
        assert!(etcd.url().starts_with("etcds://127.0.0.1:"), "{}", etcd.url());
    }
}

/// A user keeps to a prefix.
#[tokio::test]
async fn a_user_is_limited_to_a_prefix() {
    let mut etcd = Setup::new().auth_token_ttl(2).start().await.unwrap();
    etcd.enable_auth("alice", "secret", "locks/").await.unwrap();
    etcd.ctl(["put", "elsewhere", "v"]).await.unwrap();
    etcd.ctl(["--user=alice:secret", "put", "locks/a", "v"]).await.unwrap();
    etcd.ctl(["--user=alice:secret", "put", "elsewhere", "v"]).await.unwrap_err();
}

/// A current server starts like the installed one, where there is one.
#[tokio::test]
async fn a_current_server_starts() {
    let Some(program) = current() else {
        return testbed::peers::skip("etcd 3.6", "it is not in target/tools");
    };
    let mut etcd = Setup::new().program(program).members(3).start().await.unwrap();
    let leader = etcd.leader().await.unwrap();
    etcd.kill(leader).await.unwrap();
    etcd.restart(leader).await.unwrap();
    let before = etcd.requests().await.unwrap();
    etcd.ctl(["put", "a", "b"]).await.unwrap();
    let made = etcd.requests().await.unwrap() - &before;
    assert_eq!((made.of("Put"), made.total()), (1, 1), "{made}");
}
