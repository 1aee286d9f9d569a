//! The Redis store of `leasehold`: fair locks in one Redis server, two requests a cycle.
//!
//! A lock is a string key with an expiry, and a queue in order of arrival. The script that releases a lock grants it to the
//! next contender and sends a message to its inbox. So no contender polls, and none is woken without a grant. Readers and
//! permits wait in the same queue, and hold together while they fit. Messages only make it fast: the refresh of a waiting entry
//! finds a grant whose message was lost.
//!
//! | file | contains |
//! |---|---|
//! | `config` | which server, or which sentinels know it, and its URL |
//! | `backend` | the contract |
//! | `session` | one manager's entries, and how it gets, keeps and leaves them |
//! | `protocol` | how one acquisition goes; pure |
//! | `cluster` | how a cluster divides the keys, and its redirections; pure |
//! | `keys` | names of keys; pure |
//! | `error` | the meaning of server errors |
//! | `connection` | the way to the server, made again when it breaks, and to its replicas |
//! | `scripts` | the scripts of the server, and their replies |
//! | `admin` | inspection, revocation and diagnosis for administrators |
//! | `quorum` | a second engine, of the same parts: several independent servers, of which a quorum decides |
//!
//! Not promised: that a fail-over loses no lock; replication is asynchronous. `docs/src/redis.md` has the details.

mod admin;
mod backend;
mod cluster;
mod config;
mod connection;
mod error;
#[cfg(test)]
mod fuzz;
mod keys;
mod protocol;
mod quorum;
mod scripts;
mod session;

pub use config::{Format, RedisClusterConfig, RedisConfig, SentinelConfig};
pub use quorum::QuorumConfig;
#[doc(hidden)]
pub use scripts::exclusive_scripts;
