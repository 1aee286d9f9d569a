//! What others do in the same database: transactions that stay open, maintenance, connections that are ended or all in use,
//! and another encoding.

use std::sync::{Arc, Mutex};

use leasehold::backend::Credentials;
use leasehold::postgres::PostgresConfig;
use leasehold::{ErrorKind, LockManager, connect};
use testbed::postgres::{Server, Setup};
use testbed::{BOUND, Beside, Depth, eventually, within};

use super::{calls, connect_user, end_connections, open, url, user};
use crate::fixture::{hold, queued, steady};

/// Dead entries of a name that a transaction keeps visible are not read again: an answer says where the live ones begin. Nor does
/// the server plan the statements of a cycle again.
pub(super) async fn cycle_beside_an_open_snapshot_reads_no_more() {
    let cycles = Depth::of_run().pick(1_000, 2_000, 50_000);
    let server = <Server as testbed::Server>::start().await.unwrap();
    server.sql("ALTER DATABASE postgres SET pg_stat_statements.track_planning = on").await.unwrap();
    let locks = open(server.addr(), "").await;
    let (user, _connection) = connect_user(server.addr()).await;
    user.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM leasehold.contender")
        .await
        .unwrap();
    let blocks =
        "SELECT sum(shared_blks_hit) FROM pg_stat_statements WHERE query LIKE '%\"leasehold\".acquire(%'";
    assert_eq!(calls(&server, "AND query LIKE '%.acquire(%'").await, 0);
    let mut read = Vec::new();
    for count in [100, cycles, 100] {
        for _ in 0..count {
            hold(&locks).await.release().await.unwrap();
        }
        read.push(server.sql(blocks).await.unwrap().parse::<u64>().unwrap());
    }
    let (first, last) = (read[0], read[2] - read[1]);
    assert!(
        2 * last <= 3 * first,
        "the first 100 cycles read {first} blocks, 100 after {cycles} read {last}"
    );
    user.batch_execute("COMMIT").await.unwrap();
    let plans = "SELECT max(plans) FROM pg_stat_statements WHERE query LIKE '%\"leasehold\".acquire(%'";
    let plans: u64 = server.sql(plans).await.unwrap().parse().unwrap();
    assert!(plans < 100, "acquire was planned {plans} times");
}

pub(super) async fn table_is_rewritten_while_one_waits() {
    let server = Setup::new().start().await.unwrap();
    let (one, other) = (open(server.addr(), "").await, open(server.addr(), "").await);
    let guard = hold(&one).await;
    let waiting = queued(&other, 0, &one).await;
    for table in ["contender", "session"] {
        server.sql(&format!("VACUUM FULL leasehold.{table}")).await.unwrap();
    }
    guard.renew().await.unwrap();
    guard.release().await.unwrap();
    waiting.end("it holds").await.release().await.unwrap();
}

/// A password that ends with its connections costs no hold: the next ones are made with the new one.
pub(super) async fn password_that_changes_is_asked_for_again() {
    let server = <Server as testbed::Server>::start_guarded().await.unwrap();
    let password = Arc::new(Mutex::new("secret"));
    let asked = Arc::clone(&password);
    let ask =
        move || std::future::ready(Ok(Credentials::new("billing", *asked.lock().expect("nobody panics"))));
    let config = PostgresConfig::from_url(&mut url(server.addr(), "").parse().unwrap()).unwrap();
    let locks = LockManager::builder(config.credentials_from(ask)).ttl(steady::<Server>());
    let locks = locks.build().await.unwrap();
    let guard = hold(&locks).await;
    server.sql("ALTER ROLE billing PASSWORD 'changed'").await.unwrap();
    *password.lock().expect("nobody panics") = "changed";
    assert!(end_connections(&server, "usename = 'billing'").await > 0);
    eventually("it is renewed", async || guard.renew().await.is_ok()).await;
    guard.release().await.unwrap();
    // The outage of another host does not hide the refusal. No time-out: that would be longer than the test.
    let hosts = format!("billing:other@{},127.0.0.1:1", server.addr());
    let url = format!("postgres://{hosts}/postgres?connect_timeout={}s", 10 * BOUND.as_secs());
    let refused = within(BOUND, "a refusal", connect(&url)).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Denied, "{refused:#}");
}

/// A manager that needs new connections when there are none cannot open, and says so. An open one does not notice.
pub(super) async fn full_server_is_unavailable_and_holds_go_on() {
    let server = Setup::new().setting("max_connections=12").start().await.unwrap();
    let locks = open(server.addr(), "").await;
    let guard = hold(&locks).await;
    let mut users = Vec::new();
    let config = user(server.addr());
    while let Ok((client, connection)) = config.connect(tokio_postgres::NoTls).await {
        users.push((client, Beside::start(async move { connection.await.unwrap() })));
    }
    let soon = url(server.addr(), "").replace("connect_timeout=60s", "connect_timeout=10s");
    let refused = within(BOUND, "an answer", connect(&soon)).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Unavailable, "{refused:#}");
    assert!(format!("{refused:#}").contains("too many clients"), "{refused:#}");
    guard.renew().await.unwrap();
    guard.release().await.unwrap();
    drop(users);
    hold(&open(server.addr(), "").await).await.release().await.unwrap();
}

/// `SQL_ASCII`, where the server checks and converts nothing.
pub(super) async fn names_are_whole_in_a_database_without_encoding() {
    const NAME: &str = "Rechnung/ä€𐍈";
    let server = Setup::new().start().await.unwrap();
    server.sql("CREATE DATABASE bytes ENCODING 'SQL_ASCII' TEMPLATE template0").await.unwrap();
    let locks = connect(&url(server.addr(), "").replace("/postgres?", "/bytes?")).await.unwrap();
    let guard = locks.lock(NAME).unwrap().acquire().await.unwrap();
    let listed = locks.list("Rechnung/ä").await.unwrap();
    assert_eq!(listed.iter().map(|state| state.name.as_str()).collect::<Vec<_>>(), [NAME]);
    let fence = format!("SELECT leasehold.fence('special', '{NAME}', {})", guard.token());
    server.sql_in("bytes", &fence).await.unwrap();
    guard.release().await.unwrap();
    assert!(server.sql_in("bytes", &fence).await.unwrap_err().to_string().contains("is not held"));
}
