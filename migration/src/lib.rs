//! Moves the locks of `leasehold` from one store to another while they are in use.
//!
//! | part | says |
//! |---|---|
//! | `config` | which two stores |
//! | `backend` | the contract of a store, on top of two |
//! | `session` | what a process does: its entries in both stores, its acquisitions, its holds |
//! | `protocol` | what a process may do in each phase of a move, and what an administrator writes next; pure |

mod backend;
mod config;
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "an administrator's steps stand before the command that takes them")
)]
mod protocol;
mod session;

pub use config::Migration;
