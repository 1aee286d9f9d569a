//! A program that contends for locks as it is told by lines on its standard input.
//!
//! A [`Session`] says how to open it, take a lock and let it go; [`run`] makes a program of it that speaks
//! the protocol of `comparison/peers/README.md`. What is measured is the same for every
//! implementation because it happens here: four readings of one clock per cycle, kept in memory and
//! written to a journal after the run.
//!
//! | part | where |
//! |---|---|
//! | what a library provides | [`Session`] |
//! | the lines | `program` |
//! | cycles under contention | `contest`, `journal` |
//! | who wants a lock alone, and who among others | [`Mode`], [`Draw`] |
//! | names that come and go | `churn` |
//! | the clock that all processes share | [`now`] |
//!
//! Contenders are tasks of the runtime that [`run`] is called on; all else is done by the caller's thread.

mod churn;
mod clock;
mod contest;
mod journal;
mod mode;
mod program;
mod session;

pub use clock::now;
pub use journal::Cycle;
pub use mode::{Draw, Mode, mixed};
pub use program::{ON_THREADS, run, runtime};
pub use session::{Failure, Session};
