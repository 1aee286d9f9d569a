//! Processes that contend, as the comparison drives them.

mod kept;
mod team;
mod worker;

pub(crate) use kept::Kept;
pub(crate) use team::{Outcome, Shape, Team};
pub(crate) use worker::{Effort, Grant, Worker};
