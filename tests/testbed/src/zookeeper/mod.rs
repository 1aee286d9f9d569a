//! ZooKeeper servers on the loopback: started with a directory of their own, counted, stopped.
//!
//! | need | type |
//! |---|---|
//! | one server, or several that agree | [`Setup`], [`Server`], [`Ensemble`] |
//! | what a server has counted, and the connected clients | [`Server::counters`], [`Server::connections`] |
//! | a session that ends as if it had expired | [`Server::end_session`] |
//! | the frames on the wire, for a [`Proxy`](crate::Proxy) | [`frame`], [`Head`] |
//!
//! A server is a Java process started directly, from the jars of Debian's `libzookeeper-java`. It is
//! killed with the thread that started it: start one that is shared from a thread that stays.
//!
//! Not promised: durability. Nothing is synced to the disk, so speed measured here is not that of a real ensemble.

mod ensemble;
mod server;
mod setup;
mod wire;
mod words;

pub use ensemble::Ensemble;
pub use server::Server;
pub use setup::Setup;
pub use wire::{Head, Op, frame};
pub use words::{Connection, Counters, Role};
