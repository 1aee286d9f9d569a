//! Moves the locks of `leasehold` from one store to another while they are in use.
//!
//! | part | contains |
//! |---|---|
//! | `config` | which two stores |
//! | `backend` | the contract of a store, on top of two |
//! | `session` | the I/O of a process: its entries in both stores, its acquisitions, its holds |
//! | `admin` | how far a move is; a step forth or back; the remedies |
//! | `protocol` | the rules of a process in each phase of a move, and the writes of an administrator; pure |

mod admin;
mod backend;
mod config;
mod protocol;
mod session;

pub use admin::{Admin, MemberStatus, Progress, RecordStatus, Status, Steps, StoreStatus};
pub use config::Migration;
