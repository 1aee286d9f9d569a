//! The ZooKeeper store of `leasehold`: fair locks in an ensemble, shared with Curator.
//!
//! A lock is a directory, a contender an ephemeral sequential node in it, the holder the oldest of
//! them, or those of the oldest that share the lock; its token is the transaction that created it. One
//! session serves all locks of a manager.
//!
//! | file | says |
//! |---|---|
//! | `config` | which ensemble, and its URL |
//! | `backend` | the contract |
//! | `connection` | requests on one connection; what a server says beside sessions |
//! | `keys` | names of nodes, their order, and what is in them; pure |
//! | `error` | what ZooKeeper's errors mean |
//! | `protocol` | how a lock is taken, and when a session can be trusted; pure |
//! | `session` | one session: opened, proved, watched, ended; what it holds, how it gets it, and its ledger |
//! | `admin` | what administrators ask |
//!
//! Not promised: that a lock outlives its session. The whole story is in `docs/zookeeper.md`.

mod admin;
mod backend;
mod config;
mod connection;
mod error;
mod keys;
mod protocol;
mod session;

pub use config::ZkConfig;
