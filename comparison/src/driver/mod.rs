//! Processes that contend, as the comparison drives them.

mod team;
mod worker;

pub(crate) use team::{Outcome, Shape, Team};
pub(crate) use worker::{Effort, Grant, Worker};
