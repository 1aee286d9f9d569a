//! The kit that proves a store of `leasehold`: it checks the contract of a store, case
//! by case, by name.
//!
//! Implement [`Subject`] and run it, from a test target with `harness = false` ([`main`]) or from
//! any test ([`check`]):
//!
//! ```
//! use std::time::Duration;
//! use leasehold_conformance::{Pace, Subject};
//! use leasehold_core::{backend::StoreConfig, memory::MemoryConfig};
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
//! leasehold_conformance::main([Box::new(MyStore)]);
//! # }
//! ```
//!
//! | part | where |
//! |---|---|
//! | what is under test, and in which time | [`Subject`], [`Pace`] |
//! | the cases, by guarantee | [`cases`], [`Case`] |
//! | what a case works with | [`World`], [`Session`], [`HostClock`], [`Task`] |
//! | what is put between core and store | [`layer`], [`Network`], [`RequestCounts`], [`entry_rule`], [`store_log`] |
//! | what a network does, by a plan or at random | [`network`] |
//! | what happened, and what must be true of it | [`history`], [`invariants`] |
//! | the core under thousands of seeds of faults | [`simulation`] |
//! | proof that the cases catch what they must | [`bugs`] |
//! | what errors say | [`words`] |

pub mod bugs;
pub mod history;
pub mod invariants;
pub mod layer;
pub mod network;
pub mod simulation;
pub mod words;

mod cancel;
mod case;
mod cases;
mod dice;
mod entry_rule;
mod failure;
mod host;
mod refusals;
mod report;
mod request_counts;
mod runner;
mod session;
mod store_log;
mod subject;
mod switch;
mod task;
mod world;

pub use case::{Case, ENVIRONMENTAL, cases};
pub use dice::Dice;
pub use entry_rule::entry_rule;
pub use failure::{Failure, Outcome};
pub use host::HostClock;
pub use network::Network;
pub use report::Report;
pub use request_counts::{Counts, RequestCounts};
pub use runner::{Suite, check, main};
pub use session::{Session, dead_holder, dead_waiter};
pub use store_log::store_log;
pub use subject::{MemorySubject, Pace, Subject};
pub use task::Task;
pub use world::World;
