//! A foreign client that shares locks by a format, as the commands that libraries send.

use leasehold_redis::{Format, RedisConfig};
use testbed::redis::{Client, Reply, Server};

use crate::fixture::{NAME, direct, server};

/// The formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    String,
    Redisson,
    Spring,
    PythonRedisLock,
}

impl Kind {
    pub(crate) fn format(self) -> Format {
        match self {
            Self::String => Format::string(),
            Self::Redisson => Format::redisson(),
            Self::Spring => Format::spring("app"),
            Self::PythonRedisLock => Format::python_redis_lock(),
        }
    }

    /// The key of the lock [`NAME`].
    pub(crate) fn key(self) -> String {
        match self {
            Self::String | Self::Redisson => NAME.to_owned(),
            Self::Spring => format!("app:{NAME}"),
            Self::PythonRedisLock => format!("lock:{NAME}"),
        }
    }

    /// The channel on which its clients wait for [`NAME`], and what they publish there.
    pub(crate) fn message(self) -> Option<(&'static str, String)> {
        match self {
            Self::String | Self::PythonRedisLock => None,
            Self::Redisson => Some((CHANNEL, "0".to_owned())),
            Self::Spring => Some(("app-channel:app:invoice/42", self.key())),
        }
    }

    pub(crate) fn config(self, server: &Server) -> RedisConfig {
        direct(server).format(self.format())
    }
}

/// The channel on which clients of Redisson wait for [`NAME`].
pub(crate) const CHANNEL: &str = "redisson_lock__channel:{invoice/42}";

/// What it writes.
const VALUE: &str = "not one of ours";
const FIELD: &str = "0f0e0d0c-0b0a-0908-0706-050403020100:47";

pub(crate) struct ForeignClient {
    pub(crate) kind: Kind,
    client: Client,
}

impl ForeignClient {
    pub(crate) async fn of(kind: Kind, server: &Server) -> Self {
        Self { kind, client: server.client().await.unwrap() }
    }

    async fn command(&mut self, words: &[&str]) -> Reply {
        self.client.command(words).await.unwrap()
    }

    /// Takes the lock for so many milliseconds, if it is free; without end if that is `None`.
    pub(crate) async fn takes(&mut self, lease: Option<u64>) -> bool {
        const ENTER: &str = "
            if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
                redis.call('hincrby', KEYS[1], ARGV[2], 1)
                if ARGV[1] ~= '' then redis.call('pexpire', KEYS[1], ARGV[1]) end
                return 1
            end
            return 0";
        let (lease, key) = (lease.map(|lease| lease.to_string()), self.kind.key());
        if self.kind == Kind::Redisson {
            let lease = lease.unwrap_or_default();
            return self.command(&["EVAL", ENTER, "1", &key, &lease, FIELD]).await == Reply::Integer(1);
        }
        let words: Vec<_> = ["SET", &key, VALUE, "NX"].into_iter().collect();
        let px: Vec<_> = lease.iter().flat_map(|lease| ["PX", lease]).collect();
        self.command(&[words, px].concat()).await == Reply::Simple("OK".to_owned())
    }

    /// Releases its own lock, and publishes that, if the library does.
    pub(crate) async fn releases(&mut self) -> bool {
        const LEAVE: &str = "
            local mine = redis.pcall('get', KEYS[1])
            if type(mine) == 'table' then mine = redis.call('hexists', KEYS[1], ARGV[2]) == 1 and ARGV[1] end
            if mine == ARGV[1] then return redis.call('del', KEYS[1]) end
            return 0";
        let key = self.kind.key();
        let released = self.command(&["EVAL", LEAVE, "1", &key, VALUE, FIELD]).await == Reply::Integer(1);
        if let Some((channel, text)) = self.kind.message().filter(|_| released) {
            self.command(&["PUBLISH", channel, &text]).await;
        }
        released
    }
}

/// A server, and a foreign client on it.
pub(crate) async fn with_foreign(kind: Kind) -> (Server, ForeignClient) {
    let server = server().await;
    let foreign = ForeignClient::of(kind, &server).await;
    (server, foreign)
}
