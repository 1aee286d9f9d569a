//! The servers of a cluster.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::Endpoint;
use leasehold_core::{Env, Error, Result, StoreUrl};
use tokio::sync::Notify;

use super::failover::{Failover, Pausing};
use super::{Address, RedisConfig};
use crate::keys::Keys;
use crate::session::Reach;

/// The configuration of locks in a Redis Cluster,
/// `redis+cluster://[USER:PASSWORD@]HOST[:PORT],HOST,…[?OPTION=VALUE&…]`.
///
/// `rediss+cluster://` is the same over TLS, with the options of `rediss://`. `Debug` shows no secret.
///
/// ```
/// use std::time::Duration;
///
/// use leasehold_redis::RedisClusterConfig;
///
/// let config = RedisClusterConfig::new(["r1.example.org", "r2.example.org:7000"])
///     .servers(|server| server.prefix("billing").credentials("billing", "secret"))
///     .max_ttl(Duration::from_secs(15));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a configuration opens nothing until a manager is built"]
pub struct RedisClusterConfig {
    /// At whatever address the cluster names; the pause is ours.
    pub(crate) server: RedisConfig,
    nodes: Vec<String>,
    pausing: Pausing,
    /// Whether slots have channels.
    pub(crate) is_sharded: bool,
    /// Of the slot in which all names lie, if they do.
    pin: Option<String>,
}

impl RedisClusterConfig {
    /// The default of [`RedisClusterConfig::max_ttl`].
    pub const DEFAULT_MAX_TTL: Duration = Duration::from_secs(60);
    /// The default of [`RedisClusterConfig::failover_lag`].
    pub const DEFAULT_FAILOVER_LAG: Duration = Duration::from_secs(15);

    /// Locks in the cluster of these servers, each `HOST` or `HOST:PORT`. One server that answers is enough: it names the others. Name
    /// several, as one may be unavailable.
    pub fn new(servers: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            server: RedisConfig::new("", 0),
            nodes: servers.into_iter().map(Into::into).collect(),
            pausing: Pausing::new(Self::DEFAULT_MAX_TTL, Self::DEFAULT_FAILOVER_LAG),
            is_sharded: true,
            pin: None,
        }
    }

    /// Sets what the servers have in common, as of a single server: user, prefix, TLS and the rest. A cluster has one database,
    /// and no format. Only the pause is [`pause_after_failover`](Self::pause_after_failover).
    pub fn servers(mut self, set: impl FnOnce(RedisConfig) -> RedisConfig) -> Self {
        self.server = set(self.server);
        self
    }

    /// The longest ttl of any lock of the prefix; a longer one is refused before any request. Default 60 s, whatever the
    /// manager's ttl is.
    pub fn max_ttl(mut self, ttl: Duration) -> Self {
        self.pausing.max_ttl = ttl;
        self
    }

    /// For how long a primary that was replaced may still take writes: the `cluster-node-timeout` of the servers. Default 15 s.
    /// All managers of the prefix need the same, unless there is no pause.
    pub fn failover_lag(mut self, lag: Duration) -> Self {
        self.pausing.lag = lag;
        self
    }

    /// For how long free locks are not granted after a fail-over or a restart of their server, or a move of their slot.
    /// Default [`max_ttl`](Self::max_ttl) + [`failover_lag`](Self::failover_lag) + 2 s.
    ///
    /// With it a fail-over ends holds early at worst, and lets no second holder in, if the primary that was replaced is dead or
    /// stops within `failover_lag`. Zero turns that off. All managers of the prefix need the same.
    pub fn pause_after_failover(mut self, pause: Duration) -> Self {
        self.pausing.pause = Some(pause);
        self
    }

    /// Whether messages go by a channel of each slot, from its server to the waiter's connection, and not to every server of the
    /// cluster. Default yes. Managers of one prefix may differ.
    ///
    /// Where a server or the user's rights do not allow such channels, the manager warns, and messages go to every server.
    pub fn sharded_inbox(mut self, is_sharded: bool) -> Self {
        self.is_sharded = is_sharded;
        self
    }

    /// Keeps all names of the prefix in the slot of `tag`, so at one server, which renews up to 100 of them in one call. Default
    /// none: names are spread over the servers. All managers of the prefix need the same; others have other locks.
    ///
    /// While that slot moves to another server, none of the names is acquired, renewed or released.
    pub fn pin(mut self, tag: impl Into<String>) -> Self {
        self.pin = Some(tag.into());
        self
    }

    /// Reads the configuration from a URL. Files of certificates are read at once.
    ///
    #[doc = include_str!("cluster_options.md")]
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`](leasehold_core::ErrorKind::InvalidOption), naming the value and the rule.
    pub fn from_url(url: &mut StoreUrl) -> Result<Self> {
        let path = url.path().trim_matches('/');
        if !["", "0"].contains(&path) {
            return Err(Error::invalid_option(format!(
                "the path {path:?} of the Redis Cluster URL is invalid: a cluster has database 0 alone; the prefix \
                 is an option"
            )));
        }
        let mut config = Self::new(url.hosts());
        config.server = config.server.reached_by(url)?.with_options_of(url)?;
        if url.take("format")?.is_some() {
            return Err(Error::invalid_option(NO_FORMAT));
        }
        config.pausing.take_from(url)?;
        config.pin = url.take("pin")?;
        config.is_sharded = match url.take("inbox")?.as_deref() {
            None => config.is_sharded,
            Some("broadcast") => false,
            Some("sharded") => true,
            Some(other) => {
                let rule = format!("inbox={other:?} is invalid: expected `broadcast` or `sharded`");
                return Err(Error::invalid_option(rule));
            }
        };
        config.checked()?;
        Ok(config)
    }

    /// Checks everything that needs no server.
    pub(crate) fn checked(&self) -> Result<()> {
        let RedisConfig { database, format, .. } = &self.server;
        let wrong = [
            (self.nodes.is_empty(), "the URL names no server: expected redis+cluster://h1,h2,h3"),
            (*database != 0, "a cluster has database 0 alone"),
            (format.is_some(), NO_FORMAT),
        ];
        if let Some((_, rule)) = wrong.into_iter().find(|(is_so, _)| *is_so) {
            return Err(Error::invalid_option(rule));
        }
        self.pausing.checked(&self.server)?;
        self.endpoints()?;
        self.keys()?;
        self.of_servers().checked_options()
    }

    /// The options of the servers, with what follows from ours.
    pub(crate) fn of_servers(&self) -> RedisConfig {
        let pause = self.pausing.option(&self.server, true);
        RedisConfig { pause, ..self.server.clone() }
    }

    pub(crate) fn failover(&self) -> Failover {
        self.pausing.failover(None)
    }

    /// How names become keys.
    pub(crate) fn keys(&self) -> Result<Keys> {
        let keys = self.server.keys()?;
        match &self.pin {
            None => Ok(keys),
            Some(tag) => keys.in_slot_of(tag),
        }
    }

    /// How its servers are reached.
    pub(crate) fn reach(&self, env: &Env) -> Result<Reach> {
        Ok(Reach {
            client: self.server.client(env.timing().op_timeout)?,
            login: self.server.login.clone(),
            seeds: self.endpoints()?.iter().map(Address::from).collect(),
            doubted: Arc::new(Notify::new()),
            lost: Arc::default(),
        })
    }

    /// The servers, as errors name them.
    pub(crate) fn place(&self) -> String {
        self.nodes.join(",")
    }

    /// The same, with the prefix.
    pub(crate) fn namespace(&self) -> String {
        let pin = self.pin.as_ref().map(|tag| format!(":{{{tag}}}")).unwrap_or_default();
        format!("{}/{}{pin}", self.place(), self.server.prefix)
    }

    fn endpoints(&self) -> Result<Vec<Endpoint>> {
        self.nodes.iter().map(|node| Endpoint::parse(node, RedisConfig::DEFAULT_PORT)).collect()
    }
}

const NO_FORMAT: &str = "cannot use a format in a cluster: keys of other libraries lie in other slots";
