//! How a lock is acquired, until when a session is certain, and when a hold is revoked; pure.
//!
//! [`Contender`] is one acquisition in one session. It names the requests, takes the answers and other events, and ends as
//! held, busy, left or lost. [`Liveness`] computes until when the session cannot have ended at the server. [`Holds`] has the
//! holds of a session, with the deleted ones, and the ones whose revocation is requested. [`Untouched`] has the locks that no
//! other client has entered since. None of them reads a clock, waits, or draws a number.

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
