//! A quorum of servers: what holds while some of them are stopped, killed, emptied or out of reach, and what is refused.

use std::time::Duration;

use leasehold_core::backend::{Revocation, Severity};
use leasehold_core::{ErrorKind, FencingToken, Guarantees, LockManager, Revoke};
use leasehold_redis::{QuorumConfig, RedisConfig};
use testbed::redis::{Server, Settings, WallClock};
use testbed::{Direction, Mode, Proxy};

use crate::access::{documented_rights, refusals, user};
use crate::rig::{
    BOUND, Beside, LONG, NAME, TTL, Waiter, direct, eventually, hold, ok, open, pass, proxy, server, start,
    trials, via,
};

trials![
    one_that_is_stopped_costs_nothing,
    without_a_quorum_nobody_holds,
    tokens_grow_past_servers_that_forget,
    a_server_that_forgot_does_not_vote_for_a_held_lock,
    without_the_pause_what_is_forgotten_is_granted_again,
    tokens_grow_past_clocks_that_are_apart,
    a_client_that_is_cut_off_from_one_holds_on,
    a_client_that_is_cut_off_from_two_loses_in_time,
    servers_that_refuse_are_done_without,
    two_servers_that_forbid_are_the_answer,
    eight_contenders_are_served,
    a_free_lock_is_asked_for_once,
    one_server_is_not_named_twice,
    a_replica_is_refused,
    locks_in_one_server_are_others,
    a_disk_that_is_always_written_is_trusted,
    a_larger_quorum_outlasts_a_stepped_clock,
    the_documented_rights_are_enough,
    the_diagnosis_names_who_is_away,
];

async fn three() -> Vec<Server> {
    vec![server().await, server().await, server().await]
}

fn quorum(servers: &[Server]) -> QuorumConfig {
    QuorumConfig::new(servers.iter().map(direct))
}

/// A manager in whose servers a lock was held: from here on all of them vote.
async fn begun(config: QuorumConfig) -> LockManager {
    let locks = open_config(config).await;
    cycle(&locks).await;
    all_vote(&locks).await;
    locks
}

/// No server has anything to be told any more.
async fn all_vote(locks: &LockManager) {
    eventually("all servers vote", async || {
        let findings = locks.diagnose().await.unwrap();
        let mut memory = findings.iter().filter(|finding| finding.subject == "memory");
        memory.all(|finding| finding.severity == Severity::Ok)
            && findings.iter().all(|finding| finding.subject != "server")
    })
    .await;
}

async fn open_config(config: QuorumConfig) -> LockManager {
    LockManager::builder(config).ttl(TTL).connect_timeout(BOUND).build().await.unwrap()
}

async fn cycle(locks: &LockManager) -> FencingToken {
    let guard = hold(locks).await;
    let token = guard.token();
    guard.release().await.unwrap();
    token
}

/// One of three is stopped for two ttls: the hold is renewed, others are kept out, and the next one holds at once.
async fn one_that_is_stopped_costs_nothing() {
    let servers = three().await;
    let (a, b) = (begun(quorum(&servers)).await, open_config(quorum(&servers)).await);
    let guard = hold(&a).await;
    servers[1].process().stop().await.unwrap();
    pass(2 * TTL).await;
    guard.ensure_held().unwrap();
    assert!(b.lock(NAME).unwrap().try_acquire().await.unwrap().is_none());
    let before = guard.token();
    guard.release().await.unwrap();
    assert!(cycle(&b).await > before);
    servers[1].process().cont().unwrap();
    assert!(cycle(&a).await > before);
}

/// Two of three are stopped: the hold is over by its deadline, and nobody is granted it; once they go on, somebody is.
async fn without_a_quorum_nobody_holds() {
    let servers = three().await;
    let (a, b) = (begun(quorum(&servers)).await, open_config(quorum(&servers)).await);
    let guard = hold(&a).await;
    let before = guard.token();
    for server in &servers[..2] {
        server.process().stop().await.unwrap();
    }
    let refused = b.lock(NAME).unwrap().try_acquire().await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Unavailable, "{refused}");
    pass(TTL).await;
    assert!(guard.ensure_held().is_err());
    let refused = b.lock(NAME).unwrap().acquire().await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Unavailable, "{refused}");
    for server in &servers[..2] {
        server.process().cont().unwrap();
    }
    eventually("a quorum votes again", async || {
        b.lock(NAME).unwrap().try_acquire().await.is_ok_and(|guard| guard.is_some())
    })
    .await;
    assert!(cycle(&a).await > before);
}

/// Each server in turn comes up empty, and tokens grow all the same.
async fn tokens_grow_past_servers_that_forget() {
    let mut servers = three().await;
    let locks = begun(quorum(&servers)).await;
    let mut last = cycle(&locks).await;
    for at in [0, 1, 2, 0] {
        servers[at].kill().await.unwrap();
        servers[at].start_empty().await.unwrap();
        // Another manager, which has heard of no number yet, and this one.
        let fresh = open_config(quorum(&servers)).await;
        for locks in [&fresh, &locks] {
            let token = cycle(locks).await;
            assert!(token > last, "{token} after {last}");
            last = token;
        }
        all_vote(&locks).await;
    }
}

/// Two of the three servers of a held lock come up empty: nobody else is granted it before the holder has lost it.
async fn a_server_that_forgot_does_not_vote_for_a_held_lock() {
    let mut servers = three().await;
    let (a, b) = (begun(quorum(&servers)).await, open_config(quorum(&servers)).await);
    let guard = hold(&a).await;
    for server in &mut servers[..2] {
        server.kill().await.unwrap();
        server.start_empty().await.unwrap();
    }
    let next = loop {
        let attempt = b.lock(NAME).unwrap().try_acquire().await;
        let is_held = guard.ensure_held().is_ok();
        if let Ok(Some(next)) = attempt {
            assert!(!is_held, "two hold");
            break next;
        }
    };
    assert!(next.token() > guard.token());
}

/// The pause is what keeps it so: without it, what a server has forgotten is granted again, and nothing else is promised.
async fn without_the_pause_what_is_forgotten_is_granted_again() {
    let mut servers = three().await;
    let config = |servers: &[Server]| quorum(servers).pause_after_restart(Duration::ZERO);
    let a = begun(config(&servers)).await;
    assert!(!a.guarantees().contains(Guarantees::SURVIVES_FAILOVER));
    let (a, b) = (open_for_long(config(&servers)).await, open_config(config(&servers)).await);
    let guard = hold(&a).await;
    for server in &mut servers[..2] {
        server.kill().await.unwrap();
        server.start_empty().await.unwrap();
    }
    let next = hold(&b).await;
    guard.ensure_held().expect("it cannot know yet");
    assert!(next.token() > guard.token());
}

async fn open_for_long(config: QuorumConfig) -> LockManager {
    LockManager::builder(config).ttl(LONG).connect_timeout(BOUND).build().await.unwrap()
}

/// Clocks are 5 s apart in both directions, and whoever is asked first is another one each time.
async fn tokens_grow_past_clocks_that_are_apart() {
    let (ahead, behind) = (WallClock::new().unwrap(), WallClock::new().unwrap());
    ahead.shift_by(5).unwrap();
    behind.shift_by(-5).unwrap();
    let servers = vec![
        start(Settings::new().clock(&ahead)).await,
        server().await,
        start(Settings::new().clock(&behind)).await,
    ];
    begun(quorum(&servers)).await;
    let mut last = None;
    for round in 0..9 {
        let away = &servers[round % 3];
        away.process().stop().await.unwrap();
        let token = cycle(&open_config(quorum(&servers)).await).await;
        away.process().cont().unwrap();
        assert!(last < Some(token), "{token} after {last:?}");
        last = Some(token);
    }
}

/// Servers of which the first `cut` are reached through proxies.
async fn behind(servers: &[Server], cut: usize) -> (Vec<Proxy>, QuorumConfig) {
    let proxies: Vec<_> = servers[..cut].iter().map(proxy).collect();
    let config = QuorumConfig::new(proxies.iter().map(via).chain(servers[cut..].iter().map(direct)));
    (proxies, config)
}

/// In either direction, or both, one server out of reach is done without.
async fn a_client_that_is_cut_off_from_one_holds_on() {
    let servers = three().await;
    let b = begun(quorum(&servers)).await;
    for direction in [Direction::ClientToServer, Direction::ServerToClient] {
        let (proxies, config) = behind(&servers, 1).await;
        let a = open_config(config).await;
        let guard = hold(&a).await;
        proxies[0].set(direction, Mode::Blackhole).await;
        pass(2 * TTL).await;
        guard.ensure_held().unwrap();
        assert!(b.lock(NAME).unwrap().try_acquire().await.unwrap().is_none());
        guard.release().await.unwrap();
        cycle(&b).await;
        proxies[0].set(direction, Mode::Pass).await;
    }
}

/// Cut off from two, the holder knows before another holds.
async fn a_client_that_is_cut_off_from_two_loses_in_time() {
    let servers = three().await;
    let b = begun(quorum(&servers)).await;
    let (proxies, config) = behind(&servers, 2).await;
    let a = open_config(config).await;
    let guard = hold(&a).await;
    for proxy in &proxies {
        proxy.set_both(Mode::Blackhole).await;
    }
    let next = hold(&b).await;
    assert!(guard.ensure_held().is_err(), "two hold");
    assert!(next.token() > guard.token());
}

/// A server that is full, and one whose user lost its rights, are done without, each alone.
async fn servers_that_refuse_are_done_without() {
    let servers = three().await;
    let locks = begun(quorum(&servers)).await;
    ok(&servers[0], &["CONFIG", "SET", "maxmemory", "1"]).await;
    let first = cycle(&locks).await;
    ok(&servers[0], &["CONFIG", "SET", "maxmemory", "0"]).await;
    let guard = hold(&locks).await;
    ok(&servers[1], &["ACL", "SETUSER", "default", "-set", "-pexpire"]).await;
    pass(TTL).await;
    guard.ensure_held().unwrap();
    guard.release().await.unwrap();
    assert!(cycle(&locks).await > first);
}

/// What so many refuse that there is no quorum is the answer, and not that they are away.
async fn two_servers_that_forbid_are_the_answer() {
    let servers = three().await;
    let locks = begun(quorum(&servers)).await;
    for server in &servers[..2] {
        ok(server, &["ACL", "SETUSER", "default", "-set"]).await;
    }
    let refused = locks.lock(NAME).unwrap().acquire().await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Denied, "{refused}");
}

/// Eight processes want one lock at once, so their votes split: all of them have it, one at a time, with growing tokens.
async fn eight_contenders_are_served() {
    let servers = three().await;
    begun(quorum(&servers)).await;
    let tokens = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
    let mut working = Vec::new();
    for _ in 0..8 {
        let (locks, tokens) = (open_config(quorum(&servers)).await, std::sync::Arc::clone(&tokens));
        working.push(Beside::start(async move {
            for _ in 0..10 {
                let guard = hold(&locks).await;
                tokens.lock().push(guard.token());
                guard.release().await.unwrap();
            }
        }));
    }
    for worker in working {
        worker.end("everybody is served").await;
    }
    let tokens = tokens.lock();
    assert_eq!(tokens.len(), 80);
    assert!(tokens.is_sorted(), "{tokens:?}");
}

/// A free lock is one request to each server, and so is letting it go.
async fn a_free_lock_is_asked_for_once() {
    let servers = three().await;
    let locks = begun(quorum(&servers)).await;
    let calls = async |server: &Server| server.calls().await.unwrap().get("evalsha").copied().unwrap_or(0);
    // The scripts are there, and all servers have answered.
    cycle(&locks).await;
    let mut before = Vec::new();
    for server in &servers {
        before.push(calls(server).await);
    }
    const CYCLES: u64 = 20;
    for _ in 0..CYCLES {
        cycle(&locks).await;
    }
    for (server, before) in servers.iter().zip(before) {
        let expected = before + 2 * CYCLES;
        eventually("the last one is released", async || calls(server).await >= expected).await;
        // A proposal that a server had passed already costs a confirmation.
        let asked = calls(server).await - before;
        assert!(asked <= 2 * CYCLES + CYCLES / 4, "{asked} requests for {CYCLES} cycles");
    }
}

/// A server that is named twice counts once, whatever it is called.
async fn one_server_is_not_named_twice() {
    let servers = three().await;
    let port = servers[0].addr().port();
    let config =
        QuorumConfig::new([direct(&servers[0]), RedisConfig::new("localhost", port), direct(&servers[1])]);
    let refused = LockManager::builder(config).ttl(TTL).connect_timeout(BOUND).build().await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::InvalidOption, "{refused}");
    assert!(refused.to_string().contains("named twice"), "{refused}");
}

/// A replica is no server that fails apart.
async fn a_replica_is_refused() {
    let mut servers = vec![server().await, server().await];
    servers.push(start(Settings::new().replica_of(servers[0].addr())).await);
    let refused =
        LockManager::builder(quorum(&servers)).ttl(TTL).connect_timeout(BOUND).build().await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::InvalidOption, "{refused}");
    assert!(refused.to_string().contains("is a replica"), "{refused}");
}

/// A lock of a quorum and one of the same name in one of its servers are two locks; neither takes the other's keys for its own.
async fn locks_in_one_server_are_others() {
    let servers = three().await;
    let (several, one) = (begun(quorum(&servers)).await, open(direct(&servers[0])).await);
    let (guard, other) = (hold(&several).await, hold(&one).await);
    other.ensure_held().unwrap();
    guard.ensure_held().unwrap();
    assert_eq!(one.list("").await.unwrap().len(), 1);
    other.release().await.unwrap();
    assert!(several.inspect(NAME).await.unwrap().holder.is_some());
}

/// Who cannot be used is named, and what that means for the quorum.
async fn the_diagnosis_names_who_is_away() {
    let mut servers = three().await;
    let locks = begun(quorum(&servers)).await;
    let severity = async || {
        let findings = locks.diagnose().await.unwrap();
        let quorum = findings.iter().find(|finding| finding.subject == "quorum").unwrap();
        let away = findings.iter().filter(|finding| finding.subject == "server").count();
        (quorum.severity, away)
    };
    assert_eq!(severity().await, (Severity::Ok, 0));
    servers[0].kill().await.unwrap();
    eventually("one is away", async || severity().await == (Severity::Warning, 1)).await;
    servers[1].kill().await.unwrap();
    eventually("two are away", async || severity().await == (Severity::Broken, 2)).await;
}

/// All servers are killed, and come up with their data: the hold goes on, and nobody else is let in.
async fn a_disk_that_is_always_written_is_trusted() {
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(start(Settings::new().append_only()).await);
    }
    let config = |servers: &[Server]| quorum(servers).pause_after_restart(Duration::ZERO).fsync_always(true);
    let (a, b) = (begun(config(&servers)).await, open_config(config(&servers)).await);
    assert!(a.guarantees().contains(Guarantees::SURVIVES_FAILOVER));
    let guard = hold(&a).await;
    for server in &mut servers {
        server.kill().await.unwrap();
        server.start_again().await.unwrap();
    }
    eventually("it is renewed", async || guard.renew().await.is_ok()).await;
    assert!(b.lock(NAME).unwrap().try_acquire().await.is_ok_and(|other| other.is_none()));
    let token = guard.token();
    guard.release().await.unwrap();
    assert!(cycle(&b).await > token);
}

/// Of five, of which four have to agree, one whose clock is stepped forward lets nobody in.
async fn a_larger_quorum_outlasts_a_stepped_clock() {
    let clock = WallClock::new().unwrap();
    let mut servers = vec![start(Settings::new().clock(&clock)).await];
    for _ in 0..4 {
        servers.push(server().await);
    }
    let config = || quorum(&servers).quorum(4);
    let (a, b) = (begun(config()).await, open_config(config()).await);
    let guard = hold(&a).await;
    clock.shift_by(3600).unwrap();
    assert!(b.lock(NAME).unwrap().try_acquire().await.unwrap().is_none());
    guard.renew().await.unwrap();
    pass(TTL).await;
    guard.ensure_held().unwrap();
    assert!(b.lock(NAME).unwrap().try_acquire().await.unwrap().is_none());
}

/// What the page names on top of what one server needs.
const RIGHTS: [&str; 6] = ["+hmget", "+zrank", "+zcard", "+pexpireat", "+info", "+eval"];

/// A user with the rights that the page names can do whatever a program or an administrator asks for.
async fn the_documented_rights_are_enough() {
    let page = include_str!("../../../docs/redis-quorum.md");
    for right in RIGHTS {
        assert!(page.contains(right), "{right} is not on the page");
    }
    let servers = three().await;
    let rights = [documented_rights(), RIGHTS.to_vec()].concat();
    let mut users = Vec::new();
    for server in &servers {
        users.push(user(server, &rights).await);
    }
    let config = || QuorumConfig::new(users.clone());
    let (a, b) = (begun(config()).await, open_config(config()).await);
    let guard = hold(&a).await;
    guard.renew().await.unwrap();
    assert!(b.lock(NAME).unwrap().try_acquire().await.unwrap().is_none());
    assert_eq!(b.list("").await.unwrap().len(), 1);
    let waiting = Waiter::start(&b);
    eventually("it waits", async || a.inspect(NAME).await.unwrap().contenders > 0).await;
    guard.release().await.unwrap();
    let next = waiting.held().await;
    assert_eq!(a.revoke(NAME, Revoke::AT_ONCE).await.unwrap(), Revocation::Released);
    drop(next);
    drop(hold(&b).await);
    a.diagnose().await.unwrap();
    for server in &servers {
        assert_eq!(refusals(server).await, [""; 0]);
    }
}
