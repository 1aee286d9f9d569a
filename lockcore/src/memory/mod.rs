//! The in-memory store: the executable specification of a store, and a real lock for the tasks of
//! one process.
//!
//! A pure engine (`engine/`) behind one mutex: first come, first served; leases on the injected clock; a
//! counter that grows with every grant. Several managers can share one instance, each as a session
//! of its own, so tests and examples have contenders without a server. It is deterministic under
//! `tokio::time::pause` and a manual clock.
//!
//! [`MemoryStore`] injects the faults of a server; the conformance kit's `Network` injects the faults of a network.
//!
//! Not promised: exclusion of other processes, and anything beyond the life of this one.

mod backend;
mod book;
mod config;
mod engine;
mod ledger;
mod store;

pub use config::MemoryConfig;
pub use store::MemoryStore;
