//! The file store from outside: several sessions of one directory, and other processes.

#![allow(clippy::unwrap_used, clippy::future_not_send, reason = "test binary")]

mod contract;
mod disk;
mod fixture;
mod hands;
mod processes;
mod revocation;
mod tokens;
