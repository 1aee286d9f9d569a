//! What administrators see and ask for; no entry of ours is needed for it.
//!
//! | file | says |
//! |---|---|
//! | `inspect` | who holds, and how many wait |
//! | `revoke` | asking a holder to let go, and taking its entry away |
//! | `diagnosis` | versions and their bugs, members, alarms, rights |
//! | `token_base` | what is added to counters |

pub(crate) mod diagnosis;
mod inspect;
mod revoke;
mod token_base;
