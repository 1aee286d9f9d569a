//! The servers, and how many of them decide.

use std::time::Duration;

use leasehold_core::{Error, Result, StoreUrl, Timing};

use super::agreed::Agreed;
use super::protocol::Size;
use crate::config::RedisConfig;

/// The configuration of locks in several independent Redis servers, of which a quorum decides,
/// `redis+quorum://[USER[:PASSWORD]@]HOST[:PORT],HOST[:PORT],HOST[:PORT][/DB][?OPTION=VALUE&…]`.
///
/// `rediss+quorum://` is the same over TLS, with the options of `rediss://`. `Debug` shows no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a configuration opens nothing until a manager is built"]
pub struct QuorumConfig {
    pub(crate) servers: Vec<RedisConfig>,
    quorum: Option<usize>,
    pause: Option<Duration>,
    fsync_always: bool,
}

impl QuorumConfig {
    /// Locks in these servers, three, five, or another odd number of them, with one prefix. None of them is a
    /// replica of another; each may have a user and certificates of its own.
    pub fn new(servers: impl IntoIterator<Item = RedisConfig>) -> Self {
        Self { servers: servers.into_iter().collect(), quorum: None, pause: None, fsync_always: false }
    }

    /// How many servers have to agree: at least a majority, which is the default. All managers need the same value; another one
    /// is refused.
    ///
    /// With more, fewer servers may be unavailable, but one whose clock is stepped or whose data are deleted lets no second
    /// holder in.
    pub fn quorum(mut self, servers: usize) -> Self {
        self.quorum = Some(servers);
        self
    }

    /// How long a server that may have forgotten votes gives none, counted from when a manager first met it. Default 15 s, or
    /// the manager's ttl if that is longer. No lock may have a longer ttl. Zero turns the pause off, and with it
    /// [`SURVIVES_FAILOVER`](leasehold_core::Guarantees::SURVIVES_FAILOVER): a lock that a server has forgotten is granted again.
    ///
    /// All managers need the same value; another one is refused.
    pub fn pause_after_restart(mut self, pause: Duration) -> Self {
        self.pause = Some(pause);
        self
    }

    /// Asserts that all servers have `appendfsync always`: a server that restarts with its data has forgotten nothing, and
    /// votes at once if all others answer. Default false. All managers need the same value; another one is refused.
    pub fn fsync_always(mut self, always: bool) -> Self {
        self.fsync_always = always;
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
        let mut config = Self::new(RedisConfig::all_of(url)?);
        config.quorum = url.take_parsed("quorum", "a number of servers")?;
        config.pause = url.take_duration("pause_after_restart")?;
        config.fsync_always = url.take_parsed("fsync_always", "true or false")?.unwrap_or_default();
        config.checked()?;
        Ok(config)
    }

    /// Checks everything that needs no server.
    pub(crate) fn checked(&self) -> Result<()> {
        let servers = self.servers.len();
        if servers < 3 || servers.is_multiple_of(2) {
            return Err(Error::invalid_option(format!(
                "the number of servers, {servers}, is invalid: expected 3, 5 or another odd number, as in \
                 redis+quorum://h1,h2,h3/0"
            )));
        }
        let Size { quorum, .. } = self.size();
        if quorum < Size::majority(servers) || quorum > servers {
            return Err(Error::invalid_option(format!(
                "quorum {quorum} of {servers} servers is invalid: expected a majority, {} to {servers}",
                Size::majority(servers)
            )));
        }
        for (at, server) in self.servers.iter().enumerate() {
            server.checked()?;
            let address = server.address();
            let is_alike = server.prefix == self.prefix() && server.signed_with() == self.signed_with();
            if !server.is_plain() || !is_alike {
                return Err(Error::invalid_option(format!(
                    "the server {address} differs: all servers of a quorum need one prefix and one \
                     `message_key`, no `format`, `wait_replicas`, `wait_aof` or `slots`"
                )));
            }
            if self.servers[..at].iter().any(|other| other.address() == address) {
                return Err(twice(&address));
            }
        }
        Ok(())
    }

    pub(crate) fn size(&self) -> Size {
        let servers = self.servers.len();
        Size { servers, quorum: self.quorum.unwrap_or_else(|| Size::majority(servers)) }
    }

    pub(crate) fn prefix(&self) -> &str {
        self.servers.first().map_or(RedisConfig::DEFAULT_PREFIX, |server| &server.prefix)
    }

    pub(crate) fn signed_with(&self) -> Option<&str> {
        self.servers.first()?.signed_with()
    }

    /// The options of a manager with locks of `ttl`.
    pub(crate) fn agreed(&self, ttl: Duration) -> Agreed {
        // Managers with shorter ttls, and commands with none, have the same pause without setting it.
        let pause = self.pause.unwrap_or_else(|| ttl.max(Timing::DEFAULT_TTL));
        Agreed { size: self.size(), pause, trusts_disks: self.fsync_always }
    }

    /// The servers' addresses, as errors name them.
    pub(crate) fn addresses(&self) -> String {
        self.servers.iter().map(RedisConfig::address).collect::<Vec<_>>().join(",")
    }
}

/// A server counts once, under whichever name.
pub(crate) fn twice(address: &str) -> Error {
    Error::invalid_option(format!(
        "the server {address} is named twice: a quorum needs servers that fail independently"
    ))
}

#[cfg(test)]
#[cfg(feature = "tls")]
mod tests {
    use super::*;
    use leasehold_core::{ErrorKind, Tls};

    fn config(url: &str) -> Result<QuorumConfig> {
        QuorumConfig::from_url(&mut url.parse()?)
    }

    /// Every option has its form, and is every server's.
    #[test]
    fn a_url_says_everything() {
        let one = |host: &str, port| RedisConfig::new(host, port);
        let three = [one("a", 6379), one("b", 1), one("::1", 7)];
        assert_eq!(config("redis+quorum://a,b:1,[::1]:7").unwrap(), QuorumConfig::new(three.clone()));
        let read = config(
            "rediss+quorum://bill:s@a,b:1,[::1]:7/2?prefix=p&message_key=a-secret-of-16-b&quorum=3&pause_after_restart=0s&fsync_always=true",
        );
        let each = |one: RedisConfig| {
            let one = one.database(2).prefix("p").message_key("a-secret-of-16-b");
            one.tls(Tls::new()).credentials("bill", "s")
        };
        let whole = QuorumConfig::new(three.map(each)).quorum(3);
        assert_eq!(read.unwrap(), whole.pause_after_restart(Duration::ZERO).fsync_always(true));
    }

    /// Managers agree on a pause unless one has a longer ttl than most, and each covers its own.
    #[test]
    fn the_default_pause_is_that_of_all_and_covers_every_ttl() {
        let three = QuorumConfig::new(["a", "b", "c"].map(|host| RedisConfig::new(host, 1)));
        let pause = |seconds| three.agreed(Duration::from_secs(seconds)).pause.as_secs();
        assert_eq!([1, 15, 60].map(pause), [15, 15, 60]);
        let set = three.clone().pause_after_restart(Duration::from_secs(7));
        assert_eq!(set.agreed(Duration::from_secs(1)).pause.as_secs(), 7);
    }

    /// A combination that cannot work is refused before anything is sent, in words that name it.
    #[test]
    fn impossible_option_is_refused_by_name() {
        for (url, words) in [
            ("redis+quorum://a", "servers, 1,"),
            ("redis+quorum://a,b", "servers, 2,"),
            ("redis+quorum://a,b,c,d", "servers, 4,"),
            ("redis+quorum://a,b,c?quorum=1", "quorum 1 of 3"),
            ("redis+quorum://a,b,c?quorum=4", "quorum 4 of 3"),
            ("redis+quorum://a,b,c?quorum=x", "a number of servers"),
            ("redis+quorum://a,b,a:6379", "a:6379 is named twice"),
            ("redis+quorum://a,b,c/x", "number of a database"),
            ("redis+quorum://me@a,b,c", "needs a password"),
            ("redis+quorum://a,b,c?prefix={", "braces"),
            ("redis+quorum://a,b,c?message_key=short", "message_key"),
        ] {
            let error = config(url).unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::InvalidOption, "{url}: {error}");
            assert!(error.to_string().contains(words), "{url}: {error}");
        }
        let three =
            |odd: RedisConfig| QuorumConfig::new([RedisConfig::new("a", 1), RedisConfig::new("b", 1), odd]);
        for odd in [
            RedisConfig::new("c", 1).prefix("other"),
            RedisConfig::new("c", 1).format(crate::Format::string()),
            RedisConfig::new("c", 1).wait_replicas(1),
            RedisConfig::new("c", 1).wait_aof(true),
            RedisConfig::new("c", 1).slots(true),
            RedisConfig::new("c", 1).message_key("a secret of sixteen"),
        ] {
            assert!(three(odd).checked().unwrap_err().to_string().contains("c:1 differs"));
        }
    }
}
