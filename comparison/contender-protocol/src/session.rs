//! What a library has to offer to be compared.

use std::fmt::{self, Debug, Display};
use std::future::Future;
use std::time::Duration;

use crate::mode::Mode;

/// A library, as one participant of its store: a connection, a client, a manager. Any number of tasks
/// may share it.
pub trait Session: Sized + Send + Sync + 'static {
    /// A lock that is not held.
    type Lock: Send + Sync;
    /// A lock that is.
    type Held: Send;

    /// The library's version, for the report.
    const VERSION: &'static str;

    /// Opens a session of its own on the stores at `urls`, with leases of `ttl`.
    fn open(urls: &[String], ttl: Duration) -> impl Future<Output = Result<Self, Failure>> + Send;

    /// Prepares the lock called `name`; not part of what is timed.
    fn lock(&self, name: &str) -> impl Future<Output = Result<Self::Lock, Failure>> + Send;

    /// The same of a lock that is held in `mode`, of a library that has such.
    fn lock_as(&self, name: &str, mode: Mode) -> impl Future<Output = Result<Self::Lock, Failure>> + Send {
        async move {
            match mode {
                Mode::EXCLUSIVE => self.lock(name).await,
                mode => Err(Failure::new(format!("it has no lock that is {mode}"))),
            }
        }
    }

    /// Waits for the lock and takes it.
    fn acquire(&self, lock: &Self::Lock) -> impl Future<Output = Result<Self::Held, Failure>> + Send;

    /// Takes the lock if nobody else holds it.
    fn try_acquire(
        &self,
        _lock: &Self::Lock,
    ) -> impl Future<Output = Result<Option<Self::Held>, Failure>> + Send {
        async { Err(Failure::new("it cannot try")) }
    }

    /// Gives the lease its whole length again, where that is the user's business.
    fn extend(&self, _held: &mut Self::Held) -> impl Future<Output = Result<(), Failure>> + Send {
        async { Err(Failure::new("it is not extended by hand")) }
    }

    /// The fencing token, of a library that has such.
    fn token(_held: &Self::Held) -> Option<u64> {
        None
    }

    /// Lets the lock go, and returns when the store has confirmed it.
    fn release(&self, held: Self::Held) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Lets go once more what [`release`](Self::release) has let go last, where that can be said.
    fn release_again(&self) -> impl Future<Output = Result<(), Failure>> + Send {
        async { Err(Failure::new("a release takes what was held, so a second one cannot be written")) }
    }
}

/// What went wrong, as the library says it.
#[derive(Clone, Debug)]
pub struct Failure(String);

impl Failure {
    /// For what has no error of its own.
    pub fn new(said: impl Into<String>) -> Self {
        Self(said.into())
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An answer is one line.
        f.write_str(&self.0.replace(['\n', '\r'], " "))
    }
}
