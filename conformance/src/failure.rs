//! Why a case failed: a sentence, and where.

use std::fmt;
use std::panic::Location;

/// What a case comes to.
pub type Outcome<T = ()> = Result<T, Failure>;

/// A property that did not hold, or an operation that failed where it must not.
#[derive(Debug)]
pub struct Failure {
    message: String,
    at: &'static Location<'static>,
}

impl Failure {
    /// A failure found at the caller's line.
    #[track_caller]
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), at: Location::caller() }
    }

    /// What did not hold.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}:{})", self.message, self.at.file(), self.at.line())
    }
}

impl std::error::Error for Failure {}

impl From<leasehold_core::Error> for Failure {
    #[track_caller]
    fn from(error: leasehold_core::Error) -> Self {
        Self::new(format!("{error:#}"))
    }
}

/// Leaves the case with a [`Failure`] unless the condition holds.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::Failure::new(format!($($message)+)));
        }
    };
}
