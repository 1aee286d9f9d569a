//! Which server, and how locks are kept in it.

mod cluster;
mod failover;
mod format;
mod sentinel;
mod theirs;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::{Credentials, Endpoint, Login};
use leasehold_core::{Error, Result, StoreUrl, Tls};
use redis::{ProtocolVersion, RedisConnectionInfo};

pub use self::cluster::RedisClusterConfig;
pub(crate) use self::failover::Failover;
pub use self::format::Format;
pub(crate) use self::sentinel::MapAddress;
pub use self::sentinel::SentinelConfig;

use crate::connection::{Client, Copies, Fixed, Whereabouts};
use crate::keys::Keys;

/// The configuration of the Redis store,
/// `redis://[USER[:PASSWORD]@]HOST[:PORT][/DB][?OPTION=VALUE&…]`.
///
/// `rediss://` is the same over TLS; `redis+unix:///SOCKET?db=N` goes through a Unix socket. `Debug` shows no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a configuration opens nothing until a manager is built"]
pub struct RedisConfig {
    address: Address,
    tls: Option<Tls>,
    /// The program's own client speaks TLS with the server.
    needs_tls: bool,
    user: Option<String>,
    password: Option<Password>,
    /// Where user and password come from, if they change.
    login: Option<Login>,
    pub(crate) database: u32,
    pub(crate) prefix: String,
    /// How locks are shared with other libraries, if they are.
    pub(crate) format: Option<Format>,
    wait_replicas: u32,
    wait_aof: bool,
    /// Whether a call may touch the keys of one slot alone.
    pub(crate) slots: bool,
    /// Whether a server that may have forgotten holders grants nothing at first.
    pub(crate) pause: Option<PauseOption>,
    message_key: Option<Password>,
}

/// A pause of a server that may have forgotten holders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PauseOption {
    /// The option that sets it.
    pub(crate) name: &'static str,
    pub(crate) span: Duration,
    /// For how long a primary may go on after it was replaced. Not longer than the pause.
    pub(crate) lag: Duration,
    /// The longest lease, where the managers agree on it, and on the lag.
    pub(crate) max_ttl: Option<Duration>,
}

impl PauseOption {
    /// Of managers that could pause at a fail-over, and do not.
    pub(crate) const OFF: Self =
        Self { name: "pause_after_failover", span: Duration::ZERO, lag: Duration::ZERO, max_ttl: None };

    /// The settings that all managers of a prefix share, and their options.
    pub(crate) fn terms(&self) -> Vec<(String, Duration)> {
        let mut terms = vec![(format!("`{}`", self.name), self.span)];
        if let Some(max_ttl) = self.max_ttl {
            terms.push(("the lag of `failover_lag` and `replicas`".to_owned(), self.lag));
            terms.push(("`max_ttl`".to_owned(), max_ttl));
        }
        terms
    }
}

/// Not shown.
#[derive(Clone, PartialEq, Eq)]
struct Password(String);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// Where the server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Address {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

impl From<&Endpoint> for Address {
    fn from(server: &Endpoint) -> Self {
        Self::Tcp { host: server.host().to_owned(), port: server.port() }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

impl RedisConfig {
    /// The shortest ttl: the server keeps expiry to the millisecond, the rest is the network's.
    pub const MIN_TTL: Duration = Duration::from_millis(300);
    /// The default port.
    pub const DEFAULT_PORT: u16 = 6379;
    /// The default of [`RedisConfig::prefix`].
    pub const DEFAULT_PREFIX: &str = "leasehold";

    /// Locks in the server at `host`, a name or an address, and `port`, over TCP.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self::at(Address::Tcp { host: host.into(), port })
    }

    /// Locks in the server that listens on the Unix socket `path`.
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Self::at(Address::Unix(path.into()))
    }

    fn at(address: Address) -> Self {
        Self {
            address,
            tls: None,
            needs_tls: false,
            user: None,
            password: None,
            login: None,
            database: 0,
            prefix: Self::DEFAULT_PREFIX.to_owned(),
            format: None,
            wait_replicas: 0,
            wait_aof: false,
            slots: false,
            pause: None,
            message_key: None,
        }
    }

    /// The same configuration of the server at another address.
    pub(crate) fn at_address(&self, address: Address) -> Self {
        Self { address, ..self.clone() }
    }

    /// The user of the server's access control list, and the password. Default: the server's
    /// `default` user without one.
    pub fn credentials(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self.password(password)
    }

    /// The password of the `default` user, for a server with `requirepass`.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(Password(password.into()));
        self
    }

    /// Asks for user and password at each connection, for a server whose passwords change, such as tokens of a cloud. They
    /// take the place of [`credentials`](Self::credentials). Default none.
    ///
    /// With [`Credentials::valid_for`] they are asked for again before they end, and the open connection logs in again, on both
    /// its sockets. A connection that the server ends with its token all the same is made again, which costs neither a hold nor
    /// a place. An answer that takes longer than an attempt to connect is dropped.
    ///
    /// Credentials that are valid for no time at all are refused: `Unavailable`.
    ///
    /// ```
    /// use std::fs;
    /// use std::time::Duration;
    ///
    /// use leasehold_core::backend::Credentials;
    /// use leasehold_core::{Error, ErrorKind};
    /// use leasehold_redis::RedisConfig;
    ///
    /// let config = RedisConfig::new("redis.example.org", 6379).credentials_from(|| async {
    ///     let read = || Ok((fs::read_to_string("/run/token")?, fs::metadata("/run/token")?.modified()?));
    ///     let (token, written_at) = read().map_err(|error: std::io::Error| {
    ///         Error::not_applied(ErrorKind::Unavailable, "cannot read /run/token").with_source(error)
    ///     })?;
    ///     // A token ends 15 minutes after it was written.
    ///     let age = written_at.elapsed().unwrap_or_default();
    ///     let left = Duration::from_secs(900).saturating_sub(age);
    ///     Ok(Credentials::new("billing", token.trim_end()).valid_for(left))
    /// });
    /// ```
    pub fn credentials_from<F>(mut self, ask: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials>> + Send + 'static,
    {
        self.login = Some(Login::new(ask));
        self
    }

    /// The number of the database. Default 0. Messages between contenders do not belong to a
    /// database, the locks do.
    pub fn database(mut self, number: u32) -> Self {
        self.database = number;
        self
    }

    /// The beginning of every key and channel: the namespace of the names. Default `leasehold`. Not empty, without braces and
    /// control characters.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Keeps a lock as another library does, under a key of its own. Queue and counter stay under the prefix. Default
    /// none.
    pub fn format(mut self, format: Format) -> Self {
        self.format = Some(format);
        self
    }

    /// How many replicas must have confirmed a grant or a renewal before it counts, on a second
    /// connection. Default 0.
    ///
    /// It makes the loss of a lock at a fail-over less likely and does not exclude it: replication
    /// stays asynchronous, and a promotion does not know which replica has the lock.
    pub fn wait_replicas(mut self, replicas: u32) -> Self {
        self.wait_replicas = replicas;
        self
    }

    /// Whether a grant or a renewal counts only when the server has it on its disk, and with
    /// [`wait_replicas`](Self::wait_replicas) these have it on theirs. Default false.
    ///
    /// It needs Redis 7.2 or later, or Valkey, with `appendonly yes`; opening fails as
    /// [`Unsupported`](leasehold_core::ErrorKind::Unsupported) otherwise. Then a server that was killed, or has lost its power, and
    /// comes up with its data has forgotten no lock. With `appendfsync everysec` a grant takes up to a second: `op_timeout` is at
    /// least 3 s, and the ttl at least 9 s.
    pub fn wait_aof(mut self, wait: bool) -> Self {
        self.wait_aof = wait;
        self
    }

    /// Whether the address is a proxy's, which hides the servers of a cluster and refuses a call with keys of several slots. Each
    /// renewal is a call of its own then. Default false; not with a [`format`](Self::format), nor with
    /// [`wait_replicas`](Self::wait_replicas) or [`wait_aof`](Self::wait_aof): a proxy may send `WAIT` to another server.
    pub fn slots(mut self, slots: bool) -> Self {
        self.slots = slots;
        self
    }

    /// For how long free locks are not granted after a server restart. The pause begins when the first manager connects to
    /// a server that has restarted, was promoted or is new. Default zero: no pause.
    ///
    /// At least the longest ttl in use, of locks and managers; at most a day. Then no lock is granted that another client
    /// still holds, although the restart has lost it. All managers of the prefix need the same; not with
    /// a [`format`](Self::format), as other libraries do not pause.
    pub fn pause_after_restart(mut self, pause: Duration) -> Self {
        let (name, lag) = ("pause_after_restart", Duration::ZERO);
        self.pause = (!pause.is_zero()).then_some(PauseOption { name, span: pause, lag, max_ttl: None });
        self
    }

    /// Signs the messages between managers with a secret of 16 characters or more, and ignores unsigned ones. Default none:
    /// then a user of the server that may read and publish, and not write, can make two clients hold a lock.
    ///
    /// All managers of the prefix need the same. The server sees it as an argument of scripts (`MONITOR`, `SLOWLOG`).
    pub fn message_key(mut self, key: impl Into<String>) -> Self {
        self.message_key = Some(Password(key.into()));
        self
    }

    /// Speaks TLS with the server. Not through a Unix socket.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Reads the configuration from a URL. Files of certificates are read at once.
    ///
    #[doc = include_str!("url_options.md")]
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`](leasehold_core::ErrorKind::InvalidOption), naming the value and the rule.
    pub fn from_url(url: &mut StoreUrl) -> Result<Self> {
        let config = match url.scheme() {
            "redis+unix" => Self::from_socket_url(url)?,
            _ => Self::from_host_url(url)?,
        };
        let mut config = config.with_options_of(url)?;
        config.format = Format::take_from(url)?;
        config.slots = url.take_parsed("slots", "true or false")?.unwrap_or_default();
        config.checked()?;
        Ok(config)
    }

    /// Reads what is done about replicas and restarts from a URL.
    fn with_options_of(mut self, url: &mut StoreUrl) -> Result<Self> {
        self.wait_replicas = url.take_parsed("wait_replicas", "a number of replicas")?.unwrap_or_default();
        self.wait_aof = match url.take_parsed::<u8>("wait_aof", WAIT_AOF)?.unwrap_or_default() {
            disks @ 0..=1 => disks == 1,
            other => {
                return Err(Error::invalid_option(format!(
                    "wait_aof={other} is invalid: expected {WAIT_AOF}"
                )));
            }
        };
        Ok(self.pause_after_restart(url.take_duration("pause_after_restart")?.unwrap_or_default()))
    }

    fn from_socket_url(url: &mut StoreUrl) -> Result<Self> {
        if !url.hosts().is_empty() {
            return Err(Error::invalid_option(
                "the URL of a Unix socket has a host: expected redis+unix:///run/redis.sock, with three \
                 slashes",
            ));
        }
        if url.path().trim_matches('/').is_empty() {
            return Err(Error::invalid_option(
                "the URL of a Unix socket has no path: expected redis+unix:///run/redis.sock",
            ));
        }
        let database = url.take_parsed("db", "the number of a database")?;
        Self::unix(url.path()).database(database.unwrap_or_default()).reached_by(url)
    }

    fn from_host_url(url: &mut StoreUrl) -> Result<Self> {
        let [config] = <[Self; 1]>::try_from(Self::all_of(url)?).map_err(|servers| {
            Error::invalid_option(format!(
                "the Redis URL has {} servers: expected one, as in redis://host:6379/0",
                servers.len()
            ))
        })?;
        Ok(config)
    }

    /// Every server that a URL names, each with the options of the URL.
    pub(crate) fn all_of(url: &mut StoreUrl) -> Result<Vec<Self>> {
        let servers = url.endpoints(Self::DEFAULT_PORT)?;
        let any =
            Self::new("", 0).database(database_number(url.path().trim_matches('/'))?).reached_by(url)?;
        Ok(servers.iter().map(|server| Self { address: server.into(), ..any.clone() }).collect())
    }

    /// Reads TLS, user, password, prefix and message key from a URL.
    fn reached_by(mut self, url: &mut StoreUrl) -> Result<Self> {
        if url.scheme().starts_with("rediss") {
            self.tls = Some(Tls::take_from(url)?.unwrap_or_default());
        }
        self.user = url.user().map(str::to_owned);
        self.password = url.password().map(|password| Password(password.to_owned()));
        self.prefix = url.take("prefix")?.unwrap_or(self.prefix);
        self.message_key = url.take("message_key")?.map(Password);
        Ok(self)
    }

    /// Makes the checks that need no server.
    pub(crate) fn checked(&self) -> Result<()> {
        if matches!(&self.address, Address::Tcp { host, port } if host.is_empty() || *port == 0) {
            let rule = "the server's address is invalid: expected a host and a port above 0";
            return Err(Error::invalid_option(rule));
        }
        self.checked_options()
    }

    /// Checks everything but the address.
    fn checked_options(&self) -> Result<()> {
        let is_local = matches!(self.address, Address::Unix(_));
        let unfit = |key: &str| key.chars().count() < SHORTEST_KEY || key.contains(char::is_control);
        let wrong = [
            (
                self.signed_with().is_some_and(unfit),
                "`message_key` is invalid: expected at least 16 characters, without control characters",
            ),
            (is_local && self.tls.is_some(), "cannot use TLS through a Unix socket"),
            (
                self.needs_tls && self.tls.is_none(),
                "the client's address uses TLS, and the client keeps its settings to itself: give them by `tls`, \
                 with `ca`, `cert` and `key` as its own",
            ),
            (self.user.is_some() && self.password.is_none(), "a Redis user needs a password"),
            (
                self.slots && self.format.is_some(),
                "cannot use a format with `slots`: keys of other libraries lie in other slots",
            ),
            (
                self.slots && self.copies() != Copies::NONE,
                "cannot use `wait_replicas` or `wait_aof` with `slots`: a proxy may ask another server than the lock's",
            ),
        ];
        if let Some((_, rule)) = wrong.into_iter().find(|(is_so, _)| *is_so) {
            return Err(Error::invalid_option(rule));
        }
        if self.tls.is_some() && cfg!(not(feature = "tls")) {
            return Err(Tls::missing());
        }
        if let Some(format) = &self.format {
            format.checked()?;
        }
        if let Some(PauseOption { name, span, .. }) = self.pause {
            if self.format.is_some() {
                return Err(Error::invalid_option(format!(
                    "cannot use {name}={span:?} with a format: other libraries do not pause"
                )));
            }
            if span > LONGEST_PAUSE || !span.subsec_nanos().is_multiple_of(1_000_000) {
                return Err(Error::invalid_option(format!(
                    "{name}={span:?} is invalid: expected whole milliseconds, at most {LONGEST_PAUSE:?}"
                )));
            }
        }
        self.keys().map(drop)
    }

    pub(crate) fn keys(&self) -> Result<Keys> {
        let keys = Keys::new(&self.prefix, self.format.as_ref().map(Format::template).as_deref())?;
        Ok(keys.with_list(self.format.as_ref().and_then(Format::list)))
    }

    /// The message key, if there is one.
    pub(crate) fn signed_with(&self) -> Option<&str> {
        Some(&self.message_key.as_ref()?.0)
    }

    /// The client for one server. It sends nothing before it connects.
    pub(crate) fn client(&self, op_timeout: Duration) -> Result<Client> {
        let settings = settings(self.user.as_deref(), self.password.as_ref());
        let settings = settings.set_db(i64::from(self.database));
        Client::new(self.address.clone(), settings, self.tls.as_ref(), op_timeout)
    }

    /// The way to the server, for links.
    pub(crate) fn whereabouts(&self, op_timeout: Duration) -> Result<Arc<dyn Whereabouts>> {
        Ok(Arc::new(Fixed { client: self.client(op_timeout)?, login: self.login.clone() }))
    }

    /// The server as errors name it.
    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// The server, the database and the prefix.
    pub(crate) fn namespace(&self) -> String {
        format!("{}/{}/{}", self.address(), self.database, self.prefix)
    }

    /// Whether locks lie under the prefix, and are in the memory of one server.
    pub(crate) fn is_plain(&self) -> bool {
        self.format.is_none() && self.copies() == Copies::NONE && !self.slots
    }

    /// Where a grant or a renewal has to be before it counts.
    pub(crate) fn copies(&self) -> Copies {
        Copies { replicas: self.wait_replicas, disk: self.wait_aof }
    }
}

/// How a server, or a sentinel, is spoken to.
fn settings(user: Option<&str>, password: Option<&Password>) -> RedisConnectionInfo {
    let mut settings =
        RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name();
    if let Some(user) = user {
        settings = settings.set_username(user);
    }
    match password {
        Some(password) => settings.set_password(&password.0),
        None => settings,
    }
}

/// The database that the path of a URL names.
fn database_number(path: &str) -> Result<u32> {
    if path.is_empty() {
        return Ok(0);
    }
    let expected = "expected the number of a database; the prefix is an option";
    path.parse().map_err(|_| {
        Error::invalid_option(format!("the path {path:?} of the Redis URL is invalid: {expected}"))
    })
}

/// How many disks are waited for.
const WAIT_AOF: &str = "0 or 1";

/// Of a message key, in characters: too many to try all.
const SHORTEST_KEY: usize = 16;

/// No lease is longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(24 * 60 * 60);

#[cfg(feature = "tls")]
#[cfg(test)]
mod tests;
