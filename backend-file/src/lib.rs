//! The file store of `leasehold`: locks between the processes of one host, with no server.
//!
//! A directory with one file per name. The holder has the file locked, so the kernel frees it when
//! the process dies; the file counts the grants, durably, so that tokens grow across restarts. There
//! is no lease: a lock is held while its process lives, however long that is stopped.
//!
//! | file | says |
//! |---|---|
//! | `config` | which directory, and its URL |
//! | `backend` | the contract |
//! | `session` | what one manager holds, how it acquires it, and what it notices |
//! | `protocol` | what is written in which order; pure |
//! | `keys`, `record` | names of files, and bytes in them; pure |
//! | `error` | what system errors mean |
//! | `directory` | the files on the disk |
//! | `waiter` | waiting in the kernel |
//! | `admin` | what administrators see and request |
//!
//! Not promised: order among waiters, and exclusion of other hosts; see `docs/file.md`.

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
