//! What administrators see and ask for; no entry of ours is needed for it.
//!
//! | file | says |
//! |---|---|
//! | `inspect` | who holds, and how many wait |
//! | `revoke` | asking a holder to let go, and taking the lock from it |
//! | `diagnosis` | what an administrator should know of the servers |

mod diagnosis;
mod inspect;
mod revoke;
