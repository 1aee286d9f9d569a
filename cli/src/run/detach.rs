//! `run --detach`: a process that ends with the command, and one that holds the lock for longer.
//!
//! A lock belongs to the process that acquired it, and a process with threads cannot be divided. So `leasehold` starts
//! itself again under another name. This *holder* acquires the lock and runs the command. At the command's end it sends the exit
//! code through a pipe, leaves the terminal and the standard streams, and holds the lock for the rest of `--at-least`.
//! The *front* is the process that was called: it forwards signals, and exits with that code.
//!
//! # Invariants
//! - **detach-1** Until the code is sent, a front that is killed takes the holder with it, on Linux (`the_command_dies_with_us`).
//!
//! Not promised: that a signal to the front's whole process group reaches the command only once. The holder receives it twice,
//! and drops the second only if it follows soon.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, getpid, kill_process, setsid};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use crate::failure::{Exit, Failure};
use crate::run::launch;
use crate::signals::Signals;

/// The front of this process, which is a holder.
#[derive(Debug)]
pub(crate) struct Front {
    answer: File,
    /// What this process has inherited besides the standard streams.
    inherited: Vec<RawFd>,
}

/// Starts the holder, and ends as the command does, or as the holder does before that.
pub(crate) async fn in_front() -> Result<Exit, Failure> {
    let mut ending = Signals::of_the_end()?;
    let program = launch::this_program()?;
    let (mut holder, mut answer) = start(&program)
        .map_err(|error| Failure::system("cannot start the process that holds the lock", error))?;
    let mut answered = tokio::task::spawn_blocking(move || {
        let mut code = [0];
        answer.read_exact(&mut code).map(|()| Exit(code[0]))
    });
    let answered = loop {
        tokio::select! {
            answered = &mut answered => break answered.expect("reading does not panic"),
            signal = ending.next() => {
                // It was not reaped, so this is its number.
                let pid = Pid::from_raw(holder.id().cast_signed()).expect("a child has a number");
                let _ended = kill_process(pid, signal);
            }
        }
    };
    match answered {
        Ok(exit) => Ok(exit),
        Err(_it_has_ended) => holder
            .wait()
            .map(exit)
            .map_err(|error| Failure::system("cannot wait for the process that holds the lock", error)),
    }
}

fn start(program: &Path) -> io::Result<(Child, io::PipeReader)> {
    let (answer, sender) = io::pipe()?;
    // The holder inherits it.
    fcntl_setfd(&sender, FdFlags::empty())?;
    let mut holder = Command::new(program);
    holder.arg0(HOLDER).arg(getpid().to_string()).arg(sender.as_raw_fd().to_string());
    Ok((holder.args(env::args_os().skip(1)).spawn()?, answer))
}

fn exit(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit(u8::try_from(code).unwrap_or(u8::MAX)),
        (None, signal) => Exit::of_signal(signal.unwrap_or_default()),
    }
}

/// The front of this process, and its command line, if it was started as a holder; an exit code if its front has ended.
pub(crate) fn as_holder() -> Option<Result<(Front, Vec<OsString>), Exit>> {
    let mut words = env::args_os();
    if words.next()? != HOLDER {
        return None;
    }
    let (front, answer) = (words.next()?, words.next()?);
    if !launch::dies_with(&front) {
        return Some(Err(Exit::LOST));
    }
    let words = [OsString::from("leasehold")].into_iter().chain(words).collect();
    Some(Front::behind(&answer).map(|front| (front, words)).ok_or(Exit::SYSTEM))
}

/// The open descriptors besides the standard streams, while this process has opened none.
fn inherited() -> Vec<RawFd> {
    let entries = fs::read_dir("/dev/fd").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut numbers: Vec<RawFd> = numbers.filter(|number| *number > 2).collect();
    // The directory itself was one of them.
    numbers.retain(|number| fs::symlink_metadata(format!("/dev/fd/{number}")).is_ok());
    numbers
}

impl Front {
    /// The front that reads from the pipe of that number.
    fn behind(number: &OsStr) -> Option<Self> {
        let number: RawFd = number.to_str()?.parse().ok()?;
        let mut inherited = inherited();
        // The command does not inherit this one.
        let answer = OpenOptions::new().write(true).open(format!("/dev/fd/{number}")).ok()?;
        nix::unistd::close(number).ok()?;
        inherited.retain(|open| *open != number);
        Some(Self { answer, inherited })
    }

    /// Reports how `run` ends, and lets the front end; this process goes on without it, without a terminal, silent, and without
    /// inherited descriptors.
    pub(crate) fn answer(mut self, outcome: &Result<Exit, Failure>, json: bool) {
        let exit = match outcome {
            Ok(exit) => *exit,
            Err(failure) => failure.report(json),
        };
        launch::outlive_the_parent();
        // Refused to none that leads no group, and this process has its front's.
        let _refused = setsid();
        // A reader of the command's output waits for the end of each process that could write to it.
        if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
            let _kept = dup2_stdin(&null).and_then(|()| dup2_stdout(&null)).and_then(|()| dup2_stderr(&null));
        }
        // One of them may hold a lock of `flock(1)`, or be a pipe whose reader waits for its end.
        for number in self.inherited {
            let _closed = nix::unistd::close(number);
        }
        // The file system of the directory can be unmounted.
        let _kept = env::set_current_dir("/");
        // The front may have been killed.
        let _unread = self.answer.write_all(&[exit.0]);
    }
}

/// The name of a process that holds the lock for longer than the command runs.
const HOLDER: &str = "leasehold: holder";
