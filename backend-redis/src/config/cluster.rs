//! The servers of a cluster.

use std::sync::Arc;

use leasehold_core::backend::Endpoint;
use leasehold_core::{Env, Error, Result, StoreUrl};
use tokio::sync::Notify;

use super::{Address, RedisConfig};
use crate::session::Reach;

/// The configuration of locks in a Redis Cluster,
/// `redis+cluster://[USER:PASSWORD@]HOST[:PORT],HOST,…[?prefix=P&wait_replicas=N]`.
///
/// `rediss+cluster://` is the same over TLS, with the options of `rediss://`. `Debug` shows no secret.
///
/// ```
/// use leasehold_redis::RedisClusterConfig;
///
/// let config = RedisClusterConfig::new(["r1.example.org", "r2.example.org:7000"])
///     .servers(|server| server.prefix("billing").credentials("billing", "secret"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a configuration opens nothing until a manager is built"]
pub struct RedisClusterConfig {
    /// At whatever address the cluster names.
    pub(crate) server: RedisConfig,
    nodes: Vec<String>,
}

impl RedisClusterConfig {
    /// Locks in the cluster of these servers, each `HOST` or `HOST:PORT`. One that answers is enough: it names the others. Name
    /// several, as one may be unavailable.
    pub fn new(servers: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { server: RedisConfig::new("", 0), nodes: servers.into_iter().map(Into::into).collect() }
    }

    /// Sets what the servers have in common, as of a single server: user, prefix, TLS and the rest. A cluster has one database,
    /// and neither a format nor a pause after a restart yet.
    pub fn servers(mut self, set: impl FnOnce(RedisConfig) -> RedisConfig) -> Self {
        self.server = set(self.server);
        self
    }

    /// Reads the configuration from a URL. Files of certificates are read at once.
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
        config.checked()?;
        Ok(config)
    }

    /// Checks everything that needs no server.
    pub(crate) fn checked(&self) -> Result<()> {
        let RedisConfig { database, format, pause, .. } = &self.server;
        let wrong = [
            (self.nodes.is_empty(), "the URL names no server: expected redis+cluster://h1,h2,h3"),
            (*database != 0, "a cluster has database 0 alone"),
            (
                format.is_some(),
                "cannot use a format in a cluster: keys of other libraries lie in other slots",
            ),
            (pause.is_some(), "cannot use `pause_after_restart` in a cluster: use fencing tokens"),
        ];
        if let Some((_, rule)) = wrong.into_iter().find(|(is_so, _)| *is_so) {
            return Err(Error::invalid_option(rule));
        }
        self.endpoints()?;
        self.server.checked_options()
    }

    /// How its servers are reached.
    pub(crate) fn reach(&self, env: &Env) -> Result<Reach> {
        Ok(Reach {
            client: self.server.client(env.timing().op_timeout)?,
            login: self.server.login.clone(),
            seeds: self.endpoints()?.iter().map(Address::from).collect(),
            doubted: Arc::new(Notify::new()),
        })
    }

    /// The servers, as errors name them.
    pub(crate) fn place(&self) -> String {
        self.nodes.join(",")
    }

    /// The same, with the prefix.
    pub(crate) fn namespace(&self) -> String {
        format!("{}/{}", self.place(), self.server.prefix)
    }

    fn endpoints(&self) -> Result<Vec<Endpoint>> {
        self.nodes.iter().map(|node| Endpoint::parse(node, RedisConfig::DEFAULT_PORT)).collect()
    }
}
