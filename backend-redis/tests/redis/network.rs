//! What this store does when the network fails; what every store does is in `tests/servers` of the workspace.

use std::time::Duration;

use futures_util::future::join_all;
use testbed::redis::Server;
use testbed::{Direction, Mode};

use crate::fixture::{
    LONG, NAME, TTL, Waiter, command, direct, eventually, hold, ok, open, open_for, pass, proxy, server,
    trials, via,
};

trials![
    a_turn_that_was_missed_is_asked_for_until_answered,
    a_server_that_cuts_is_not_stormed,
    a_connection_that_falls_silent_before_it_is_used_is_replaced,
    a_release_that_goes_on_by_itself_is_not_lost,
];

/// Granted while it was cut off, and refused the first time it asks after that: a contender asks again,
/// though its next refresh is minutes away.
async fn a_turn_that_was_missed_is_asked_for_until_answered() {
    let server = server().await;
    let proxy = proxy(&server);
    ok(&server, &["ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all"]).await;
    let holder = open_for(direct(&server), LONG).await;
    let contender = open_for(via(&proxy).credentials("app", "secret"), LONG).await;
    let guard = hold(&holder).await;
    let waiting = Waiter::queued(&contender, 0, &holder).await;

    proxy.refuse_new().await.unwrap();
    proxy.reset().await;
    guard.release().await.unwrap();
    ok(&server, &["ACL", "SETUSER", "app", "-evalsha"]).await;
    proxy.accept_new().await.unwrap();
    eventually("it was refused", async || !command(&server, &["ACL", "LOG"]).await.elements().is_empty())
        .await;
    ok(&server, &["ACL", "SETUSER", "app", "+evalsha"]).await;
    waiting.held().await.release().await.unwrap();
}

/// Connected again, it is asked for the record of a move, and does not answer: another one is made.
async fn a_connection_that_falls_silent_before_it_is_used_is_replaced() {
    let server = server().await;
    let proxy = proxy(&server);
    let locks = open(via(&proxy)).await;
    proxy.set(Direction::ServerToClient, Mode::drop_frames(|frame| frame == b"_\r\n")).await;
    proxy.reset().await;
    proxy.dropped(Direction::ServerToClient, 1).await;
    proxy.set(Direction::ServerToClient, Mode::Pass).await;
    eventually("requests are answered", async || locks.inspect(NAME).await.is_ok()).await;
}

/// A contender of a server that is no primary any more connects again with growing pauses: in three
/// seconds at most a dozen times, if every pause is as short as it may be, and as often as the trial.
async fn a_server_that_cuts_is_not_stormed() {
    let server = server().await;
    let (a, b) = (open_for(direct(&server), LONG).await, open_for(direct(&server), LONG).await);
    let _guard = hold(&a).await;
    let _waiting = Waiter::queued(&b, 0, &a).await;
    ok(&server, &["REPLICAOF", "127.0.0.1", "1"]).await;
    let connections = async || {
        let stats = server.info("stats").await.unwrap();
        stats["total_connections_received"].parse::<u64>().unwrap()
    };
    let before = connections().await;
    command(&server, &["CLIENT", "KILL", "TYPE", "pubsub"]).await;
    pass(Duration::from_secs(3)).await;
    eventually("it connects again", async || connections().await - before >= 2).await;
    let made = connections().await - before;
    assert!(made <= 30, "{made} connections");
}

/// The answers to acquisitions were lost, so their releases go on in the background after they were
/// refused once; whichever try comes first, the caller's is no loss.
async fn a_release_that_goes_on_by_itself_is_not_lost() {
    const LOCKS: usize = 16;
    let server = server().await;
    let proxy = proxy(&server);
    direct(&server).load_scripts().await.unwrap();
    let locks = open_for(via(&proxy), 10 * TTL).await;
    proxy.set(Direction::ServerToClient, Mode::Hold).await;
    let acquire = async |index| locks.lock(format!("name/{index}")).unwrap().acquire().await.unwrap();
    let (guards, ()) = tokio::join!(join_all((0..LOCKS).map(acquire)), async {
        proxy.held(Direction::ServerToClient, LOCKS).await;
        proxy.reset().await;
        proxy.set(Direction::ServerToClient, Mode::Pass).await;
    });
    // What begins when the first tries were refused arrives when that is over.
    proxy.set(Direction::ClientToServer, Mode::delay(TTL / 8)).await;
    ok(&server, &["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    let (released, ()) = tokio::join!(join_all(guards.into_iter().map(|guard| guard.release())), async {
        eventually("all were refused", async || refusals(&server).await >= LOCKS).await;
        ok(&server, &["CONFIG", "SET", "min-replicas-to-write", "0"]).await;
    });
    for outcome in released {
        outcome.unwrap();
    }
}

async fn refusals(server: &Server) -> usize {
    let commands = server.info("commandstats").await.unwrap();
    let counted = commands["cmdstat_evalsha"].split(',').filter_map(|pair| pair.split_once('='));
    counted.into_iter().find(|(name, _)| *name == "failed_calls").unwrap().1.parse().unwrap()
}
