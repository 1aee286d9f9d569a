//! Servers of a quorum that come up, with their data and without.

use std::time::Duration;

use leasehold_core::backend::StoreConfig;
use leasehold_core::{Env, ErrorKind, Guarantees, LockManager, Timing};
use testbed::redis::{Server, Settings, WallClock};
use testbed::{Direction, Mode};

use crate::fixture::{
    LONG, NAME, TTL, command, eventually, hold, ok, pass, server, start, store, trials, warnings,
};
use crate::pause::restart_empty;
use crate::quorum::{begun, behind, cycle, next_of, open_config, quorum, servers_of, three, voting};

trials![
    two_servers_that_forgot_do_not_vote_for_a_held_lock = || forgets(2),
    when_all_have_forgotten_one_holds_at_a_time = || forgets(3),
    a_slow_server_is_heard_when_another_has_forgotten,
    a_server_that_forgot_is_told_after_it_was_silent,
    a_server_that_is_loading_is_told_when_it_has_loaded,
    servers_that_refuse_are_not_looked_at_for_ever,
    a_pause_is_told_once_for_each_run,
    try_during_a_pause_says_why,
    a_disk_that_is_always_written_is_trusted,
    a_move_of_one_server_concerns_no_quorum,
];

/// The server's state in the namespace.
pub(crate) const SPACE: &str = "leasehold:{%quorum}";

async fn forgets(forgotten: usize) {
    let (mut servers, a) = voting().await;
    let b = open_config(quorum(&servers)).await;
    let guard = hold(&a).await;
    for server in &mut servers[..forgotten] {
        restart_empty(server).await;
    }
    next_of(&b, &guard).await;
}

async fn a_disk_that_is_always_written_is_trusted() {
    let mut servers = servers_of(3, Settings::new().append_only()).await;
    let config = |servers: &[Server]| quorum(servers).fsync_always(true);
    let (a, b) = (begun(config(&servers)).await, open_config(config(&servers)).await);
    let unpaused =
        open_config(quorum(&three().await).pause_after_restart(Duration::ZERO).fsync_always(true)).await;
    assert!(!unpaused.guarantees().contains(Guarantees::SURVIVES_FAILOVER), "a disk may be lost");
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

async fn a_slow_server_is_heard_when_another_has_forgotten() {
    let mut servers = three().await;
    let (proxies, config) = behind(&servers, 1).await;
    let locks = begun(config).await;
    proxies[0].set(Direction::ServerToClient, Mode::delay(TTL / 8)).await;
    restart_empty(&mut servers[1]).await;
    cycle(&locks).await;
    eventually("it is told", async || knows(&servers[1]).await).await;
}

/// Whether it votes.
pub(crate) async fn knows(server: &Server) -> bool {
    command(server, &["HGET", SPACE, "whole"]).await.text().is_some_and(|run| run != "0")
}

async fn try_during_a_pause_says_why() {
    let servers = three().await;
    let locks = open_config(quorum(&servers).pause_after_restart(LONG)).await;
    let refused = locks.lock(NAME).unwrap().try_acquire().await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Unavailable, "{refused}");
    assert!(format!("{refused:#}").contains("it was restarted and may have lost votes"), "{refused:#}");
}

/// By a manager that asks for no vote; the server does not answer at the end of its pause.
async fn a_server_that_forgot_is_told_after_it_was_silent() {
    let (mut servers, locks) = voting().await;
    restart_empty(&mut servers[1]).await;
    eventually("it is met", async || crate::fixture::exists(&servers[1], SPACE).await).await;
    servers[1].process().stop().await.unwrap();
    pass(3 * TTL).await;
    servers[1].process().cont().unwrap();
    eventually("it is told", async || knows(&servers[1]).await).await;
    drop(locks);
}

async fn a_server_that_is_loading_is_told_when_it_has_loaded() {
    // So slow that it is still loading when it is connected to again, and in pieces, between which it answers.
    let slow = Settings::new()
        .debug_commands()
        .set("rdbcompression", &["no"])
        .set("key-load-delay", &["10000"])
        .set("loading-process-events-interval-bytes", &["1024"]);
    let mut servers = vec![start(slow).await, server().await, server().await];
    let locks = begun(quorum(&servers)).await;
    ok(&servers[0], &["DEBUG", "POPULATE", "300", "filling", "1024"]).await;
    ok(&servers[0], &["SAVE"]).await;
    servers[0].kill().await.unwrap();
    servers[0].start_again().await.unwrap();
    let said = async |about: &str, what: &str| {
        let info = command(&servers[0], &["INFO", about]).await.text().unwrap();
        info.lines().find_map(|line| line.strip_prefix(what).map(str::to_owned))
    };
    let scripts = said("commandstats", "cmdstat_evalsha:").await;
    assert!(!scripts.as_ref().unwrap().contains("rejected_calls=0"), "no script was refused: {scripts:?}");
    let run = said("server", "run_id:").await.unwrap();
    let space = async |field| command(&servers[0], &["HGET", SPACE, field]).await.text().unwrap_or_default();
    eventually("it is told", async || {
        space("run").await.starts_with(&run[..20]) && space("whole").await == space("run").await
    })
    .await;
    drop(locks);
}

/// A full server cannot store that it votes.
async fn servers_that_refuse_are_not_looked_at_for_ever() {
    let full = start(Settings::new().set("maxmemory", &["1"])).await;
    let servers = vec![full, server().await, server().await];
    let config = quorum(&servers);
    let _backend = config.open(Env::new(Timing::for_ttl(TTL)).unwrap()).await.unwrap();
    for server in &servers[1..] {
        eventually("it is told", async || knows(server).await).await;
    }
    let looked = async || servers[1].calls().await.unwrap().get("evalsha").copied();
    // Pending requests have ended.
    pass(TTL).await;
    let before = looked().await;
    pass(2 * TTL).await;
    assert_eq!(looked().await, before);
}

pub(crate) async fn has_long_been_up(server: &Server, clock: &WallClock) {
    clock.shift_by(2 * i64::try_from(LONG.as_secs()).unwrap()).unwrap();
    eventually("the server sees its clock", async || {
        let up_for: u64 = server.info("server").await.unwrap()["uptime_in_seconds"].parse().unwrap();
        up_for > LONG.as_secs()
    })
    .await;
}

/// However often all are looked at meanwhile.
async fn a_pause_is_told_once_for_each_run() {
    let ahead = WallClock::new().unwrap();
    // It has paused, and no room for its floor: so all are looked at again and again.
    let full = start(Settings::new().clock(&ahead)).await;
    has_long_been_up(&full, &ahead).await;
    let [process, reign] = [("server", "run_id"), ("replication", "master_replid")];
    let half = async |(section, field)| full.info(section).await.unwrap()[field][..20].to_owned();
    let run = half(process).await + &half(reign).await;
    let terms =
        format!("3 servers, quorum=2, pause_after_restart={}ms, fsync_always=false", LONG.as_millis());
    let met = format!("{run}=1");
    let space = ["run", &run, "whole", "0", "terms", &terms, "since", &met, "pause", "0", "episode", "1"];
    command(&full, &[&["HSET", SPACE], &space[..]].concat()).await;
    ok(&full, &["CONFIG", "SET", "maxmemory", "1"]).await;
    let mut servers = vec![full, server().await, server().await];
    let backend = store(quorum(&servers).pause_after_restart(LONG)).await;
    let mut events = backend.events();
    let mut told = [0; 3];
    for expected in [[0, 1, 1], [0, 2, 1]] {
        eventually("they are looked at several times", async || {
            servers[1].calls().await.unwrap().get("evalsha").is_some_and(|looks| *looks > 8)
        })
        .await;
        for warning in warnings(&mut events) {
            let of = servers.iter().position(|server| warning.contains(&server.addr().to_string()));
            told[of.unwrap_or_else(|| panic!("{warning}"))] += 1;
        }
        assert_eq!(told, expected);
        restart_empty(&mut servers[1]).await;
    }
}

/// Not when it connects again, either.
async fn a_move_of_one_server_concerns_no_quorum() {
    let (servers, locks) = voting().await;
    for server in &servers[..2] {
        command(server, &["SET", "leasehold:{%move}:record", "1 1 old new"]).await;
        assert!(LockManager::builder(crate::fixture::direct(server)).ttl(TTL).build().await.is_err());
        for kind in ["normal", "pubsub"] {
            command(server, &["CLIENT", "KILL", "TYPE", kind]).await;
        }
    }
    servers[2].process().stop().await.unwrap();
    cycle(&locks).await;
}
