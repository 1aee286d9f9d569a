//! What is special to the etcd store, on real servers.
//!
//! Each test starts the servers it needs, as they count requests, break, or are broken.

#![allow(clippy::unwrap_used, clippy::future_not_send, reason = "test binary")]

mod cluster;
mod counts;
mod fixture;
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

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // They mostly wait; more at a time would starve the servers of a small machine.
    arguments.test_threads.get_or_insert(8);
    let trials: [Vec<Trial>; 12] = [
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
    ];
    libtest_mimic::run(&arguments, trials.into_iter().flatten().collect()).exit_code()
}
