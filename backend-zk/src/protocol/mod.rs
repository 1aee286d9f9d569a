//! How a lock is taken, and when a session can be trusted; pure.
//!
//! [`Claim`] is one acquisition in one session: it says what to ask the server, is told the answers
//! and what happens meanwhile, and ends as held, busy, left or lost. [`Liveness`] says until when the
//! session cannot have ended at the server. Neither reads a clock, waits, or draws a number.

mod claim;
mod liveness;

pub(crate) use claim::{Answer, Ask, Claim, End, Failure, Happening, Mine, Owned, Pause, Step};
pub(crate) use liveness::{Liveness, Purpose, Write};
