//! One opaque error: what happened ([`ErrorKind`]), whether the store may have acted on it
//! ([`Effect`]), a sentence, and the cause.
//!
//! `Display` does not repeat the cause: whoever reports walks the chain of sources, as `{:#}` does.
//!
//! Contention is not an error: `try_acquire` answers `Ok(None)`. `Unavailable` never means busy.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::words::holder::Holder;
use crate::words::loss::LostReason;

/// The result of this crate's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong; ask [`Error::kind`] and [`Error::effect`].
///
/// A copy shares the cause: one failure may be told to all whom it concerns.
#[derive(Clone)]
pub struct Error(Box<Details>);

#[derive(Clone)]
struct Details {
    kind: ErrorKind,
    effect: Effect,
    message: String,
    context: Vec<(&'static str, String)>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// The kind of an [`Error`]; what a program may decide on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The manager was shut down.
    Closed,
    /// Credentials or rights are missing; waiting does not help.
    Denied,
    /// A lock name outside the rules of [`LockName`](crate::LockName).
    InvalidName,
    /// An option, or a relation between options, that cannot work.
    InvalidOption,
    /// The hold is gone; `reason` says how.
    Lost {
        /// How the hold ended.
        reason: LostReason,
    },
    /// The calling program breaks a rule of this API.
    Misuse,
    /// The store answered what it must never answer.
    Protocol,
    /// The wait ended before the lock was granted; nothing is left in the store.
    Timeout {
        /// How long the caller waited.
        waited: Duration,
        /// The holder as last heard; no request is made for it.
        holder: Option<Holder>,
    },
    /// The store cannot be reached, or did not answer in time.
    Unavailable,
    /// This store does not offer what was asked.
    Unsupported,
}

/// Whether the store may have carried out the failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "the question has two answers")]
pub enum Effect {
    /// The store certainly did nothing.
    NotApplied,
    /// The store may have acted; whatever is not provably unapplied is this.
    Unknown,
}

impl Error {
    /// An error of `kind`; `message` says what happened and what to do.
    pub fn new(kind: ErrorKind, effect: Effect, message: impl Into<String>) -> Self {
        Self(Box::new(Details { kind, effect, message: message.into(), context: Vec::new(), source: None }))
    }

    /// An error of a request that the store certainly did not carry out.
    pub fn not_applied(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self::new(kind, Effect::NotApplied, message)
    }

    /// An option that cannot work; `message` names the value and the rule.
    pub fn invalid_option(message: impl Into<String>) -> Self {
        Self::not_applied(ErrorKind::InvalidOption, message)
    }

    /// The hold ended for `reason`.
    pub fn lost(reason: LostReason) -> Self {
        Self::not_applied(ErrorKind::Lost { reason }, format!("the lock is lost: {reason}"))
    }

    /// Adds the cause. The message says what it means, and does not repeat it.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(Arc::from(source.into()));
        self
    }

    /// Adds a detail that `Display` shows, such as the lock's name. Never a secret.
    #[must_use]
    pub fn with_context(mut self, key: &'static str, value: impl fmt::Display) -> Self {
        self.0.context.push((key, value.to_string()));
        self
    }

    /// The same error, of a request that may have been carried out.
    #[must_use]
    pub fn with_effect(mut self, effect: Effect) -> Self {
        self.0.effect = effect;
        self
    }

    /// What kind of failure this is.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// Whether the store may have acted.
    pub fn effect(&self) -> Effect {
        self.0.effect
    }

    /// How the hold ended, if that is what this error says.
    pub fn lost_reason(&self) -> Option<LostReason> {
        match self.0.kind {
            ErrorKind::Lost { reason } => Some(reason),
            _ => None,
        }
    }
}

/// One line; `{:#}` with its causes.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        for (index, (key, value)) in self.0.context.iter().enumerate() {
            let open = if index == 0 { " (" } else { ", " };
            write!(f, "{open}{key}: {value}")?;
        }
        if !self.0.context.is_empty() {
            f.write_str(")")?;
        }
        if self.0.effect == Effect::Unknown {
            f.write_str("; the store may have carried it out")?;
        }
        let mut cause = self.source().filter(|_| f.alternate());
        let mut told = String::new();
        while let Some(next) = cause {
            let text = next.to_string();
            // Errors of others may repeat what is below them.
            if text != told {
                write!(f, ": {text}")?;
            }
            told = text;
            cause = next.source();
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("effect", &self.0.effect)
            .field("message", &self.0.message)
            .field("context", &self.0.context)
            .field("source", &self.0.source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One line says what, where and whether it may have happened all the same.
    #[test]
    fn display_is_one_line_with_context_and_effect() {
        let error = Error::new(ErrorKind::Unavailable, Effect::Unknown, "no answer within 2s")
            .with_context("lock", "invoice/42")
            .with_context("store", "memory");
        assert_eq!(
            error.to_string(),
            "no answer within 2s (lock: invoice/42, store: memory); the store may have carried it out"
        );
    }

    /// The cause stays reachable.
    #[test]
    fn source_is_wired() {
        let error = Error::not_applied(ErrorKind::Unavailable, "cannot connect")
            .with_source(std::io::Error::other("refused"));
        assert_eq!(error.source().unwrap().to_string(), "refused");
        assert_eq!(error.clone().source().unwrap().to_string(), "refused");
        assert_eq!(error.to_string(), "cannot connect");
        let outer = Error::not_applied(ErrorKind::Unavailable, "not opened").with_source(error);
        assert_eq!(format!("{outer:#}"), "not opened: cannot connect: refused");
    }

    /// An error is one pointer wide, so results stay small.
    #[test]
    fn errors_are_one_pointer_wide() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
    }
}
