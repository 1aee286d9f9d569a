//! The configuration of the program's own client of Redis, taken over.

use leasehold_core::{Error, Result};
use redis::{ConnectionAddr, ConnectionInfo};

use super::RedisConfig;

impl RedisConfig {
    /// Takes address, user, password and database over from the program's own client, of the crate `redis`
    /// in version 1.
    ///
    /// The connection is a new one: what locks promise rests on its deadlines. A client that speaks TLS keeps its certificates to
    /// itself, so [`tls`](Self::tls) has to be given, too.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`](leasehold_core::ErrorKind::InvalidOption) for a negative database, or a kind of address that this
    /// crate does not know. Without `tls` for a client that speaks TLS, opening the store is refused so.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use leasehold_redis::RedisConfig;
    ///
    /// let client = redis::Client::open("redis://billing:secret@127.0.0.1/2")?;
    /// let config = RedisConfig::from_client(&client)?.prefix("billing");
    /// # drop(config);
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_connection_info(theirs: ConnectionInfo) -> Result<Self> {
        let mut config = match theirs.addr() {
            ConnectionAddr::Tcp(host, port) => Self::new(host, *port),
            ConnectionAddr::TcpTls { host, port, .. } => Self { needs_tls: true, ..Self::new(host, *port) },
            ConnectionAddr::Unix(path) => Self::unix(path),
            other => return Err(Error::invalid_option(format!("unknown kind of address: {other}"))),
        };
        let settings = theirs.redis_settings();
        config = match (settings.username(), settings.password()) {
            (Some(user), Some(password)) => config.credentials(user, password),
            (None, Some(password)) => config.password(password),
            (user, None) => Self { user: user.map(str::to_owned), ..config },
        };
        let number = settings.db();
        let refused =
            |_| Error::invalid_option(format!("the database {number} is invalid: expected 0 or more"));
        Ok(config.database(u32::try_from(number).map_err(refused)?))
    }

    /// As [`from_connection_info`](Self::from_connection_info), of a client.
    ///
    /// # Errors
    ///
    /// As [`from_connection_info`](Self::from_connection_info).
    pub fn from_client(client: &redis::Client) -> Result<Self> {
        Self::from_connection_info(client.get_connection_info().clone())
    }
}
