//! Redis: one script that sets the key and counts, one that deletes the key if it is ours; on the primary that a sentinel names, if
//! sentinels are.

use std::time::Duration;

use contender_protocol::{Failure, Session};
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;

pub(super) async fn connect(url: &str) -> Result<MultiplexedConnection, Failure> {
    let client = redis::Client::open(format!("{url}?protocol=resp3"))?;
    // Whoever asks for a contest says when it is given up; by itself the client does so after half a second.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
}

/// Of several servers.
pub(super) fn first(hosts: &str) -> &str {
    hosts.split(',').next().unwrap_or_default()
}

pub(super) async fn load(connection: &mut MultiplexedConnection, script: &str) -> Result<String, Failure> {
    Ok(redis::cmd("SCRIPT").arg("LOAD").arg(script).query_async(connection).await?)
}

pub(super) struct Connection {
    connection: MultiplexedConnection,
    acquire: String,
    release: String,
    ttl: String,
}

pub(super) struct Keys {
    pub(super) lock: String,
    pub(super) counter: String,
}

impl Keys {
    pub(super) fn of(name: &str) -> Self {
        Self { lock: format!("{{floor:{name}}}"), counter: format!("{{floor:{name}}}:counter") }
    }
}

pub(super) struct Held {
    pub(super) lock: String,
    pub(super) token: u64,
}

impl Session for Connection {
    type Lock = Keys;
    type Held = Held;

    const VERSION: &'static str = "redis 1.8";

    async fn open(urls: &[String], ttl: Duration) -> Result<Self, Failure> {
        let mut server = super::place(urls).to_owned();
        if super::scheme(urls) == "redis+sentinel" {
            let (sentinels, master) =
                server.split_once('/').ok_or_else(|| Failure::new("the URL names no primary"))?;
            let mut sentinel = connect(&format!("redis://{}", first(sentinels))).await?;
            let mut question = redis::cmd("SENTINEL");
            question.arg("GET-MASTER-ADDR-BY-NAME").arg(master);
            let (host, port): (String, u16) = question.query_async(&mut sentinel).await?;
            server = format!("{host}:{port}");
        }
        let mut connection = connect(&format!("redis://{server}")).await?;
        let acquire = load(&mut connection, ACQUIRE).await?;
        let release = load(&mut connection, RELEASE).await?;
        Ok(Self { connection, acquire, release, ttl: ttl.as_millis().to_string() })
    }

    async fn lock(&self, name: &str) -> Result<Keys, Failure> {
        Ok(Keys::of(name))
    }

    async fn acquire(&self, keys: &Keys) -> Result<Held, Failure> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.acquire).arg(2).arg(&keys.lock).arg(&keys.counter).arg(OWNER).arg(&self.ttl);
        let token: Option<u64> = command.query_async(&mut self.connection.clone()).await?;
        let token = token.ok_or_else(super::taken)?;
        Ok(Held { lock: keys.lock.clone(), token })
    }

    fn token(held: &Held) -> Option<u64> {
        Some(held.token)
    }

    async fn release(&self, held: Held) -> Result<(), Failure> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.release).arg(1).arg(&held.lock).arg(OWNER);
        let deleted: u64 = command.query_async(&mut self.connection.clone()).await?;
        if deleted == 1 { Ok(()) } else { Err(Failure::new("the key was not ours")) }
    }
}

/// Longer than anybody waits for an answer who times.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) const OWNER: &str = "0123456789abcdef0123456789abcdef";

pub(super) const ACQUIRE: &str = "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then \
                       return redis.call('INCR', KEYS[2]) end return false";

pub(super) const RELEASE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
