//! A primary that sentinels watch, and what its managers agree on.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::Endpoint;
use leasehold_core::{Env, Error, Result, StoreUrl};
use tokio_util::sync::CancellationToken;

use super::failover::{Failover, Pausing};
use super::{Address, Format, Password, RedisConfig, database_number, settings};
use crate::connection::{Client, Sentinels, Watched};

/// The configuration of locks in a Redis primary that sentinels watch,
/// `redis+sentinel://[USER:PASSWORD@]SENTINEL[:PORT],SENTINEL,…/MASTER[/DB][?OPTION=VALUE&…]`.
///
/// `rediss+sentinel://` is the same over TLS, with the options of `rediss://`. `Debug` shows no secret.
///
/// ```
/// use std::time::Duration;
///
/// use leasehold_redis::SentinelConfig;
///
/// let config = SentinelConfig::new("main", ["s1.example.org", "s2.example.org", "s3.example.org"])
///     .servers(|server| server.prefix("billing").credentials("billing", "secret"))
///     .max_ttl(Duration::from_secs(15));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a configuration opens nothing until a manager is built"]
pub struct SentinelConfig {
    /// At whatever address the sentinels name; the pause is ours.
    server: RedisConfig,
    master: String,
    sentinels: Vec<String>,
    user: Option<String>,
    password: Option<Password>,
    tls: bool,
    pausing: Pausing,
    replicas: Option<u32>,
    map: Option<MapAddress>,
}

/// How this host reaches an address that a sentinel names. Two are equal if one is a clone of the other.
#[derive(Clone)]
pub(crate) struct MapAddress(Arc<Map>);

type Map = dyn Fn(&str, u16) -> (String, u16) + Send + Sync;

impl MapAddress {
    pub(crate) fn apply(&self, host: &str, port: u16) -> Address {
        let (host, port) = (self.0)(host, port);
        Address::Tcp { host, port }
    }
}

impl fmt::Debug for MapAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[mapped]")
    }
}

impl PartialEq for MapAddress {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for MapAddress {}

impl SentinelConfig {
    /// The port of a sentinel that names none.
    pub const DEFAULT_PORT: u16 = 26379;
    /// The default of [`SentinelConfig::max_ttl`].
    pub const DEFAULT_MAX_TTL: Duration = Duration::from_secs(60);
    /// The default of [`SentinelConfig::failover_lag`].
    pub const DEFAULT_FAILOVER_LAG: Duration = Duration::from_secs(10);

    /// Locks in the primary that `sentinels`, each `HOST` or `HOST:PORT`, call `master`. Name all sentinels: one that is
    /// unavailable is skipped. Others that they know are learned.
    pub fn new(master: impl Into<String>, sentinels: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            server: RedisConfig::new("", 0),
            master: master.into(),
            sentinels: sentinels.into_iter().map(Into::into).collect(),
            user: None,
            password: None,
            tls: true,
            pausing: Pausing::new(Self::DEFAULT_MAX_TTL, Self::DEFAULT_FAILOVER_LAG),
            replicas: None,
            map: None,
        }
    }

    /// Sets what the servers have in common, as of a single server: user, prefix, database, TLS and the rest. Only the pause
    /// is [`pause_after_failover`](Self::pause_after_failover).
    pub fn servers(mut self, set: impl FnOnce(RedisConfig) -> RedisConfig) -> Self {
        self.server = set(self.server);
        self
    }

    /// The user of the sentinels, and the password. Default none; the servers' own are set by [`servers`](Self::servers).
    pub fn sentinel_credentials(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self.sentinel_password(password)
    }

    /// The password of sentinels with `requirepass`.
    pub fn sentinel_password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(Password(password.into()));
        self
    }

    /// Whether the sentinels speak TLS, too, where the servers do. Default true.
    pub fn sentinel_tls(mut self, tls: bool) -> Self {
        self.tls = tls;
        self
    }

    /// The longest ttl of any lock of the prefix; a longer one is refused before any request. Default 60 s, whatever the
    /// manager's ttl is. All managers of the prefix need the same, unless there is no pause.
    pub fn max_ttl(mut self, ttl: Duration) -> Self {
        self.pausing.max_ttl = ttl;
        self
    }

    /// For how long a primary that was replaced may still take writes: the `min-replicas-max-lag` of the servers. Default 10 s.
    /// All managers of the prefix need the same, unless there is no pause.
    pub fn failover_lag(mut self, lag: Duration) -> Self {
        self.pausing.lag = lag;
        self
    }

    /// For how long free locks are not granted after a fail-over or a restart. Default
    /// [`max_ttl`](Self::max_ttl) + [`failover_lag`](Self::failover_lag) + 2 s, and zero with a format.
    ///
    /// With it a fail-over ends holds early at worst, and lets no second holder in, if the primary that was replaced is dead or
    /// stops within `failover_lag`. Zero turns that off. All managers of the prefix need the same.
    pub fn pause_after_failover(mut self, pause: Duration) -> Self {
        self.pausing.pause = Some(pause);
        self
    }

    /// Asserts that the primary has so many replicas, and waits until all of them have a grant or a renewal. A primary with more
    /// of them is refused; while one is missing, as after a fail-over, nothing is granted or renewed. Default not asserted.
    pub fn replicas(mut self, replicas: u32) -> Self {
        self.replicas = Some(replicas);
        self
    }

    /// How this host reaches an address that the sentinels name, behind a translation of addresses. Default as they name it.
    pub fn map_address(mut self, map: impl Fn(&str, u16) -> (String, u16) + Send + Sync + 'static) -> Self {
        self.map = Some(MapAddress(Arc::new(map)));
        self
    }

    /// Reads the configuration from a URL. Files of certificates are read at once.
    ///
    #[doc = include_str!("sentinel_options.md")]
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`](leasehold_core::ErrorKind::InvalidOption), naming the value and the rule.
    pub fn from_url(url: &mut StoreUrl) -> Result<Self> {
        let path = url.path().trim_matches('/').to_owned();
        let (master, database) = path.split_once('/').unwrap_or((&path, ""));
        let mut config = Self::new(master, url.hosts());
        config.server =
            config.server.database(database_number(database)?).reached_by(url)?.with_options_of(url)?;
        config.server.format = Format::take_from(url)?;
        config.user = url.take("sentinel_user")?;
        config.password = url.take("sentinel_password")?.map(Password);
        config.tls = url.take_parsed("sentinel_tls", "true or false")?.unwrap_or(config.tls);
        config.pausing.take_from(url)?;
        config.replicas = url.take_parsed("replicas", "a number of replicas")?;
        config.checked()?;
        Ok(config)
    }

    /// Checks everything that needs no server.
    pub(crate) fn checked(&self) -> Result<()> {
        let Self { server, master, .. } = self;
        let wrong = |rule: String| Err(Error::invalid_option(rule));
        if self.sentinels.is_empty() {
            return wrong("the URL names no sentinel: expected redis+sentinel://s1,s2,s3/MASTER".to_owned());
        }
        if master.is_empty() || master.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return wrong(format!(
                "the name {master:?} of the primary is invalid: expected the name of `sentinel monitor`, as in \
                 redis+sentinel://s1,s2,s3/MASTER"
            ));
        }
        if self.user.is_some() && self.password.is_none() {
            return wrong("`sentinel_user` needs `sentinel_password`".to_owned());
        }
        self.pausing.checked(server)?;
        if let Some(replicas) = self.replicas {
            let waits = server.wait_replicas;
            if replicas == 0 || ![0, replicas].contains(&waits) {
                return wrong(format!(
                    "replicas={replicas} with wait_replicas={waits} is invalid: expected at least 1 replica, all \
                     of which are waited for"
                ));
            }
        }
        self.endpoints()?;
        self.of_servers().checked_options()
    }

    /// The options of the servers, with what follows from ours.
    pub(crate) fn of_servers(&self) -> RedisConfig {
        let mut server = self.server.clone();
        // Where all replicas confirm what is granted, a primary that was replaced grants nothing.
        server.pause = self.pausing.option(&self.server, self.replicas.is_none());
        server.wait_replicas = self.replicas.unwrap_or(server.wait_replicas);
        server
    }

    pub(crate) fn failover(&self) -> Failover {
        self.pausing.failover(self.replicas)
    }

    /// The way to the primary, watched until `closed`.
    pub(crate) fn whereabouts(&self, env: &Env, closed: CancellationToken) -> Result<Arc<Sentinels>> {
        let op_timeout = env.timing().op_timeout;
        let server = self.server.client(op_timeout)?;
        let sentinels: Vec<_> = self.endpoints()?.iter().map(Address::from).collect();
        let settings = settings(self.user.as_deref(), self.password.as_ref());
        let tls = self.server.tls.as_ref().filter(|_| self.tls);
        let watched = Watched {
            name: self.master.clone(),
            sentinel: Client::new(sentinels[0].clone(), settings, tls, op_timeout)?,
            sentinels,
            server,
            login: self.server.login.clone(),
            map: self.map.clone(),
        };
        Ok(Sentinels::start(env.clone(), watched, closed))
    }

    /// The sentinels and the name, as errors name them.
    pub(crate) fn place(&self) -> String {
        format!("{}/{}", self.sentinels.join(","), self.master)
    }

    /// The same, with the database and the prefix.
    pub(crate) fn namespace(&self) -> String {
        format!("{}/{}/{}", self.place(), self.server.database, self.server.prefix)
    }

    fn endpoints(&self) -> Result<Vec<Endpoint>> {
        self.sentinels.iter().map(|sentinel| Endpoint::parse(sentinel, Self::DEFAULT_PORT)).collect()
    }
}

#[cfg(feature = "tls")]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PauseOption;
    use leasehold_core::{ErrorKind, Tls};

    fn config(url: &str) -> Result<SentinelConfig> {
        SentinelConfig::from_url(&mut url.parse()?)
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// A URL says all that the code can, but for functions.
    #[test]
    fn a_url_says_everything() {
        let three = || SentinelConfig::new("main", ["a", "b:1", "[::1]:7"]);
        assert_eq!(config("redis+sentinel://a,b:1,[::1]:7/main").unwrap(), three());
        let read = config(
            "rediss+sentinel://bill:s@a,b:1,[::1]:7/main/2?prefix=p&message_key=a-secret-of-16-b&sentinel_user=watch&sentinel_password=w&sentinel_tls=false&max_ttl=15s&failover_lag=5s&pause_after_failover=25s&replicas=2",
        );
        let servers = |server: RedisConfig| {
            let server = server.database(2).prefix("p").message_key("a-secret-of-16-b");
            server.tls(Tls::new()).credentials("bill", "s")
        };
        let whole = three().servers(servers).sentinel_credentials("watch", "w").sentinel_tls(false);
        let whole = whole.max_ttl(seconds(15)).failover_lag(seconds(5)).pause_after_failover(seconds(25));
        assert_eq!(read.unwrap(), whole.replicas(2));
    }

    /// The default covers every lease and a primary that serves on, and replicas that are asserted are waited for.
    #[test]
    fn the_pause_covers_leases_and_the_lag() {
        let of = |url: &str| config(&format!("redis+sentinel://a/main?{url}")).unwrap().of_servers();
        let pause =
            |url: &str| of(url).pause.map(|PauseOption { span, lag, .. }| (span.as_secs(), lag.as_secs()));
        assert_eq!(pause(""), Some((72, 12)));
        assert_eq!(pause("max_ttl=15s&failover_lag=5s"), Some((22, 7)));
        assert_eq!(pause("replicas=2"), Some((72, 0)));
        assert_eq!(pause("pause_after_failover=0"), None);
        assert_eq!(pause("format=string"), None);
        assert_eq!(of("replicas=2").wait_replicas, 2);
    }

    /// A combination that cannot work is refused before anything is sent, and no secret is shown.
    #[test]
    fn impossible_option_is_refused_by_name() {
        for (url, words) in [
            ("", "no sentinel"),
            ("a", "name \"\" of the primary"),
            ("a/ma%20in", "\"ma in\""),
            ("a/main/x", "number of a database"),
            ("a:0/main", "1 to 65535"),
            ("a/main?pause_after_restart=20s", "`pause_after_failover`"),
            ("a/main?pause_after_failover=60s", "max_ttl=60s plus failover_lag=10s"),
            ("a/main?pause_after_failover=25h", "at most 86400s"),
            ("a/main?pause_after_failover=80s&format=string", "other libraries"),
            ("a/main?max_ttl=1ms", "300ms to 86400s"),
            ("a/main?max_ttl=24h", "pause_after_failover=86412s"),
            ("a/main?sentinel_user=u", "`sentinel_password`"),
            ("a/main?replicas=0", "at least 1 replica"),
            ("a/main?replicas=2&wait_replicas=1", "wait_replicas=1"),
            ("me@a/main", "needs a password"),
            ("a/main?prefix={", "braces"),
        ] {
            let error = config(&format!("redis+sentinel://{url}")).unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::InvalidOption, "{url}: {error}");
            assert!(error.to_string().contains(words), "{url}: {error}");
        }
        let secret = SentinelConfig::new("main", ["a"]).sentinel_password("sesame");
        assert!(!format!("{secret:?}").contains("sesame"));
    }
}
