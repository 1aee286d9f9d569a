//! A Redis Cluster: the scripts of one server's floor, sent to the primary that has the slot. Slots stay where they are.

use std::time::Duration;

use contender_protocol::{Failure, Session};
use redis::Value;
use redis::aio::MultiplexedConnection;

use super::redis::{ACQUIRE, Held, Keys, OWNER, RELEASE, connect, first, load};

pub(super) struct Connections {
    /// With the first of its slots, in their order.
    primaries: Vec<(u64, MultiplexedConnection)>,
    acquire: String,
    release: String,
    ttl: String,
}

/// A range of slots, and its primary: address, port and more.
type Slots = (u64, u64, Vec<Value>);

impl Session for Connections {
    type Lock = (Keys, MultiplexedConnection);
    type Held = (Held, MultiplexedConnection);

    const VERSION: &'static str = "redis 1.8";

    async fn open(urls: &[String], ttl: Duration) -> Result<Self, Failure> {
        let mut seed = connect(&format!("redis://{}", first(super::address(urls)))).await?;
        let ranges: Vec<Vec<Value>> = redis::cmd("CLUSTER").arg("SLOTS").query_async(&mut seed).await?;
        let (mut primaries, mut acquire, mut release) = (Vec::new(), String::new(), String::new());
        for range in ranges {
            let range = Value::Array(range.into_iter().take(3).collect());
            let (start, _, mut primary): Slots = redis::from_redis_value(range)?;
            primary.truncate(2);
            let (host, port): (String, u16) = redis::from_redis_value(Value::Array(primary))?;
            let mut connection = connect(&format!("redis://{host}:{port}")).await?;
            acquire = load(&mut connection, ACQUIRE).await?;
            release = load(&mut connection, RELEASE).await?;
            primaries.push((start, connection));
        }
        primaries.sort_by_key(|(start, _)| *start);
        Ok(Self { primaries, acquire, release, ttl: ttl.as_millis().to_string() })
    }

    async fn lock(&self, name: &str) -> Result<Self::Lock, Failure> {
        let keys = Keys::of(name);
        let (_, any) = self.primaries.first().ok_or_else(uncovered)?;
        let mut question = redis::cmd("CLUSTER");
        let slot: u64 = question.arg("KEYSLOT").arg(&keys.lock).query_async(&mut any.clone()).await?;
        let owner = self.primaries.iter().rfind(|(start, _)| *start <= slot);
        Ok((keys, owner.ok_or_else(uncovered)?.1.clone()))
    }

    async fn acquire(&self, (keys, connection): &Self::Lock) -> Result<Self::Held, Failure> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.acquire).arg(2).arg(&keys.lock).arg(&keys.counter).arg(OWNER).arg(&self.ttl);
        let token: Option<u64> = command.query_async(&mut connection.clone()).await?;
        let held = Held { lock: keys.lock.clone(), token: token.ok_or_else(super::taken)? };
        Ok((held, connection.clone()))
    }

    fn token((held, _): &Self::Held) -> Option<u64> {
        Some(held.token)
    }

    async fn release(&self, (held, mut connection): Self::Held) -> Result<(), Failure> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.release).arg(1).arg(&held.lock).arg(OWNER);
        let deleted: u64 = command.query_async(&mut connection).await?;
        if deleted == 1 { Ok(()) } else { Err(Failure::new("the key was not ours")) }
    }
}

fn uncovered() -> Failure {
    Failure::new("no server has the slot")
}
