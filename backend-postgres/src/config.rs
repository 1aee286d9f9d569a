//! Which servers, and how they are reached.

use std::time::Duration;

use leasehold_core::backend::{Credentials, Login};
use leasehold_core::{Error, Result, StoreUrl, Tls};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use crate::certificates::Encryption;
use crate::schema;

/// The configuration of the Postgres store,
/// `postgres://[USER[:PASSWORD]@]HOST[:PORT][,HOST…]/DATABASE[?OPTION=VALUE&…]`.
///
/// # Examples
///
/// ```
/// use leasehold_postgres::PostgresConfig;
///
/// let mut server = tokio_postgres::Config::new();
/// server.host("10.0.0.1").user("app").password("secret").dbname("billing");
/// let config = PostgresConfig::from(server).prefix("invoices");
/// assert!(!format!("{config:?}").contains("secret"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a configuration opens nothing until a manager is built"]
pub struct PostgresConfig {
    server: Config,
    pub(crate) prefix: String,
    pub(crate) schema: String,
    pub(crate) create: bool,
    pub(crate) listen: bool,
    pub(crate) durable_release: bool,
    pub(crate) needs_replicas: bool,
    tls: Option<Tls>,
    /// Takes the place of the user and the password of `server`.
    pub(crate) login: Option<Login>,
}

impl From<Config> for PostgresConfig {
    /// Both connections of a manager are made by `server`, of the crate `tokio-postgres` in version 0.7. Its TLS mode `Require` means [`PostgresConfig::tls`] with the
    /// system's authorities; `Prefer`, which is its default, means a connection without TLS.
    fn from(server: Config) -> Self {
        let tls = (server.get_ssl_mode() == SslMode::Require).then(Tls::new);
        Self {
            server,
            prefix: Self::DEFAULT_PREFIX.to_owned(),
            schema: Self::DEFAULT_SCHEMA.to_owned(),
            create: true,
            listen: true,
            durable_release: false,
            needs_replicas: false,
            tls,
            login: None,
        }
    }
}

impl PostgresConfig {
    /// The shortest ttl: a renewal waits for the server's disk.
    pub const MIN_TTL: Duration = Duration::from_secs(1);
    /// The default of [`PostgresConfig::prefix`].
    pub const DEFAULT_PREFIX: &str = "leasehold";
    /// The default of [`PostgresConfig::schema`].
    pub const DEFAULT_SCHEMA: &str = "leasehold";
    /// The port of a host that names none.
    pub const DEFAULT_PORT: u16 = 5432;

    /// The namespace of the locks within the schema, at most 512 bytes. Default `leasehold`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The database schema with the tables and functions. Default `leasehold`.
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// Whether opening creates a schema that is absent. Default `true`.
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Whether waiters are told by `NOTIFY`, which a pooler in transaction mode does not pass on. With `false` they ask every
    /// 25 ms to 1 s. Default `true`.
    pub fn listen(mut self, listen: bool) -> Self {
        self.listen = listen;
        self
    }

    /// Whether a release waits for the server's disk. Default `false`: after a crash of the server, a lock that was released
    /// just before may be found held until its process has connected again, or its lease has ended.
    pub fn durable_release(mut self, durable: bool) -> Self {
        self.durable_release = durable;
        self
    }

    /// Promises that the loss of the primary loses no lock. Each connection fails with `Unsupported` if the server has no
    /// synchronous standby.
    pub fn synchronous_replicas(mut self) -> Self {
        self.needs_replicas = true;
        self
    }

    /// Speaks TLS, and checks the server's certificate and its name.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Asks for user and password at each connection, for a server whose passwords change, such as tokens of a cloud. They
    /// take the place of those of the server's configuration. Default none.
    ///
    /// A connection that is open stays. An answer that takes longer than an attempt to connect is dropped.
    pub fn credentials_from<F>(mut self, ask: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials>> + Send + 'static,
    {
        self.login = Some(Login::new(ask));
        self
    }

    /// Returns the SQL that creates tables and functions in a schema of that name.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`](leasehold_core::ErrorKind::InvalidOption) for a name with anything but letters, digits and
    /// underscores.
    pub fn schema_text(schema: &str) -> Result<String> {
        schema::valid(schema).map(|()| schema::text(schema))
    }

    /// Reads the configuration from a URL. Files are read at once.
    ///
    #[doc = include_str!("url_options.md")]
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`](leasehold_core::ErrorKind::InvalidOption) without a host or a database, for an option in
    /// the wrong form, for a file that cannot be read or holds no certificate, and for a certificate without its key.
    pub fn from_url(url: &mut StoreUrl) -> Result<Self> {
        let mut server = Config::new();
        for endpoint in url.endpoints(Self::DEFAULT_PORT)? {
            server.host(endpoint.host()).port(endpoint.port());
        }
        if let Some(directory) = url.take("host")? {
            server.host(directory);
        }
        if let Some(user) = url.user() {
            server.user(user);
        }
        if let Some(password) = url.password() {
            server.password(password);
        }
        let database = url.path().trim_matches('/');
        if !database.is_empty() {
            server.dbname(database);
        }
        let mut config = Self::from(server);
        if let Some(prefix) = url.take("prefix")? {
            config.prefix = prefix;
        }
        if let Some(schema) = url.take("schema")? {
            config.schema = schema;
        }
        let form = "`true` or `false`";
        config.create = url.take_parsed("create", form)?.unwrap_or(true);
        config.listen = url.take_parsed("listen", form)?.unwrap_or(true);
        config.durable_release = url.take_parsed("durable_release", form)?.unwrap_or(false);
        config.needs_replicas = match url.take("replicas")?.as_deref() {
            None => false,
            Some("sync") => true,
            Some(other) => {
                return Err(Error::invalid_option(format!(
                    "option replicas={other:?} is invalid: expected sync"
                )));
            }
        };
        config.tls = Tls::take_from(url)?;
        match url.take("sslmode")?.as_deref() {
            None => {}
            Some("disable") if config.tls.is_none() => {}
            Some("require" | "verify-ca" | "verify-full") => drop(config.tls.get_or_insert_default()),
            Some(other) => {
                return Err(Error::invalid_option(format!(
                    "option sslmode={other:?} is invalid: expected `verify-full`, or `disable` without `ca`, `cert` and `key`"
                )));
            }
        }
        config.checked()
    }

    /// Refuses a configuration that cannot work, before any request is sent.
    pub(crate) fn checked(self) -> Result<Self> {
        if self.server.get_hosts().is_empty() && self.server.get_hostaddrs().is_empty() {
            let form = "expected postgres://user@host/database";
            return Err(Error::invalid_option(format!("cannot use Postgres without a host: {form}")));
        }
        if self.prefix.len() > MAX_PREFIX_BYTES || self.prefix.chars().any(char::is_control) {
            let form = format!("expected at most {MAX_PREFIX_BYTES} bytes without control characters");
            return Err(Error::invalid_option(format!("`prefix` {:?} is invalid: {form}", self.prefix)));
        }
        schema::valid(&self.schema)?;
        self.encryption()?;
        Ok(self)
    }

    /// `HOST:PORT` of every server.
    pub(crate) fn hosts(&self) -> Vec<String> {
        let ports = self.server.get_ports();
        let port = |at: usize| ports.get(at).or_else(|| ports.first()).copied().unwrap_or(Self::DEFAULT_PORT);
        let name = |host: &Host| match host {
            Host::Tcp(name) => name.clone(),
            #[cfg(unix)]
            Host::Unix(path) => path.display().to_string(),
        };
        let (hosts, addresses) = (self.server.get_hosts(), self.server.get_hostaddrs());
        let names = hosts.iter().map(name).chain(addresses.iter().skip(hosts.len()).map(ToString::to_string));
        names.enumerate().map(|(at, name)| format!("{name}:{}", port(at))).collect()
    }

    pub(crate) fn database(&self) -> &str {
        self.server.get_dbname().or_else(|| self.server.get_user()).unwrap_or_default()
    }

    pub(crate) fn encryption(&self) -> Result<Option<Encryption>> {
        self.tls.as_ref().map(Encryption::read).transpose()
    }

    /// For the client crate: connections that end by themselves, to a server that takes writes.
    pub(crate) fn for_connections(&self, op_timeout: Duration) -> Config {
        let mut server = self.server.clone();
        server.ssl_mode(if self.tls.is_some() { SslMode::Require } else { SslMode::Disable });
        server.target_session_attrs(TargetSessionAttrs::ReadWrite);
        server.tcp_user_timeout(op_timeout).connect_timeout(op_timeout);
        if server.get_application_name().is_none() {
            server.application_name("leasehold");
        }
        server
    }
}

/// An index of the server holds the prefix.
const MAX_PREFIX_BYTES: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::ErrorKind;

    fn config(url: &str) -> Result<PostgresConfig> {
        PostgresConfig::from_url(&mut url.parse()?)
    }

    /// Hosts, credentials and database are where a URL has them; what is left out has a default.
    #[test]
    fn a_url_says_everything() {
        let mut server = Config::new();
        server.host("h").port(5432).user("u").dbname("d");
        assert_eq!(config("postgres://u@h/d").unwrap(), PostgresConfig::from(server.clone()));
        server.host("::1").port(2).password("s@cret");
        let all = "postgresql://u:s%40cret@h,[::1]:2/d?prefix=p&schema=s&create=false&listen=false&durable_release=true\
                   &replicas=sync";
        let all = config(all).unwrap();
        let expected = PostgresConfig::from(server).prefix("p").schema("s").create(false).listen(false);
        assert_eq!(all, expected.durable_release(true).synchronous_replicas());
        assert_eq!(all.hosts(), ["h:5432", "::1:2"]);
        let mut unnamed = Config::new();
        unnamed.hostaddr([10, 0, 0, 1].into()).hostaddr([10, 0, 0, 2].into()).port(7);
        assert_eq!(PostgresConfig::from(unnamed).checked().unwrap().hosts(), ["10.0.0.1:7", "10.0.0.2:7"]);
        assert!(!format!("{all:?}").contains("s@cret"));
    }

    #[cfg(feature = "tls")]
    #[test]
    fn sslmode_demands_a_checked_certificate() {
        for mode in ["require", "verify-ca", "verify-full"] {
            let config = config(&format!("postgres://u@h/d?sslmode={mode}")).unwrap();
            assert_eq!(config.tls, Some(Tls::new()), "{mode}");
        }
        assert_eq!(config("postgres://u@h/d?sslmode=disable").unwrap().tls, None);
        let mut server = Config::new();
        server.host("h").ssl_mode(SslMode::Require);
        let of_client = PostgresConfig::from(server).for_connections(Duration::from_secs(1));
        assert_eq!(of_client.get_ssl_mode(), SslMode::Require);
        assert_eq!(of_client.get_options(), None, "a pooler refuses that parameter");
    }

    #[test]
    fn urls_that_cannot_work_are_refused() {
        for url in [
            "postgres://",
            "postgres:///d",
            "postgres://h:0/d",
            "postgres://h:99999/d",
            "postgres://[h]/d",
            "postgres://h/d?sslmode=prefer",
            "postgres://h/d?listen=no",
            "postgres://h/d?replicas=2",
            "postgres://h/d?schema=",
            "postgres://h/d?schema=a%24b",
            "postgres://h/d?schema=a%22b",
            "postgres://h/d?schema=a%0ab",
            "postgres://h/d?prefix=a%0ab",
            &format!("postgres://h/d?prefix={}", "a".repeat(513)),
            "postgres://h/d?ca=/there/is/no/such/file",
        ] {
            let error = config(url).unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::InvalidOption, "{url}");
        }
    }

    /// A name that would end the quoted text around the functions is refused, wherever it comes from.
    #[test]
    fn schema_name_ends_no_text() {
        let text = PostgresConfig::schema_text("locks_2").unwrap();
        assert!(text.contains("CREATE SCHEMA \"locks_2\";") && !text.contains("@schema@"));
        for name in ["$text$", "a\nb", "a\"b", "", &"a".repeat(64)] {
            assert_eq!(
                *PostgresConfig::schema_text(name).unwrap_err().kind(),
                ErrorKind::InvalidOption,
                "{name:?}"
            );
        }
    }
}
