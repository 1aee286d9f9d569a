//! Redis: a list with one element, which is the lock and its number. Who wants it pops that, and the server keeps those who
//! wait in their order; who lets it go pushes the next number. It has no lease.

use std::time::Duration;

use contender_protocol::{Failure, Session};
use redis::aio::MultiplexedConnection;

use super::{place, redis::connect};

pub(super) struct Connection(MultiplexedConnection);

pub(super) struct Held {
    list: String,
    token: u64,
}

impl Session for Connection {
    /// The list.
    type Lock = String;
    type Held = Held;

    const VERSION: &'static str = "redis 1.8";

    async fn open(urls: &[String], _ttl: Duration) -> Result<Self, Failure> {
        Ok(Self(connect(&format!("redis://{}", place(urls))).await?))
    }

    /// The first client that prepares it puts the element there.
    async fn lock(&self, name: &str) -> Result<String, Failure> {
        let (list, mut connection) = (format!("{{floor:{name}}}:list"), self.0.clone());
        let mut made = redis::cmd("SET");
        made.arg(format!("{list}:made")).arg(1).arg("NX");
        if made.query_async::<Option<String>>(&mut connection).await?.is_some() {
            push(&mut connection, &list, 1).await?;
        }
        Ok(list)
    }

    async fn acquire(&self, list: &String) -> Result<Held, Failure> {
        let mut command = redis::cmd("BLPOP");
        command.arg(list).arg(0);
        let (list, token): (String, u64) = command.query_async(&mut self.0.clone()).await?;
        Ok(Held { list, token })
    }

    fn token(held: &Held) -> Option<u64> {
        Some(held.token)
    }

    async fn release(&self, Held { list, token }: Held) -> Result<(), Failure> {
        push(&mut self.0.clone(), &list, token + 1).await
    }
}

async fn push(connection: &mut MultiplexedConnection, list: &str, token: u64) -> Result<(), Failure> {
    Ok(redis::cmd("RPUSH").arg(list).arg(token).exec_async(connection).await?)
}
