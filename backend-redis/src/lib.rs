//! The Redis store of `leasehold`: fair locks in one Redis server, two requests a cycle.
//!
//! A lock is a string key with an expiry, a queue beside it in order of arrival. The script that
//! releases a lock grants it to the next contender and tells that contender's inbox, so nobody
//! polls and nobody is woken for nothing. Messages only make it fast: the refresh of a waiting
//! entry finds a grant that went unheard.
//!
//! | file | says |
//! |---|---|
//! | `config` | which server, and its URL |
//! | `backend` | the contract |
//! | `session` | one manager's connections, requests and inbox |
//! | `protocol` | how one acquisition goes; pure |
//! | `keys` | names of keys; pure |
//! | `error` | what server errors mean |
//! | `link` | a connection that is made again |
//! | `scripts` | what the server runs, and how it answers |
//! | `preload` | loading that ahead |
//! | `diagnosis` | what an administrator should know of the server |
//!
//! Not promised: that a fail-over loses no lock; replication is asynchronous. The whole story is
//! in `docs/redis.md`.

mod backend;
mod config;
mod diagnosis;
mod error;
mod keys;
mod link;
mod preload;
mod protocol;
mod scripts;
mod session;

pub use config::RedisConfig;
