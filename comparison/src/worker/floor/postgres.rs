//! Postgres: a row that is inserted, numbered, and deleted, by two prepared statements. The insertion waits for the disk, and
//! the deletion as said.

use std::time::Duration;

use contender_protocol::{Failure, Session};
use tokio::task::JoinSet;
use tokio_postgres::{AsyncMessage, Client, NoTls, Statement};

pub(super) struct Connection<const DURABLE: bool> {
    client: Client,
    insert: Statement,
    delete: Statement,
    _connected: JoinSet<()>,
}

/// Connects; what the server sends unasked goes to `told`.
pub(super) async fn connect(
    urls: &[String],
    told: impl Fn(&str) + Send + 'static,
) -> Result<(Client, JoinSet<()>), Failure> {
    let (client, mut connection) =
        tokio_postgres::connect(&format!("postgres://{}", super::place(urls)), NoTls).await?;
    let mut connected = JoinSet::new();
    connected.spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(message) = message {
                told(message.payload());
            }
        }
    });
    Ok((client, connected))
}

impl<const DURABLE: bool> Session for Connection<DURABLE> {
    type Lock = String;
    /// With its number.
    type Held = (String, i64);

    const VERSION: &'static str = "tokio-postgres 0.7";

    async fn open(urls: &[String], _ttl: Duration) -> Result<Self, Failure> {
        let (client, _connected) = connect(urls, |_| {}).await?;
        client.batch_execute(TABLE).await?;
        let insert = client.prepare("INSERT INTO floor (name) VALUES ($1) RETURNING number").await?;
        let mut delete = "DELETE FROM floor WHERE name = $1 AND number = $2".to_owned();
        if !DURABLE {
            delete += " RETURNING set_config('synchronous_commit', 'off', true)";
        }
        let delete = client.prepare(&delete).await?;
        Ok(Self { client, insert, delete, _connected })
    }

    async fn lock(&self, name: &str) -> Result<String, Failure> {
        Ok(name.to_owned())
    }

    async fn acquire(&self, name: &String) -> Result<Self::Held, Failure> {
        let row = self.client.query_one(&self.insert, &[name]).await?;
        Ok((name.clone(), row.try_get(0)?))
    }

    fn token(held: &Self::Held) -> Option<u64> {
        Some(held.1.cast_unsigned())
    }

    async fn release(&self, (name, number): Self::Held) -> Result<(), Failure> {
        match self.client.execute(&self.delete, &[&name, &number]).await? {
            1 => Ok(()),
            _ => Err(Failure::new("the row was not ours")),
        }
    }
}

/// One makes it at a time.
const TABLE: &str = "SELECT pg_advisory_xact_lock(1); CREATE TABLE IF NOT EXISTS floor \
                     (name text PRIMARY KEY, number bigint GENERATED ALWAYS AS IDENTITY)";
