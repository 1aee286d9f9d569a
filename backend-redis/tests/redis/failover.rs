//! A replica takes over, without and with `wait_replicas`.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::{Builder, Effect, ErrorKind, FenceGate, LockGuard, LockManager, LostReason};
use leasehold_redis::RedisConfig;
use libtest_mimic::Trial;
use testbed::redis::{Server, Settings};
use testbed::{Mode, Proxy};

use crate::access::option_needs;
use crate::fixture::{
    self, BOUND, KEY, LONG, NAME, TTL, assert_lost, command, direct, eventually, exists, hold, ok, open,
    open_for, server, start, trials,
};

trials![
    a_write_that_was_not_copied_is_a_second_holder,
    a_guard_waits_for_its_replicas,
    grants_wait_for_replicas_together,
    too_few_replicas_grant_nothing,
    a_lost_replica_ends_the_hold,
    a_demoted_server_is_left_by_whoever_confirms,
    sockets_at_two_servers_are_refused,
    server_without_waitaof_is_refused,
];

/// Redis 7.0 has no `WAITAOF`.
pub(crate) fn on_valkey() -> Vec<Trial> {
    let name = testbed::name_in(module_path!(), "killed_server_forgets_no_grant");
    vec![fixture::on_valkey(&name, killed_server_forgets_no_grant)]
}

pub(crate) async fn replica_of(primary: &Server) -> Server {
    let replica = start(Settings::new().replica_of(primary.addr())).await;
    replica.follows().await.unwrap();
    replica
}

/// A proxy leads the two sockets of a connection to different servers. A grant that the second one announces would count
/// beside one by the first. Neither replication of messages nor a subscriber at the first server hides it.
async fn sockets_at_two_servers_are_refused() {
    let (first, alone) = (server().await, server().await);
    let replica = replica_of(&first).await;
    let refused_beside = async |other: &Server| {
        let proxy = Proxy::start_between(first.addr(), other.addr()).unwrap();
        let config = RedisConfig::new("127.0.0.1", proxy.addr().port());
        let opened = LockManager::builder(config).ttl(TTL).connect_timeout(BOUND).build().await;
        let refused = opened.expect_err("it is refused");
        assert_eq!(
            (refused.kind(), refused.effect()),
            (&ErrorKind::Unavailable, Effect::NotApplied),
            "{refused}"
        );
        assert!(refused.to_string().contains("reached different servers"), "{refused}");
    };
    refused_beside(&alone).await;
    refused_beside(&replica).await;
    let mut subscriber = first.client().await.unwrap();
    subscriber.command(&["PSUBSCRIBE", "*"]).await.unwrap();
    refused_beside(&alone).await;
    hold(&open(direct(&first)).await).await.release().await.unwrap();
}

/// Replication is asynchronous, so a promoted replica may know nothing of a lock: two holders, shown
/// here. The second one's token is larger, although the replica did not have the counter either.
async fn a_write_that_was_not_copied_is_a_second_holder() {
    let mut primary = server().await;
    // Replication is no protocol of requests, so each read is a frame.
    let between = Proxy::start(primary.addr()).unwrap();
    let replica = start(Settings::new().replica_of(between.addr())).await;
    replica.follows().await.unwrap();
    let a = open_for(direct(&primary), LONG).await;
    let guard = unreplicated_hold(&a, &primary, &between, &replica).await;
    primary.kill().await.unwrap();
    ok(&replica, &["REPLICAOF", "NO", "ONE"]).await;
    let b = open(direct(&replica)).await;
    let next = hold(&b).await;
    guard.ensure_held().expect("nobody could tell it");
    next.ensure_held().unwrap();

    let gate = FenceGate::new();
    gate.admit(next.token()).unwrap();
    gate.admit(guard.token()).unwrap_err();
    next.release().await.unwrap();
}

/// A hold that the replica has not got, although it has what was written before.
pub(crate) async fn unreplicated_hold(
    locks: &LockManager,
    primary: &Server,
    between: &Proxy,
    replica: &Server,
) -> LockGuard {
    hold(locks).await.release().await.unwrap();
    // What was written before this is copied when this is: the release, too.
    ok(primary, &["SET", "last", "copied"]).await;
    eventually("the replica has caught up", async || exists(replica, "last").await).await;
    between.set_both(Mode::Blackhole).await;
    hold(locks).await
}

/// When the guard exists, the replica has the lock; renewals are confirmed, too, and all of that costs
/// one socket more.
async fn a_guard_waits_for_its_replicas() {
    let primary = server().await;
    let replica = replica_of(&primary).await;
    let locks = open(direct(&primary).wait_replicas(1)).await;
    for _ in 0..20 {
        let guard = hold(&locks).await;
        assert!(exists(&replica, KEY).await);
        guard.release().await.unwrap();
    }
    let guard = hold(&locks).await;
    guard.renew().await.unwrap();
    let list = command(&primary, &["CLIENT", "LIST", "TYPE", "normal"]).await.text().unwrap();
    let subscribed = command(&primary, &["CLIENT", "LIST", "TYPE", "pubsub"]).await.text().unwrap();
    let count = list.lines().count() + subscribed.lines().count();
    // Requests, messages and confirmations have one each, and the fourth is the one that asks.
    assert!(count <= 4, "{list}{subscribed}");
    guard.release().await.unwrap();
}

/// Replicas that are far away are waited for once for all that came meanwhile, not once for each.
async fn grants_wait_for_replicas_together() {
    const LOCKS: u64 = 40;
    let primary = server().await;
    let between = Proxy::start(primary.addr()).unwrap();
    let replica = start(Settings::new().replica_of(between.addr())).await;
    replica.follows().await.unwrap();
    between.set_both(Mode::delay(Duration::from_millis(50))).await;
    let locks = open_for(direct(&primary).wait_replicas(1), LONG).await;
    hold(&locks).await.release().await.unwrap();
    ok(&primary, &["CONFIG", "RESETSTAT"]).await;
    let guards = join_all(
        (0..LOCKS).map(async |index| locks.lock(format!("lock/{index}")).unwrap().acquire().await.unwrap()),
    )
    .await;
    let waits = primary.calls().await.unwrap()["wait"];
    assert!(waits <= LOCKS / 4, "{waits} times for {LOCKS} grants");
    for guard in &guards {
        assert!(exists(&replica, &format!("leasehold:{{{}}}", guard.name())).await);
    }
    locks.shutdown().await.unwrap();
}

async fn too_few_replicas_grant_nothing() {
    let primary = server().await;
    let locks = open_for(direct(&primary).wait_replicas(1), LONG).await;
    let error = locks.lock(NAME).unwrap().try_acquire().await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Unavailable, "{error}");
    eventually("the lock is free", async || !exists(&primary, KEY).await).await;
    ok(&primary, &["CONFIG", "RESETSTAT"]).await;
    let error = locks.lock(NAME).unwrap().wait(BOUND).acquire().await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(primary.calls().await.unwrap()["wait"], 1, "it is not repeated");
    eventually("the lock is free", async || !exists(&primary, KEY).await).await;
    let others = open(direct(&primary)).await;
    hold(&others).await.release().await.unwrap();
}

async fn a_lost_replica_ends_the_hold() {
    let primary = server().await;
    let mut replica = replica_of(&primary).await;
    let (a, b) = (open(direct(&primary).wait_replicas(1)).await, open(direct(&primary)).await);
    let guard = hold(&a).await;
    replica.kill().await.unwrap();
    assert_eq!(guard.lost().await, LostReason::Expired);
    let next = hold(&b).await;
    assert_lost(&guard, "when the next one holds");
    next.release().await.unwrap();
}

/// A server that has become a replica is asked anew from the connection up, where replicas are waited for, too: its
/// address may be another's by now.
async fn a_demoted_server_is_left_by_whoever_confirms() {
    let primary = server().await;
    let _replica = replica_of(&primary).await;
    let locks = open_for(direct(&primary).wait_replicas(1), LONG).await;
    let guard = hold(&locks).await;
    let clients = async || command(&primary, &["CLIENT", "LIST", "TYPE", "normal"]).await.text().unwrap();
    let list = clients().await;
    let confirming = list.lines().find(|client| client.contains(" cmd=wait ")).expect("it has waited");
    let id = format!("{} ", confirming.split(' ').next().unwrap());
    ok(&primary, &["REPLICAOF", "127.0.0.1", "1"]).await;
    let refused = guard.renew().await.unwrap_err();
    assert!(format!("{refused:#}").contains("READONLY"), "{refused:#}");
    eventually("it is left", async || !clients().await.lines().any(|client| client.starts_with(&id))).await;
}

fn on_disk(server: &Server) -> Builder {
    LockManager::builder(direct(server).wait_aof(true)).ttl(LONG).op_timeout(3 * TTL / 2)
}

async fn server_without_waitaof_is_refused() {
    let server = start(Settings::new().append_only()).await;
    let opened = on_disk(&server).build().await;
    let refused = opened.expect_err("it is refused");
    assert_eq!((refused.kind(), refused.effect()), (&ErrorKind::Unsupported, Effect::NotApplied));
    assert!(refused.to_string().contains("Redis 7.2"), "{refused}");
}

/// What the server has in memory, and has not written while its disk is busy, is lost; a grant is not, and many wait for the disk
/// together.
async fn killed_server_forgets_no_grant() {
    let everysec = Settings::new().set("appendonly", &["yes"]).set("appendfsync", &["everysec"]);
    let mut server = start(everysec.slow_disk().unwrap()).await;
    // On a busy machine so many take longer than the disk.
    let locks = on_disk(&server).op_timeout(BOUND / 2).connect_timeout(BOUND).build().await.unwrap();
    eventually("the disk is busy", async || {
        ok(&server, &["SET", "written", "before"]).await;
        server.info("persistence").await.unwrap()["aof_pending_bio_fsync"].trim() == "1"
    })
    .await;
    let names: Vec<_> = (0..1000).map(|number| format!("n{number}")).collect();
    let acquired = names.iter().map(async |name| locks.lock(name).unwrap().acquire().await.unwrap());
    let guards = join_all(acquired).await;
    let waits = server.calls().await.unwrap()["waitaof"];
    assert!(waits <= 100, "{waits} times for {} grants", guards.len());
    server.kill().await.unwrap();
    server.start_again().await.unwrap();
    let keys: Vec<_> = names.iter().map(|name| format!("leasehold:{{{name}}}")).collect();
    let words: Vec<_> = ["EXISTS"].into_iter().chain(keys.iter().map(String::as_str)).collect();
    assert_eq!(command(&server, &words).await.integer(), Some(1000), "grants are lost");
    eventually("they are renewed", async || {
        join_all(guards.iter().map(LockGuard::renew)).await.iter().all(Result::is_ok)
    })
    .await;
    locks.shutdown().await.unwrap();

    ok(&server, &["CONFIG", "SET", "appendonly", "no"]).await;
    let opened = on_disk(&server).build().await;
    let refused = opened.expect_err("it is refused");
    assert_eq!((refused.kind(), refused.effect()), (&ErrorKind::Unsupported, Effect::NotApplied));
    assert!(refused.to_string().contains("appendonly yes"), "{refused}");

    let server = start(Settings::new().append_only()).await;
    direct(&server).load_scripts().await.unwrap();
    option_needs(&server, "+waitaof", |config| config.wait_aof(true)).await;
}
