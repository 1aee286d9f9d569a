//! `fence` in transactions of users: what commits, and for whom it waits. Of those whose holders stand still in between none
//! commits after one of a later holder.
//!
//! At depth `soak` ten thousand transactions are tried.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::{Effect, ErrorKind, LockGuard, Revocation, Revoke, connect};
use leasehold_conformance::Dice;
use testbed::postgres::{Server, Setup};
use testbed::{Beside, Depth, Mode, Proxy, Server as _, eventually, pass, within};
use tokio_postgres::Client;

use super::{connect_user, open};
use crate::fixture::{NAME, hold, options};

/// Locks, each with so many writers: one that stands still keeps the others of its lock only.
const LOCKS: u64 = 16;
const WRITERS: u64 = 3;

/// Short, as leases of stalled holders are waited for.
const TTL: Duration = Duration::from_secs(2);

/// A third of it bounds a request: a busy machine takes a while to open a connection.
const KEPT: Duration = Duration::from_secs(6);

/// Of so many transactions one begins late, and one stands still before it commits: for half a lease to two leases.
const STALLS_IN: u64 = 20;

pub(super) async fn no_stalled_transaction_commits_late() {
    let tries = Depth::of_run().pick(200, 400, 10_000);
    let server = Setup::new().setting("track_commit_timestamp=on").start().await.unwrap();
    server.sql("CREATE TABLE written (name text, token bigint)").await.unwrap();
    let tried = Arc::new(AtomicUsize::new(0));
    let writing = (0..LOCKS * WRITERS).map(|number| {
        let (way, addr, name) = (server.proxy().unwrap(), server.addr(), (number % LOCKS).to_string());
        Beside::start(write(way, addr, name, Dice::new(number), Arc::clone(&tried), tries))
    });
    let (mut refused, mut stalls) = (0, 0);
    for writer in writing.collect::<Vec<_>>() {
        let counts = writer.await;
        (refused, stalls) = (refused + counts.0, stalls + counts.1);
    }
    let late = "SELECT count(*) FROM (SELECT token, lag(token) OVER (PARTITION BY name ORDER BY pg_xact_commit_timestamp(xmin)) AS before \
                FROM written) w WHERE token <= before";
    let (late, written) =
        (server.sql(late).await.unwrap(), server.sql("SELECT count(*) FROM written").await.unwrap());
    println!(
        "{tries} transactions, {stalls} stalls, {refused} refused, {written} committed, {late} of them late"
    );
    assert_eq!(late, "0");
    assert!(refused > 0, "no stall was long enough to show anything");
}

/// Writes with the token of each grant, also after it has stood still; how many transactions were refused, and how many
/// stalls there were.
async fn write(
    way: Proxy,
    addr: SocketAddr,
    name: String,
    mut dice: Dice,
    tried: Arc<AtomicUsize>,
    tries: usize,
) -> (usize, usize) {
    let options = format!("ttl={}ms&op_timeout=600ms&connect_wait=60s", TTL.as_millis());
    let locks = connect(&Server::url(way.addr(), "leasehold", &options)).await.unwrap();
    let (mut user, mut connection) = connect_user(addr).await;
    let (mut refused, mut stalls) = (0, 0);
    while tried.fetch_add(1, Ordering::Relaxed) < tries {
        let Ok(guard) = locks.lock(&name).unwrap().acquire().await else {
            tried.fetch_sub(1, Ordering::Relaxed);
            continue;
        };
        let (token, stall) = (guard.token().get_i64(), dice.below(STALLS_IN));
        let stalled = if stall < 2 { TTL / 2 + dice.span(TTL * 3 / 2) } else { Duration::ZERO };
        if stall < 2 {
            stalls += 1;
            way.set_both(Mode::Blackhole).await;
        }
        let (before, within) = if stall == 0 { (stalled, Duration::ZERO) } else { (Duration::ZERO, stalled) };
        pass(before).await;
        if fenced(&mut user, &name, token, within).await.is_err() {
            refused += 1;
        }
        if user.is_closed() {
            (user, connection) = connect_user(addr).await;
        }
        way.set_both(Mode::Pass).await;
        let _ = guard.release().await;
    }
    drop(connection);
    (refused, stalls)
}

async fn fenced(
    user: &mut Client,
    name: &str,
    token: i64,
    stall: Duration,
) -> Result<(), tokio_postgres::Error> {
    let transaction = user.transaction().await?;
    transaction.execute("SELECT leasehold.fence('leasehold', $1, $2)", &[&name, &token]).await?;
    transaction.execute("INSERT INTO written VALUES ($1, $2)", &[&name, &token]).await?;
    pass(stall).await;
    transaction.commit().await
}

async fn fence(user: &Client, guard: &LockGuard) -> Result<(), String> {
    let token = guard.token().get_i64();
    let fenced = user.execute("SELECT leasehold.fence($1, $2, $3)", &[&"special", &NAME, &token]).await;
    fenced.map(drop).map_err(|error| error.code().map_or("", |code| code.code()).to_owned())
}

/// That of an earlier holder, of one that was removed by force, and of one that waits.
pub(super) async fn token_that_does_not_hold_is_refused() {
    let server = Setup::new().start().await.unwrap();
    let (one, other, (user, _connection)) =
        (open(server.addr(), "").await, open(server.addr(), "").await, connect_user(server.addr()).await);
    let guard = hold(&one).await;
    fence(&user, &guard).await.unwrap();
    other.revoke(NAME, Revoke::Force).await.unwrap();
    assert_eq!(fence(&user, &guard).await.unwrap_err(), "LH002");
    let later = hold(&other).await;
    assert_eq!(fence(&user, &guard).await.unwrap_err(), "LH002");
    fence(&user, &later).await.unwrap();
}

/// The holder releases, and its session ends, while its transaction is open: the next one waits for that.
pub(super) async fn nobody_holds_before_the_transaction_ends() {
    let server = Setup::new().start().await.unwrap();
    let (other, (mut user, _connection)) = (open(server.addr(), "").await, connect_user(server.addr()).await);
    for ends_its_session in [false, true] {
        let one = open(server.addr(), "").await;
        let guard = hold(&one).await;
        let transaction = user.transaction().await.unwrap();
        let token = guard.token().get_i64();
        let fence = "SELECT leasehold.fence($1, $2, $3)";
        transaction.execute(fence, &[&"special", &NAME, &token]).await.unwrap();
        if ends_its_session {
            one.shutdown().await.unwrap();
        } else {
            guard.release().await.unwrap();
        }
        let lock = other.lock(NAME).unwrap();
        let waiting = Beside::start(async move { lock.acquire().await.unwrap() });
        // A contender that has left is not shown any more.
        eventually("it is in the queue", async || other.inspect(NAME).await.unwrap().holder().is_some())
            .await;
        pass(Duration::from_millis(300)).await;
        assert!(!waiting.is_finished(), "somebody holds beside a fenced transaction");
        let removed = other.revoke(NAME, Revoke::Force).await.unwrap();
        assert_eq!(removed, Revocation::NotHeld, "a waiter is removed");
        transaction.commit().await.unwrap();
        waiting.end("it holds then").await.release().await.unwrap();
    }
}

pub(super) async fn renewals_and_releases_do_not_wait_for_a_transaction() {
    let server = Setup::new().start().await.unwrap();
    let one = connect(&Server::url(server.addr(), "special", &options(KEPT))).await.unwrap();
    let (mut user, _connection) = connect_user(server.addr()).await;
    let guard = hold(&one).await;
    let transaction = user.transaction().await.unwrap();
    let token = guard.token().get_i64();
    transaction.execute("SELECT leasehold.fence($1, $2, $3)", &[&"special", &NAME, &token]).await.unwrap();
    // An idle transaction would be ended by then.
    for _ in 0..4 {
        pass(KEPT / 3).await;
        transaction.execute("SELECT 1", &[]).await.unwrap();
    }
    guard.ensure_held().unwrap();
    let other = one.lock("other").unwrap().acquire().await.unwrap();
    within(KEPT / 3, "it waits for nobody", guard.release()).await.unwrap();
    transaction.commit().await.unwrap();
    // Nobody comes to that name any more.
    let rows = async || server.sql("SELECT count(*) FROM leasehold.contender").await.unwrap();
    eventually("the renewal removes what the transaction kept", async || rows().await == "1").await;
    other.release().await.unwrap();
}

/// Somebody else has the lock of the name in the database: the error comes before the client's own bound.
pub(super) async fn stuck_lock_is_certainly_not_applied() {
    let server = Setup::new().start().await.unwrap();
    let (mut user, _connection) = connect_user(server.addr()).await;
    for listens in [true, false] {
        let locks = open(server.addr(), &format!("&listen={listens}")).await;
        // The session's own bound remains.
        server.sql("ALTER FUNCTION leasehold.acquire SET lock_timeout = '1min'").await.unwrap();
        hold(&locks).await.release().await.unwrap();
        let transaction = user.transaction().await.unwrap();
        let lock =
            "SELECT pg_advisory_xact_lock(hashtextextended(encode($1, 'hex'), id)) FROM leasehold.space";
        transaction.execute(lock, &[&NAME.as_bytes()]).await.unwrap();
        let error = locks.lock(NAME).unwrap().try_acquire().await.unwrap_err();
        assert_eq!(
            (error.kind(), error.effect()),
            (&ErrorKind::Unavailable, Effect::NotApplied),
            "{error:#}"
        );
        transaction.commit().await.unwrap();
        hold(&locks).await.release().await.unwrap();
        locks.shutdown().await.unwrap();
    }
}
