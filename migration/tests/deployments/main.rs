//! Whole deployments in virtual time: processes with the old store's URL, with both, with the new one's come and go
//! while administrators walk through the phases, and everything fails now and then. It is the simulation of the kit with
//! two stores, judged as that is.
//!
//! `LEASEHOLD_DEPTH` says how many seeds run; `LEASEHOLD_SEED=n` runs that one and shows all of it.
//!
//! | part | is |
//! |---|---|
//! | `phases` | the processes of each phase, and how they are replaced |
//! | `walker` | administrators |
//! | `plants` | rules that are broken on purpose |

mod phases;
mod plants;
mod walker;

use std::process::ExitCode;

use leasehold_conformance::simulation::Runs;

use crate::phases::Move;

fn main() -> ExitCode {
    let seeds = testbed::Depth::of_run().seeds(15, 30, 20_000);
    Runs { seeds, repeated: 3, to_find: 40, replay: testbed::seed() }.main::<Move>()
}
