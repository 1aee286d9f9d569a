//! Redis servers on the loopback, or [`valkey`]'s: started with a directory of their own, counted, stopped.
//!
//! [`Settings`] say how a server is started; a [`Server`] is one that has answered a PING, and can be
//! killed, stopped and started again on the same ports, with or without its data. What the server
//! itself has counted is read with [`Server::calls`]. A [`Client`] speaks the protocol as it is
//! written, and knows nothing else. [`Sentinels`] watch a primary, and promote one of its replicas.
//!
//! A [`Cluster`] is several that share their keys; its slots move [`Step`] by step.
//!
//! Not promised: that data survive a kill without [`Settings::append_only`].

mod clock;
mod cluster;
mod preload;
mod protocol;
mod sentinels;
mod server;
mod settings;

pub use clock::WallClock;
pub use cluster::{Cluster, Step};
pub use protocol::{Client, Reply, frame, is_push};
pub use sentinels::Sentinels;
pub use server::Server;
pub use settings::{Settings, valkey};
