//! What is said when the servers are not there, do not take us, or stop answering.

use leasehold_conformance::words::said;
use leasehold_core::{Effect, Error, ErrorKind, LockManager};
use leasehold_etcd::EtcdConfig;
use testbed::Port;

use crate::rig::{BOUND, PREFIX, Rig, TTL, hold, trials, within};

trials![an_opening_that_fails_says_why, another_format_is_refused_by_name];

const NAME: &str = "invoice-42";

/// A session opens no namespace of another format, neither the first nor the next one.
async fn another_format_is_refused_by_name() {
    let rig = Rig::start().await;
    let (manager, mut client) = (rig.manager().await, rig.store.client.kv_client());
    let format = format!("{PREFIX}/%format");
    client.put(format.as_str(), "1", None).await.unwrap();
    let other = rig.manager().await;
    let guard = hold(&other, NAME).await;
    client.put(format.as_str(), "2", None).await.unwrap();
    let first = refusal(rig.config()).await;
    rig.store.revoke(rig.store.queue(NAME).await[0].lease).await;
    guard.lost().await;
    let next = within(BOUND, "an answer", other.lock(NAME).unwrap().acquire()).await.unwrap_err();
    for refused in [first, next] {
        assert_eq!(*refused.kind(), ErrorKind::Unsupported, "{refused}");
        let words = "the namespace has format \"2\", and this version understands format 1";
        assert!(refused.to_string().contains(words), "{refused}");
    }
    // A session that was there goes on.
    hold(&manager, NAME).await.release().await.unwrap();
}

/// Why a store is not opened, for which nothing can have been carried out.
async fn refusal(config: EtcdConfig) -> Error {
    let opening = LockManager::builder(config.prefix(PREFIX)).ttl(TTL).connect_timeout(BOUND).build();
    let refused = within(BOUND, "an answer", opening).await.unwrap_err();
    assert_eq!(refused.effect(), Effect::NotApplied, "{refused}");
    refused
}

/// Without a password, and where nobody is.
async fn an_opening_that_fails_says_why() {
    let mut rig = Rig::start().await;
    rig.etcd.enable_auth("alice", "secret", "locks/").await.unwrap();
    let (refused, addr) = (refusal(rig.config()).await, rig.etcd.addr(0).to_string());
    assert_eq!(*refused.kind(), ErrorKind::Denied);
    assert_eq!(
        said(&refused, &addr, None),
        format!(
            "etcd requires a user and a password: put them into the URL (server: {addr}): user name is empty"
        )
    );
    // Of several, the one that was asked last is named.
    let (first, second) = (Port::reserve().unwrap(), Port::reserve().unwrap());
    let refused = refusal(EtcdConfig::new([first.addr().to_string(), second.addr().to_string()])).await;
    let asked = [first.addr(), second.addr()].map(|addr| addr.to_string());
    let named: Vec<_> = asked.iter().filter(|addr| refused.to_string().contains(*addr)).collect();
    assert_eq!(named.len(), 1, "{refused}");
    assert_eq!(
        said(&refused, named[0], None),
        format!("cannot connect (server: {}): Connection refused (os error 111)", named[0])
    );
}
