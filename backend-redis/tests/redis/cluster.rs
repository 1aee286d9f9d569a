//! Clusters: names in every part of them, and primaries that are replaced or away.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::backend::ledger::Written;
use leasehold_core::backend::{AcquireRequest, Renewal, Severity, StoreConfig};
use leasehold_core::{Env, ErrorKind, LockGuard, LockManager, LockName, Result, StoreUrl, Timing};
use leasehold_redis::{RedisClusterConfig, RedisConfig};
use testbed::redis::{Cluster, Server};

use crate::fixture::{BOUND, Beside, LONG, TTL, eventually, exists, open_for, server, trials, within};
use crate::ledger::env;

trials![
    names_lie_on_every_server,
    one_address_is_asked_slot_by_slot,
    replica_takes_over,
    opening_finds_a_primary_that_answers,
];

/// How many names are renewed together.
const NAMES: u64 = 1000;

/// How long a primary is silent before a replica takes its place.
pub(crate) const SILENT: Duration = Duration::from_secs(1);

pub(crate) fn of(cluster: &Cluster) -> RedisClusterConfig {
    // One is enough: it names the others.
    let config = RedisClusterConfig::new([cluster.addrs()[0].to_string()]);
    config.max_ttl(LONG).pause_after_failover(Duration::ZERO)
}

pub(crate) async fn started(masters: usize, replicas: usize) -> Cluster {
    Cluster::start(masters, replicas, SILENT).await.unwrap_or_else(|error| panic!("{error}"))
}

/// The server that has a key.
pub(crate) async fn owner(cluster: &Cluster, key: &str) -> usize {
    cluster.owner_of(cluster.slot_of(key).await.unwrap()).await.unwrap()
}

/// How many sessions the server sends their messages.
async fn inboxes(server: &Server) -> usize {
    server.command(&["PUBSUB", "CHANNELS", "leasehold:inbox:*"]).await.unwrap().elements().len()
}

/// How many calls of scripts it has carried out since its counts were reset.
pub(crate) async fn scripts_run(server: &Server) -> u64 {
    server.calls().await.unwrap().get("evalsha").copied().unwrap_or_default()
}

pub(crate) async fn waits(
    locks: &LockManager,
    name: &str,
    observer: &LockManager,
) -> Beside<Result<LockGuard>> {
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
    let address = RedisConfig::new("127.0.0.1", cluster.addrs()[0].port());
    let refused = address.clone().open(env(LONG)).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Unsupported, "{refused:#}");
    let store = address.slots(true).open(env(LONG)).await.unwrap();
    let mut leases = Vec::new();
    for name in ["a", "b", "c"] {
        let request = AcquireRequest::new(LockName::new(name).unwrap(), env(LONG).owner_id(), LONG);
        leases.push(store.try_acquire(&request).await.unwrap().granted().unwrap().lease.id);
    }
    let renewals = store.renew(&leases).await;
    assert!(renewals.iter().all(|renewal| matches!(renewal, Renewal::Until(_))), "{renewals:?}");
    assert_eq!(store.list("").await.unwrap().len(), 3);
    store.close().await.unwrap();
}

/// Waiters learn of their grants by messages, wherever the slots of their names are, and administrators see all names.
async fn names_lie_on_every_server() {
    // A replica that is killed stays in the map.
    let mut cluster = Cluster::start(3, 1, Duration::from_secs(15)).await.unwrap();
    assert_eq!(of(&cluster).load_scripts().await.unwrap(), 6);
    let b = open_for(of(&cluster), LONG).await;
    let mut home = 0;
    while inboxes(cluster.server(home)).await == 0 {
        home += 1;
    }
    let a = open_for(of(&cluster), LONG).await;
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
        owners[owner(&cluster, &format!("leasehold:{{{escaped}}}:e")).await] += 1;
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
    // Each server knows of its own subscribers alone.
    let more = join_all((0..6).map(|_| open_for(of(&cluster), LONG))).await;
    assert_eq!(a.token_base().await.unwrap().sessions, Some(7));
    drop(more);
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

    // A pinned prefix has one slot: its names are renewed and shown together.
    let store = of(&cluster).pin("all").open(env(LONG)).await.unwrap();
    let mut leases = Vec::new();
    for number in 0..200 {
        let name = LockName::new(format!("m{number}")).unwrap();
        let request = AcquireRequest::new(name, env(LONG).owner_id(), LONG);
        leases.push(store.try_acquire(&request).await.unwrap().granted().unwrap().lease.id);
    }
    for node in 0..3 {
        cluster.server(node).command(&["CONFIG", "RESETSTAT"]).await.unwrap();
    }
    assert!(store.renew(&leases).await.iter().all(|renewal| matches!(renewal, Renewal::Until(_))));
    assert_eq!(store.list("").await.unwrap().len(), 200);
    let (one, mut others) = (owner(&cluster, "{all}").await, 0);
    for node in (0..3).filter(|node| *node != one) {
        others += scripts_run(cluster.server(node)).await;
    }
    assert_eq!((scripts_run(cluster.server(one)).await, others), (6, 0));

    let ledger = of(&cluster).open(env(LONG).without_token_base()).await.unwrap().ledger().unwrap();
    assert!(matches!(ledger.write(None, b"1 old old").await.unwrap(), Written::Done(_)));
    assert_eq!(ledger.read().await.unwrap().unwrap().value, b"1 old old");
    for replica in 3..6 {
        let loaded = cluster.server(replica).command(&["INFO", "memory"]).await.unwrap().text().unwrap();
        assert!(loaded.contains("number_of_cached_scripts:6"), "{loaded}");
    }

    // A link that is lost, and up again at once, refreshes its waiters, also if messages come over another one.
    let (mut name, mut away) = (String::new(), home);
    for number in 0.. {
        if away != home {
            break;
        }
        name = format!("w{number}");
        away = owner(&cluster, &format!("leasehold:{{{name}}}")).await;
    }
    let guard = a.lock(&name).unwrap().acquire().await.unwrap();
    let waiter = waits(&b, &name, &a).await;
    let server_of_it = cluster.server(away);
    server_of_it.command(&["CONFIG", "RESETSTAT"]).await.unwrap();
    server_of_it.command(&["CLIENT", "KILL", "TYPE", "normal"]).await.unwrap();
    eventually("the waiter is refreshed", async || scripts_run(server_of_it).await > 0).await;
    guard.release().await.unwrap();
    waiter.end("the grant").await.unwrap().release().await.unwrap();

    // redis.shards-3: what is changed while a session does not count as one, it reads before its next request.
    let late = open_for(of(&cluster), TTL).await;
    let base = owner(&cluster, "leasehold:token_base").await;
    let set_base = async |value| cluster.server(base).command(&["SET", "leasehold:token_base", value]).await;
    set_base("no number").await.unwrap();
    for node in 0..3 {
        cluster.server(node).command(&["CLIENT", "KILL", "TYPE", "pubsub"]).await.unwrap();
    }
    eventually("the session is not admitted", async || late.inspect("late").await.is_err()).await;
    let refused = late.lock("late").unwrap().try_acquire().await.unwrap_err();
    assert!(format!("{refused:#}").contains("token_base"), "{refused:#}");
    let counter = "leasehold:{late}:n";
    assert!(!exists(cluster.server(owner(&cluster, counter).await), counter).await, "it was granted");
    set_base("5000000000000000").await.unwrap();
    let granted = late.lock("late").unwrap().acquire().await.unwrap();
    assert!(granted.token().get() > 5_000_000_000_000_000);
    granted.release().await.unwrap();

    // A count that leaves out a server is none.
    cluster.server_mut(5).kill().await.unwrap();
    assert_eq!(late.token_base().await.unwrap().sessions, None);

    // The error about a wrong scheme names the right one.
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
        "redis+cluster://h?inbox=none",
        "redis+cluster://h?pin={a}",
        "redis+cluster://h?inbox=broadcast&format=string",
    ] {
        let refused = url.parse::<StoreUrl>().and_then(|mut url| RedisClusterConfig::from_url(&mut url));
        assert_eq!(*refused.unwrap_err().kind(), ErrorKind::InvalidOption, "{url}");
    }
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
            if inboxes(cluster.server(node)).await > 0 {
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

/// A manager opens at another primary if the one that it tries first does not answer, or refuses connections.
async fn opening_finds_a_primary_that_answers() {
    let mut cluster = Cluster::start(3, 0, BOUND).await.unwrap();
    // What is read at first lies elsewhere.
    let mut needed = Vec::new();
    for key in ["leasehold:{%move}:record", "leasehold:token_base"] {
        needed.push(owner(&cluster, key).await);
    }
    let away = (0..3).find(|node| !needed.contains(node)).unwrap();
    let seeds: Vec<_> = needed.iter().map(|node| cluster.addrs()[*node].to_string()).collect();
    // One in three begins there.
    let open = async || {
        let opened = (0..16).map(|_| {
            let config = RedisClusterConfig::new(seeds.clone()).max_ttl(LONG);
            LockManager::builder(config).ttl(LONG).connect_timeout(Duration::from_secs(15)).build()
        });
        join_all(opened).await.into_iter().for_each(|opened| drop(opened.unwrap()));
    };
    cluster.server(away).process().stop().await.unwrap();
    open().await;
    cluster.server(away).process().cont().unwrap();
    cluster.server_mut(away).kill().await.unwrap();
    open().await;
}
