//! Says which process failed to do what, and what it logged last.

use std::{error, fmt, fs, io, path::Path};

/// An operation on a process failed.
#[derive(Debug)]
pub struct ProcessError {
    pub(super) program: String,
    pub(super) pid: Option<u32>,
    pub(super) doing: &'static str,
    pub(super) kind: ProcessErrorKind,
    pub(super) source: Option<io::Error>,
    pub(super) log_tail: String,
}

/// In which way it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProcessErrorKind {
    /// The process has ended, or has closed the pipe.
    Ended,
    /// It was started without [`Launch::piped_lines`](super::Launch::piped_lines).
    NotPiped,
    /// The system refused; see the source.
    Os,
    /// The bound passed first.
    TimedOut,
}

impl ProcessError {
    /// In which way it failed.
    pub fn kind(&self) -> ProcessErrorKind {
        self.kind
    }
}

impl fmt::Display for ProcessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.program)?;
        if let Some(pid) = self.pid {
            write!(f, " (pid {pid})")?;
        }
        let what = match self.kind {
            ProcessErrorKind::Ended => "it has ended or closed the pipe",
            ProcessErrorKind::NotPiped => "its lines are not piped",
            ProcessErrorKind::Os => "the system refused",
            ProcessErrorKind::TimedOut => "timed out",
        };
        write!(f, ": {}: {what}", self.doing)?;
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        if !self.log_tail.is_empty() {
            write!(f, "\nthe end of its log:\n{}", self.log_tail)?;
        }
        Ok(())
    }
}

impl error::Error for ProcessError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

impl From<ProcessError> for io::Error {
    fn from(error: ProcessError) -> Self {
        Self::other(error)
    }
}

/// The last lines of a log; a log that cannot be read says why instead, as it is only context.
pub(super) fn log_tail(log: &Path) -> String {
    match fs::read(log) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
        }
        Err(unreadable) => format!("({}: {unreadable})", log.display()),
    }
}

const LOG_TAIL_LINES: usize = 20;
