//! Several Redis servers, of which a majority decides: the scripts of one server's floor, sent to all of them at once, and on
//! as soon as a majority has answered.
//!
//! All count from the same proposal, which mostly no earlier grant has reached, so they agree on the number at once.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use contender_protocol::{Failure, Session};
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult};

use super::redis::{Held, Keys, OWNER, RELEASE, connect, load};
use crate::servers::places;

pub(super) struct Connections {
    servers: Vec<MultiplexedConnection>,
    /// A script has the same name everywhere.
    acquire: String,
    release: String,
    ttl: String,
    /// Requests that a majority did not wait for: the client sends none whose answer nobody wants.
    late: Mutex<FuturesUnordered<Asked>>,
}

type Asked = BoxFuture<'static, RedisResult<Option<u64>>>;

impl Connections {
    /// What a majority answers. The others are asked as well, and not waited for.
    async fn majority(&self, command: Cmd) -> Result<Vec<u64>, Failure> {
        self.go_on_with_late();
        let command = Arc::new(command);
        let ask = |connection: &MultiplexedConnection| {
            let (mut connection, command) = (connection.clone(), Arc::clone(&command));
            async move { command.query_async(&mut connection).await }.boxed()
        };
        let mut asked: FuturesUnordered<Asked> = self.servers.iter().map(ask).collect();
        let mut answers = Vec::new();
        while answers.len() <= self.servers.len() / 2 {
            let answer = asked.next().await.ok_or_else(super::taken)?;
            answers.extend(answer?);
        }
        self.late.lock().unwrap_or_else(PoisonError::into_inner).extend(asked);
        Ok(answers)
    }

    fn go_on_with_late(&self) {
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        while late.next().now_or_never().flatten().is_some() {}
    }
}

impl Session for Connections {
    type Lock = Keys;
    type Held = Held;

    const VERSION: &'static str = "redis 1.8";

    async fn open(urls: &[String], ttl: Duration) -> Result<Self, Failure> {
        let (mut servers, mut acquire, mut release) = (Vec::new(), String::new(), String::new());
        for url in urls.iter().flat_map(|url| places(url)) {
            let mut connection = connect(&url).await?;
            acquire = load(&mut connection, ACQUIRE).await?;
            release = load(&mut connection, RELEASE).await?;
            servers.push(connection);
        }
        Ok(Self { servers, acquire, release, ttl: ttl.as_millis().to_string(), late: Mutex::default() })
    }

    async fn lock(&self, name: &str) -> Result<Keys, Failure> {
        Ok(Keys::of(name))
    }

    async fn acquire(&self, keys: &Keys) -> Result<Held, Failure> {
        // A number in a script is exact for centuries of microseconds.
        let proposal = contender_protocol::now() / 1_000;
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.acquire).arg(2).arg(&keys.lock).arg(&keys.counter);
        command.arg(OWNER).arg(&self.ttl).arg(proposal);
        let numbers = self.majority(command).await?;
        match numbers.first() {
            Some(token) if numbers.iter().all(|number| number == token) => {
                Ok(Held { lock: keys.lock.clone(), token: *token })
            }
            _ => Err(Failure::new("the servers do not agree on the number")),
        }
    }

    fn token(held: &Held) -> Option<u64> {
        Some(held.token)
    }

    async fn release(&self, held: Held) -> Result<(), Failure> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.release).arg(1).arg(&held.lock).arg(OWNER);
        let deleted = self.majority(command).await?;
        // One that was asked late may have none.
        if deleted.contains(&1) { Ok(()) } else { Err(Failure::new("the key was not ours")) }
    }
}

const ACQUIRE: &str = "if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return false end \
                       local n = math.max((tonumber(redis.call('GET', KEYS[2])) or 0) + 1, tonumber(ARGV[3])) \
                       redis.call('SET', KEYS[2], string.format('%.0f', n)) return n";
