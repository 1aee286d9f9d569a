//! What administrators see and ask for; nothing need be held for it.
//!
//! | file | says |
//! |---|---|
//! | `inspect` | who holds, and how many wait |
//! | `revoke` | asking a holder to let go, and taking the lock from it |
//! | `diagnosis` | what an administrator should know of a directory |
//! | `token_base` | what is added to counters |
//! | `sweep` | removing what nobody uses |

mod diagnosis;
mod inspect;
mod revoke;
mod sweep;
mod token_base;
