//! A write to the database that commits only while the lock is held: `fence` in the transaction of the write.
//!
//! `cargo run --example fenced_transaction --features postgres -- postgres://app:secret@localhost/app`

use std::error::Error;

use leasehold::LockManager;
use tokio_postgres::{Client, Config, NoTls};

const PREFIX: &str = "invoices";
const NAME: &str = "invoice/42";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("the URL of a database is missing")?;
    let locks = leasehold::connect(&format!("{url}?prefix={PREFIX}")).await?;
    // The application's own connection, usually one of a pool.
    let (client, connection) = url.parse::<Config>()?.connect(NoTls).await?;
    // It ends with the client.
    let connected = async { connection.await.map_err(Into::into) };
    tokio::try_join!(connected, pay(client, &locks))?;
    locks.shutdown().await?;
    Ok(())
}

async fn pay(mut client: Client, locks: &LockManager) -> Result<(), Box<dyn Error>> {
    client
        .batch_execute("CREATE TABLE IF NOT EXISTS invoice (id int PRIMARY KEY, paid boolean NOT NULL)")
        .await?;
    let guard = locks.lock(NAME)?.acquire().await?;
    let transaction = client.transaction().await?;
    let fence = "SELECT leasehold.fence($1, $2, $3)";
    transaction.execute(fence, &[&PREFIX, &NAME, &guard.token().get_i64()]).await?;
    let pay = "INSERT INTO invoice VALUES (42, true) ON CONFLICT (id) DO UPDATE SET paid = true";
    transaction.execute(pay, &[]).await?;
    // From the fence to here nobody else has held the lock, whatever has become of the guard.
    transaction.commit().await?;
    println!("paid with token {}", guard.token());
    guard.release().await?;
    Ok(())
}
