//! The kit that proves a store of `leasehold`: whoever writes one gets its contract checked, case
//! by case, by name.
//!
//! Implement [`Subject`] and run it, from a test target with `harness = false` ([`main`]) or from
//! any test ([`check`]):
//!
//! ```
//! use std::time::Duration;
//! use conformance::{Pace, Subject};
//! use lockcore::{backend::StoreConfig, memory::MemoryConfig};
//!
//! #[derive(Debug)]
//! struct MyStore;
//!
//! impl Subject for MyStore {
//!     fn name(&self) -> &str {
//!         "mine"
//!     }
//!
//!     fn pace(&self) -> Pace {
//!         Pace::Real { ttl: Duration::from_secs(2) }
//!     }
//!
//!     fn config(&self, namespace: &str) -> Box<dyn StoreConfig> {
//!         Box::new(MemoryConfig::shared(namespace))
//!     }
//! }
//!
//! # fn all() {
//! conformance::main([Box::new(MyStore)]);
//! # }
//! ```
//!
//! | part | where |
//! |---|---|
//! | what is under test, and in which time | [`Subject`], [`Pace`] |
//! | the cases, by guarantee | [`cases`], [`Case`] |
//! | what a case works with | [`World`], [`Session`], [`HostClock`], [`Task`] |
//! | what is put between core and store | [`layer`], [`Network`], [`Tally`], [`Audit`] |
//! | faults at random, or as told | [`fault`] |
//! | what happened, and what must be true of it | [`history`], [`invariants`] |
//! | the core under thousands of seeds of faults | [`simulation`] |
//! | proof that the cases catch what they must | [`mutants`] |
//! | what errors say | [`words`] |

pub mod fault;
pub mod history;
pub mod invariants;
pub mod layer;
pub mod mutants;
pub mod simulation;
pub mod words;

mod audit;
mod cancel;
mod case;
mod cases;
mod dice;
mod failure;
mod host;
mod network;
mod refusals;
mod report;
mod runner;
mod session;
mod subject;
mod tally;
mod task;
mod world;

pub use audit::Audit;
pub use case::{Case, ENVIRONMENTAL, cases};
pub use dice::Dice;
pub use failure::{Failure, Outcome};
pub use host::HostClock;
pub use network::{Loss, Network, Request};
pub use report::Report;
pub use runner::{Suite, check, main};
pub use session::{Session, dead_holder, dead_waiter};
pub use subject::{MemorySubject, Pace, Subject};
pub use tally::{Counts, Tally};
pub use task::Task;
pub use world::World;
