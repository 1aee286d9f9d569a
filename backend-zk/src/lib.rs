//! The ZooKeeper store of `leasehold`: fair locks in an ensemble, shared with Curator.
//!
//! A lock is a directory, a contender an ephemeral sequential node in it, the holder the oldest of them, or the oldest ones
//! that share the lock; its token is the transaction that created it. One session serves all locks of a manager.
//!
//! | file | contains |
//! |---|---|
//! | `config` | which ensemble, and its URL |
//! | `backend` | the contract |
//! | `connection` | requests on one connection; the status of a server |
//! | `keys` | names of nodes, their order, and their data; pure |
//! | `error` | the meaning of ZooKeeper's errors |
//! | `protocol` | how a lock is taken, and when a session can be trusted; pure |
//! | `session` | one session: opened, proved, watched, ended; its holds, acquisitions and ledger |
//! | `admin` | inspection, revocation and diagnosis for administrators |
//!
//! Not promised: that a lock outlives its session. The whole story is in `docs/src/zookeeper.md`.

mod admin;
mod backend;
mod config;
mod connection;
mod error;
mod keys;
mod protocol;
mod session;

pub use config::ZkConfig;
