//! What is said when the servers are not there, do not take us, or stop answering.

use std::sync::Arc;
use std::time::Duration;

use leasehold_conformance::words::said;
use leasehold_core::{Effect, Error, ErrorKind, LockManager};
use leasehold_zk::ZkConfig;
use testbed::zookeeper::Setup;
use testbed::{Direction, Mode, Port};

use crate::rig::{Beside, Rig, Space, TTL, cut, proxy, server};

const NAME: &str = "invoice/42";

/// Why a store is not opened, for which nothing can have been carried out.
async fn refusal(config: ZkConfig) -> Error {
    let builder = LockManager::builder(config).ttl(TTL).connect_timeout(Duration::from_secs(1));
    let refused = builder.build().await.unwrap_err();
    assert_eq!(refused.effect(), Effect::NotApplied, "{refused}");
    refused
}

/// Every way in which a store is not opened, in whole sentences.
pub(crate) async fn an_opening_that_fails_says_why(rig: Arc<Rig>) {
    let (nobody, nobody_too) = (Port::reserve().unwrap(), Port::reserve().unwrap());
    let (server, space) = (rig.server().await, rig.space().await);
    let silent = proxy(server);
    silent.set_both(Mode::Blackhole).await;
    let owned = space.config().credentials("me", "secret");
    LockManager::builder(owned).ttl(TTL).build().await.unwrap().shutdown().await.unwrap();
    let refused = "no session was opened within 1s (server: ADDR): Connection refused (os error 111)";
    let table = [
        (vec![nobody.addr()], None, ErrorKind::Unavailable, refused),
        (vec![nobody.addr(), nobody_too.addr()], None, ErrorKind::Unavailable, refused),
        (
            vec![silent.addr()],
            None,
            ErrorKind::Unavailable,
            "no session was opened within 1s: do the servers speak plain text on these ports, and have they a \
             quorum? (server: ADDR)",
        ),
        (
            vec![server.addr()],
            Some("guessed"),
            ErrorKind::Denied,
            "ZooKeeper did not open a session: the credentials lack a right on the node (server: ADDR): not \
             authorized",
        ),
    ];
    for (hosts, password, kind, words) in table {
        let hosts: Vec<_> = hosts.iter().map(ToString::to_string).collect();
        let config = ZkConfig::new(&hosts).chroot(&space.chroot);
        let config = match password {
            Some(password) => config.credentials("me", password),
            None => config,
        };
        let (refused, addr) = (refusal(config).await, hosts.join(","));
        assert_eq!(said(&refused, &addr, None), words.replace("ADDR", &addr));
        assert_eq!(*refused.kind(), kind);
    }
}

/// It stops answering: each request says where and of which lock, and so does a wait that ends then.
pub(crate) async fn a_silent_server_is_named(_rig: Arc<Rig>) {
    let server = server(Setup::new()).await;
    let direct = Space::whole(&server);
    let proxy = proxy(&server);
    let addr = proxy.addr().to_string();
    let locks = direct.by(&addr).manager().await;
    let holder = LockManager::builder(direct.config()).ttl(TTL).owner_label("me").build().await.unwrap();
    let held = holder.lock(NAME).unwrap().acquire().await.unwrap();
    let ours = locks.lock("ours").unwrap().acquire().await.unwrap();
    let spare = locks.lock("spare").unwrap().acquire().await.unwrap();
    let waiting = locks.lock(NAME).unwrap().wait(TTL * 3 / 4);
    let waiting = Beside::start(async move { waiting.acquire().await.map(drop) });
    direct.outside().await.has(&direct.directory("invoice%2F42"), 2).await;
    cut(&proxy, &Direction::BOTH).await;

    // Our bound of a request, or the client library's for the connection.
    let silent = |words: &str, place: &str| {
        let began = words.starts_with("ZooKeeper did not confirm the session");
        assert!(began && words.contains(place), "{words}");
        let why = words.contains(" within 1s (") || words.contains("): no response from connection in 750ms");
        assert!(why, "{words}");
    };
    let renewed = said(&ours.renew().await.unwrap_err(), &addr, Some("ours"));
    silent(&renewed, &format!(" (server: {addr}, lock: ours)"));
    assert!(renewed.ends_with("; the store may have carried it out"), "{renewed}");
    let (waited, released) = tokio::join!(waiting.end("the wait ends"), spare.release());
    said(&released.unwrap_err(), &addr, Some("spare"));
    let waited = said(&waited.unwrap_err(), &addr, Some(NAME));
    let (begin, why) = waited.split_once(" (lock: invoice/42): ").unwrap();
    // It was cut off before it was told, or after.
    let holder = begin.strip_prefix("not granted within 2.25s; ");
    assert!(matches!(holder, Some("held by \"me\"" | "its holder is not known")), "{waited}");
    silent(why, &format!(" (server: {addr})"));
    said(&locks.lock("other").unwrap().try_acquire().await.unwrap_err(), &addr, Some("other"));
    said(&locks.list("").await.unwrap_err(), &addr, None);
    held.release().await.unwrap();
}
