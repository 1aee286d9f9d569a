//! Inspection, revocation and diagnosis for administrators; it needs no entry in a queue.
//!
//! | file | contains |
//! |---|---|
//! | `inspect` | the holders of locks, and the number of waiters |
//! | `revoke` | requesting a release, and removing a holder's entry |
//! | `diagnosis` | settings of the server that break promises, rights, what slows locks down |
//! | `token_base` | the number that is added to counters |

pub(crate) mod diagnosis;
mod inspect;
mod revoke;
mod token_base;
