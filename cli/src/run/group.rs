//! The process group of the command.
//!
//! This process is the reaper of its orphaned descendants (on Linux), so the system reports the end of the group's last
//! process.

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, kill_process_group, test_kill_process_group, wait,
};

use crate::failure::Exit;
use crate::output;

/// The group of the command, of which the command is the leader.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) leader: Pid,
    /// How the command itself has ended, if it has.
    pub(crate) ended: Option<Exit>,
    refused: bool,
}

/// Something that has happened to a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// A process was stopped because it used a terminal that is not its own.
    StoppedAtTerminal,
    /// A process was stopped from the terminal's keyboard.
    Suspended,
    /// Something else: a child has ended, or goes on.
    Something,
}

impl Group {
    /// The group whose leader we have just started.
    pub(crate) fn of(leader: Pid) -> Self {
        Self { leader, ended: None, refused: false }
    }

    /// Whether the group has no process. Called only after the command itself has ended.
    ///
    /// A number stays the group's while any process is in it, so it means no other group until this is true; and from then on
    /// it is not used.
    pub(crate) fn is_gone(&self) -> bool {
        test_kill_process_group(self.leader) == Err(Errno::SRCH)
    }

    /// Sends a signal to every process in the group.
    pub(crate) fn signal(&mut self, signal: Signal) {
        if self.ended.is_some() && self.is_gone() {
            return;
        }
        match kill_process_group(self.leader, signal) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) if !self.refused => {
                self.refused = true;
                output::complain(&format!("leasehold: cannot signal the command: {error}"));
            }
            Err(_known) => {}
        }
    }

    /// Takes notice of one child that has ended or was stopped.
    pub(crate) fn look(&mut self) -> Option<Seen> {
        // The only error is that there is no child.
        let (child, status) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED).ok()??;
        if let Some(signal) = status.stopping_signal() {
            return Some(match Signal::from_named_raw(signal) {
                Some(Signal::TTIN | Signal::TTOU) => Seen::StoppedAtTerminal,
                Some(Signal::TSTP) => Seen::Suspended,
                _ => Seen::Something,
            });
        }
        if child == self.leader {
            self.ended = exit(status).or(self.ended);
        }
        Some(Seen::Something)
    }
}

/// As in shells.
fn exit(status: WaitStatus) -> Option<Exit> {
    if let Some(signal) = status.terminating_signal() {
        return Some(Exit::of_signal(signal));
    }
    let code = status.exit_status()?;
    Some(Exit(u8::try_from(code).unwrap_or(u8::MAX)))
}
