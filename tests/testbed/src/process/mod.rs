//! Child processes that can be stopped, continued, killed and talked to by lines.
//!
//! A [`Process`] holds a pidfd, which names one process for good: a signal through it reaches the
//! process we started or none, even if its number was given to another one since. We alone reap
//! it, in [`Process::wait`] and its kin or in `Drop`.
//!
//! # Invariants
//! - **testbed.process-1** After [`stop`](Process::stop) no thread of the process runs; after
//!   [`cont`](Process::cont) it can run again.
//! - **testbed.process-2** A dropped process is dead and reaped, also if it was stopped, and also outside of a
//!   runtime.
//! - **testbed.process-3** Every error names the program and the pid and shows the end of its log.
//!
//! Not promised: processes that the child starts are not signalled (start servers by `exec`, not
//! through a shell that waits); if the test process itself is killed, only children that end when
//! their standard input closes go with it; and bounds are in real time, so not for a paused clock.
//! Checked by `tests/tools/process.rs`.

mod error;
mod launch;

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    process::ExitStatus,
    time::Duration,
};

use rustix::{
    io::{Errno, retry_on_intr},
    process::{
        Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, pidfd_open, pidfd_send_signal, waitid,
    },
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout},
    time::{sleep, timeout},
};

pub use error::{ProcessError, ProcessErrorKind};
pub use launch::Launch;

/// A running child; killed and reaped when dropped.
#[derive(Debug)]
pub struct Process {
    program: String,
    log: PathBuf,
    child: Child,
    pid: Pid,
    pidfd: OwnedFd,
    stdin: Option<ChildStdin>,
    stdout: Option<Lines<BufReader<ChildStdout>>>,
}

impl Process {
    /// Takes over a child that was just started, and that dies with its `Child` until then.
    fn adopt(mut child: Child, program: String, log: PathBuf) -> io::Result<Self> {
        let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let pid = pid.ok_or(io::ErrorKind::NotFound)?;
        Ok(Self {
            program,
            log,
            pid,
            pidfd: pidfd_open(pid, PidfdFlags::empty())?,
            stdin: child.stdin.take(),
            stdout: child.stdout.take().map(|pipe| BufReader::new(pipe).lines()),
            child,
        })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_pid().cast_unsigned()
    }

    /// Where its output goes; only standard error if lines are piped.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Writes one line to its standard input. Waits while the pipe is full.
    ///
    /// # Cancel safety
    ///
    /// A cancelled call may have written a part of the line.
    pub async fn send_line(&mut self, line: &str) -> Result<(), ProcessError> {
        const DOING: &str = "sending a line";
        let Some(stdin) = &mut self.stdin else {
            return Err(self.error(DOING, ProcessErrorKind::NotPiped));
        };
        let sent = stdin.write_all(format!("{line}\n").as_bytes()).await;
        sent.map_err(|error| self.os_error(DOING, error))
    }

    /// Closes its standard input; to [`send_line`](Self::send_line) it is no longer piped.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// The next line of its standard output. A child that is not read from blocks once the pipe is
    /// full.
    pub async fn next_line(&mut self, bound: Duration) -> Result<String, ProcessError> {
        const DOING: &str = "waiting for a line";
        let Some(stdout) = &mut self.stdout else {
            return Err(self.error(DOING, ProcessErrorKind::NotPiped));
        };
        match timeout(bound, stdout.next_line()).await {
            Ok(Ok(Some(line))) => Ok(line),
            Ok(Ok(None)) => Err(self.error(DOING, ProcessErrorKind::Ended)),
            Ok(Err(error)) => Err(self.os_error(DOING, error)),
            Err(_elapsed) => Err(self.error(DOING, ProcessErrorKind::TimedOut)),
        }
    }

    /// Stops it (`SIGSTOP`), and returns when every thread of it stands still.
    ///
    /// # Cancel safety
    ///
    /// A cancelled call stops it nonetheless, soon.
    pub async fn stop(&self) -> Result<(), ProcessError> {
        const DOING: &str = "stopping";
        self.signal(DOING, Signal::STOP)?;
        let stopped = async {
            loop {
                // The kernel reports a stop once the last thread has stopped. /proc/<pid>/stat
                // shows `T` when the first one has, and a server's other threads may serve on.
                match self.change(WaitIdOptions::STOPPED | WaitIdOptions::NOHANG)? {
                    Some(change) => break Ok(change.stopped()),
                    // Looked at again, as a thread that blocks here would outlive the bound.
                    None => sleep(POLL).await,
                }
            }
        };
        match timeout(SETTLE, stopped).await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err(self.error(DOING, ProcessErrorKind::Ended)),
            Ok(Err(error)) => Err(self.os_error(DOING, error)),
            Err(_elapsed) => Err(self.error(DOING, ProcessErrorKind::TimedOut)),
        }
    }

    /// Lets it run again (`SIGCONT`). There is nothing to wait for: the kernel resumes a process
    /// while the signal is sent, not when it is delivered.
    pub fn cont(&self) -> Result<(), ProcessError> {
        self.signal("continuing", Signal::CONT)
    }

    /// Kills it (`SIGKILL`) and reaps it; does nothing to one that has ended.
    ///
    /// # Cancel safety
    ///
    /// A cancelled call kills it nonetheless, soon.
    pub async fn kill(&mut self) -> Result<ExitStatus, ProcessError> {
        match self.signal("killing", Signal::KILL) {
            Err(error) if error.kind() != ProcessErrorKind::Ended => Err(error),
            _sent_or_ended => self.wait(SETTLE).await,
        }
    }

    /// Asks it to end (`SIGTERM`), and kills it when it has not after `bound`. One that is stopped
    /// cannot hear the question.
    ///
    /// # Cancel safety
    ///
    /// A cancelled call has asked and does not kill.
    pub async fn terminate(&mut self, bound: Duration) -> Result<ExitStatus, ProcessError> {
        match self.signal("terminating", Signal::TERM) {
            Err(error) if error.kind() != ProcessErrorKind::Ended => return Err(error),
            _sent_or_ended => {}
        }
        match self.wait(bound).await {
            Err(error) if error.kind() == ProcessErrorKind::TimedOut => self.kill().await,
            ended => ended,
        }
    }

    /// Waits until it ends by itself, and reaps it. Its status stays available here.
    pub async fn wait(&mut self, bound: Duration) -> Result<ExitStatus, ProcessError> {
        const DOING: &str = "waiting for its end";
        match timeout(bound, self.child.wait()).await {
            Ok(status) => status.map_err(|error| self.os_error(DOING, error)),
            Err(_elapsed) => Err(self.error(DOING, ProcessErrorKind::TimedOut)),
        }
    }

    /// Asks a server that has just been started until it answers, for `bound` at most.
    pub(crate) async fn serves<T: Send, F: Future<Output = Option<T>> + Send>(
        &self,
        bound: Duration,
        ask: impl Fn() -> F + Send + Sync,
    ) -> Result<T, ProcessError> {
        const DOING: &str = "starting to serve (`make tools` installs what is missing)";
        let answer = async {
            loop {
                if let Some(answer) = ask().await {
                    return Ok(answer);
                }
                match self.change(WaitIdOptions::NOHANG) {
                    Ok(None) => sleep(10 * POLL).await,
                    Ok(Some(_ended)) => return Err(self.error(DOING, ProcessErrorKind::Ended)),
                    Err(error) => return Err(self.os_error(DOING, error)),
                }
            }
        };
        timeout(bound, answer)
            .await
            .unwrap_or_else(|_elapsed| Err(self.error(DOING, ProcessErrorKind::TimedOut)))
    }

    /// Its end or the change asked for, without reaping it.
    fn change(&self, asked: WaitIdOptions) -> io::Result<Option<WaitIdStatus>> {
        let options = asked | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let process = || WaitId::PidFd(self.pidfd.as_fd());
        Ok(retry_on_intr(|| waitid(process(), options))?)
    }

    fn signal(&self, doing: &'static str, signal: Signal) -> Result<(), ProcessError> {
        match pidfd_send_signal(&self.pidfd, signal) {
            Ok(()) => Ok(()),
            Err(Errno::SRCH) => Err(self.error(doing, ProcessErrorKind::Ended)),
            Err(error) => Err(self.os_error(doing, error.into())),
        }
    }

    fn os_error(&self, doing: &'static str, source: io::Error) -> ProcessError {
        let kind = match source.kind() {
            io::ErrorKind::BrokenPipe => ProcessErrorKind::Ended,
            _ => ProcessErrorKind::Os,
        };
        let mut error = self.error(doing, kind);
        error.source = Some(source);
        error
    }

    fn error(&self, doing: &'static str, kind: ProcessErrorKind) -> ProcessError {
        ProcessError {
            program: self.program.clone(),
            pid: Some(self.pid()),
            doing,
            kind,
            source: None,
            log_tail: error::log_tail(&self.log),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // INVARIANT(testbed.process-2): SIGKILL also ends a stopped process. Waiting here, and not in a runtime
        // that may be gone, leaves `try_wait` nothing to do but reap. Either fails only for a
        // process that is reaped already.
        if pidfd_send_signal(&self.pidfd, Signal::KILL).is_ok() {
            let _dead = self.change(WaitIdOptions::empty());
            let _status = self.child.try_wait();
        }
    }
}

/// How long the kernel gets to stop or end a process; it needs microseconds.
const SETTLE: Duration = Duration::from_secs(10);

/// How often a stopping process is looked at.
const POLL: Duration = Duration::from_millis(1);
