//! One opaque error: what happened ([`ErrorKind`]), whether the store may have acted on it ([`Effect`]), a message, and the
//! cause.
//!
//! `Display` does not repeat the cause: a reporter walks the chain of sources, as `{:#}` does.
//!
//! Contention is not an error: `try_acquire` returns `Ok(None)`. `Unavailable` never means busy.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::words::holder::Holder;
use crate::words::loss::LostReason;

/// The result of this crate's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of this crate; see [`Error::kind`] and [`Error::effect`].
///
/// `kind` is for decisions, `Display` for logs: it names the server and the holder, which are not for clients of a service.
///
/// A clone shares the cause, so that several callers may get one failure.
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

/// The kind of an [`Error`], for decisions of a program, such as the status of an answer to a client.
///
/// The `Display` of an error is for logs: it names servers, locks and holders. Do not send it to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The manager was shut down.
    Closed,
    /// Credentials or rights are missing; waiting does not help.
    Denied,
    /// A lock name breaks a rule of [`LockName`](crate::LockName).
    InvalidName,
    /// An option, or a combination of options, is invalid.
    InvalidOption,
    /// The lock is lost.
    Lost {
        /// Why it is lost.
        reason: LostReason,
    },
    /// The calling program breaks a rule of this API.
    Misuse,
    /// The store sent an invalid reply.
    Protocol,
    /// The wait ended before the lock was granted; nothing is left in the store.
    Timeout {
        /// How long the caller waited.
        waited: Duration,
        /// The last known holder; no request is made for it.
        holder: Option<Holder>,
    },
    /// The store cannot be reached, or did not answer in time.
    Unavailable,
    /// This store does not support the request.
    Unsupported,
}

/// Whether the store may have carried out the failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "the question has two answers")]
pub enum Effect {
    /// The store certainly did nothing.
    NotApplied,
    /// The store may have acted: the opposite is not proven.
    Unknown,
}

impl Error {
    /// Creates an error of `kind`; `message` says what failed and what to do.
    pub fn new(kind: ErrorKind, effect: Effect, message: impl Into<String>) -> Self {
        Self(Box::new(Details { kind, effect, message: message.into(), context: Vec::new(), source: None }))
    }

    /// Creates an error of a request that the store certainly did not carry out.
    pub fn not_applied(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self::new(kind, Effect::NotApplied, message)
    }

    /// Creates the error of an invalid option; `message` names the value and the rule.
    pub fn invalid_option(message: impl Into<String>) -> Self {
        Self::not_applied(ErrorKind::InvalidOption, message)
    }

    /// Creates the error of a lock that was lost for `reason`.
    pub fn lost(reason: LostReason) -> Self {
        Self::not_applied(ErrorKind::Lost { reason }, format!("the lock is lost: {reason}"))
    }

    /// Adds the cause. The message does not repeat it.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(Arc::from(source.into()));
        self
    }

    /// Adds a detail that `Display` shows, such as the lock's name, never a secret. A detail with this key, also
    /// of the cause, stays: it was added closer to the failure.
    #[must_use]
    pub fn with_context(mut self, key: &'static str, value: impl fmt::Display) -> Self {
        if self.context(key).is_none() {
            self.0.context.push((key, value.to_string()));
        }
        self
    }

    /// Replaces the kind.
    #[must_use]
    pub fn with_kind(mut self, kind: ErrorKind) -> Self {
        self.0.kind = kind;
        self
    }

    /// Replaces the effect.
    #[must_use]
    pub fn with_effect(mut self, effect: Effect) -> Self {
        self.0.effect = effect;
        self
    }

    /// Returns the kind of the failure.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// Returns whether the store may have acted.
    pub fn effect(&self) -> Effect {
        self.0.effect
    }

    /// Returns the detail `key`, such as `lock`, of this error or else of its cause.
    pub fn context(&self, key: &str) -> Option<&str> {
        let own = self.0.context.iter().find(|(known, _)| *known == key);
        own.map(|(_, value)| &**value).or_else(|| {
            let cause = self.source()?.downcast_ref::<Self>()?;
            cause.context(key)
        })
    }

    /// The message with its details; neither effect nor cause.
    fn sentence(&self) -> String {
        let details: Vec<_> = self.0.context.iter().map(|(key, value)| format!("{key}: {value}")).collect();
        if details.is_empty() {
            return self.0.message.clone();
        }
        format!("{} ({})", self.0.message, details.join(", "))
    }

    /// Returns why the lock was lost, if the kind is [`ErrorKind::Lost`].
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
        let mut told = self.sentence();
        let mut cause = self.source().filter(|_| f.alternate());
        while let Some(next) = cause {
            let text = next.downcast_ref::<Self>().map_or_else(|| next.to_string(), Self::sentence);
            // Errors of other crates may repeat their cause.
            if !told.contains(&text) {
                told = format!("{told}: {text}");
            }
            cause = next.source();
        }
        f.write_str(&told)?;
        match self.0.effect {
            Effect::Unknown => f.write_str("; the store may have carried it out"),
            Effect::NotApplied => Ok(()),
        }
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

    /// The detail that was added closest to the failure counts, and no text is repeated, also not by the error of
    /// another crate that shows its cause.
    #[test]
    fn nothing_is_told_twice() {
        let refused = || std::io::Error::other("refused");
        let inner = Error::new(ErrorKind::Unavailable, Effect::Unknown, "no answer")
            .with_context("server", "h1:1")
            .with_context("server", "h1:1,h2:2")
            .with_source(std::io::Error::other(Layer(refused())));
        assert_eq!(inner.to_string(), "no answer (server: h1:1); the store may have carried it out");
        let outer = Error::new(ErrorKind::Unavailable, Effect::Unknown, "not granted")
            .with_source(inner)
            .with_context("server", "h1:1,h2:2")
            .with_context("lock", "a");
        assert_eq!(
            format!("{outer:#}"),
            "not granted (lock: a): no answer (server: h1:1): below it: refused; the store may have carried it out"
        );
    }

    /// A detail is found by its key; the one that was added closest to the failure counts.
    #[test]
    fn details_are_found_by_their_key() {
        let inner = Error::not_applied(ErrorKind::Unavailable, "no answer").with_context("server", "h1:1");
        let outer = Error::not_applied(ErrorKind::Unavailable, "not granted").with_context("lock", "a");
        assert_eq!((outer.context("lock"), outer.context("server")), (Some("a"), None));
        let outer = outer.with_source(inner);
        assert_eq!((outer.context("server"), outer.context("option")), (Some("h1:1"), None));
    }

    /// An error that shows its cause, as those of others do.
    #[derive(Debug)]
    struct Layer(std::io::Error);

    impl fmt::Display for Layer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "below it: {}", self.0)
        }
    }

    impl StdError for Layer {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            Some(&self.0)
        }
    }

    /// An error is one pointer wide, so results stay small.
    #[test]
    fn errors_are_one_pointer_wide() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
    }
}
