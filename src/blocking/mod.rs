//! The same locks for programs that are not async.
//!
//! Each manager has a thread with a runtime, which renews its leases while the program computes. Every call waits on the
//! thread of its caller. The meaning of a call, its options and its errors are those of the type of the same name in
//! the crate's root.
//!
//! A call inside a tokio runtime is refused as [`ErrorKind::Misuse`]: it would stop the tasks of that runtime. Use
//! [`leasehold::LockManager`](crate::LockManager) there. The threads of tokio's `spawn_blocking` are inside, too: use
//! `std::thread` for blocking calls.
//!
//! # Examples
//!
//! ```
//! use leasehold::blocking;
//!
//! fn main() -> leasehold::Result<()> {
//!     let locks = blocking::connect("memory://?ttl=15s")?;
//!     let guard = locks.lock("invoice/42")?.acquire()?;
//!     guard.ensure_held()?; // by the clock, without a request
//!     guard.release()?;
//!     locks.shutdown()
//! }
//! ```

mod all;
mod lock;
mod manager;

use std::fmt;
use std::future::Future;
use std::sync::{Arc, mpsc};
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

pub use all::{All, AllGuard, all};
pub use lock::{GuardChanges, Lock, LockGuard};
pub use manager::{LockManager, States};

use crate::{Effect, Error, ErrorKind, Result};

/// Opens the store that `url` names; see [`leasehold::connect`](crate::connect).
///
/// # Errors
///
/// As [`leasehold::connect`](crate::connect); [`ErrorKind::Misuse`] inside a tokio runtime; [`ErrorKind::Unavailable`] if no
/// thread can be started.
pub fn connect(url: &str) -> Result<LockManager> {
    LockManager::open(crate::registry().configure(url)?)
}

/// The thread of a manager. It ends after the last value that has this: then it shuts the manager down.
struct Home {
    runtime: Handle,
    /// Dropped with it.
    _stop: oneshot::Sender<()>,
}

impl Home {
    /// Opens a manager on a thread of its own.
    fn start(builder: crate::Builder) -> Result<(crate::LockManager, Arc<Self>)> {
        refuse_inside()?;
        let (opened, answer) = mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let no_thread = |error| {
            Error::not_applied(ErrorKind::Unavailable, "cannot start a thread for the locks")
                .with_source(error)
        };
        let run = move || {
            let runtime = match Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(opened.send(Err(no_thread(error)))),
            };
            runtime.block_on(async {
                let locks = match builder.build().await {
                    Ok(locks) => locks,
                    Err(error) => return drop(opened.send(Err(error))),
                };
                // A caller that has left has dropped the other end of `stopped`, too.
                drop(opened.send(Ok((locks.clone(), Handle::current()))));
                let _dropped: Result<(), _> = stopped.await;
                if let Err(error) = locks.shutdown().await {
                    tracing::warn!(error = ?format!("{error:#}"), "session not closed; it ends with its lease");
                }
            });
        };
        thread::Builder::new().name("leasehold".to_owned()).spawn(run).map_err(no_thread)?;
        let gone =
            |_| Error::new(ErrorKind::Protocol, Effect::Unknown, "the thread of the locks has panicked");
        let (locks, runtime) = answer.recv().map_err(gone)??;
        Ok((locks, Arc::new(Self { runtime, _stop: stop })))
    }

    /// Waits on this thread, while the runtime's own thread serves timers and sockets.
    fn wait<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        refuse_inside()?;
        self.runtime.block_on(work)
    }
}

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Home").finish_non_exhaustive()
    }
}

fn refuse_inside() -> Result<()> {
    match Handle::try_current() {
        Err(_outside) => Ok(()),
        Ok(_inside) => Err(Error::not_applied(
            ErrorKind::Misuse,
            "cannot block inside a tokio runtime, nor in its `spawn_blocking`: use `leasehold::LockManager` and \
             `.await` there, or call `leasehold::blocking` from a thread of `std::thread`",
        )),
    }
}
