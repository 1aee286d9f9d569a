//! The `leasehold` command as people and scripts use it: started, talked to, signalled, killed.

mod compare;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "file")]
mod group;
#[cfg(feature = "file")]
mod hold;
#[cfg(feature = "file")]
mod host;
#[cfg(any(feature = "etcd", feature = "redis", feature = "zk"))]
mod leased;
#[cfg(all(feature = "file", feature = "metrics"))]
mod metrics;
#[cfg(all(feature = "etcd", feature = "migrate", feature = "redis"))]
mod migrate;
#[cfg(feature = "file")]
mod place;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "file")]
mod revoke;
mod rig;
#[cfg(feature = "file")]
mod run;
#[cfg(feature = "file")]
mod show;
#[cfg(feature = "file")]
mod terminal;
#[cfg(feature = "file")]
mod token_base;
mod usage;
#[cfg(feature = "zk")]
mod zk;
