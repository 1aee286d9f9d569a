//! The Postgres store of `leasehold`: locks in a table with a queue.
//!
//! A lock is a queue of rows in the order of their numbers. The oldest holds, and so do the next ones that may hold at the same
//! time. A session is one row with a deadline, which the server's clock ends. All writing is by functions in the server, each
//! one statement in a transaction of its own: two per cycle, three where one waits. A waiter that holds because of a release
//! learns of it by a notification.
//!
//! | file | contains |
//! |---|---|
//! | `config` | which servers, and their URL |
//! | `backend` | the contract |
//! | `session` | the holds of one manager, and how it acquires them |
//! | `protocol` | how an entry becomes a hold, and how it is removed; pure |
//! | `schema/1.sql` | the other half of the protocol, which runs in the server |
//! | `schema` | its installation and its version |
//! | `keys` | names, modes and owners in the tables; pure |
//! | `error` | the meaning of errors |
//! | `connection` | the way to the server |
//! | `admin` | inspection, revocation and diagnosis for administrators |
//!
//! Not promised: that the server's clock never jumps; see `docs/src/postgres.md`.

mod admin;
mod backend;
mod certificates;
mod config;
mod connection;
mod error;
mod keys;
mod protocol;
mod schema;
mod session;

pub use config::PostgresConfig;
