//! What is special to the Postgres store, on real servers; the kit runs beside that of the other stores.

#![allow(clippy::unwrap_used, clippy::future_not_send, reason = "test binary")]

mod fence;
mod fixture;
mod schema;

use std::process::ExitCode;

use leasehold_conformance::Suite;

fn main() -> ExitCode {
    let mut suite = Suite::new().threads(THREADS);
    for trial in fence::trials().into_iter().chain(schema::trials()) {
        suite = suite.trial(trial);
    }
    suite.run()
}

/// They mostly wait; more at a time would starve the servers of a small machine.
const THREADS: usize = 8;
