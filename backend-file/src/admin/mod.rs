//! Inspection, revocation and diagnosis for administrators; it needs no hold.
//!
//! | file | contains |
//! |---|---|
//! | `inspect` | the holder of a lock, and the number of its waiters |
//! | `revoke` | requesting a release, and removing a lock from its holder |
//! | `diagnosis` | findings about a directory |
//! | `token_base` | the number that is added to counters |
//! | `sweep` | removing unused files |

mod diagnosis;
mod inspect;
mod revoke;
mod sweep;
mod token_base;
