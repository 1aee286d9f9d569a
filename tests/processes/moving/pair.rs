//! Two stores with servers, and namespaces that move from the one to the other.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::backend::stage::{Phase, Side};
use leasehold::backend::{Env, StoreConfig};
use leasehold::migrate::{Admin, Migration, Steps};
use leasehold::redis::SentinelConfig;
use leasehold::{LockGuard, LockManager, Timing};
use testbed::redis::Sentinels;
use testbed::{BOUND, Server, etcd, postgres, redis, within, zookeeper};

/// The name of every lock here.
pub(crate) const NAME: &str = "invoice/42";

/// A server as its typed configuration names it.
pub(crate) trait Kind: Server {
    fn config(addr: SocketAddr, namespace: &str) -> Box<dyn StoreConfig>;
}

impl Kind for redis::Server {
    fn config(addr: SocketAddr, namespace: &str) -> Box<dyn StoreConfig> {
        Box::new(leasehold::redis::RedisConfig::new(addr.ip().to_string(), addr.port()).prefix(namespace))
    }
}

impl Kind for etcd::Etcd {
    fn config(addr: SocketAddr, namespace: &str) -> Box<dyn StoreConfig> {
        Box::new(leasehold::etcd::EtcdConfig::new([addr.to_string()]).prefix(namespace))
    }
}

impl Kind for zookeeper::Server {
    fn config(addr: SocketAddr, namespace: &str) -> Box<dyn StoreConfig> {
        Box::new(leasehold::zk::ZkConfig::new([addr.to_string()]).chroot(format!("/{namespace}")))
    }
}

impl Kind for postgres::Server {
    fn config(addr: SocketAddr, namespace: &str) -> Box<dyn StoreConfig> {
        let url = <Self as Server>::url(addr, namespace, "");
        let mut url = url.trim_end_matches('&').parse().unwrap();
        Box::new(leasehold::postgres::PostgresConfig::from_url(&mut url).unwrap())
    }
}

/// How a namespace is opened.
type Config = dyn Fn(&str) -> Box<dyn StoreConfig> + Send + Sync;

/// Where a namespace is, with options.
type Url = dyn Fn(&str, &str) -> String + Send + Sync;

/// One of the two stores.
#[derive(Clone)]
pub(crate) struct End {
    ttl: Duration,
    config: Arc<Config>,
    url: Arc<Url>,
}

impl End {
    /// A server; its namespaces end as said.
    pub(crate) fn of<S: Kind>(addr: SocketAddr, suffix: &'static str) -> Self {
        Self {
            ttl: S::TTL,
            config: Arc::new(move |namespace| S::config(addr, &format!("{namespace}{suffix}"))),
            url: Arc::new(move |namespace, options| S::url(addr, &format!("{namespace}{suffix}"), options)),
        }
    }

    /// The primary that these sentinels name, for leases of `ttl` and with the shortest pause that goes with them.
    pub(crate) fn watched(sentinels: &Sentinels, ttl: Duration) -> Self {
        const LAG: Duration = Duration::from_secs(1);
        let hosts: Vec<_> = sentinels.addrs().iter().map(ToString::to_string).collect();
        let place = format!("redis+sentinel://{}/{}", hosts.join(","), Sentinels::MASTER);
        let agreed = format!("max_ttl={}ms&failover_lag={}ms", ttl.as_millis(), LAG.as_millis());
        let config = SentinelConfig::new(Sentinels::MASTER, hosts).max_ttl(ttl).failover_lag(LAG);
        Self {
            ttl,
            config: Arc::new(move |namespace| {
                Box::new(config.clone().servers(|server| server.prefix(namespace)))
            }),
            url: Arc::new(move |namespace, options| format!("{place}?prefix={namespace}&{agreed}&{options}")),
        }
    }
}

/// A way from one store to another.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) name: &'static str,
    old: End,
    new: End,
    spaces: Arc<AtomicUsize>,
}

impl Pair {
    pub(crate) fn new(name: &'static str, old: End, new: End) -> Self {
        Self { name, old, new, spaces: Arc::default() }
    }

    pub(crate) fn ttl(&self) -> Duration {
        self.old.ttl.max(self.new.ttl)
    }

    /// A namespace that was not used before.
    pub(crate) fn fresh(&self) -> Space {
        let number = self.spaces.fetch_add(1, Ordering::Relaxed);
        self.space(&format!("{}-{number}", self.name))
    }

    pub(crate) fn space(&self, namespace: &str) -> Space {
        Space { pair: self.clone(), namespace: namespace.to_owned() }
    }
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// One namespace in both stores.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    pair: Pair,
    namespace: String,
}

impl Space {
    pub(crate) fn ttl(&self) -> Duration {
        self.pair.ttl()
    }

    pub(crate) fn migration(&self) -> Migration {
        Migration::new(self.plain(Side::Old), self.plain(Side::New))
    }

    /// One of the stores, without a move.
    pub(crate) fn plain(&self, side: Side) -> Box<dyn StoreConfig> {
        let end = if side == Side::Old { &self.pair.old } else { &self.pair.new };
        (end.config)(&self.namespace)
    }

    /// A move in which that namespace is another one.
    pub(crate) fn mistyped(&self, side: Side) -> Migration {
        let typo = self.pair.space(&format!("{}-typo", self.namespace));
        let of = |at| if at == side { typo.plain(at) } else { self.plain(at) };
        Migration::new(of(Side::Old), of(Side::New))
    }

    /// A process that takes part.
    pub(crate) async fn manager(&self) -> LockManager {
        open(self.migration(), self.ttl()).await
    }

    pub(crate) async fn admin(&self) -> Admin {
        admin(&self.migration(), self.ttl()).await
    }

    /// What a process is given before, during and after.
    pub(crate) fn urls(&self) -> [String; 3] {
        let options = format!("ttl={}ms", self.ttl().as_millis());
        let old = (self.pair.old.url)(&self.namespace, &options);
        let new = (self.pair.new.url)(&self.namespace, &options);
        let inner = (self.pair.new.url)(&self.namespace, "");
        let inner = inner.trim_end_matches(['?', '&']).replace('@', "%40");
        let moving = format!("{old}&migrate_to={inner}");
        [old, moving, new]
    }
}

pub(crate) async fn open(migration: Migration, ttl: Duration) -> LockManager {
    let builder = LockManager::builder(migration).ttl(ttl).op_timeout(ttl / 3).connect_timeout(BOUND);
    builder.build().await.unwrap()
}

pub(crate) async fn admin(migration: &Migration, ttl: Duration) -> Admin {
    migration.admin(env(ttl, BOUND)).await.unwrap()
}

/// That of a session which waits for so long until it is open.
pub(crate) fn env(ttl: Duration, connect_timeout: Duration) -> Env {
    let mut timing = Timing::for_ttl(ttl);
    timing.connect_timeout = connect_timeout;
    Env::new(timing).unwrap()
}

/// Goes to a phase, and waits for all that the steps wait for.
pub(crate) async fn walk(admin: &Admin, to: Phase) {
    let steps = Steps::default().to(to).wait(BOUND).quiet_for(Duration::ZERO);
    let before = admin.status().await.unwrap().phase;
    let told = &mut |_: &_| {};
    let status = match before.cmp(&Some(to)) {
        std::cmp::Ordering::Less => admin.advance(&steps, told).await,
        std::cmp::Ordering::Equal => return,
        std::cmp::Ordering::Greater => admin.rollback(&steps, told).await,
    };
    let status = status.unwrap_or_else(|error| panic!("from {before:?} to {to}: {error:#}"));
    assert_eq!(status.phase, Some(to));
}

pub(crate) async fn hold(locks: &LockManager) -> LockGuard {
    within(BOUND, "the lock", locks.lock(NAME).unwrap().acquire()).await.unwrap()
}
