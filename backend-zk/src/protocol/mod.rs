//! How a lock is taken, when a session can be trusted, and when a lock is given up; pure.
//!
//! [`Contender`] is one acquisition in one session: it says what to ask the server, is told the answers
//! and what happens meanwhile, and ends as held, busy, left or lost. [`Liveness`] says until when the
//! session cannot have ended at the server, [`Holds`] what it holds, and which of that was deleted or is
//! asked for by an administrator, [`Untouched`] which locks nobody else has asked for since. None reads a
//! clock, waits, or draws a number.

mod contender;
mod holds;
mod inbox;
mod liveness;
mod untouched;

pub(crate) use contender::{
    Answer, Ask, Contender, End, Failure, Happening, Mine, Patience, Pause, Said, Step,
};
pub(crate) use holds::{HeldNode, Holds};
use inbox::RevokeRequests;
pub(crate) use inbox::{Writers, with_message};
pub(crate) use liveness::{Liveness, Purpose, Write};
pub(crate) use untouched::Untouched;
