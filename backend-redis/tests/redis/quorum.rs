//! A quorum of servers while some of them are stopped, refuse, are slow or cannot be reached.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::backend::{Revocation, Severity};
use leasehold_core::{ErrorKind, FencingToken, LockGuard, LockManager, Revoke, Tls};
use leasehold_redis::{QuorumConfig, RedisConfig};
use testbed::redis::{Reply, Server, Settings, WallClock};
use testbed::{Certificates, Direction, Mode, Proxy};

use crate::access::{documented_rights, refusals, user};
use crate::fixture::{
    BOUND, KEY, NAME, TTL, Waiter, command, direct, eventually, hold, ok, pass, proxy, start, trials, via,
};

trials![
    a_server_that_is_silent_or_slow_costs_nothing,
    opening_waits_for_slow_servers,
    a_client_that_is_cut_off_from_two_loses_in_time = || is_cut_off(2),
    a_client_that_is_cut_off_from_all_loses_in_time = || is_cut_off(3),
    many_holds_are_renewed_together,
    a_renewal_counts_from_its_sending,
    a_larger_quorum_outlasts_a_stepped_clock,
    servers_that_refuse_are_done_without,
    two_servers_that_forbid_are_the_answer,
    the_documented_rights_are_enough,
    the_diagnosis_names_who_is_away,
    the_diagnosis_names_what_weakens_it,
    each_server_has_a_user_and_certificates_of_its_own,
];

pub(crate) async fn three() -> Vec<Server> {
    servers_of(3, Settings::new()).await
}

pub(crate) async fn servers_of(members: usize, settings: Settings) -> Vec<Server> {
    join_all((0..members).map(|_| start(settings.clone()))).await
}

/// Three servers that all vote, and a manager.
pub(crate) async fn voting() -> (Vec<Server>, LockManager) {
    let servers = three().await;
    let locks = begun(quorum(&servers)).await;
    (servers, locks)
}

/// Runs a command at each of the servers.
pub(crate) async fn at_each(servers: &[Server], words: &[&str]) {
    for server in servers {
        let reply = command(server, words).await;
        assert!(!matches!(reply, Reply::Error(_)), "{words:?}: {reply:?}");
    }
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

/// Four of five have to agree, so two holders would share three servers, of which one clock is stepped.
async fn a_larger_quorum_outlasts_a_stepped_clock() {
    let (clock, mut servers) = (WallClock::new().unwrap(), servers_of(4, Settings::new()).await);
    servers.push(start(Settings::new().clock(&clock)).await);
    let config = || quorum(&servers).quorum(4);
    let (a, b) = (begun(config()).await, open_config(config()).await);
    servers[0].process().stop().await.unwrap();
    servers[1].process().stop().await.unwrap();
    a.lock(NAME).unwrap().try_acquire().await.expect_err("three of five are too few");
    servers[1].process().cont().unwrap();
    let _guard = hold(&a).await;
    servers[0].process().cont().unwrap();
    clock.shift_by(3600).unwrap();
    assert!(b.lock(NAME).unwrap().try_acquire().await.unwrap().is_none());
}

/// No server is blank any more.
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

/// The next hold, which must begin after `guard` is lost.
pub(crate) async fn next_of(locks: &LockManager, guard: &LockGuard) {
    loop {
        let attempt = locks.lock(NAME).unwrap().try_acquire().await;
        let is_held = guard.ensure_held().is_ok();
        if let Ok(Some(next)) = attempt {
            assert!(!is_held, "two hold");
            assert!(next.token() > guard.token());
            return;
        }
    }
}

pub(crate) async fn cycle(locks: &LockManager) -> FencingToken {
    let guard = hold(locks).await;
    let token = guard.token();
    guard.release().await.unwrap();
    token
}

/// Servers of which the first `cut` are reached through proxies.
pub(crate) async fn behind(servers: &[Server], cut: usize) -> (Vec<Proxy>, QuorumConfig) {
    let proxies: Vec<_> = servers[..cut].iter().map(proxy).collect();
    let config = QuorumConfig::new(proxies.iter().map(via).chain(servers[cut..].iter().map(direct)));
    (proxies, config.pause_after_restart(TTL))
}

async fn a_server_that_is_silent_or_slow_costs_nothing() {
    let (servers, b) = voting().await;
    let (proxies, config) = behind(&servers, 1).await;
    let a = open_config(config).await;
    for (to_server, from_server) in [
        (Mode::Blackhole, Mode::Blackhole),
        (Mode::Blackhole, Mode::Pass),
        (Mode::Pass, Mode::Blackhole),
        (Mode::delay(TTL / 16), Mode::delay(TTL / 16)),
    ] {
        proxies[0].set(Direction::ClientToServer, to_server).await;
        proxies[0].set(Direction::ServerToClient, from_server).await;
        let before = cycle(&b).await;
        let guard = hold(&a).await;
        assert!(guard.token() > before);
        pass(2 * TTL).await;
        guard.ensure_held().unwrap();
        assert!(b.lock(NAME).unwrap().try_acquire().await.unwrap().is_none());
        let before = guard.token();
        guard.release().await.unwrap();
        assert!(cycle(&b).await > before);
        proxies[0].set_both(Mode::Pass).await;
    }
}

/// For `connect_timeout`, although each of their replies takes longer than `op_timeout`.
async fn opening_waits_for_slow_servers() {
    let servers = three().await;
    let (proxies, config) = behind(&servers, 3).await;
    for proxy in &proxies {
        proxy.set(Direction::ServerToClient, Mode::delay(TTL / 3)).await;
    }
    drop(open_config(config).await);
}

async fn is_cut_off(from: usize) {
    let (servers, b) = voting().await;
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

async fn many_holds_are_renewed_together() {
    let (servers, locks) = voting().await;
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

/// One server is full, or its user loses rights. Holds are renewed and released on full servers, too.
async fn servers_that_refuse_are_done_without() {
    let (servers, locks) = voting().await;
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
    at_each(&servers, &["CONFIG", "SET", "maxmemory", "1"]).await;
    pass(TTL).await;
    guard.ensure_held().unwrap();
    guard.release().await.unwrap();
    at_each(&servers, &["CONFIG", "SET", "maxmemory", "0"]).await;
    assert!(cycle(&locks).await > first);
}

async fn two_servers_that_forbid_are_the_answer() {
    let (servers, locks) = voting().await;
    at_each(&servers[..2], &["ACL", "SETUSER", "default", "-set"]).await;
    let refused = locks.lock(NAME).unwrap().acquire().await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Denied, "{refused}");
}

async fn the_diagnosis_names_who_is_away() {
    let (mut servers, locks) = voting().await;
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

/// In addition to the rights at a single server.
const RIGHTS: [&str; 6] = ["+hmget", "+zrank", "+zcard", "+pexpireat", "+info", "+eval"];

async fn the_documented_rights_are_enough() {
    let page = include_str!("../../../docs/src/redis-quorum.md");
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

/// The findings about a subject; one, or one for each server.
pub(crate) async fn said(servers: &[Server], config: QuorumConfig, subject: &str) -> Vec<Severity> {
    let (locks, mut findings) = (begun(config).await, Vec::new());
    // One diagnosis gives each server less than a third of the ttl for all its answers.
    eventually("every server answers", async || {
        findings = locks.diagnose().await.unwrap();
        findings.iter().all(|finding| finding.subject != "server")
    })
    .await;
    assert!(findings.iter().all(|finding| finding.subject != "persistence"), "{findings:?}");
    let there = findings.iter().filter(|finding| finding.subject == subject);
    let said: Vec<_> = there.map(|finding| finding.severity).collect();
    assert!([0, 1, servers.len()].contains(&said.len()), "{findings:?}");
    said
}

async fn the_diagnosis_names_what_weakens_it() {
    let servers = three().await;
    assert_eq!(said(&servers, quorum(&servers), "restarts").await, [Severity::Ok]);
    let servers = three().await;
    let off = || quorum(&servers).pause_after_restart(Duration::ZERO);
    assert_eq!(said(&servers, off(), "restarts").await, [Severity::Warning]);
    assert_eq!(said(&servers, off(), "disk").await, []);
    let servers = three().await;
    let trusting = quorum(&servers).fsync_always(true);
    assert_eq!(said(&servers, trusting, "disk").await, [Severity::Broken; 3]);
    let kept = servers_of(3, Settings::new().append_only()).await;
    assert_eq!(said(&kept, quorum(&kept).fsync_always(true), "disk").await, [Severity::Ok; 3]);
    ok(&kept[1], &["CONFIG", "SET", "no-appendfsync-on-rewrite", "yes"]).await;
    let trusting = quorum(&kept).fsync_always(true);
    assert_eq!(said(&kept, trusting, "disk").await, [Severity::Ok, Severity::Broken, Severity::Ok]);
}

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
