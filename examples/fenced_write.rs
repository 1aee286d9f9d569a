//! Why a lock needs a fencing token: a holder that was stopped writes too late, and the database
//! refuses it.
//!
//! `cargo run --example fenced_write`

use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::ManualClock;
use leasehold::memory::MemoryConfig;
use leasehold::{FencingToken, LockManager};
use rusqlite::{Connection, params};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let database = Connection::open_in_memory()?;
    database.execute_batch(
        "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER, fence INTEGER);
         INSERT INTO account VALUES (1, 100, 0);",
    )?;

    // Both use one clock, which this program moves by hand; a real one is the default.
    let (store, clock) = (MemoryConfig::private(), ManualClock::new());
    let manager = || {
        let builder = LockManager::builder(store.clone()).ttl(Duration::from_secs(15));
        builder.clock(Arc::new(clock.clone())).build()
    };
    let (slow, quick) = (manager().await?, manager().await?);

    let first = slow.lock("account/1")?.acquire().await?;
    first.ensure_held()?;
    // Here the first holder is stopped for a minute: a long pause, a suspended laptop.
    clock.suspend(Duration::from_secs(60));

    let second = quick.lock("account/1")?.acquire().await?;
    assert!(second.token() > first.token());
    println!("second holder, token {}: {}", second.token(), written(&database, second.token(), 150)?);

    // The first one goes on as if nothing had happened. It could have asked:
    println!("first holder asks: {}", first.ensure_held().expect_err("a minute has passed"));
    println!("first holder, token {}: {}", first.token(), written(&database, first.token(), 90)?);

    let balance: i64 = database.query_row("SELECT balance FROM account", [], |row| row.get(0))?;
    assert_eq!(balance, 150);
    Ok(())
}

/// Writes if no later holder has written; the comparison and the write are one statement.
fn written(database: &Connection, token: FencingToken, balance: i64) -> rusqlite::Result<&'static str> {
    let rows = database.execute(
        "UPDATE account SET balance = ?1, fence = ?2 WHERE id = 1 AND fence <= ?2",
        params![balance, token.get_i64()],
    )?;
    Ok(if rows == 1 { "written" } else { "refused, a later holder has written" })
}
