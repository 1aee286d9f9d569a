//! Which cluster, and how it is reached.

use std::time::Duration;

use leasehold_core::backend::{Credentials, Endpoint, Login};
use leasehold_core::{Error, Result, StoreUrl, Tls};

use crate::certificates::{OverTls, over_tls};

/// The configuration of the etcd store,
/// `etcd[s]://[USER:PASSWORD@]HOST[:PORT][,HOST…][/PREFIX][?OPTION=VALUE&…]`.
///
/// It cannot be made of the `ConnectOptions` of the crate `etcd-client`, which have no getters: give addresses and credentials
/// here again.
///
/// # Examples
///
/// ```
/// use leasehold_etcd::EtcdConfig;
/// use leasehold_core::Tls;
///
/// let plain = EtcdConfig::new(["10.0.0.1", "10.0.0.2:2379", "[::1]:2379"]).prefix("billing");
/// let secured = plain.tls(Tls::new()).domain("etcd.internal").credentials("billing", "secret");
/// assert!(!format!("{secured:?}").contains("secret"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a configuration opens nothing until a manager is built"]
pub struct EtcdConfig {
    endpoints: Vec<String>,
    pub(crate) prefix: String,
    pub(crate) credentials: Option<Credentials>,
    /// Takes their place.
    pub(crate) login: Option<Login>,
    tls: Option<Tls>,
    domain: Option<String>,
}

impl EtcdConfig {
    /// The shortest ttl: etcd counts leases in whole seconds. A cluster may grant a longer lease than requested, by default
    /// two seconds at least; the granted ttl counts.
    pub const MIN_TTL: Duration = Duration::from_secs(1);
    /// The default of [`EtcdConfig::prefix`].
    pub const DEFAULT_PREFIX: &str = "leasehold";
    /// The port of an endpoint that names none.
    pub const DEFAULT_PORT: u16 = 2379;

    /// Locks in the cluster that `endpoints` belong to, each `HOST` or `HOST:PORT`. Name all members:
    /// one that is unavailable is skipped.
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            prefix: Self::DEFAULT_PREFIX.to_owned(),
            credentials: None,
            login: None,
            tls: None,
            domain: None,
        }
    }

    /// The namespace: every key begins with `prefix/`. Default `leasehold`.
    ///
    /// `etcdctl lock PREFIX/NAME` is the same lock as leasehold's of that name, if the name has neither `/` nor `%`. Two
    /// prefixes of which one continues the other at a slash are one namespace.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The user, for a cluster with authentication. The token is renewed when it has expired, or is older than a change of
    /// users or roles.
    pub fn credentials(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.credentials = Some(Credentials::new(user, password));
        self
    }

    /// Asks for user and password at each connection, for a cluster whose passwords change. They take the place of
    /// [`credentials`](Self::credentials). Default none.
    ///
    /// A connection whose token etcd refuses, as after a change of the password, is made again with the next answer. An answer
    /// that takes longer than an attempt to connect is dropped.
    pub fn credentials_from<F>(mut self, ask: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials>> + Send + 'static,
    {
        self.login = Some(Login::new(ask));
        self
    }

    /// Speaks TLS to every endpoint.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// The name that the servers' certificates carry, if it is not the host's.
    pub fn domain(mut self, name: impl Into<String>) -> Self {
        self.domain = Some(name.into());
        self
    }

    /// Reads the configuration from a URL; the scheme `etcds` means TLS. Files are read at once.
    ///
    #[doc = include_str!("url_options.md")]
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`](leasehold_core::ErrorKind::InvalidOption) without a host, for a file
    /// that cannot be read or holds no certificate, for TLS options without TLS, and for a certificate without its key.
    pub fn from_url(url: &mut StoreUrl) -> Result<Self> {
        let mut config = Self::new(url.hosts());
        if let Some(prefix) = url.take_prefix_or_path()? {
            config = config.prefix(prefix);
        }
        config.credentials = Credentials::of_url(url)?;
        config.domain = url.take("domain")?;
        config.tls = Tls::take_from(url)?;
        if url.scheme() == "etcds" {
            config.tls.get_or_insert_default();
        } else if config.tls.is_some() {
            return Err(Error::invalid_option("`ca`, `cert` and `key` need TLS: use the scheme etcds://"));
        }
        config.checked()
    }

    /// Refuses a configuration that cannot work, before any request is sent.
    pub(crate) fn checked(self) -> Result<Self> {
        self.endpoint_urls()?;
        self.over_tls()?;
        if self.domain.is_some() && self.tls.is_none() {
            return Err(Error::invalid_option("`domain` needs TLS: use the scheme etcds://"));
        }
        if self.prefix.chars().any(char::is_control) {
            let why = format!("`prefix` {:?} is invalid: it contains a control character", self.prefix);
            return Err(Error::invalid_option(why));
        }
        Ok(self)
    }

    /// `HOST:PORT` of every endpoint.
    pub(crate) fn hosts(&self) -> Result<Vec<String>> {
        let host = |text: &String| Ok(Endpoint::parse(text, Self::DEFAULT_PORT)?.to_string());
        self.endpoints.iter().map(host).collect()
    }

    /// Every endpoint as the client crate takes it.
    pub(crate) fn endpoint_urls(&self) -> Result<Vec<String>> {
        if self.endpoints.is_empty() {
            let why = "cannot use etcd without an endpoint: expected etcd://host:2379,host:2379/prefix";
            return Err(Error::invalid_option(why));
        }
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        Ok(self.hosts()?.into_iter().map(|host| format!("{scheme}://{host}")).collect())
    }

    pub(crate) fn over_tls(&self) -> Result<Option<OverTls>> {
        self.tls.as_ref().map(|tls| over_tls(tls, self.domain.as_deref())).transpose()
    }
}

#[cfg(feature = "tls")]
#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::ErrorKind;

    fn config(url: &str) -> Result<EtcdConfig> {
        EtcdConfig::from_url(&mut url.parse()?)
    }

    /// Hosts, credentials and prefix are where a URL has them; what is left out has a default.
    #[test]
    fn a_url_says_everything() {
        assert_eq!(config("etcd://h").unwrap(), EtcdConfig::new(["h"]));
        let all = config("etcd://bill:s%40cret@h1:1,[::1]:2,h3/billing/eu").unwrap();
        let expected = EtcdConfig::new(["h1:1", "[::1]:2", "h3"]).prefix("billing/eu");
        assert_eq!(all, expected.credentials("bill", "s@cret"));
        assert_eq!(all.endpoint_urls().unwrap(), ["http://h1:1", "http://[::1]:2", "http://h3:2379"]);
        assert_eq!(config("etcd://h?prefix=p").unwrap(), EtcdConfig::new(["h"]).prefix("p"));
    }

    /// `etcds` is TLS, with the system's authorities unless a file is named.
    #[test]
    fn the_scheme_says_tls() {
        let config = config("etcds://h?domain=etcd.internal").unwrap();
        assert_eq!(config, EtcdConfig::new(["h"]).tls(Tls::new()).domain("etcd.internal"));
        assert_eq!(config.endpoint_urls().unwrap(), ["https://h:2379"]);
    }

    #[test]
    fn urls_that_cannot_work_are_refused() {
        for url in [
            "etcd://",
            "etcd:///prefix",
            "etcd://h:0",
            "etcd://h:99999",
            "etcd://h:",
            "etcd://::1",
            "etcd://[::1",
            "etcd://[h]",
            "etcd://[::1]2379",
            "etcd://user@h",
            "etcd://h?ca=/none",
            "etcd://h?domain=d",
            "etcds://h?ca=/there/is/no/such/file",
            "etcd://h/a%0ab",
        ] {
            let error = config(url).unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::InvalidOption, "{url}");
        }
    }

    /// Certificates are read before a connection is made.
    #[test]
    fn certificates_that_cannot_be_read_are_refused() {
        let of = |tls| EtcdConfig::new(["h"]).tls(tls).checked().map(drop).unwrap_err();
        let broken = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
        for pem in ["", "no pem", broken] {
            for tls in [Tls::new().ca(pem), Tls::new().client_certificate(pem, "key")] {
                let error = of(tls);
                assert_eq!(*error.kind(), ErrorKind::InvalidOption, "{error}");
                assert!(error.to_string().contains("PEM"), "{error}");
            }
        }
    }

    /// Neither passwords nor keys are shown.
    #[test]
    fn debug_shows_no_secret() {
        let config =
            config("etcd://bill:sesame@h").unwrap().tls(Tls::new().client_certificate("c", "sesame"));
        assert!(!format!("{config:?}").contains("sesame"));
    }
}
