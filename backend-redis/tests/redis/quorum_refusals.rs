//! What a quorum of servers refuses.

use std::time::Duration;

use leasehold_core::backend::Severity;
use leasehold_core::{Error, ErrorKind, LockManager};
use leasehold_redis::{QuorumConfig, RedisConfig};
use testbed::redis::{Server, Settings};

use crate::fixture::{
    BOUND, LONG, NAME, TTL, Waiter, command, direct, eventually, hold, pass, server, start, store, trials,
    warnings,
};
use crate::quorum::{at_each, begun, cycle, open_config, quorum, three, voting};

trials![
    one_server_is_not_named_twice,
    a_replica_is_refused,
    a_lock_is_not_longer_than_the_pause,
    differing_manager_is_refused,
    of_two_first_options_one_is_refused,
    another_format_of_the_namespace_is_refused_by_name,
    a_foreign_key_costs_its_own_hold,
    client_without_the_channel_right_is_served,
    missing_channel_right_is_reported_once,
];

async fn refused(config: QuorumConfig) -> Error {
    LockManager::builder(config).ttl(TTL).connect_timeout(BOUND).build().await.unwrap_err()
}

async fn one_server_is_not_named_twice() {
    let servers = three().await;
    let port = servers[0].addr().port();
    let config =
        QuorumConfig::new([direct(&servers[0]), RedisConfig::new("localhost", port), direct(&servers[1])]);
    let refused = refused(config).await;
    assert_eq!(*refused.kind(), ErrorKind::InvalidOption, "{refused}");
    assert!(refused.to_string().contains("named twice"), "{refused}");
}

async fn a_replica_is_refused() {
    let mut servers = vec![server().await, server().await];
    servers.push(start(Settings::new().replica_of(servers[0].addr())).await);
    let refused = refused(quorum(&servers)).await;
    assert_eq!(*refused.kind(), ErrorKind::InvalidOption, "{refused}");
    assert!(refused.to_string().contains("is a replica"), "{refused}");
}

/// Before any request is sent; without a pause every ttl is allowed.
async fn a_lock_is_not_longer_than_the_pause() {
    let (servers, locks) = voting().await;
    let asked = async || {
        let mut asked = Vec::new();
        for server in &servers {
            asked.push(server.calls().await.unwrap()["evalsha"]);
        }
        asked
    };
    let before = asked().await;
    let longer = locks.lock(NAME).unwrap().ttl(TTL + Duration::from_millis(1));
    for refused in [longer.acquire().await.map(drop), longer.try_acquire().await.map(drop)] {
        let refused = refused.unwrap_err();
        assert_eq!(*refused.kind(), ErrorKind::InvalidOption, "{refused}");
        assert!(refused.to_string().contains("pause_after_restart"), "{refused}");
    }
    assert_eq!(asked().await, before);
    for trusts_disks in [false, true] {
        let shorter = quorum(&servers).pause_after_restart(TTL / 2).fsync_always(trusts_disks);
        assert_eq!(*refused(shorter).await.kind(), ErrorKind::InvalidOption, "{trusts_disks}");
    }
    let servers = three().await;
    let without = open_config(quorum(&servers).pause_after_restart(Duration::ZERO)).await;
    drop(without.lock(NAME).unwrap().ttl(LONG).acquire().await.unwrap());
}

/// With another quorum, pause or trust in disks; and with the old ones, once the servers have new ones.
async fn differing_manager_is_refused() {
    let (servers, before) = voting().await;
    for other in [
        quorum(&servers).quorum(3),
        quorum(&servers).pause_after_restart(LONG),
        quorum(&servers).fsync_always(true),
    ] {
        let refused = refused(other).await;
        assert_eq!(*refused.kind(), ErrorKind::InvalidOption, "{refused}");
        assert!(refused.to_string().contains("used with 3 servers, quorum=2, pause"), "{refused}");
    }
    let terms = "3 servers, quorum=3, pause_after_restart=2000ms, fsync_always=false";
    at_each(&servers, &["HSET", "leasehold:{%quorum}", "terms", terms]).await;
    let refused = before.lock(NAME).unwrap().try_acquire().await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::InvalidOption, "{refused}");
    cycle(&open_config(quorum(&servers).quorum(3)).await).await;
}

/// The error says that no server votes yet, and how to go on.
async fn of_two_first_options_one_is_refused() {
    let pauses = [LONG, 2 * LONG];
    let mut refusals = 0;
    for first in 0..2 {
        let mut servers = three().await;
        let config = |pause: usize| quorum(&servers).pause_after_restart(pauses[pause]);
        let opened = open_config(config(first)).await;
        let second = LockManager::builder(config(1 - first)).ttl(TTL).connect_timeout(BOUND).build().await;
        if let Err(refused) = second {
            refusals += 1;
            assert_eq!(*refused.kind(), ErrorKind::InvalidOption, "{refused}");
            let said = format!("pause_after_restart={}ms", pauses[first].as_millis());
            let said =
                [&said, "no server votes yet", "delete the key \"leasehold:{%quorum}\" on all servers"];
            assert!(said.iter().all(|said| refused.to_string().contains(said)), "{refused}");
            // The server that does not answer may vote.
            let config = config(1 - first);
            servers[2].kill().await.unwrap();
            let refused = self::refused(config).await;
            assert_eq!(*refused.kind(), ErrorKind::InvalidOption, "{refused}");
            assert!(!refused.to_string().contains("no server votes yet"), "{refused}");
        }
        drop(opened);
    }
    assert_eq!(refusals, 1, "all servers prefer the same options");
}

/// At opening, and in an open session, with and without a new connection, until the format is right again.
async fn another_format_of_the_namespace_is_refused_by_name() {
    let (servers, early) = voting().await;
    cycle(&early).await;
    let set = async |server: &Server, format| {
        command(server, &["HSET", "leasehold:{%quorum}", "format", format]).await;
    };
    let is_named = |refused: &Error, server: &Server| {
        let said = ["format \"2\"", "format 1 (key \"leasehold:{%quorum}\")"];
        assert_eq!(*refused.kind(), ErrorKind::Unsupported, "{refused}");
        assert!(said.iter().all(|said| refused.to_string().contains(said)), "{refused}");
        assert!(format!("{refused:?}").contains(&server.addr().to_string()), "{refused:?}");
    };
    set(&servers[1], "2").await;
    is_named(&refused(quorum(&servers)).await, &servers[1]);
    set(&servers[2], "2").await;
    for breaks in [false, true] {
        for server in servers[1..].iter().filter(|_| breaks) {
            command(server, &["CLIENT", "KILL", "TYPE", "pubsub"]).await;
        }
        eventually("the session is refused", async || {
            let refused = early.lock(NAME).unwrap().try_acquire().await.map(drop);
            refused.is_err_and(|error| *error.kind() == ErrorKind::Unsupported)
        })
        .await;
    }
    is_named(&early.lock(NAME).unwrap().try_acquire().await.unwrap_err(), &servers[1]);
    set(&servers[1], "1").await;
    command(&servers[2], &["HDEL", "leasehold:{%quorum}", "format"]).await;
    eventually("the session is served again", async || {
        early.lock(NAME).unwrap().try_acquire().await.is_ok_and(|guard| guard.is_some())
    })
    .await;
    cycle(&open_config(quorum(&servers)).await).await;
}

async fn a_foreign_key_costs_its_own_hold() {
    let (servers, locks) = voting().await;
    let mut guards = Vec::new();
    for name in ["a", "b", "c", "d"] {
        guards.push(locks.lock(name).unwrap().acquire().await.unwrap());
    }
    at_each(&servers, &["HSET", "leasehold:{b}:asked", "x", "y"]).await;
    pass(2 * TTL).await;
    let held: Vec<_> = guards.iter().map(|guard| guard.ensure_held().is_ok()).collect();
    assert_eq!(held, [true, false, true, true]);
}

async fn client_without_the_channel_right_is_served() {
    let servers = three().await;
    at_each(&servers, &["ACL", "SETUSER", "default", "-subscribe"]).await;
    let (a, b) = (begun(quorum(&servers)).await, open_config(quorum(&servers)).await);
    let findings = a.diagnose().await.unwrap();
    let messages = findings.iter().filter(|finding| finding.subject == "messages");
    assert_eq!(messages.map(|finding| finding.severity).collect::<Vec<_>>(), [Severity::Warning; 3]);
    let guard = hold(&a).await;
    let waiting = Waiter::start(&b);
    eventually("it waits", async || a.inspect(NAME).await.unwrap().contenders > 0).await;
    guard.release().await.unwrap();
    drop(waiting.held().await);
}

async fn missing_channel_right_is_reported_once() {
    let servers = three().await;
    at_each(&servers, &["ACL", "SETUSER", "default", "-subscribe"]).await;
    let backend = store(quorum(&servers).pause_after_restart(Duration::ZERO)).await;
    let mut events = backend.events();
    let looks = async || servers[0].calls().await.unwrap().get("evalsha").copied();
    for _ in 0..2 {
        let before = looks().await;
        command(&servers[0], &["CLIENT", "KILL", "TYPE", "normal"]).await;
        eventually("it is connected to again", async || looks().await > before).await;
    }
    let told = warnings(&mut events);
    assert!(told.len() == 3 && told.iter().all(|warning| warning.contains("cannot subscribe")), "{told:?}");
}
