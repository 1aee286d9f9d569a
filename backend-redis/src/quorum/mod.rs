//! Locks in several independent servers, of which a quorum decides: a second engine, on the same connections.
//!
//! | file | says |
//! |---|---|
//! | `config` | which servers, and their URL |
//! | `agreed` | what all who lock with them have to agree on; pure |
//! | `backend` | the contract |
//! | `session` | one manager's connections and entries |
//! | `protocol` | how one acquisition goes; pure |
//! | `keys` | names of keys; pure |
//! | `scripts` | what each server runs, and how it answers |
//! | `admin` | what administrators see and ask for |
//!
//! The whole story is in `docs/redis-quorum.md`.

mod admin;
mod agreed;
mod backend;
mod config;
mod keys;
mod protocol;
mod scripts;
mod session;

pub use config::QuorumConfig;
