//! Each mode and each action of the proxy shows its effect on both sides of it.
//!
//! `modes.rs` has the modes, `connections.rs` what is done to connections, `setup.rs` the server
//! behind the proxy, which writes down what it sees.

mod connections;
mod modes;
mod setup;
