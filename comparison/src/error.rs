//! Why a part of the comparison could not be done.

use std::error::Error as StdError;
use std::fmt;

/// What could not be done, and why. A part that fails is left out and said to be; only what makes
/// the whole useless ends it.
#[derive(Debug)]
pub(crate) struct Error {
    what: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), source: None }
    }

    /// For `map_err`: what was being done when `source` came.
    pub(crate) fn during<E>(what: impl Into<String>) -> impl FnOnce(E) -> Self
    where
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        move |source| Self { what: what.into(), source: Some(source.into()) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}
