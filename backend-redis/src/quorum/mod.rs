//! Locks in several independent servers, of which a quorum decides: a second engine on the same connections.
//!
//! | file | has |
//! |---|---|
//! | `config` | which servers, and their URL |
//! | `agreed` | the options that all managers must share; pure |
//! | `backend` | the contract |
//! | `session` | one manager's connections and entries |
//! | `protocol` | one acquisition; pure |
//! | `keys` | names of keys; pure |
//! | `scripts` | the program of each server, and its answers |
//! | `admin` | inspection, revocation, diagnosis |
//!
//! `docs/src/redis-quorum-protocol.md` describes the algorithm.

mod admin;
mod agreed;
mod backend;
mod config;
mod keys;
mod protocol;
mod scripts;
mod session;

pub use config::QuorumConfig;
