//! Redis: the program of our own store, which queues and hands over. A waiter listens on a channel of its session and
//! sends nothing more.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use contender_protocol::{Failure, Session};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, PushInfo, PushKind, Value};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::{place, redis::load};

pub(super) struct Connection {
    connection: MultiplexedConnection,
    program: String,
    /// The names of those that acquire and release.
    operations: [&'static str; 2],
    ttl: String,
    inbox: String,
    asked: AtomicU64,
    waiting: Waiting,
    _listening: JoinSet<()>,
}

/// Who waits, by owner.
type Waiting = Arc<Mutex<HashMap<String, oneshot::Sender<u64>>>>;

pub(super) struct Keys([String; 5]);

pub(super) struct Held {
    keys: [String; 5],
    owner: String,
    token: u64,
}

impl Session for Connection {
    type Lock = Keys;
    type Held = Held;

    const VERSION: &'static str = "redis 1.8";

    async fn open(urls: &[String], ttl: Duration) -> Result<Self, Failure> {
        let client = redis::Client::open(format!("redis://{}?protocol=resp3", place(urls)))?;
        let (push, pushed) = mpsc::unbounded_channel();
        let config = AsyncConnectionConfig::new().set_push_sender(push);
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let (program, operations) = leasehold::redis::exclusive_scripts();
        let program = load(&mut connection, program).await?;
        let number: u64 = redis::cmd("INCR").arg("{floor}:sessions").query_async(&mut connection).await?;
        let inbox = format!("{number:032x}");
        connection.subscribe(format!("{CHANNELS}{inbox}")).await?;
        let waiting = Waiting::default();
        let mut listening = JoinSet::new();
        listening.spawn(listen(pushed, Arc::clone(&waiting)));
        let ttl = ttl.as_millis().to_string();
        let asked = AtomicU64::new(0);
        Ok(Self { connection, program, operations, ttl, inbox, asked, waiting, _listening: listening })
    }

    async fn lock(&self, name: &str) -> Result<Keys, Failure> {
        Ok(Keys(["", ":q", ":e", ":n", ":h"].map(|end| format!("floor:{{{name}}}{end}"))))
    }

    async fn acquire(&self, Keys(keys): &Keys) -> Result<Held, Failure> {
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let owner = format!("{}{number:016x}", &self.inbox[16..]);
        let (told, granted) = oneshot::channel();
        waiting(&self.waiting).insert(owner.clone(), told);
        let mut command = redis::cmd("EVALSHA");
        let [acquire, _] = self.operations;
        command
            .arg(&self.program)
            .arg(keys.len())
            .arg(keys.as_slice())
            .arg(acquire)
            .arg(CHANNELS)
            .arg(&owner);
        command.arg(&self.ttl).arg(format!("{} 5 floor", self.inbox));
        let token = match command.query_async(&mut self.connection.clone()).await? {
            Value::Array(_in_the_queue) => granted.await?,
            counter => {
                waiting(&self.waiting).remove(&owner);
                redis::from_redis_value(counter)?
            }
        };
        Ok(Held { keys: keys.clone(), owner, token })
    }

    fn token(held: &Held) -> Option<u64> {
        Some(held.token)
    }

    async fn release(&self, held: Held) -> Result<(), Failure> {
        let mut command = redis::cmd("EVALSHA");
        let [_, release] = self.operations;
        command.arg(&self.program).arg(held.keys.len()).arg(&held.keys).arg(release);
        command.arg(CHANNELS).arg(&held.owner);
        let ended: u64 = command.query_async(&mut self.connection.clone()).await?;
        if ended == 1 { Ok(()) } else { Err(Failure::new("the lock was not ours")) }
    }
}

/// Tells those who wait: `granted OWNER COUNTER KEY`.
async fn listen(mut pushed: mpsc::UnboundedReceiver<PushInfo>, all: Waiting) {
    while let Some(PushInfo { kind, data }) = pushed.recv().await {
        let (PushKind::Message, Some(Value::BulkString(payload))) = (kind, data.get(1)) else { continue };
        let payload = String::from_utf8_lossy(payload);
        let mut words = payload.split(' ');
        if let (Some("granted"), Some(owner), Some(counter)) = (words.next(), words.next(), words.next())
            && let Ok(counter) = counter.parse()
            && let Some(told) = waiting(&all).remove(owner)
        {
            // Who has given up meanwhile is not told.
            let _gone = told.send(counter);
        }
    }
}

fn waiting(waiting: &Waiting) -> std::sync::MutexGuard<'_, HashMap<String, oneshot::Sender<u64>>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

const CHANNELS: &str = "floor:inbox:";
