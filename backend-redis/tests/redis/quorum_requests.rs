//! The requests to the servers of a quorum, and the commands of their scripts.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use testbed::redis::{Reply, Server};
use testbed::{Direction, Mode};

use crate::fixture::{TTL, command, eventually, now, trials};
use crate::quorum::{begun, behind, cycle, three, voting};

trials![a_free_lock_is_asked_for_once, a_fresh_name_is_written_once];

const CYCLES: u64 = 20;

/// The server's commands so far, while no vote is given; those of the test itself are not counted.
async fn calls(server: &Server) -> BTreeMap<String, u64> {
    let calls = async || {
        let mut calls = server.calls().await.unwrap();
        calls.retain(|command, _| !["info", "keys"].contains(&&**command));
        calls
    };
    let mut at_rest = BTreeMap::new();
    eventually("no vote is on its way", async || {
        at_rest = calls().await;
        let votes = command(server, &["KEYS", "leasehold:*:vote"]).await;
        votes == Reply::Array(Vec::new()) && calls().await == at_rest
    })
    .await;
    at_rest
}

async fn since(server: &Server, before: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let mut calls = calls(server).await;
    for (command, count) in &mut calls {
        *count -= before.get(command).copied().unwrap_or(0);
    }
    calls.retain(|_, count| *count > 0);
    calls
}

/// Six commands at each server for both requests, and no clock. Once in a second a larger number is noted, by the long path.
/// Each vote finds that the one before has ended, also at a server whose answers are late (redis.quorum.session-2).
async fn a_free_lock_is_asked_for_once() {
    let servers = three().await;
    let (proxies, config) = behind(&servers, 1).await;
    let locks = begun(config).await;
    let cycle_each = async || {
        for _ in 0..CYCLES {
            cycle(&locks).await;
        }
    };
    // From here on the scripts are loaded, and the name is remembered.
    cycle_each().await;
    proxies[0].set(Direction::ServerToClient, Mode::delay(TTL / 16)).await;
    let before = join_all(servers.iter().map(calls)).await;
    let began = now();
    cycle_each().await;
    let seconds = now().since(began).as_secs();
    for (server, before) in servers.iter().zip(&before) {
        let asked = since(server, before).await;
        let of = |command: &str| asked.get(command).copied().unwrap_or(0);
        // A release before the third request was sent cancels that request.
        let (votes, noted) = (of("hmget"), of("hset"));
        assert!(votes >= CYCLES / 2 && noted <= seconds + 2, "{asked:?} in {seconds} s");
        // One that was cancelled on its way to the connection may have been sent, so its release looks for it.
        let unsent = of("zrem");
        assert!(votes + unsent <= CYCLES, "{asked:?}");
        let vote = [("hmget", votes), ("set", 2 * votes), ("hset", noted), ("time", noted)];
        let release = [("get", votes + 2 * noted + unsent), ("exists", votes), ("del", votes)];
        let search = [("zrange", unsent), ("zrem", unsent)];
        let all = [("evalsha", 2 * votes + unsent)];
        let expected = all.into_iter().chain(vote).chain(release).chain(search);
        let expected = expected.filter(|(_, count)| *count > 0);
        let expected: BTreeMap<_, _> = expected.map(|(command, count)| (command.to_owned(), count)).collect();
        assert_eq!(asked, expected);
    }
}

/// The short path overwrites a number, or writes nothing.
async fn a_fresh_name_is_written_once() {
    let (servers, locks) = voting().await;
    cycle(&locks).await;
    let before = join_all(servers.iter().map(calls)).await;
    for fresh in 0..CYCLES {
        let lock = locks.lock(format!("fresh/{fresh}")).unwrap();
        lock.acquire().await.unwrap().release().await.unwrap();
    }
    for (server, before) in servers.iter().zip(&before) {
        let asked = since(server, before).await;
        let of = |command: &str| asked.get(command).copied().unwrap_or(0);
        // Where the short path is not taken, a larger number is noted; where a server was ahead, the token is written.
        let (votes, confirmed) = (of("hmget"), of("pexpire"));
        assert!(votes >= CYCLES / 2, "{asked:?}");
        assert_eq!(of("set") + of("hset"), 3 * votes + confirmed, "{asked:?}");
    }
}
