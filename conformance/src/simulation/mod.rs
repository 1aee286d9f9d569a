//! Runs the real core against a hostile world, in virtual time, as a seed decides, and judges what
//! happened.
//!
//! Several processes with several tasks each share one in-memory store. Phase one: tasks acquire,
//! try, hold, also for a bounded time, check, write, release, drop and cancel at random, while requests and answers get
//! lost or late, processes fall silent, stand still and die, clocks drift, administrators revoke,
//! and in some seeds the store breaks A2. Phase two: everything heals; whoever waits must be
//! served, everybody can take every lock once more, and at rest the store must be empty. Then the
//! [`invariants`] judge the history.
//!
//! What a [`Process`] is, and what its tasks do on their [`Stage`], is there for other simulations too: of
//! processes that use more than one store.
//!
//! # Invariants
//! - **simulation-1** A seed repeats exactly: one thread, tokio's paused time, every choice from [`Dice`],
//!   and no order of a hash map shows.
//! - **simulation-2** The judges can fail: for every bug of [`FINDS`] a few seeds show a violation.
//!
//! [`Dice`]: crate::Dice

mod bid;
mod chaos;
mod cluster;
mod process;
mod scenario;
mod worker;

use crate::bugs::Bug;
use crate::history::History;
use crate::invariants::{self, Property, Violation};
use cluster::Cluster;
pub use process::{Makings, Process, SeededEntropy};
use scenario::Scenario;
pub use worker::Stage;

/// Bugs that the simulation must find, or its silence means nothing; each by any of these.
pub const FINDS: [(&str, &[Property]); 10] = [
    ("release_by_name", &[Property::Ownership]),
    ("token_per_session", &[Property::Tokens]),
    ("deadline_from_receipt", &[Property::Overlap, Property::Notice]),
    ("no_margin", &[Property::Overlap, Property::Notice]),
    ("grants_what_is_held", &[Property::Overlap, Property::Notice]),
    ("no_clean_up", &[Property::Litter, Property::HandOver]),
    ("last_come_first_served", &[Property::Order]),
    ("readers_pass_writers", &[Property::Overlap, Property::Notice]),
    ("renewal_always_succeeds", &[Property::Overlap, Property::Notice]),
    ("bound_is_forgotten", &[Property::Bound]),
];

/// What a seed came to.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// What happened.
    pub history: History,
    /// What should not have.
    pub violations: Vec<Violation>,
    /// How many faults happened.
    pub faults: u64,
}

/// Runs `seed`, with `planted` in it if something is.
///
/// # Panics
///
/// When the host gives no memory for a runtime, or the simulation itself is wrong.
pub fn run(seed: u64, planted: Option<&Bug>) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O needs nothing of the host");
    let scenario = Scenario::of_seed(seed, planted);
    let bounds = scenario.bounds();
    let (history, faults) = runtime.block_on(async { Cluster::open(scenario).await.play().await });
    let violations = invariants::check_all(&history, &bounds);
    Report { seed, history, violations, faults }
}
