//! Clusters: names in every part of them, slots that move under every request, and primaries that are replaced.

use std::time::Duration;

use leasehold_core::backend::ledger::Written;
use leasehold_core::backend::{AcquireRequest, Renewal, Severity, StoreConfig};
use leasehold_core::{Env, ErrorKind, LockGuard, LockManager, LockName, Result, Revoke, StoreUrl, Timing};
use leasehold_redis::{RedisClusterConfig, RedisConfig};
use testbed::redis::{Cluster, Step};

use crate::fixture::{
    BOUND, Beside, LONG, TTL, assert_lost, eventually, open_for, pass, server, trials, within,
};
use crate::ledger::env;

trials![
    names_lie_on_every_server,
    one_address_is_asked_slot_by_slot,
    slot_moves_under_every_request,
    replica_takes_over,
];

/// How many names are renewed together.
const NAMES: u64 = 1000;

/// How long a primary is silent before a replica takes its place.
const SILENT: Duration = Duration::from_secs(1);

pub(crate) fn of(cluster: &Cluster) -> RedisClusterConfig {
    // One is enough: it names the others.
    let config = RedisClusterConfig::new([cluster.addrs()[0].to_string()]);
    config.max_ttl(LONG).pause_after_failover(Duration::ZERO)
}

pub(crate) async fn started(masters: usize, replicas: usize) -> Cluster {
    Cluster::start(masters, replicas, SILENT).await.unwrap_or_else(|error| panic!("{error}"))
}

async fn waits(locks: &LockManager, name: &str, observer: &LockManager) -> Beside<Result<LockGuard>> {
    let lock = locks.lock(name).unwrap();
    let waiter = Beside::start(async move { lock.acquire().await });
    eventually("the contender is in the queue", async || {
        observer.inspect(name).await.is_ok_and(|state| state.contenders > 0)
    })
    .await;
    waiter
}

/// A proxy refuses a call for several slots, and names no server. A cluster of one server is the same to its clients.
async fn one_address_is_asked_slot_by_slot() {
    let cluster = started(1, 0).await;
    for slots in [true, false] {
        let address = RedisConfig::new("127.0.0.1", cluster.addrs()[0].port()).slots(slots);
        let store = address.open(env(LONG)).await.unwrap();
        let mut leases = Vec::new();
        for name in ["a", "b", "c"] {
            let name = LockName::new(format!("{name}/{slots}")).unwrap();
            let request = AcquireRequest::new(name, env(LONG).owner_id(), LONG);
            leases.push(store.try_acquire(&request).await.unwrap().granted().unwrap().lease.id);
        }
        let renewals = store.renew(&leases).await;
        let renewed = renewals.iter().filter(|renewal| matches!(renewal, Renewal::Until(_))).count();
        assert_eq!(renewed, if slots { 3 } else { 0 }, "{renewals:?}");
        let listed = store.list("").await.map(|states| states.len());
        assert_eq!(listed.ok(), slots.then_some(3));
        store.close().await.unwrap();
    }
}

/// Waiters learn of their grants by messages, wherever the slots of their names are, and administrators see all names.
async fn names_lie_on_every_server() {
    let cluster = started(3, 1).await;
    assert_eq!(of(&cluster).load_scripts().await.unwrap(), 6);
    let a = open_for(of(&cluster), LONG).await;
    let b = open_for(of(&cluster), LONG).await;
    let mut names: Vec<_> = (0..20).map(|number| format!("n{number}")).collect();
    names.extend(["{}", "{", "}", "a{b}c", "{a}{b}", "%", "%7B", "é b", "a:q"].map(str::to_owned));
    let mut owners = [0; 3];
    for name in &names {
        let held = a.lock(name).unwrap().acquire().await.unwrap();
        let waiter = waits(&b, name, &a).await;
        held.release().await.unwrap();
        // Nothing else comes before a third of the ttl.
        waiter.end("the message of the grant").await.unwrap().release().await.unwrap();
        let escaped = name.replace('%', "%25").replace('{', "%7B").replace('}', "%7D");
        let slot = cluster.slot_of(&format!("leasehold:{{{escaped}}}:e")).await.unwrap();
        owners[cluster.owner_of(slot).await.unwrap()] += 1;
    }
    assert!(owners.iter().all(|owned| *owned > 0), "{owners:?}");

    let mut held = Vec::new();
    for name in &names {
        held.push(a.lock(name).unwrap().acquire().await.unwrap());
    }
    let mut listed: Vec<_> = b.list("").await.unwrap().iter().map(|state| state.name.to_string()).collect();
    listed.sort();
    names.sort();
    assert_eq!(listed, names);
    assert_eq!(a.token_base().await.unwrap().sessions, Some(1));
    let findings = a.diagnose().await.unwrap();
    let broken: Vec<_> = findings.iter().filter(|finding| finding.severity == Severity::Broken).collect();
    assert!(broken.is_empty(), "{broken:?}");
    assert_eq!(findings.iter().filter(|finding| finding.subject == "version").count(), 3, "{findings:?}");

    // One call for each slot, as no call may touch two, however many are renewed together.
    let mut timing = Timing::for_ttl(LONG);
    (timing.op_timeout, timing.connect_timeout) = (BOUND, BOUND);
    let store = of(&cluster).open(Env::new(timing).unwrap()).await.unwrap();
    let mut leases = Vec::new();
    for number in 0..NAMES {
        let (name, owner) = (LockName::new(format!("m{number}")).unwrap(), env(LONG).owner_id());
        let request = AcquireRequest::new(name, owner, LONG);
        leases.push(store.try_acquire(&request).await.unwrap().granted().unwrap().lease.id);
    }
    for node in 0..3 {
        cluster.server(node).command(&["CONFIG", "RESETSTAT"]).await.unwrap();
    }
    let renewals = store.renew(&leases).await;
    assert!(renewals.iter().all(|renewal| matches!(renewal, Renewal::Until(_))), "{renewals:?}");
    let mut calls = 0;
    for node in 0..3 {
        calls += cluster.server(node).calls().await.unwrap()["evalsha"];
    }
    // Some names share a slot.
    assert!((NAMES * 9 / 10..=NAMES).contains(&calls), "{calls}");

    let ledger = of(&cluster).open(env(LONG).without_token_base()).await.unwrap().ledger().unwrap();
    assert!(matches!(ledger.write(None, b"1 old old").await.unwrap(), Written::Done(_)));
    assert_eq!(ledger.read().await.unwrap().unwrap().value, b"1 old old");
    for replica in 3..6 {
        let loaded = cluster.server(replica).command(&["INFO", "memory"]).await.unwrap().text().unwrap();
        assert!(loaded.contains("number_of_cached_scripts:6"), "{loaded}");
    }

    // The error about a wrong scheme names the right one.
    let node = cluster.addrs()[0];
    let wrong = RedisConfig::new(node.ip().to_string(), node.port());
    let refused = match LockManager::builder(wrong).build().await {
        // It has the keys that are read at first, and not those of every name.
        Ok(opened) => {
            let mut refused = None;
            for name in &names {
                refused = refused.or(opened.lock(name).unwrap().try_acquire().await.err());
            }
            refused.unwrap()
        }
        Err(refused) => refused,
    };
    assert_eq!(*refused.kind(), ErrorKind::Unsupported, "{refused:#}");
    assert!(refused.to_string().contains("redis+cluster"), "{refused:#}");
    let single = server().await;
    let plain = RedisClusterConfig::new([single.addr().to_string()]);
    let refused = LockManager::builder(plain).build().await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Unsupported, "{refused:#}");
    assert!(refused.to_string().contains("scheme redis or rediss"), "{refused:#}");
    for url in [
        "redis+cluster://h/1",
        "redis+cluster://h?format=string",
        "redis+cluster://h?pause_after_restart=9s",
        "redis+cluster://h?pause_after_failover=76s",
        "redis+cluster://",
        "redis+cluster://h:0",
    ] {
        let refused = url.parse::<StoreUrl>().and_then(|mut url| RedisClusterConfig::from_url(&mut url));
        assert_eq!(*refused.unwrap_err().kind(), ErrorKind::InvalidOption, "{url}");
    }
}

/// A request that meets a slot on its way, at any step of the move, comes to what it would have come to without the move.
async fn slot_moves_under_every_request() {
    let cluster = started(3, 0).await;
    let a = open_for(of(&cluster), LONG).await;
    let b = open_for(of(&cluster), LONG).await;
    let c = open_for(of(&cluster), LONG).await;
    let is_free = async |name: &str| {
        eventually("nothing is left", async || {
            c.inspect(name).await.is_ok_and(|state| state.holder().is_none() && state.contenders == 0)
        })
        .await;
    };
    for step in [Step::Importing, Step::Migrating, Step::Keys, Step::Done] {
        for request in ["acquire", "wait", "renew", "release", "share", "revoke", "abandon"] {
            let name = format!("{request} at {step:?}");
            let slot = cluster.slot_of(&format!("leasehold:{{{name}}}")).await.unwrap();
            let to = (cluster.owner_of(slot).await.unwrap() + 1) % 3;
            let lock = |locks: &LockManager| locks.lock(&name).unwrap();
            let move_to = async |step| cluster.move_slot(slot, to, step).await.unwrap();
            match request {
                "acquire" | "share" => {
                    let other = lock(&c);
                    move_to(step).await;
                    let lock = if request == "share" { lock(&a).shared() } else { lock(&a) };
                    let acquiring = Beside::start(async move { lock.acquire().await });
                    move_to(Step::Done).await;
                    let held = acquiring.end(&name).await.unwrap();
                    assert!(other.try_acquire().await.unwrap().is_none(), "{name}");
                    held.release().await.unwrap();
                }
                "wait" => {
                    let held = lock(&a).acquire().await.unwrap();
                    move_to(step).await;
                    let lock = lock(&b);
                    let waiting = Beside::start(async move { lock.acquire().await });
                    move_to(Step::Done).await;
                    eventually("it waits", async || {
                        c.inspect(&name).await.is_ok_and(|state| state.contenders == 1)
                    })
                    .await;
                    held.release().await.unwrap();
                    waiting.end(&name).await.unwrap().release().await.unwrap();
                }
                "renew" => {
                    let held = lock(&a).acquire().await.unwrap();
                    move_to(step).await;
                    let renewing = Beside::start(async move { (held.renew().await, held) });
                    move_to(Step::Done).await;
                    let (renewed, held) = renewing.end(&name).await;
                    renewed.unwrap();
                    held.release().await.unwrap();
                }
                "release" => {
                    let held = lock(&a).acquire().await.unwrap();
                    let waiter = waits(&b, &name, &c).await;
                    move_to(step).await;
                    let releasing = Beside::start(held.release());
                    move_to(Step::Done).await;
                    releasing.end(&name).await.unwrap();
                    waiter.end(&name).await.unwrap().release().await.unwrap();
                }
                "revoke" => {
                    let held = lock(&a).acquire().await.unwrap();
                    move_to(step).await;
                    let (other, revoked) = (b.clone(), name.clone());
                    let revoking = Beside::start(async move { other.revoke(&revoked, Revoke::Force).await });
                    move_to(Step::Done).await;
                    revoking.end(&name).await.unwrap();
                    within(BOUND, "the loss is noticed", held.lost()).await;
                }
                _ => {
                    let held = lock(&a).acquire().await.unwrap();
                    let waiter = waits(&b, &name, &c).await;
                    move_to(step).await;
                    drop(waiter);
                    move_to(Step::Done).await;
                    held.release().await.unwrap();
                }
            }
            is_free(&name).await;
        }
    }

    // Every key that a call declares is there, and none that it does not: so a slot on its way serves all of them.
    let name = "all keys";
    let slot = cluster.slot_of(&format!("leasehold:{{{name}}}")).await.unwrap();
    let from = cluster.owner_of(slot).await.unwrap();
    let shared = a.lock(name).unwrap().shared().acquire().await.unwrap();
    let waiter = waits(&b, name, &c).await;
    let keys =
        cluster.server(from).command(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "9"]).await.unwrap();
    assert_eq!(keys.elements().len(), 5);
    cluster.move_slot(slot, (from + 1) % 3, Step::Migrating).await.unwrap();
    shared.renew().await.unwrap();
    assert!(c.lock(name).unwrap().shared().try_acquire().await.unwrap().is_none());
    assert!(c.lock(name).unwrap().try_acquire().await.unwrap().is_none());
    assert_eq!(c.inspect(name).await.unwrap().contenders, 1);
    let asking = c.clone();
    let revoking = Beside::start(async move { asking.revoke(name, Revoke::Ask { grace: LONG }).await });
    within(BOUND, "the holder hears of it", shared.revocation_requested()).await.unwrap();
    // The script removes keys, and is not served when it meets them again: the release is repeated once the slot has moved.
    let releasing = Beside::start(shared.release());
    eventually("the release has removed the share", async || {
        let sharers = cluster.server(from).command(&["EXISTS", "leasehold:{all keys}:h"]).await.unwrap();
        sharers.integer() != Some(1)
    })
    .await;
    cluster.move_slot(slot, (from + 1) % 3, Step::Done).await.unwrap();
    releasing.end("the share is released").await.unwrap();
    revoking.end("the revocation is seen to be followed").await.unwrap();
    waiter.end("the grant").await.unwrap().release().await.unwrap();

    // What needs one key is served where the slot goes to, once the keys are there.
    let slot = cluster.slot_of("leasehold:token_base").await.unwrap();
    let to = (cluster.owner_of(slot).await.unwrap() + 1) % 3;
    let store = of(&cluster).open(env(LONG)).await.unwrap();
    cluster.move_slot(slot, to, Step::Keys).await.unwrap();
    store.raise_token_base(7).await.unwrap();
    assert_eq!(store.token_base().await.unwrap().base, 7);
    cluster.move_slot(slot, to, Step::Done).await.unwrap();
    assert_eq!(store.token_base().await.unwrap().base, 7);

    // A hold outlasts a move that is shorter than its ttl. A longer move ends the hold in time, and grants the lock to no other
    // client.
    let short = open_for(of(&cluster), TTL).await;
    let held = short.lock("over").unwrap().acquire().await.unwrap();
    let slot = cluster.slot_of("leasehold:{over}").await.unwrap();
    let to = (cluster.owner_of(slot).await.unwrap() + 1) % 3;
    cluster.move_slot(slot, to, Step::Migrating).await.unwrap();
    pass(TTL / 2).await;
    cluster.move_slot(slot, to, Step::Done).await.unwrap();
    pass(TTL).await;
    held.ensure_held().unwrap();
    cluster.move_slot(slot, (to + 1) % 3, Step::Migrating).await.unwrap();
    let other = c.lock("over").unwrap();
    let is_lost = within(BOUND, "the loss", held.lost());
    let (refused, _) = tokio::join!(other.try_acquire(), is_lost);
    let refused = refused.unwrap_err();
    assert!(
        *refused.kind() == ErrorKind::Unavailable && refused.to_string().contains("moved"),
        "{refused:#}"
    );
    assert_lost(&held, "after its ttl");
    cluster.move_slot(slot, (to + 1) % 3, Step::Done).await.unwrap();
    c.lock("over").unwrap().acquire().await.unwrap().release().await.unwrap();
}

/// A hold outlasts the loss of its server if the replica has its keys. Waiters get the lock from the replica, also if the lost
/// server was the one that sent their messages.
async fn replica_takes_over() {
    let mut cluster = started(3, 1).await;
    let ttl = Duration::from_secs(30);
    let a = open_for(of(&cluster), ttl).await;
    let b = open_for(of(&cluster), ttl).await;
    let mut held = Vec::new();
    for number in 0..12 {
        held.push(a.lock(format!("n{number}")).unwrap().acquire().await.unwrap());
    }
    cluster.fail_over(4).await.unwrap();
    for guard in &held {
        guard.renew().await.unwrap();
    }
    let mut hears = None;
    eventually("a primary sends messages to a manager", async || {
        for node in [0, 4, 2] {
            let channels =
                cluster.server(node).command(&["PUBSUB", "CHANNELS", "leasehold:inbox:*"]).await.unwrap();
            if !channels.elements().is_empty() {
                hears = Some(node);
            }
        }
        hears.is_some()
    })
    .await;
    let lost = hears.unwrap();
    let replica = (lost + 3) % 6;
    eventually("the replica has all of it", async || {
        let size = async |node| cluster.server(node).command(&["DBSIZE"]).await.unwrap();
        size(replica).await == size(lost).await
    })
    .await;
    cluster.server_mut(lost).kill().await.unwrap();
    cluster.promoted(replica).await.unwrap();
    for guard in held {
        guard.renew().await.unwrap();
        let name = guard.name().to_string();
        let waiter = waits(&b, &name, &a).await;
        guard.release().await.unwrap();
        let granted = within(ttl / 3, "the message of the grant", waiter).await.unwrap();
        assert!(a.lock(&name).unwrap().try_acquire().await.unwrap().is_none());
        granted.release().await.unwrap();
    }
}
