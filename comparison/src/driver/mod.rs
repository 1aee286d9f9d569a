//! Processes that contend, as the comparison drives them.

mod team;
mod worker;

pub(crate) use team::{Effort, Shape, Team};
pub(crate) use worker::Worker;
