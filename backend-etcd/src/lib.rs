//! The etcd store of `leasehold`: locks in an etcd cluster.
//!
//! A lock is a queue of keys in the order of their creation. The oldest holds, and so do the next ones that may hold at the
//! same time. A session is one lease, to which every key is attached. A waiter has its watches before it sends its request, so
//! a release reaches the next one in the time of a message: two requests per cycle, and one or two more behind many others. The
//! keys are those of other clients' lock recipe, so a plain name is one lock with theirs.
//!
//! | file | contains |
//! |---|---|
//! | `config` | which cluster, and its URL |
//! | `backend` | the contract |
//! | `session` | the holds of one manager, and how it acquires them |
//! | `protocol` | how an entry becomes a hold, and how it is removed; pure |
//! | `keys` | names of keys, and their values; pure |
//! | `error` | the meaning of errors |
//! | `connection` | the way to the cluster |
//! | `watch` | one stream for all watches |
//! | `admin` | inspection, revocation and diagnosis for administrators |
//!
//! Not promised: that a server never ends a lease early. Fencing still holds then, and the guard is notified within
//! milliseconds; see `docs/src/etcd.md`.

mod admin;
mod backend;
mod certificates;
mod config;
mod connection;
mod error;
#[cfg(test)]
mod fuzz;
mod keys;
mod protocol;
mod session;
mod watch;

pub use config::EtcdConfig;
