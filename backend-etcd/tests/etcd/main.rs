//! The etcd store on real servers: the kit on a current one, and every fault by its own test on the
//! installed one.
//!
//! Each test starts the servers it needs, as they count requests, break, or are broken.

#![allow(clippy::unwrap_used, clippy::future_not_send, reason = "test binary")]

mod cluster;
mod counts;
mod fixture;
mod kit;
mod network;
mod outside;
mod replies;
mod revocation;
mod rights;
mod secured;
mod server;
mod sharing;
mod starved;
mod tokens;

use std::process::ExitCode;

use leasehold_conformance::Suite;

fn main() -> ExitCode {
    let mut suite = Suite::new().threads(THREADS);
    for trial in [
        cluster::trials(),
        counts::trials(),
        network::trials(),
        outside::trials(),
        replies::trials(),
        revocation::trials(),
        rights::trials(),
        secured::trials(),
        server::trials(),
        sharing::trials(),
        starved::trials(),
        tokens::trials(),
    ]
    .into_iter()
    .flatten()
    {
        suite = suite.trial(trial);
    }
    match kit::Server::start() {
        Some(server) => suite.store(Box::new(server)).run(),
        None => suite.run(),
    }
}

/// They mostly wait; more at a time would starve the servers of a small machine.
const THREADS: usize = 8;
