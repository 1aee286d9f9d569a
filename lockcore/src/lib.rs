//! The heart of `leasehold`: the contract of a store, the API of its users, and everything that is
//! the same on every store.
//!
//! Users start at [`LockManager`], authors of a store at [`backend`]. The in-memory store in
//! [`memory`] is the executable specification. This crate names no client library.
//!
//! | part | where |
//! |---|---|
//! | what users hold | [`LockManager`], [`Lock`], [`LockGuard`], [`FencingToken`], [`FenceGate`] |
//! | how it is opened | [`Registry`], [`StoreUrl`], [`Builder`], [`Timing`] |
//! | what stores implement | [`backend`], [`Env`], [`Guarantees`] |
//! | time | [`clock`] |
//! | a lock's life | `acquire`, `holds`, `watchdog`, joined in `core` |
//! | pure state machines | `queue`, `lease`, `memory::engine` |

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod backend;
pub mod clock;
pub mod memory;

mod api;
mod core;
mod words;

pub use api::all::{All, AllGuard, all};
pub use api::builder::Builder;
pub use api::fence::{FenceGate, Fenced};
pub use api::guard::{Change, Changes, LockGuard, Lost};
pub use api::held::HeldRef;
pub use api::lead::Candidate;
pub use api::lock::Lock;
pub use api::manager::LockManager;
pub use api::options::LockOptions;
pub use api::registry::Registry;
pub use backend::env::{Entropy, Env, OsEntropy};
pub use backend::tls::Tls;
pub use backend::url::{StoreUrl, span};
pub use clock::timing::Timing;
#[cfg(feature = "metrics")]
pub use core::metrics::describe as describe_metrics;
pub use words::error::{Effect, Error, ErrorKind, Result};
pub use words::guarantees::Guarantees;
pub use words::loss::{GuardState, LostReason};
pub use words::mode::Mode;
pub use words::name::LockName;
pub use words::owner::OwnerId;
pub use words::revoke::{Revocation, Revoke};
pub use words::token::FencingToken;
