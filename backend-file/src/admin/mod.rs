//! What administrators see and request; it needs no hold.
//!
//! | file | says |
//! |---|---|
//! | `inspect` | the holder of a lock, and the number of its waiters |
//! | `revoke` | requesting a release, and removing a lock from its holder |
//! | `diagnosis` | what an administrator should know of a directory |
//! | `token_base` | what is added to counters |
//! | `sweep` | removing unused files |

mod diagnosis;
mod inspect;
mod revoke;
mod sweep;
mod token_base;
