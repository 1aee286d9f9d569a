//! What is said when the servers are not there, do not take us, or stop answering.

use leasehold_conformance::words::said;
use leasehold_core::{Effect, Error, ErrorKind, LockManager};
use leasehold_etcd::EtcdConfig;
use testbed::{Mode, Port};

use crate::rig::{BOUND, Beside, PREFIX, Rig, TTL, behind, hold, trials, within};

trials![an_opening_that_fails_says_why, a_silent_server_is_named, another_format_is_refused_by_name];

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

/// Every way in which a store is not opened, in whole sentences.
async fn an_opening_that_fails_says_why() {
    let (nobody, mut rig) = (Port::reserve().unwrap(), Rig::start().await);
    let silent = rig.proxy(0);
    silent.set_both(Mode::Blackhole).await;
    rig.etcd.enable_auth("alice", "secret", "locks/").await.unwrap();
    let there = rig.etcd.addr(0);
    let table = [
        (
            EtcdConfig::new([nobody.addr().to_string()]),
            nobody.addr(),
            ErrorKind::Unavailable,
            "cannot connect (server: ADDR): Connection refused (os error 111)",
        ),
        (
            behind(&silent),
            silent.addr(),
            ErrorKind::Unavailable,
            "etcd did not answer within 1s (server: ADDR)",
        ),
        (
            rig.config().credentials("alice", "guessed"),
            there,
            ErrorKind::Denied,
            "etcd refuses user and password (server: ADDR): authentication failed, invalid user ID or password",
        ),
        (
            rig.config(),
            there,
            ErrorKind::Denied,
            "etcd wants a user and a password (server: ADDR): user name is empty",
        ),
    ];
    for (config, addr, kind, words) in table {
        let (refused, addr) = (refusal(config).await, addr.to_string());
        assert_eq!(said(&refused, &addr, None), words.replace("ADDR", &addr));
        assert_eq!(*refused.kind(), kind);
    }
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

/// It stops answering: each request says where and of which lock, and so does a wait that ends then.
async fn a_silent_server_is_named() {
    let rig = Rig::start().await;
    let proxy = rig.proxy(0);
    let addr = proxy.addr().to_string();
    let (locks, holder) = (rig.manager_behind(&proxy).await, rig.manager().await);
    let (held, ours) = (hold(&holder, NAME).await, hold(&locks, "ours").await);
    let spare = hold(&locks, "spare").await;
    let waiting = locks.lock(NAME).unwrap().wait(TTL * 3 / 4);
    let waiting = Beside::start(async move { waiting.acquire().await.map(drop) });
    rig.store.queued(NAME, 2).await;
    // Answered on the connection that the acquisition uses, after it: so that knows, too.
    locks.inspect(NAME).await.unwrap();
    proxy.set_both(Mode::Blackhole).await;

    // The session's bound of a request, or that of whoever asks: they are as long.
    let silent = |words: &str| {
        let (who, rest) = words.split_once(" did not answer within 1s ").unwrap_or_else(|| panic!("{words}"));
        assert!(who.ends_with("etcd") || who.ends_with("the store"), "{words}");
        rest.to_owned()
    };
    let renewed = silent(&said(&ours.renew().await.unwrap_err(), &addr, Some("ours")));
    assert_eq!(renewed, format!("(server: {addr}, lock: ours); the store may have carried it out"));
    let releasing = within(BOUND, "a release ends", spare.release());
    let (waited, released) = tokio::join!(waiting.end("the wait ends"), releasing);
    said(&released.unwrap_err(), &addr, Some("spare"));
    let waited = said(&waited.unwrap_err(), &addr, Some(NAME));
    assert!(waited.starts_with("not granted within 2.25s; "), "{waited}");
    assert_eq!(silent(&waited), format!("(server: {addr})"));
    // Whether the request was silent or the connection that it wanted.
    let tried = locks.lock("other").unwrap().try_acquire().await.unwrap_err();
    said(&tried, &addr, Some("other"));
    said(&locks.inspect("other").await.unwrap_err(), &addr, Some("other"));
    said(&locks.list("").await.unwrap_err(), &addr, None);
    held.release().await.unwrap();
}
