//! Requests of administrators. They need no entry.
//!
//! | file | contains |
//! |---|---|
//! | `inspect` | the holders, and the number of waiters |
//! | `revoke` | revoking a lock, with a grace period or by force |
//! | `diagnosis` | findings about the server |
//! | `cluster` | findings about the servers of a cluster |
//! | `failover` | findings about a fail-over, where sentinels watch the server |
//! | `foreign` | findings about locks that other libraries take too, and about one lock |
//! | `token_base` | the number that is added to counters |
//! | `preload` | loading the scripts ahead of their use |

mod cluster;
pub(crate) mod diagnosis;
mod failover;
mod foreign;
pub(crate) mod inspect;
mod preload;
mod revoke;
mod token_base;
