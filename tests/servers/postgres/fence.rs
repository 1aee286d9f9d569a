//! Transactions of users with `fence`, whose holders stand still in between: no transaction commits after one of a later
//! holder.
//!
//! At depth `soak` ten thousand transactions are tried.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::connect;
use leasehold_conformance::Dice;
use testbed::postgres::{Server, Setup};
use testbed::{Beside, Depth, Mode, Proxy, Server as _, pass};
use tokio_postgres::Client;

use super::connect_user;

/// Locks, each with so many writers: one that stands still keeps the others of its lock only.
const LOCKS: u64 = 16;
const WRITERS: u64 = 3;

/// Short, as leases of stalled holders are waited for.
const TTL: Duration = Duration::from_secs(2);

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
