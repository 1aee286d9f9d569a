//! A quorum of servers: what holds while some of them are stopped, killed, emptied or out of reach, and what is refused.

use std::time::Duration;

use leasehold_core::backend::{Revocation, Severity};
use leasehold_core::{ErrorKind, FencingToken, LockManager, Revoke, Tls};
use leasehold_redis::{QuorumConfig, RedisConfig};
use testbed::redis::{Server, Settings, WallClock};
use testbed::{Certificates, Direction, Mode, Proxy};

use crate::access::{documented_rights, refusals, user};
use crate::rig::{
    BOUND, KEY, NAME, TTL, Waiter, command, direct, eventually, hold, ok, open, pass, proxy, server, start,
    trials, via,
};

trials![
    one_that_is_stopped_costs_nothing,
    without_a_quorum_nobody_holds,
    tokens_grow_past_clocks_that_are_apart,
    a_client_that_is_cut_off_from_one_holds_on,
    a_client_that_is_cut_off_from_two_loses_in_time = || is_cut_off(2),
    a_client_that_is_cut_off_from_all_loses_in_time = || is_cut_off(3),
    one_that_is_slow_costs_nothing,
    many_holds_are_renewed_together,
    a_renewal_counts_from_its_sending,
    servers_that_refuse_are_done_without,
    two_servers_that_forbid_are_the_answer,
    locks_in_one_server_are_others,
    a_larger_quorum_outlasts_a_stepped_clock,
    the_documented_rights_are_enough,
    the_diagnosis_names_who_is_away,
    the_diagnosis_names_what_weakens_it,
    each_server_has_a_user_and_certificates_of_its_own,
];

pub(crate) async fn three() -> Vec<Server> {
    vec![server().await, server().await, server().await]
}

pub(crate) fn quorum(servers: &[Server]) -> QuorumConfig {
    QuorumConfig::new(servers.iter().map(direct)).pause_after_restart(TTL)
}

/// A manager in whose servers a lock was held: from here on all of them vote.
pub(crate) async fn begun(config: QuorumConfig) -> LockManager {
    let locks = open_config(config).await;
    eventually("a quorum votes", async || {
        locks.lock(NAME).unwrap().try_acquire().await.is_ok_and(|guard| guard.is_some())
    })
    .await;
    all_vote(&locks).await;
    locks
}

/// However late a renewal is answered, the lease was there from when it arrived, and no longer.
async fn a_renewal_counts_from_its_sending() {
    let servers = three().await;
    let (proxies, config) = behind(&servers, 3).await;
    let guard = hold(&begun(config).await).await;
    for proxy in &proxies {
        proxy.set(Direction::ServerToClient, Mode::delay(TTL / 8)).await;
    }
    guard.renew().await.unwrap();
    let left = guard.remaining();
    assert!(left <= TTL - TTL / 8, "{left:?} of {TTL:?}");
}

/// No server has anything to be told any more.
pub(crate) async fn all_vote(locks: &LockManager) {
    eventually("all servers vote", async || {
        let findings = locks.diagnose().await.unwrap();
        let mut memory = findings.iter().filter(|finding| finding.subject == "memory");
        memory.all(|finding| finding.severity == Severity::Ok)
            && findings.iter().all(|finding| finding.subject != "server")
    })
    .await;
}

pub(crate) async fn open_config(config: QuorumConfig) -> LockManager {
    LockManager::builder(config).ttl(TTL).connect_timeout(BOUND).build().await.unwrap()
}

pub(crate) async fn cycle(locks: &LockManager) -> FencingToken {
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
pub(crate) async fn behind(servers: &[Server], cut: usize) -> (Vec<Proxy>, QuorumConfig) {
    let proxies: Vec<_> = servers[..cut].iter().map(proxy).collect();
    let config = QuorumConfig::new(proxies.iter().map(via).chain(servers[cut..].iter().map(direct)));
    (proxies, config.pause_after_restart(TTL))
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

/// Cut off from so many, the holder knows before another holds.
async fn is_cut_off(from: usize) {
    let servers = three().await;
    let b = begun(quorum(&servers)).await;
    let (proxies, config) = behind(&servers, from).await;
    let a = open_config(config).await;
    let guard = hold(&a).await;
    for proxy in &proxies {
        proxy.set_both(Mode::Blackhole).await;
    }
    let next = hold(&b).await;
    assert!(guard.ensure_held().is_err(), "two hold");
    assert!(next.token() > guard.token());
}

/// A server whose answers come late is not waited for, and heard all the same.
async fn one_that_is_slow_costs_nothing() {
    let servers = three().await;
    let b = begun(quorum(&servers)).await;
    let (proxies, config) = behind(&servers, 1).await;
    let a = open_config(config).await;
    proxies[0].set_both(Mode::delay(TTL / 16)).await;
    let mut last = cycle(&b).await;
    for _ in 0..5 {
        let token = cycle(&a).await;
        assert!(token > last, "{token} after {last}");
        last = token;
    }
    let guard = hold(&a).await;
    pass(2 * TTL).await;
    guard.ensure_held().unwrap();
    assert!(b.lock(NAME).unwrap().try_acquire().await.unwrap().is_none());
}

/// Whatever is held, each server is asked once every third of the ttl.
async fn many_holds_are_renewed_together() {
    let servers = three().await;
    let locks = begun(quorum(&servers)).await;
    let mut guards = Vec::new();
    for at in 0..50 {
        guards.push(locks.lock(format!("held/{at}")).unwrap().acquire().await.unwrap());
    }
    let calls = async |server: &Server| server.calls().await.unwrap()["evalsha"];
    // By then every server has voted for all of them.
    pass(TTL).await;
    let before = calls(&servers[0]).await;
    pass(2 * TTL).await;
    let asked = calls(&servers[0]).await - before;
    println!("{asked} requests to one server for 50 holds in two ttls");
    assert!((5..=8).contains(&asked), "{asked} requests");
    guards.iter().for_each(|guard| guard.ensure_held().unwrap());
}

/// A server that is full, and one whose user lost its rights, are done without, each alone. What is held is renewed and let go
/// on full servers, too.
async fn servers_that_refuse_are_done_without() {
    let servers = three().await;
    let locks = begun(quorum(&servers)).await;
    ok(&servers[0], &["CONFIG", "SET", "maxmemory", "1"]).await;
    let first = cycle(&locks).await;
    ok(&servers[0], &["CONFIG", "SET", "maxmemory", "0"]).await;
    let guard = hold(&locks).await;
    // Two votes are a quorum: the third may be in flight, and those that stay must be enough.
    eventually("all have voted", async || {
        let mut votes = Vec::new();
        for server in &servers {
            votes.push(command(server, &["GET", &format!("{KEY}:vote")]).await.text());
        }
        votes[0].is_some() && votes.iter().all(|vote| *vote == votes[0])
    })
    .await;
    ok(&servers[1], &["ACL", "SETUSER", "default", "-set", "-pexpire"]).await;
    for server in &servers {
        ok(server, &["CONFIG", "SET", "maxmemory", "1"]).await;
    }
    pass(TTL).await;
    guard.ensure_held().unwrap();
    guard.release().await.unwrap();
    for server in &servers {
        ok(server, &["CONFIG", "SET", "maxmemory", "0"]).await;
    }
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

/// A lock of a quorum and one of the same name in one of its servers are two locks; neither takes the other's keys for its own.
async fn locks_in_one_server_are_others() {
    let servers = three().await;
    let (several, one) = (begun(quorum(&servers)).await, open(direct(&servers[0])).await);
    let (guard, other) = (hold(&several).await, hold(&one).await);
    other.ensure_held().unwrap();
    guard.ensure_held().unwrap();
    assert_eq!(one.list("").await.unwrap().len(), 1);
    other.release().await.unwrap();
    assert!(several.inspect(NAME).await.unwrap().holder().is_some());
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
    let config = || QuorumConfig::new(users.clone()).pause_after_restart(TTL);
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

/// A quorum without a pause is warned of, and one that trusts disks which may lose what they were told is broken.
async fn the_diagnosis_names_what_weakens_it() {
    let said = async |servers: &[Server], config: QuorumConfig, subject: &str| {
        let locks = open_config(config).await;
        cycle(&locks).await;
        let findings = locks.diagnose().await.unwrap();
        assert!(findings.iter().all(|finding| finding.subject != "persistence"), "{findings:?}");
        let there = findings.iter().filter(|finding| finding.subject == subject);
        let said: Vec<_> = there.map(|finding| finding.severity).collect();
        assert!([0, 1, servers.len()].contains(&said.len()), "{findings:?}");
        said
    };
    let servers = three().await;
    assert_eq!(said(&servers, quorum(&servers), "restarts").await, [Severity::Ok]);
    let servers = three().await;
    let off = || quorum(&servers).pause_after_restart(Duration::ZERO);
    assert_eq!(said(&servers, off(), "restarts").await, [Severity::Warning]);
    assert_eq!(said(&servers, off(), "disk").await, []);
    let servers = three().await;
    let trusting = quorum(&servers).fsync_always(true);
    assert_eq!(said(&servers, trusting, "disk").await, [Severity::Broken; 3]);
    let mut kept = Vec::new();
    for _ in 0..3 {
        kept.push(start(Settings::new().append_only()).await);
    }
    assert_eq!(said(&kept, quorum(&kept).fsync_always(true), "disk").await, [Severity::Ok; 3]);
    ok(&kept[1], &["CONFIG", "SET", "no-appendfsync-on-rewrite", "yes"]).await;
    ok(&kept[2], &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).await;
    let trusting = || quorum(&kept).fsync_always(true);
    assert_eq!(said(&kept, trusting(), "disk").await, [Severity::Ok, Severity::Broken, Severity::Ok]);
    assert_eq!(said(&kept, trusting(), "eviction").await, [Severity::Ok, Severity::Ok, Severity::Broken]);
}

/// Three servers, each with another authority, another certificate for us, and another user.
async fn each_server_has_a_user_and_certificates_of_its_own() {
    let (mut servers, mut configs) = (Vec::new(), Vec::new());
    for name in ["a", "b", "c"] {
        let certificates = Certificates::new(name).unwrap();
        let server = start(Settings::new().tls(&certificates)).await;
        ok(&server, &["ACL", "SETUSER", name, "on", ">secret", "~*", "&*", "+@all"]).await;
        let read = |path| std::fs::read(path).unwrap();
        let (chain, key) = certificates.client();
        let tls = Tls::new().ca(read(certificates.authority())).client_certificate(read(chain), read(key));
        let port = server.tls_addr().unwrap().port();
        configs.push(RedisConfig::new("127.0.0.1", port).tls(tls).credentials(name, "secret"));
        servers.push(server);
    }
    let locks = begun(QuorumConfig::new(configs.clone()).pause_after_restart(TTL)).await;
    for server in &servers {
        server.process().stop().await.unwrap();
        cycle(&locks).await;
        server.process().cont().unwrap();
        all_vote(&locks).await;
    }
    for config in &mut configs[1..] {
        *config = config.clone().credentials("a", "secret");
    }
    let config = QuorumConfig::new(configs).pause_after_restart(TTL);
    let refused = LockManager::builder(config).ttl(TTL).connect_timeout(BOUND).build();
    assert_eq!(*refused.await.unwrap_err().kind(), ErrorKind::Denied);
}
