//! Says how a program is started.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    path::{Path, PathBuf},
    process::Stdio,
};

use tokio::{process::Command, runtime::Handle};

use super::{Process, ProcessError, ProcessErrorKind};

/// A program to start, once or again: each [`spawn`](Self::spawn) is a run with a log of its own.
#[derive(Debug)]
#[must_use = "nothing runs before it is started"]
pub struct Launch {
    command: Command,
    program: String,
    dir: PathBuf,
    wiring: Wiring,
}

impl Launch {
    /// Starts `program` in `dir`, its working directory, where its output goes to
    /// `<program>.<run>.log`. Standard input is empty.
    pub fn new(program: impl Into<OsString>, dir: impl Into<PathBuf>) -> Self {
        let (program, dir) = (program.into(), dir.into());
        let mut command = Command::new(&program);
        // For a child that fails to become a `Process`, which then sees to it by itself.
        command.current_dir(&dir).kill_on_drop(true);
        let file_name = Path::new(&program).file_name().unwrap_or(&program);
        Self { program: file_name.to_string_lossy().into_owned(), command, dir, wiring: Wiring::Logged }
    }

    /// Adds arguments.
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.command.args(args);
        self
    }

    /// Sets a variable in its environment; the rest is inherited.
    pub fn env(mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.command.env(key, value);
        self
    }

    /// Pipes standard input and output for [`Process::send_line`] and [`Process::next_line`]. Only
    /// standard error goes to the log.
    pub fn piped_lines(mut self) -> Self {
        self.wiring = Wiring::Lines;
        self
    }

    /// Starts the program.
    pub fn spawn(&mut self) -> Result<Process, ProcessError> {
        self.start().map_err(|source| ProcessError {
            program: self.program.clone(),
            pid: None,
            doing: "starting",
            kind: ProcessErrorKind::Os,
            source: Some(source),
            log_tail: String::new(),
        })
    }

    fn start(&mut self) -> io::Result<Process> {
        let (log, path) = self.create_log()?;
        self.command.stderr(log.try_clone()?);
        match self.wiring {
            Wiring::Logged => self.command.stdin(Stdio::null()).stdout(log),
            Wiring::Lines => self.command.stdin(Stdio::piped()).stdout(Stdio::piped()),
        };
        // Panics without a runtime now, and not when the child has been started.
        let _runtime = Handle::current();
        Process::adopt(self.command.spawn()?, self.program.clone(), path)
    }

    fn create_log(&self) -> io::Result<(File, PathBuf)> {
        let mut run = 0_u32;
        loop {
            let path = self.dir.join(format!("{}.{run}.log", self.program));
            match File::create_new(&path) {
                Err(taken) if taken.kind() == io::ErrorKind::AlreadyExists => run += 1,
                created => return Ok((created?, path)),
            }
        }
    }
}

#[derive(Debug)]
enum Wiring {
    Logged,
    Lines,
}
