//! Inspection, revocation and diagnosis for administrators; it needs no entry in a queue.
//!
//! | file | contains |
//! |---|---|
//! | `inspect` | the holders of a lock, and the number of its waiters |
//! | `revoke` | requesting a release, and deleting a holder's entry |
//! | `diagnosis` | versions and their bugs, members, alarms, rights |
//! | `token_base` | the number that is added to counters |

pub(crate) mod diagnosis;
mod inspect;
mod revoke;
mod token_base;
