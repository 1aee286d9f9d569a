//! [five]: guide::five_minutes
//! [choosing]: guide::choosing
//! [book]: guide
//! [memory]: guide::memory
//! [file]: guide::file
//! [redis]: guide::redis
//! [redis-quorum]: guide::redis_quorum
//! [etcd]: guide::etcd
//! [postgres]: guide::postgres
//! [zookeeper]: guide::zookeeper
//! [migrating]: guide::migrating
//! [semantics]: guide::semantics
//! [stores]: guide::stores
//! [speed]: guide::speed
//! [examples]: guide::examples
//! [fencing]: guide::fencing
#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

use std::sync::LazyLock;

pub use leasehold_core::{
    All, AllGuard, Builder, Candidate, Change, Changes, Effect, Error, ErrorKind, FenceGate, Fenced,
    FencingToken, Guarantees, GuardState, HeldRef, Lock, LockGuard, LockManager, LockName, LockOptions, Lost,
    LostReason, Mode, Registry, Result, Revocation, Revoke, Timing, Tls, all, clock, memory, span,
};

#[cfg(feature = "metrics")]
pub use leasehold_core::describe_metrics;

#[cfg(feature = "blocking")]
pub mod blocking;

#[cfg(any(all(doc, not(doctest)), all(doctest, feature = "blocking")))]
#[cfg_attr(docsrs, doc(auto_cfg = false))]
pub mod guide;

pub mod testing;

/// The contract of a store, for those who implement one: [`Registry::register`] gives it a scheme, and the package
/// `leasehold-conformance` proves it.
pub mod backend {
    pub use leasehold_core::backend::*;
    pub use leasehold_core::{Entropy, Env, OsEntropy, OwnerId, StoreUrl};
}

/// The file store: locks between the processes of one host, in a directory.
#[cfg(feature = "file")]
pub mod file {
    pub use leasehold_file::FileConfig;
    #[doc(hidden)]
    pub use leasehold_file::untrusted_path;
}

/// The Redis store: locks in a Redis server, or in several of which a quorum decides.
#[cfg(feature = "redis")]
pub mod redis {
    #[doc(hidden)]
    pub use leasehold_redis::exclusive_scripts;
    pub use leasehold_redis::{Format, QuorumConfig, RedisClusterConfig, RedisConfig, SentinelConfig};
}

/// The etcd store: locks in an etcd cluster.
#[cfg(feature = "etcd")]
pub mod etcd {
    pub use leasehold_etcd::EtcdConfig;
}

/// The Postgres store: locks in a table of the database that you have.
#[cfg(feature = "postgres")]
pub mod postgres {
    pub use leasehold_postgres::PostgresConfig;
}

/// The ZooKeeper store: locks in a ZooKeeper ensemble.
#[cfg(feature = "zk")]
pub mod zk {
    pub use leasehold_zk::ZkConfig;
}

/// Moves the locks from one store to another while they are in use: the option `migrate_to` of a URL.
#[cfg(feature = "migrate")]
pub mod migrate {
    pub use leasehold_core::backend::stage::Phase;
    pub use leasehold_migration::{
        Admin, MemberStatus, Migration, Progress, RecordStatus, Status, Steps, StoreStatus,
    };
}

/// Opens the store that `url` names, contacts it, and opens a session.
///
/// The scheme picks the store: `memory://` always, `file:///dir` and others by Cargo features. Options
/// that every store knows: `ttl`, `prefix`, `op_timeout`, `connect_timeout`, `connect_wait`,
/// `drift_margin`, `handoff_limit`, `owner`, and `migrate_to`, the URL of a store to which the locks are moved while they
/// are in use (in it `&`, `#`, `+`, `%` and `@` are percent-encoded); an unknown option is an error. To add a store of your own, see
/// [`registry`].
///
/// # Errors
///
/// [`ErrorKind::InvalidOption`] for a URL, scheme or option that is not known or cannot work;
/// [`ErrorKind::Unsupported`] for a store that is not part of this build, saying what to do;
/// [`ErrorKind::Unavailable`] when the store cannot be reached within the connect timeout;
/// [`ErrorKind::Misuse`] outside a tokio runtime.
///
/// # Cancel safety
///
/// A session that was opened already ends with its lease.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> leasehold::Result<()> {
/// let locks = leasehold::connect("memory://?ttl=15s").await?;
/// let guard = locks.lock("invoice/42")?.acquire().await?;
/// println!("held with token {}", guard.token());
/// guard.release().await?;
/// locks.shutdown().await
/// # }
/// ```
pub async fn connect(url: &str) -> Result<LockManager> {
    static DEFAULTS: LazyLock<Registry> = LazyLock::new(registry);
    DEFAULTS.connect(url).await
}

/// The stores of this build; [`Registry::register`] adds others.
pub fn registry() -> Registry {
    let mut registry = Registry::new();
    #[cfg(feature = "file")]
    registry.register("file", |url| Ok(Box::new(file::FileConfig::from_url(url)?)));
    #[cfg(not(feature = "file"))]
    registry.missing("file", "enable the Cargo feature `file` of leasehold");
    for scheme in ["redis", "rediss", "redis+unix"] {
        #[cfg(feature = "redis")]
        registry.register(scheme, |url| Ok(Box::new(redis::RedisConfig::from_url(url)?)));
        #[cfg(not(feature = "redis"))]
        registry.missing(scheme, "enable the Cargo feature `redis` of leasehold");
    }
    for scheme in ["redis+sentinel", "rediss+sentinel"] {
        #[cfg(feature = "redis")]
        registry.register(scheme, |url| Ok(Box::new(redis::SentinelConfig::from_url(url)?)));
        #[cfg(not(feature = "redis"))]
        registry.missing(scheme, "enable the Cargo feature `redis` of leasehold");
    }
    for scheme in ["redis+cluster", "rediss+cluster"] {
        #[cfg(feature = "redis")]
        registry.register(scheme, |url| Ok(Box::new(redis::RedisClusterConfig::from_url(url)?)));
        #[cfg(not(feature = "redis"))]
        registry.missing(scheme, "enable the Cargo feature `redis` of leasehold");
    }
    for scheme in ["redis+quorum", "rediss+quorum"] {
        #[cfg(feature = "redis")]
        registry.register(scheme, |url| Ok(Box::new(redis::QuorumConfig::from_url(url)?)));
        #[cfg(not(feature = "redis"))]
        registry.missing(scheme, "enable the Cargo feature `redis` of leasehold");
    }
    for scheme in ["etcd", "etcds"] {
        #[cfg(feature = "etcd")]
        registry.register(scheme, |url| Ok(Box::new(etcd::EtcdConfig::from_url(url)?)));
        #[cfg(not(feature = "etcd"))]
        registry.missing(scheme, "enable the Cargo feature `etcd` of leasehold");
    }
    for scheme in ["postgres", "postgresql"] {
        #[cfg(feature = "postgres")]
        registry.register(scheme, |url| Ok(Box::new(postgres::PostgresConfig::from_url(url)?)));
        #[cfg(not(feature = "postgres"))]
        registry.missing(scheme, "enable the Cargo feature `postgres` of leasehold");
    }
    for scheme in ["zk", "zookeeper"] {
        #[cfg(feature = "zk")]
        registry.register(scheme, |url| Ok(Box::new(zk::ZkConfig::from_url(url)?)));
        #[cfg(not(feature = "zk"))]
        registry.missing(scheme, "enable the Cargo feature `zk` of leasehold");
    }
    #[cfg(feature = "migrate")]
    registry.option("migrate_to", |registry, old, url| {
        Ok(Box::new(leasehold_migration::Migration::new(old, registry.store(url)?)))
    });
    #[cfg(not(feature = "migrate"))]
    registry.option("migrate_to", |_, _, _| {
        let message = "this build cannot move locks: enable the Cargo feature `migrate` of leasehold";
        Err(Error::not_applied(ErrorKind::Unsupported, message))
    });
    registry
}
