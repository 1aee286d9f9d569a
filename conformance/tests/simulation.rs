//! Seeds of the simulation, and the proof that it can fail.
//!
//! `LEASEHOLD_DEPTH` says how many seeds run; `LEASEHOLD_SEED=n` runs that one and shows all of it.

use std::process::ExitCode;

use leasehold_conformance::simulation::{OneStore, Runs};

fn main() -> ExitCode {
    let seeds = testbed::Depth::of_run().seeds(300, 500, 100_000);
    Runs { seeds, repeated: 25, to_find: 200, replay: testbed::seed() }.main::<OneStore>()
}
