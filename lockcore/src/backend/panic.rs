//! Panics in foreign code: a store's, or a waker's.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::words::error::{Effect, Error, ErrorKind};

/// The cause of an error that was a panic.
#[derive(Debug)]
pub(crate) struct Panicked(String);

impl Panicked {
    pub(crate) fn new(panic: &(dyn Any + Send)) -> Self {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message");
        Self(said.to_owned())
    }

    pub(crate) fn into_error(self) -> Error {
        Error::new(ErrorKind::Protocol, Effect::Unknown, "the store's code panicked").with_source(self)
    }
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Panicked {}

/// Calls wakers of others; `None` if one of them panics. Such a panic must not reach the caller or the next waker.
pub(crate) fn waking<T>(wake: impl FnOnce() -> T) -> Option<T> {
    let woken = catch_unwind(AssertUnwindSafe(wake));
    woken.map_err(|panic| tracing::warn!(error = ?Panicked::new(&*panic), "a waker panicked")).ok()
}
