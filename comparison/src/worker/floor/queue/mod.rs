//! The floors of a lock whose next holder waits in a queue.

#[cfg(feature = "etcd")]
pub(super) mod etcd;
pub(super) mod file;
#[cfg(feature = "redis")]
pub(super) mod redis;
#[cfg(feature = "zk")]
pub(super) mod zk;
