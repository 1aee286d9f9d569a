//! TLS, client certificates, users and their rights.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::Revocation;
use leasehold_core::{ErrorKind, FencingToken, LockManager, Result, Revoke, Tls};
use leasehold_etcd::EtcdConfig;
use testbed::etcd::{Etcd, Setup};
use testbed::{Certificates, Direction, Mode, Proxy};

use crate::fixture::{
    BOUND, Beside, EARLY, PREFIX, TTL, eventually, hold, hold_aside, open, open_with_ttl, trials, until,
    within,
};

trials![
    a_certificate_may_be_expected_under_another_name,
    an_endpoint_that_refuses_our_certificate_ends_no_session,
    leftovers_of_a_damaged_record_are_removed,
    a_limited_role_is_enough,
];

fn read(path: impl AsRef<Path>) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

fn trusting(certificates: &Certificates) -> Tls {
    Tls::new().ca(read(certificates.authority()))
}

fn config(etcd: &Etcd) -> EtcdConfig {
    EtcdConfig::new(etcd.endpoints()).prefix(PREFIX)
}

/// Opens a session, or returns the error within the bound of connecting.
async fn attempt(config: EtcdConfig) -> Result<LockManager> {
    let opening = LockManager::builder(config).ttl(TTL).connect_timeout(Duration::from_secs(2)).build();
    within(BOUND, "an answer", opening).await
}

async fn refused(config: EtcdConfig, why: &str) -> leasehold_core::Error {
    match attempt(config).await {
        Ok(_) => panic!("it opens {why}"),
        Err(refused) => refused,
    }
}

/// A cycle and a hand-off.
async fn works(one: &LockManager, other: &LockManager) {
    let name = "w";
    let guard = hold(one, name).await;
    let next = hold_aside(other, name);
    eventually("it queues", async || one.inspect(name).await.unwrap().contenders > 0).await;
    guard.release().await.unwrap();
    next.end("the other holds").await.release().await.unwrap();
}

async fn a_certificate_may_be_expected_under_another_name() {
    let certificates = Arc::new(Certificates::new("client").unwrap());
    let etcd = Setup::new().tls(Arc::clone(&certificates)).start().await.unwrap();
    let secured = config(&etcd).tls(trusting(&certificates));
    open(secured.clone().domain("localhost")).await;
    let error = refused(secured.domain("elsewhere.example"), "under another name").await;
    assert_eq!(*error.kind(), ErrorKind::Denied, "{error:?}");
    assert!(format!("{error:#}").contains("not valid for name"), "{error:#}");
}

/// Two servers, of which the second refuses our client certificate, and the options for both.
async fn ours_and_a_strange_one() -> (Etcd, Etcd, Tls) {
    let ours = Arc::new(Certificates::new("client").unwrap());
    let theirs = Arc::new(Certificates::new("client").unwrap());
    let etcd = Setup::new().mutual_tls(Arc::clone(&ours)).start().await.unwrap();
    let strange = Setup::new().mutual_tls(Arc::clone(&theirs)).start().await.unwrap();
    let authorities = [read(ours.authority()), b"\n".to_vec(), read(theirs.authority())].concat();
    let (certificate, key) = ours.client();
    (etcd, strange, Tls::new().ca(authorities).client_certificate(read(certificate), read(key)))
}

/// An endpoint refuses our certificate, after the connection was made. The other one is used when the session is opened, and
/// when its connection ends. Holds stay, and are released.
async fn an_endpoint_that_refuses_our_certificate_ends_no_session() {
    let (etcd, strange, tls) = ours_and_a_strange_one().await;
    let proxy = Proxy::start(etcd.addr(0)).unwrap();
    let hosts = [vec![proxy.addr().to_string()], strange.endpoints()].concat();
    let config = EtcdConfig::new(hosts).prefix(PREFIX).tls(tls);
    for _ in 0..4 {
        let manager = open_with_ttl(config.clone(), 10 * TTL).await.unwrap();
        let (guard, bystander) = (hold(&manager, "n").await, hold(&manager, "m").await);
        proxy.reset().await;
        within(EARLY, "the release ends", guard.release()).await.unwrap();
        bystander.ensure_held().unwrap();
        bystander.release().await.unwrap();
        manager.shutdown().await.unwrap();
    }
}

/// One bit is flipped on its way under many acquisitions: the connection is over, and nothing else. Some were carried out
/// before, and their replies are lost. What was put for those that failed is deleted, long before the lease ends.
async fn leftovers_of_a_damaged_record_are_removed() {
    const NAMES: u64 = 120;
    let ours = Arc::new(Certificates::new("client").unwrap());
    let etcd = Setup::new().tls(Arc::clone(&ours)).start().await.unwrap();
    let proxy = Proxy::start(etcd.addr(0)).unwrap();
    let config = EtcdConfig::new([proxy.addr().to_string()]).prefix(PREFIX).tls(trusting(&ours));
    for round in 0..8 {
        let manager = open_with_ttl(config.clone(), 20 * TTL).await.unwrap();
        let acquiring = (0..NAMES).map(|index| {
            let lock = manager.lock(format!("r{round}x{index}")).unwrap();
            Beside::start(async move {
                tokio::time::sleep(Duration::from_micros(100 * index)).await; // Some are under way, some not.
                lock.acquire().await
            })
        });
        let acquiring: Vec<_> = acquiring.collect();
        tokio::time::sleep(Duration::from_millis(2 + 2 * round)).await; // In their midst.
        proxy.set(Direction::ClientToServer, Mode::corrupt_next(7)).await;
        let mut guards = Vec::new();
        for acquiring in acquiring {
            guards.extend(acquiring.end("an answer").await.ok());
        }
        let prefix = format!("{PREFIX}/r{round}x");
        let keys = async || etcd.keys(&prefix).await.unwrap().len();
        within(EARLY, "what nobody holds goes", until(async || keys().await == guards.len())).await;
        for guard in guards {
            guard.ensure_held().unwrap();
            guard.release().await.unwrap();
        }
        proxy.set(Direction::ClientToServer, Mode::Pass).await;
        manager.shutdown().await.unwrap();
    }
}

/// Read and write below the prefix suffice, and no key outside of it is used.
async fn a_limited_role_is_enough() {
    let mut etcd = Etcd::start().await.unwrap();
    etcd.enable_auth("alice", "secret", "locks/").await.unwrap();
    let alice = || config(&etcd).credentials("alice", "secret");
    let (one, other) = (open(alice()).await, open(alice()).await);
    works(&one, &other).await;
    let guard = hold(&one, "n").await;
    assert_eq!(one.list("").await.unwrap().len(), 1);
    one.diagnose().await.unwrap();
    let (asks, grace) = (other.clone(), 4 * TTL);
    let revoked = Beside::start(async move { asks.revoke("n", Revoke::Ask { grace }).await.unwrap() });
    within(BOUND, "it is asked", guard.revocation_requested()).await.expect("it holds");
    guard.release().await.unwrap();
    assert_eq!(revoked.end("it has let go").await, Revocation::Released);
    for how in [Revoke::AT_ONCE, Revoke::Force] {
        let guard = hold(&one, "n").await;
        assert_eq!(other.revoke("n", how).await.unwrap(), Revocation::Released);
        within(BOUND, "it is lost", guard.lost()).await;
    }
    let seen = FencingToken::new(1 << 50, 0).unwrap();
    one.raise_token_base(seen).await.unwrap();
    assert_eq!(one.token_base().await.unwrap().sessions, Some(1));
    one.shutdown().await.unwrap();
    other.shutdown().await.unwrap();
    assert!(hold(&open(alice()).await, "n").await.token() > seen);

    let outside = EtcdConfig::new(etcd.endpoints()).prefix("elsewhere").credentials("alice", "secret");
    let error = refused(outside, "outside of its rights").await;
    assert_eq!(*error.kind(), ErrorKind::Denied, "{error:?}");
}
