//! Postgres: the functions of our own store, which queue and hand over, as prepared statements. A waiter listens on the channel
//! of its session, and sends `flushed` and nothing more.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use contender_protocol::{Failure, Session};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use tokio_postgres::{Client, Statement};

use super::postgres::connect;

pub(super) struct Connection {
    client: Client,
    session: i64,
    acquire: Statement,
    flushed: Statement,
    release: Statement,
    /// The numbers of those that hold now.
    told: Mutex<mpsc::UnboundedReceiver<i64>>,
    _connected: JoinSet<()>,
}

pub(super) struct Name {
    name: Vec<u8>,
    /// Below it nothing of the name lives.
    low: AtomicI64,
}

pub(super) struct Held {
    name: Vec<u8>,
    seq: i64,
    low: i64,
}

impl Session for Connection {
    type Lock = Name;
    type Held = Held;

    const VERSION: &'static str = "tokio-postgres 0.7";

    async fn open(urls: &[String], _ttl: Duration) -> Result<Self, Failure> {
        // It makes the schema.
        leasehold::connect(&urls[0]).await?.shutdown().await?;
        let (tell, told) = mpsc::unbounded_channel();
        let heard = move |payload: &str| drop(payload.parse().map(|seq| tell.send(seq)));
        let (client, _connected) = connect(urls, heard).await?;
        let channel = format!("floor_{}", std::process::id());
        let number: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await?.try_get(0)?;
        let channel = format!("{channel}_{number}");
        client.batch_execute(&format!("LISTEN {channel}")).await?;
        let open = "SELECT id FROM leasehold.open_session('floor', $1, $2, 1000, false)";
        let session = client.query_one(open, &[&channel, &LEASE_MS]).await?.try_get(0)?;
        let acquire = "SELECT granted, seq, first FROM leasehold.acquire($1, 1, $2, '\\x00', 1, 1, true, $3, true, 'floor', NULL)";
        let release = "SELECT was_there FROM leasehold.release($1, $2, $3, $4, false, true)";
        let [acquire, flushed, release] = [
            client.prepare(acquire).await?,
            client.prepare("SELECT leasehold.flushed()").await?,
            client.prepare(release).await?,
        ];
        Ok(Self { client, session, acquire, flushed, release, told: Mutex::new(told), _connected })
    }

    async fn lock(&self, name: &str) -> Result<Name, Failure> {
        Ok(Name { name: name.as_bytes().to_vec(), low: AtomicI64::new(0) })
    }

    /// One contender per session waits at a time.
    async fn acquire(&self, Name { name, low }: &Name) -> Result<Held, Failure> {
        let known = low.load(Ordering::Relaxed);
        let row = self.client.query_one(&self.acquire, &[&self.session, name, &known]).await?;
        let (granted, seq): (bool, i64) = (row.try_get(0)?, row.try_get(1)?);
        let low = row.try_get::<_, Option<i64>>(2)?.map_or(known, |first| {
            low.store(first, Ordering::Relaxed);
            first
        });
        if !granted {
            self.client.execute(&self.flushed, &[]).await?;
            let mut told = self.told.lock().await;
            while told.recv().await.ok_or_else(super::taken)? != seq {}
        }
        Ok(Held { name: name.clone(), seq, low })
    }

    fn token(held: &Held) -> Option<u64> {
        Some(held.seq.cast_unsigned())
    }

    async fn release(&self, Held { name, seq, low }: Held) -> Result<(), Failure> {
        let row = self.client.query_one(&self.release, &[&self.session, &name, &seq, &low]).await?;
        if row.try_get(0)? { Ok(()) } else { Err(Failure::new("the lock was not ours")) }
    }
}

/// Longer than a comparison, as a floor renews nothing.
const LEASE_MS: i64 = 3_600_000;
