//! The failure of a command: its exit code and its message.

use std::error::Error as StdError;
use std::fmt;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use leasehold::backend::Holder;
use leasehold::{Effect, Error, ErrorKind};
use serde::Serialize;

use crate::output;

/// An exit code; those of `sysexits.h` where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit(pub(crate) u8);

impl Exit {
    pub(crate) const SUCCESS: Self = Self(0);
    /// A question was answered with no.
    pub(crate) const NO: Self = Self(1);
    pub(crate) const USAGE: Self = Self(64);
    pub(crate) const UNAVAILABLE: Self = Self(69);
    pub(crate) const SOFTWARE: Self = Self(70);
    pub(crate) const SYSTEM: Self = Self(71);
    pub(crate) const BUSY: Self = Self(75);
    pub(crate) const LOST: Self = Self(76);
    pub(crate) const DENIED: Self = Self(77);
    /// The command was found and cannot be run, as in shells.
    pub(crate) const NOT_EXECUTABLE: Self = Self(126);
    pub(crate) const NOT_FOUND: Self = Self(127);

    /// A signal has ended the process, as in shells.
    pub(crate) fn of_signal(signal: i32) -> Self {
        Self(u8::try_from(128 + signal).unwrap_or(u8::MAX))
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.0)
    }
}

/// Why a command failed; small, as results carry it.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct Failure(Box<Details>);

#[derive(Debug, Serialize)]
struct Details {
    kind: &'static str,
    message: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    causes: Vec<String>,
    /// Whether the store may have carried out the failed request.
    #[serde(skip_serializing_if = "Option::is_none")]
    effect: Option<&'static str>,
    /// The holder of a busy lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<output::Holder>,
    exit_code: u8,
}

impl Failure {
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new("usage", message, Exit::USAGE)
    }

    /// The operating system refused something.
    pub(crate) fn system(doing: impl fmt::Display, error: impl StdError) -> Self {
        let mut failure = Self::new("system", doing.to_string(), Exit::SYSTEM);
        failure.0.causes.push(error.to_string());
        failure
    }

    /// A command that could not be started.
    pub(crate) fn not_started(doing: String, error: &io::Error, exit: Exit) -> Self {
        let mut failure = Self::new("command", doing, exit);
        failure.0.causes.push(error.to_string());
        failure
    }

    /// A file that was named cannot be read.
    pub(crate) fn unreadable(file: &Path, error: &io::Error) -> Self {
        let mut failure = Self::usage(format!("cannot read {}", file.display()));
        failure.0.causes.push(error.to_string());
        failure
    }

    /// The command was stopped because its time had passed.
    pub(crate) fn max_hold(name: &str, allowed: Duration) -> Self {
        let allowed = humantime::format_duration(allowed);
        Self::new(
            "max_hold",
            format!("the lock {name:?} was held for {allowed}, the limit of `--max-hold`"),
            Exit::LOST,
        )
    }

    pub(crate) fn lost(message: impl Into<String>) -> Self {
        Self::new("lost", message, Exit::LOST)
    }

    pub(crate) fn busy(name: &str, holder: Option<&Holder>, exit: Option<u8>) -> Self {
        let who = holder.map_or_else(|| "an unknown holder".to_owned(), output::who);
        let message = format!("{name:?} is held by {who}");
        let mut failure = Self::new("busy", message, exit.map_or(Exit::BUSY, Exit));
        failure.0.holder = holder.map(output::Holder::from);
        failure
    }

    /// The same, with its causes; no text is repeated.
    pub(crate) fn because_of(mut self, error: &Error) -> Self {
        let mut cause = error.source();
        while let Some(next) = cause {
            let text = next.to_string();
            let said = [&self.0.message].into_iter().chain(&self.0.causes).any(|said| said.contains(&text));
            if !said {
                self.0.causes.push(text);
            }
            cause = next.source();
        }
        self
    }

    /// Other sessions must end first.
    pub(crate) fn in_use(message: String) -> Self {
        Self::new("in_use", message, Exit::BUSY)
    }

    /// Other processes or stores block the request for now.
    #[cfg(feature = "migrate")]
    pub(crate) fn blocked(message: String) -> Self {
        Self::new("blocked", message, Exit::BUSY)
    }

    /// A signal came while there was nothing to lose yet.
    pub(crate) fn interrupted(signal: i32) -> Self {
        Self::new("interrupted", format!("ended by signal {signal}"), Exit::of_signal(signal))
    }

    fn new(kind: &'static str, message: impl Into<String>, exit: Exit) -> Self {
        let message = message.into();
        let details =
            Details { kind, message, causes: Vec::new(), effect: None, holder: None, exit_code: exit.0 };
        Self(Box::new(details))
    }

    pub(crate) fn exit(&self) -> Exit {
        Exit(self.0.exit_code)
    }

    pub(crate) fn message(&self) -> &str {
        &self.0.message
    }

    /// Writes it to standard error, and returns the exit code. Cron would send a conflict by mail that `-E 0` makes a success.
    pub(crate) fn report(&self, json: bool) -> Exit {
        if json {
            output::complain(&output::line_of_json(&serde_json::json!({ "error": self })));
        } else if self.exit() != Exit::SUCCESS || io::stderr().is_terminal() {
            output::complain(&self.to_string());
        }
        self.exit()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            let all: Vec<_> =
                [&self.0.message].into_iter().chain(&self.0.causes).map(String::as_str).collect();
            return f.write_str(&output::safe(&all.join(": ")));
        }
        write!(f, "leasehold: {}", output::safe(&self.0.message))?;
        for cause in &self.0.causes {
            write!(f, "\n  because: {}", output::safe(cause))?;
        }
        Ok(())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let (kind, exit) = meaning(error.kind());
        let mut failure = Self::new(kind, error.to_string(), exit);
        failure.0.effect = Some(match error.effect() {
            Effect::NotApplied => "not_applied",
            Effect::Unknown => "unknown",
        });
        failure.because_of(&error)
    }
}

fn meaning(kind: &ErrorKind) -> (&'static str, Exit) {
    match kind {
        ErrorKind::Timeout { .. } => ("busy", Exit::BUSY),
        ErrorKind::Lost { .. } => ("lost", Exit::LOST),
        ErrorKind::Unavailable => ("unavailable", Exit::UNAVAILABLE),
        ErrorKind::Denied => ("denied", Exit::DENIED),
        ErrorKind::InvalidName => ("invalid_name", Exit::USAGE),
        ErrorKind::InvalidOption => ("invalid_option", Exit::USAGE),
        ErrorKind::Unsupported => ("unsupported", Exit::USAGE),
        // Of a command that is a URL which the namespace does not admit.
        ErrorKind::Misuse => ("usage", Exit::USAGE),
        ErrorKind::Protocol => ("protocol", Exit::SOFTWARE),
        ErrorKind::Closed => ("closed", Exit::SOFTWARE),
        _ => ("internal", Exit::SOFTWARE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold::LostReason;

    /// Every kind of error has the code that is documented.
    #[test]
    fn exit_codes_follow_the_kind() {
        let code = |kind| Failure::from(Error::not_applied(kind, "x")).exit().0;
        let waited = Duration::ZERO;
        assert_eq!(code(ErrorKind::Timeout { waited, holder: None }), 75);
        assert_eq!(code(ErrorKind::Lost { reason: LostReason::Gone }), 76);
        assert_eq!(code(ErrorKind::Unavailable), 69);
        assert_eq!(code(ErrorKind::Denied), 77);
        assert_eq!(code(ErrorKind::InvalidName), 64);
        assert_eq!(code(ErrorKind::InvalidOption), 64);
        assert_eq!(code(ErrorKind::Unsupported), 64);
        assert_eq!(code(ErrorKind::Protocol), 70);
        assert_eq!(code(ErrorKind::Closed), 70);
        assert_eq!(code(ErrorKind::Misuse), 64);
    }

    /// The whole chain of causes is shown, and nothing of it can steer a terminal.
    #[test]
    fn causes_are_shown_without_control_characters() {
        let source = io::Error::other("refused\x1b[2J");
        let failure = Failure::from(Error::not_applied(ErrorKind::Unavailable, "down").with_source(source));
        assert_eq!(failure.to_string(), "leasehold: down\n  because: refused\\u{1b}[2J");
        let json = serde_json::to_value(&failure).unwrap();
        assert_eq!(json["kind"], "unavailable");
        assert_eq!(json["effect"], "not_applied");
        assert_eq!(json["causes"][0], "refused\x1b[2J");
        assert_eq!(json["exit_code"], 69);
    }

    /// A signal's number fits whatever it is.
    #[test]
    fn signals_end_at_128_and_more() {
        assert_eq!(Exit::of_signal(15), Exit(143));
        assert_eq!(Exit::of_signal(i32::MAX - 128), Exit(255));
    }
}
