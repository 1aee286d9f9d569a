//! Moves the locks of `leasehold` from one store to another while they are in use.
//!
//! | part | says |
//! |---|---|
//! | `admin` | how far a move is; a step forth or back; the remedies |
//! | `protocol` | what a process may do in each phase of a move, and what an administrator writes next; pure |

mod admin;
#[cfg_attr(not(test), expect(dead_code, reason = "the pure parts stand before the sessions that use them"))]
mod protocol;

pub use admin::{Admin, MemberStatus, Progress, RecordStatus, Status, Steps, StoreStatus};
