//! Starts and stops what tests need from outside, and breaks it on purpose.
//!
//! | need | type |
//! |---|---|
//! | a port of its own | [`Port`] |
//! | a directory that goes away, unless `LEASEHOLD_KEEP=1` | [`Scratch`] |
//! | a program that can be stopped, continued, killed and talked to by lines | [`Launch`], [`Process`] |
//! | a network between a client and a server that fails on command | [`Proxy`], [`Mode`] |
//! | a real server, single or several | [`redis`], [`etcd`], [`zookeeper`], [`postgres`] and a pooler for it, [`pgbouncer`] |
//! | one of any kind, for tests that are the same for all | [`Server`] |
//! | certificates for them | [`Certificates`] |
//! | another library on the same lock | [`peers`] |
//! | how much a run tries | [`Depth`], [`seed`], [`seconds`] |
//! | one trial, what goes on beside it, what is waited for | [`trial`], [`Beside`], [`within`], [`eventually`] |
//!
//! Two rules hold throughout. A step that has returned is in force, so that a test is a sequence of
//! steps and not a race. What a value started ends with that value: dropping it leaves no process,
//! task or file behind.
//!
//! An error, or a panic, is the failure of the test. A call that is cancelled while it waits loses nothing, unless it says
//! otherwise.
//!
//! It knows nothing of locks and depends on nothing of ours. Linux only (pidfds).

#![allow(clippy::missing_errors_doc, reason = "an error is the failure of the test")]

mod depth;
pub mod etcd;
#[cfg(feature = "fuzz")]
pub mod fuzz;
pub mod peers;
pub mod pgbouncer;
mod ports;
pub mod postgres;
mod process;
mod proxy;
pub mod redis;
mod scratch;
mod server;
mod tls;
mod trial;
pub mod zookeeper;

pub use depth::{Depth, seconds, seed};
pub use ports::Port;
pub use process::{Launch, Process, ProcessError, ProcessErrorKind};
pub use proxy::{Corruption, Direction, Mode, Predicate, Proxy, Traffic};
pub use scratch::Scratch;
pub use server::Server;
pub use tls::Certificates;
#[doc(hidden)]
pub use trial::name_in;
pub use trial::{BOUND, Beside, eventually, pass, trial, trial_within, until, within};
