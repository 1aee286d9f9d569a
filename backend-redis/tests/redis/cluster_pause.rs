//! Clusters whose slots pause: after the fail-over of their server, and after a move.

use std::time::Duration;

use leasehold_core::backend::Severity;
use leasehold_core::{ErrorKind, LockManager};
use leasehold_redis::RedisClusterConfig;
use testbed::redis::{Cluster, Reply, Settings, Step};

use crate::cluster::{self, SILENT, started};
use crate::cluster_inbox::{passed_on, waits_by_channel};
use crate::contest::Contest;
use crate::fixture::{
    KEY, LONG, NAME, TTL, assert_lost, command, eventually, hold, hold_at_last, now, ok, open_for, pass,
    trials,
};
use crate::pause::assert_busy;

trials![
    unreplicated_hold_is_doubled_without_the_pause = || unreplicated(false, Primary::Killed),
    unreplicated_hold_is_not_doubled_in_the_pause = || unreplicated(true, Primary::Killed),
    hold_at_a_minority_is_not_doubled_in_the_pause = || unreplicated(true, Primary::CutOff),
    hold_outlasts_a_move_and_an_announced_failover,
    moved_slot_tells_of_another_pause,
    failovers_and_moves_under_load_double_nothing,
];

/// The longest lease here. It is shorter than the lag, so that no hold outlasts that by itself.
const MAX_TTL: Duration = Duration::from_secs(3);
const LAG: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_secs(7);

fn config(cluster: &Cluster) -> RedisClusterConfig {
    RedisClusterConfig::new([cluster.addrs()[0].to_string(), cluster.addrs()[1].to_string()])
        .max_ttl(MAX_TTL)
        .failover_lag(LAG)
}

/// The slot of a key, and its server.
async fn place(cluster: &Cluster, key: &str) -> (usize, usize) {
    let slot = cluster.slot_of(key).await.unwrap();
    (slot, cluster.owner_of(slot).await.unwrap())
}

/// What happens to the primary that is replaced.
#[derive(PartialEq, Eq)]
enum Primary {
    Killed,
    /// Clients reach it still: it renews what is held until it has missed the majority for the servers' timeout.
    CutOff,
}

async fn is_promoted(cluster: &Cluster, replica: usize) {
    eventually("the replica is promoted", async || {
        cluster.server(replica).info("replication").await.unwrap()["role"].trim() == "master"
    })
    .await;
}

/// A promoted replica has not got the lock of a holder that hears nothing of it. With the pause the lock is granted to no other
/// client before that hold has ended.
async fn unreplicated(with_pause: bool, primary: Primary) {
    let mut cluster = Cluster::divisible(&Settings::new(), 3, 1, SILENT).await.unwrap();
    let (terms, ttl) = if with_pause { (config(&cluster), MAX_TTL) } else { (cluster::of(&cluster), LONG) };
    let a = open_for(terms.clone(), ttl).await;
    let b = open_for(terms, ttl).await;
    // The first pause of the servers is over then.
    hold(&a).await.release().await.unwrap();
    let (_, owner) = place(&cluster, KEY).await;
    let replica = owner + 3;
    cluster.server(replica).process().stop().await.unwrap();
    command(cluster.server(owner), &["CLIENT", "KILL", "TYPE", "replica"]).await;
    let guard = hold(&a).await;
    match primary {
        Primary::Killed => cluster.server_mut(owner).kill().await.unwrap(),
        Primary::CutOff => cluster.cut_off(owner).await.unwrap(),
    }
    cluster.server(replica).process().cont().unwrap();
    is_promoted(&cluster, replica).await;

    if with_pause {
        assert_busy(&b).await;
        let next = hold_at_last(&b).await;
        assert_lost(&guard, "when the next one holds");
        assert!(next.token() > guard.token());
        if primary == Primary::CutOff {
            let said = command(cluster.server(owner), &["EXISTS", KEY]).await;
            assert!(matches!(&said, Reply::Error(said) if said.starts_with("CLUSTERDOWN")), "{said:?}");
        }
    } else {
        let next = hold(&b).await;
        guard.ensure_held().expect("nobody could tell it");
        next.ensure_held().unwrap();
        assert!(next.token() > guard.token());
    }
}

/// A hold goes on whose slot moves, and whose server hands over to its replica: both servers say that they refuse the slot, at
/// last. For others the slot pauses. Nothing of that costs a request in the steady state.
async fn hold_outlasts_a_move_and_an_announced_failover() {
    // Long enough that a slot is not asked about before each request.
    let cluster = Cluster::start(3, 1, 2 * SILENT).await.unwrap_or_else(|error| panic!("{error}"));
    let config = |cluster: &_| config(cluster).failover_lag(2 * LAG);
    let locks = open_for(config(&cluster).servers(|server| server.wait_replicas(1)), MAX_TTL).await;
    let other = open_for(config(&cluster), MAX_TTL).await;
    for pause in [2 * PAUSE, Duration::ZERO] {
        let refused =
            LockManager::builder(config(&cluster).pause_after_failover(pause)).ttl(TTL).build().await;
        let refused = refused.expect_err("the others have another pause");
        assert_eq!(*refused.kind(), ErrorKind::InvalidOption, "{refused:#}");
    }
    let longer = other.lock(NAME).unwrap().ttl(2 * MAX_TTL).try_acquire().await.unwrap_err();
    assert!(longer.to_string().contains("max_ttl"), "{longer}");
    // Waiters subscribe to the channel of their slot in the first pause, too.
    let waiter = waits_by_channel(&cluster, &other, NAME, &locks).await;
    let held = waiter.end("the pause ends").await.unwrap();
    let waiter = waits_by_channel(&cluster, &locks, NAME, &other).await;
    let before = passed_on(&cluster).await;
    held.release().await.unwrap();
    waiter.end("the message of the grant").await.unwrap().release().await.unwrap();
    assert_eq!(passed_on(&cluster).await, before);

    let (slot, owner) = place(&cluster, KEY).await;
    let evals = async |node| {
        let calls = cluster.server(node).calls().await.unwrap();
        calls.get("evalsha").copied().unwrap_or_default() + calls.get("eval").copied().unwrap_or_default()
    };
    let (before, began) = (evals(owner).await, now());
    for _ in 0..10 {
        other.lock(NAME).unwrap().try_acquire().await.unwrap().unwrap().release().await.unwrap();
    }
    let asked = evals(owner).await - before - 20;
    // The slot is asked about again after a second without a request.
    assert!(asked <= now().since(began).as_secs(), "asked {asked} times while acquired and released");
    // Of names that were not used before none pauses: their server is known for longer.
    for number in 0..20 {
        let unused = other.lock(format!("unused {number}")).unwrap();
        unused.try_acquire().await.unwrap().expect("it is free").release().await.unwrap();
    }

    let guard = hold(&locks).await;
    let to = (owner + 1) % 3;
    guard.renew().await.unwrap();
    // The session does not come to the other server before that has the slot.
    cluster.move_slot(slot, to, Step::Keys).await.unwrap();
    // The server before does not say who has the slot. The hold is not extended until then, and is not lost.
    ok(cluster.server(owner), &["ACL", "SETUSER", "default", "-get"]).await;
    cluster.move_slot(slot, to, Step::Done).await.unwrap();
    eventually("the other server is asked", async || {
        let unrenewed = guard.renew().await.expect_err("extended without the word of the server before");
        assert_eq!(*unrenewed.kind(), ErrorKind::Unavailable, "{unrenewed:#}");
        format!("{unrenewed:#}").contains("the lease is not extended")
    })
    .await;
    ok(cluster.server(owner), &["ACL", "SETUSER", "default", "+get"]).await;
    pass(2 * MAX_TTL).await;
    guard.ensure_held().expect("it was renewed where the slot is");
    guard.renew().await.unwrap();

    // The promoted server has no scripts yet.
    ok(cluster.server(to + 3), &["SCRIPT", "FLUSH"]).await;
    cluster.fail_over(to + 3).await.unwrap();
    pass(MAX_TTL).await;
    guard.ensure_held().expect("it was renewed at the promoted server");
    guard.renew().await.unwrap();
    guard.release().await.unwrap();
    assert_busy(&other).await;
    let findings = other.diagnose().await.unwrap();
    let said = |subject, severity, words: &str| {
        let is_it = |finding: &&leasehold_core::backend::Finding| {
            finding.subject == subject && finding.severity == severity && finding.detail.contains(words)
        };
        assert!(findings.iter().filter(is_it).count() >= 3, "{subject} {words}: {findings:?}");
    };
    said("fail-over", Severity::Warning, "min-replicas-to-write 1");
    said("slots", Severity::Ok, "cluster-node-timeout is 2s");
    hold(&other).await.release().await.unwrap();

    // The first server is known for longer than the slot was elsewhere.
    cluster.move_slot(slot, owner, Step::Done).await.unwrap();
    assert_busy(&other).await;
}

/// The first number whose key lies at that server.
async fn first_at(cluster: &Cluster, server: usize, key: impl Fn(u32) -> String) -> u32 {
    let mut number = 0;
    while place(cluster, &key(number)).await.1 != server {
        number += 1;
    }
    number
}

/// Managers with the pause and managers without it learn of each other by the slots that they use, also at a server whose own
/// note has moved away with its highest slot.
async fn moved_slot_tells_of_another_pause() {
    let cluster = started(3, 0).await;
    // What is read at first lies there, too: the other servers have their notes, and refuse.
    let (_, server) = place(&cluster, "{%move}").await;
    let name = format!("n{}", first_at(&cluster, server, |number| format!("{{n{number}}}")).await);
    let mut highest = (server + 1) * Cluster::SLOTS / 3 - 1;
    for (order, pauses) in [("a", [true, false]), ("b", [false, true])] {
        let number = first_at(&cluster, server, |number| format!("{order}{number}:token_base")).await;
        let [first, second] = pauses.map(|pauses| {
            let terms = config(&cluster).servers(|server| server.prefix(format!("{order}{number}")));
            if pauses { terms } else { terms.pause_after_failover(Duration::ZERO) }
        });
        let first = open_for(first, MAX_TTL).await;
        drop(first.lock(&name).unwrap().try_acquire().await.unwrap());
        cluster.move_slot(highest, (server + 1) % 3, Step::Done).await.unwrap();
        highest -= 1;
        eventually("the second one is admitted there, and refused at the lock", async || {
            let (refused, is_admitted) = match LockManager::builder(second.clone()).ttl(TTL).build().await {
                Ok(second) => (second.lock(&name).unwrap().try_acquire().await.expect_err("refused"), true),
                Err(refused) => (refused, false),
            };
            assert_eq!(*refused.kind(), ErrorKind::InvalidOption, "{refused:#}");
            is_admitted
        })
        .await;
    }
}

/// Clients contend while the slot of all names moves, a primary is stopped and goes on, and servers change their roles.
async fn failovers_and_moves_under_load_double_nothing() {
    let cluster = started(3, 1).await;
    let contest = Contest::start(config(&cluster).pin("all"), MAX_TTL).await;
    let (slot, owner) = place(&cluster, "{all}").await;
    let to = (owner + 1) % 3;
    cluster.move_slot(slot, to, Step::Done).await.unwrap();
    contest.goes_on().await;
    // It takes itself for a primary until it hears of the other one.
    let replica = to + 3;
    cluster.server(to).process().stop().await.unwrap();
    is_promoted(&cluster, replica).await;
    cluster.server(to).process().cont().unwrap();
    cluster.promoted(replica).await.unwrap();
    contest.goes_on().await;
    eventually("the stopped server is a replica", async || {
        let info = cluster.server(to).info("replication").await.unwrap();
        info["role"].trim() == "slave" && info["master_link_status"].trim() == "up"
    })
    .await;
    cluster.fail_over(to).await.unwrap();
    contest.goes_on().await;
    contest.assert_one_by_one();
}
