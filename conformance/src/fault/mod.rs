//! What a network and a careless server do to a store, on purpose and by seed; and the wrappers
//! that watch.
//!
//! A test opens its store through [`FaultConfig`] and steers it with [`Faults`]. [`store_log`](crate::store_log)
//! sits between the two and writes down what the store really did; [`entry_rule`](crate::entry_rule) sits above and
//! writes down how the core used the contract. From the core downwards:
//!
//! ```text
//! core → entry_rule → FaultConfig → store_log → the store
//! ```
//!
//! Everything runs on the [`Env`](lockcore::Env) of the manager and draws from [`Dice`](crate::Dice), so a run
//! under tokio's paused time repeats exactly.

mod backend;
mod flight;
mod plan;
mod switch;

pub use backend::FaultConfig;
pub use plan::{Fault, Faults, Operation, Rates};
pub(crate) use switch::Switch;

#[cfg(test)]
mod tests;
