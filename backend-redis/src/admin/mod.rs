//! What administrators see and ask for; no entry of ours is needed for it.
//!
//! | file | says |
//! |---|---|
//! | `inspect` | who holds, and how many wait |
//! | `revoke` | asking a holder to let go, and taking the lock from it |
//! | `diagnosis` | what an administrator should know of the server |
//! | `sharing` | the same of locks that other libraries take too, and of one lock |
//! | `token_base` | what is added to counters |
//! | `preload` | loading the scripts ahead of their use |

pub(crate) mod diagnosis;
pub(crate) mod inspect;
mod preload;
mod revoke;
mod sharing;
mod token_base;
