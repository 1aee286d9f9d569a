//! The configuration: servers, namespace, identity, rights and TLS.

mod access;
#[cfg(feature = "tls")]
mod certificates;
#[cfg(not(feature = "tls"))]
mod plain_text;
mod servers;

use std::fmt;
use std::time::Duration;

use leasehold_core::backend::{Credentials, Endpoint};
use leasehold_core::{Error, Result, StoreUrl, Tls};
use zookeeper_client::Acl;

#[cfg(feature = "tls")]
pub(crate) use self::certificates::{Certificates, Protected};
#[cfg(not(feature = "tls"))]
pub(crate) use self::plain_text::{Certificates, Protected};
use crate::keys::Namespace;

pub(crate) use servers::Servers;

/// The configuration of the ZooKeeper store,
/// `zk://[USER:PASSWORD@]HOST[:PORT],…[/CHROOT][?OPTION=VALUE&…]`.
///
/// A lock is the directory `/CHROOT/PREFIX/NAME`, which Curator's `InterProcessMutex` on the same path
/// shares. Directories are container nodes: made when needed, removed by the server when empty.
///
/// It cannot be made of the `Connector` of the crate `zookeeper-client`, which has no getters: give addresses and credentials
/// here again.
#[derive(Clone)]
#[must_use = "a configuration opens nothing until a manager is built"]
pub struct ZkConfig {
    hosts: Vec<String>,
    chroot: String,
    prefix: String,
    credentials: Option<Credentials>,
    acl: Option<Vec<Acl>>,
    tls: Option<Tls>,
}

impl ZkConfig {
    /// The shortest ttl. A server keeps sessions of two of its ticks or more, by default 4 s, and grants
    /// that for a shorter ttl.
    pub const MIN_TTL: Duration = Duration::from_secs(1);
    /// The default of [`ZkConfig::prefix`].
    pub const DEFAULT_PREFIX: &str = "leasehold";
    /// The port of a host that names none.
    pub const DEFAULT_PORT: u16 = 2181;

    /// An ensemble of `hosts`, each `host` or `host:port`, an IPv6 address in brackets.
    pub fn new<H: Into<String>>(hosts: impl IntoIterator<Item = H>) -> Self {
        Self {
            hosts: hosts.into_iter().map(Into::into).collect(),
            chroot: String::new(),
            prefix: Self::DEFAULT_PREFIX.to_owned(),
            credentials: None,
            acl: None,
            tls: None,
        }
    }

    /// The node below which everything is; made if it does not exist. Default the root.
    pub fn chroot(mut self, path: impl Into<String>) -> Self {
        self.chroot = path.into();
        self
    }

    /// The node below the chroot that keeps the locks apart from other things; may have several
    /// segments, or be empty. Default `leasehold`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Authenticates with the scheme `digest`. Nodes are then for this user alone, unless [`acl`](Self::acl) sets other rights.
    pub fn credentials(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.credentials = Some(Credentials::new(user, password));
        self
    }

    /// The access rights of created nodes: `open` (every client may read, write, create and delete), `creator` (the manager's
    /// own identity at the server, by credentials or certificate, may), or entries `scheme:id:rights` with commas between,
    /// rights among `rwcda`. A comma ends an entry only behind its rights, so an id may have commas: `x509:CN=a,OU=b:rwcd`;
    /// nothing is escaped. A manager needs `rwcd` on its own nodes, and a client that shares a lock with it `rcd`. Default
    /// `creator` with credentials, `open` without.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`](leasehold_core::ErrorKind::InvalidOption) for another form.
    pub fn acl(mut self, acl: &str) -> Result<Self> {
        self.acl = Some(access::parsed(acl)?);
        Ok(self)
    }

    /// Speaks TLS. The system's authorities, if `tls` names no others, are read from the file that the
    /// environment's `SSL_CERT_FILE` names, else from the system's bundle.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Reads the configuration from a URL.
    ///
    #[doc = include_str!("url_options.md")]
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidOption`](leasehold_core::ErrorKind::InvalidOption) without a host, for a user without a
    /// password or a password without a user, for an option in the wrong form, for a certificate file that cannot be
    /// read, and when TLS is half configured.
    pub fn from_url(url: &mut StoreUrl) -> Result<Self> {
        let mut config = Self::new(url.hosts()).chroot(url.path());
        config.credentials = Credentials::of_url(url)?;
        if let Some(prefix) = url.take("prefix")? {
            config = config.prefix(prefix);
        }
        config.acl = url.take("acl")?.as_deref().map(access::parsed).transpose()?;
        config.tls = match (url.take_parsed("tls", "true or false")?, Tls::take_from(url)?) {
            (Some(false), Some(_)) => {
                return Err(Error::invalid_option("`tls=false` contradicts the certificate options"));
            }
            (Some(true), given) => Some(given.unwrap_or_default()),
            (_, given) => given,
        };
        config.servers()?;
        config.namespace()?;
        Ok(config)
    }

    /// The servers, checked as far as can be without asking them.
    pub(crate) fn servers(&self) -> Result<Servers> {
        if self.hosts.is_empty() {
            return Err(Error::invalid_option(
                "the ZooKeeper URL has no server: expected zk://h1:2181,h2:2181",
            ));
        }
        let has_certificate = self.tls.as_ref().is_some_and(|tls| tls.identity().is_some());
        let is_somebody = self.credentials.is_some() || has_certificate;
        if !is_somebody && self.acl.iter().flatten().any(access::is_of_creator) {
            return Err(Error::invalid_option(
                "`acl=creator` needs a user, zk://user:password@host, or a certificate: cert=FILE&key=FILE",
            ));
        }
        let all = self.endpoints()?;
        let tls = self.tls.as_ref().map(|tls| Certificates::read(tls, &all)).transpose()?;
        Ok(Servers { all, credentials: self.credentials.clone(), tls })
    }

    /// The beginning of the paths of all nodes.
    pub(crate) fn place(&self) -> String {
        format!("{}/{}", self.chroot, self.prefix)
    }

    pub(crate) fn namespace(&self) -> Result<Namespace> {
        Namespace::new(&self.chroot, &self.prefix)
    }

    /// The rights on every node that is made.
    pub(crate) fn rights(&self) -> Vec<Acl> {
        let default = || if self.credentials.is_some() { access::creator() } else { access::open() };
        self.acl.clone().unwrap_or_else(default)
    }

    /// Whether a session may have an identity of its own, too. Not where nodes belong to the identity in a certificate: a
    /// server that does not ask for that would make them belong to the session alone.
    pub(crate) fn may_be_private(&self) -> bool {
        self.credentials.is_some() || !self.rights().iter().any(access::is_of_creator)
    }

    /// Where the servers are.
    pub(crate) fn endpoints(&self) -> Result<Vec<Endpoint>> {
        self.hosts.iter().map(|host| Endpoint::parse(host, Self::DEFAULT_PORT)).collect()
    }
}

/// Without the rights: an entry of the scheme `digest` has a hash of its password.
impl fmt::Debug for ZkConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZkConfig")
            .field("hosts", &self.hosts)
            .field("chroot", &self.chroot)
            .field("prefix", &self.prefix)
            .field("credentials", &self.credentials)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

#[cfg(feature = "tls")]
#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::ErrorKind;

    fn config(url: &str) -> Result<ZkConfig> {
        ZkConfig::from_url(&mut url.parse()?)
    }

    /// Servers, chroot, prefix and credentials are where they are expected.
    #[test]
    fn a_url_says_everything() {
        let config =
            config("zk://me:s%40cret@h1,h2:2182,[::1]:2183/a/b?prefix=c&acl=world:anyone:r").unwrap();
        assert_eq!(config.servers().unwrap().to_string(), "h1:2181,h2:2182,[::1]:2183");
        assert_eq!(config.namespace().unwrap().root, "/a/b/c");
        assert_eq!(config.credentials, Some(Credentials::new("me", "s@cret")));
        assert_eq!(config.rights(), access::parsed("world:anyone:r").unwrap());
        assert!(!format!("{config:?} {:?}", config.servers()).contains("cret"));
        let config = ZkConfig::new(["h"]).acl("digest:me:SECRET=:rwcd").unwrap();
        assert!(!format!("{config:?}").contains("SECRET"));
    }

    /// Nodes are for their creator when there is one, by a user or by a certificate.
    #[test]
    fn rights_follow_the_credentials() {
        assert_eq!(config("zk://h").unwrap().rights(), access::open());
        assert_eq!(config("zk://u:p@h").unwrap().rights(), access::creator());
        let certified = ZkConfig::new(["h"]).tls(Tls::new().client_certificate("c", "k"));
        assert_eq!(certified.rights(), access::open());
        assert_eq!(certified.acl("creator").unwrap().rights(), access::creator());
    }

    #[test]
    fn urls_that_cannot_work_are_refused() {
        for (url, named) in [
            ("zk://", "has no server"),
            ("zk://h:0", "65535"),
            ("zk://h:port", "65535"),
            ("zk://a b", "letters"),
            ("zk://[h]", "IPv6"),
            ("zk://user@h", "password"),
            ("zk://h?acl=all", "scheme:id:rights"),
            ("zk://h?acl=world:anyone:x", "rwcda"),
            ("zk://h?acl=creator", "needs a user"),
            ("zk://h?tls=false&ca=Cargo.toml", "contradict"),
            ("zk://h?ca=/nowhere/ca.pem", "cannot read"),
            ("zk://h?cert=Cargo.toml", "must be given together"),
            ("zk://h?ca=Cargo.toml", "certificates"),
            ("zk://h/a/../b", ".."),
            ("zk://h?prefix=a//b", "empty"),
        ] {
            let error = config(url).unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::InvalidOption, "{url}");
            let chain = format!("{error} {error:?}");
            assert!(chain.contains(named), "{url}: {chain}");
        }
    }
}
