//! The heart of `leasehold`: the contract of a store, the API of its users, and everything that is
//! the same on every store.
//!
//! Users start at [`LockManager`]; whoever writes a store, at [`backend`]. The in-memory store in
//! [`memory`] is the executable specification. This crate names no client library.
//!
//! | part | where |
//! |---|---|
//! | what users hold | [`LockManager`], [`Lock`], [`LockGuard`], [`FencingToken`], [`FenceGate`] |
//! | how it is opened | [`Registry`], [`StoreUrl`], [`Builder`], [`Timing`] |
//! | what stores implement | [`backend`], [`Env`], [`Guarantees`] |
//! | time | [`clock`] |
//! | a lock's life | `acquire`, `release`, `watchdog`, joined in `core` |
//! | pure state machines | `queue`, `lease`, `memory::engine` |

pub mod backend;
pub mod clock;
pub mod memory;

mod acquire;
mod builder;
mod core;
mod env;
mod error;
mod fence;
mod flight;
mod guarantees;
mod guard;
mod held;
mod holder;
mod lease;
mod lock;
mod loss;
mod manager;
mod meters;
mod name;
mod names;
mod owner;
mod queue;
mod registry;
mod release;
mod revocation;
mod revoke;
mod tenure;
mod term;
mod timing;
mod tls;
mod token;
mod url;
mod watchdog;

pub use builder::Builder;
pub use env::{Entropy, Env, OsEntropy};
pub use error::{Effect, Error, ErrorKind, Result};
pub use fence::{FenceGate, Fenced};
pub use guarantees::Guarantees;
pub use guard::{Change, Changes, LockGuard, Lost};
pub use lock::{Lock, LockOptions};
pub use loss::{GuardState, LostReason};
pub use manager::LockManager;
#[cfg(feature = "metrics")]
pub use meters::describe as describe_metrics;
pub use name::LockName;
pub use owner::OwnerId;
pub use registry::Registry;
pub use revoke::{Revocation, Revoke};
pub use timing::Timing;
pub use tls::Tls;
pub use token::FencingToken;
pub use url::{StoreUrl, span};
