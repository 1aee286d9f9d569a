//! The kit on the in-memory store, and the mutants that prove the kit.
//!
//! In virtual time; with `CONFORMANCE_REAL_TIME` set, in real time too, which tries the kit's own
//! bounds.

use std::process::ExitCode;
use std::time::Duration;

use leasehold_conformance::{MemorySubject, Suite};

fn main() -> ExitCode {
    let mut suite = Suite::new().store(Box::new(MemorySubject::new())).mutants();
    if std::env::var_os("CONFORMANCE_REAL_TIME").is_some() {
        let ttl = Duration::from_secs(3);
        suite = suite.store(Box::new(MemorySubject::in_real_time(ttl))).threads(24);
    }
    suite.run()
}
