//! The ZooKeeper store of `leasehold`: fair locks in an ensemble, shared with Curator.
//!
//! A lock is a directory, a contender an ephemeral sequential node in it, the holder the oldest of
//! them; its token is the transaction that created it. One session serves all locks of a manager.
//!
//! | file | says |
//! |---|---|
//! | `config` | which ensemble, and its URL |
//! | `backend` | the contract |
//! | `session` | one session: opened, proved, ended; what it holds, and how it gets it |
//! | `protocol` | how a lock is taken, and when a session can be trusted; pure |
//! | `keys` | names of nodes, their order, and what is in them; pure |
//! | `error` | what ZooKeeper's errors mean |
//! | `znode` | requests on one connection |
//! | `watch` | what is watched while a session lives |
//! | `status` | what a server says beside sessions: its version, and why it takes none |
//! | `survey` | what administrators ask |
//!
//! Not promised: that a lock outlives its session. The whole story is in `docs/zookeeper.md`.

mod backend;
mod config;
mod error;
mod keys;
mod protocol;
mod session;
mod status;
mod survey;
mod watch;
mod znode;

pub use config::ZkConfig;
