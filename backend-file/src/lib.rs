//! The file store of `leasehold`: locks between the processes of one host, with no server.
//!
//! A directory with one file per name. The holder has the file locked, so the kernel frees it when
//! the process dies; the file counts the grants, durably, so that tokens grow across restarts. There
//! is no lease: a lock is held while its process lives, however long that is stopped.
//!
//! | file | contains |
//! |---|---|
//! | `config` | which directory, and its URL |
//! | `backend` | the contract |
//! | `session` | the holds of one manager, how it acquires them, and its checks |
//! | `protocol` | the order of writes; pure |
//! | `keys`, `record` | names of files, and bytes in them; pure |
//! | `error` | the meaning of system errors |
//! | `directory` | the files on the disk |
//! | `waiter` | waiting in the kernel |
//! | `admin` | inspection, revocation and diagnosis for administrators |
//!
//! Not promised: order among waiters, and exclusion of other hosts; see `docs/src/file.md`.

mod admin;
mod backend;
mod config;
mod directory;
mod error;
mod keys;
mod protocol;
mod record;
mod session;
mod waiter;

pub use config::FileConfig;
#[doc(hidden)]
pub use directory::untrusted_path;
