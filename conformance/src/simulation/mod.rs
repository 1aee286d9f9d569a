//! Runs the real core against a hostile world, in virtual time, as a seed decides, and judges what
//! happened.
//!
//! Several processes with several tasks each share what is deployed: one store in memory ([`OneStore`]), or what another
//! [`Deployment`] says, such as two stores between which locks move. Phase one: tasks acquire, try, hold, also for a
//! bounded time, check, write, release, drop and cancel at random, while requests and answers get lost or late, stores and
//! processes fall silent, processes stand still, die and are replaced, clocks drift and administrators revoke. Phase two:
//! everything heals; every waiter must be served, every process can take every lock once more, and at rest the stores
//! must be empty. Then the [`invariants`] judge the history.
//!
//! # Invariants
//! - **simulation-1** A seed repeats exactly: one thread, tokio's paused time, every choice from [`Dice`],
//!   and no order of a hash map shows.
//! - **simulation-2** The judges can fail: for every plant of a deployment a few seeds show a violation.
//!
//! [`Dice`]: crate::Dice

mod bid;
mod chaos;
mod cluster;
mod one;
mod process;
mod scenario;
mod seeds;
mod store;
mod tally;
mod worker;

use std::fmt::Debug;

use leasehold_core::Lock;
use leasehold_core::backend::StoreConfig;
use leasehold_core::clock::Moment;

use crate::history::{History, Recorder};
use crate::invariants::{self, Property, Violation};
pub use cluster::Cluster;
pub use one::OneStore;
pub use process::{Process, SeededEntropy};
pub use scenario::Scenario;
pub use seeds::Runs;
pub use store::{Sight, Store};
pub use tally::Tally;
pub use worker::Bound;

/// What is simulated: stores, the processes that use them, and administrators.
#[expect(async_fn_in_trait, reason = "a seed runs on one thread")]
pub trait Deployment: Debug + Send + Sized + Sync + 'static {
    /// How a process is configured.
    type Kind: Copy + Debug + Send + Sync;
    /// A rule that is broken on purpose.
    type Plant: Copy + Debug + Send + Sync + 'static;

    /// What its tests are called.
    const NAME: &'static str;
    /// How many stores there are.
    const STORES: usize;
    /// How the first processes are configured.
    const FIRST: Self::Kind;

    /// What must be found, or silence means nothing; each by any of these.
    fn plants() -> Vec<(&'static str, Self::Plant, &'static [Property])>;

    /// Decides the rest before anything runs.
    fn new(scenario: &mut Scenario, planted: Option<Self::Plant>) -> Self;

    /// What must have been counted often in many runs.
    fn wanted() -> Vec<String> {
        Vec::new()
    }

    /// Bounds how long a lock may be held.
    fn bound(&self) -> Bound {
        Lock::max_hold
    }

    /// A store as it really is.
    fn beneath(&self, store: Box<dyn StoreConfig>) -> Box<dyn StoreConfig> {
        store
    }

    /// The same store from the other end of the network.
    fn above(&self, at: usize, store: Box<dyn StoreConfig>, recorder: Recorder) -> Box<dyn StoreConfig>;

    /// What a process of that kind opens, with its ways to all stores.
    fn config(&self, kind: Self::Kind, ways: Vec<Box<dyn StoreConfig>>) -> Box<dyn StoreConfig>;

    /// Whether the stores let such a process in.
    async fn admits(_cluster: &Cluster<Self>, _kind: Self::Kind) -> bool {
        true
    }

    /// Something happens that is no fault; `true` if nothing else is to happen now.
    async fn act(cluster: &mut Cluster<Self>) -> bool;

    /// A fault of its own; until when, if that process is to be healed then.
    async fn strike(cluster: &mut Cluster<Self>, victim: usize) -> Option<Moment>;

    /// Nothing goes wrong any more.
    async fn peace(_cluster: &mut Cluster<Self>) {}
}

/// The result of a seed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// What happened.
    pub history: History,
    /// What happened in each store, where there are several.
    pub stores: Vec<History>,
    /// What should not have.
    pub violations: Vec<Violation>,
    /// What happened how often.
    pub tally: Tally,
}

/// Runs `seed`, with `planted` in it if something is.
///
/// # Panics
///
/// When the host gives no memory for a runtime, or the simulation itself is wrong.
pub fn run<D: Deployment>(seed: u64, planted: Option<D::Plant>) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime without I/O needs nothing of the host");
    let mut scenario = Scenario::of_seed(seed);
    let deployment = D::new(&mut scenario, planted);
    let bounds = scenario.bounds();
    let (history, stores, tally) =
        runtime.block_on(async { Cluster::open(scenario, deployment).await.play().await });
    let mut violations = invariants::check_all(&history, &bounds);
    // A session that takes no part in a move adds a base to the store's numbers, and the others do not: tokens of
    // single stores are not compared.
    violations.extend(stores.iter().flat_map(invariants::one_entry::check));
    Report { seed, history, stores, violations, tally }
}
