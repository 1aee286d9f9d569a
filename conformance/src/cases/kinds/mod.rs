//! The guarantees of locks that several may hold: shared ones and permits.

pub(super) mod cancellation;
pub(super) mod exclusion;
pub(super) mod fencing;
pub(super) mod liveness;
pub(super) mod names;
pub(super) mod order;
pub(super) mod ownership;
pub(super) mod told_in_time;
pub(super) mod trying;

use leasehold_core::{Lock, LockManager, Mode};

use crate::failure::Outcome;

/// The lock that every case is about.
const NAME: &str = "a";

fn some(weight: u32, capacity: u32) -> Outcome<Mode> {
    Ok(Mode::permits(weight, capacity)?)
}

/// A process's readers.
fn reader(manager: &LockManager) -> Outcome<Lock> {
    Ok(manager.lock(NAME)?.shared())
}

fn writer(manager: &LockManager) -> Outcome<Lock> {
    Ok(manager.lock(NAME)?)
}
