//! The process group of the command.
//!
//! This process is the reaper of its orphaned descendants (on Linux), so the system reports the end of the group's last
//! process.

use std::fs;

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

    /// The processes of the group, as `PID (NAME)`; none on systems that do not list them in `/proc`.
    pub(crate) fn processes(&self) -> Vec<String> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let mut members: Vec<_> = numbers
            .filter_map(|pid| {
                let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
                let (name, group) = name_and_group(&stat)?;
                (group == self.leader.as_raw_nonzero().get()).then(|| (pid, name.to_owned()))
            })
            .collect();
        members.sort_unstable();
        members.into_iter().map(|(pid, name)| format!("{pid} ({name})")).collect()
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

/// The name of a process that has not ended, and its group, as `/proc/PID/stat` shows them. A name may have any character.
fn name_and_group(stat: &str) -> Option<(&str, i32)> {
    let (name, rest) = stat.split_once(" (")?.1.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    fields.next().filter(|state| !matches!(*state, "Z" | "X"))?;
    Some((name, fields.nth(1)?.parse().ok()?))
}

/// As in shells.
fn exit(status: WaitStatus) -> Option<Exit> {
    if let Some(signal) = status.terminating_signal() {
        return Some(Exit::of_signal(signal));
    }
    let code = status.exit_status()?;
    Some(Exit(u8::try_from(code).unwrap_or(u8::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process may call itself anything.
    #[test]
    fn processes_are_read_as_the_system_writes_them() {
        assert_eq!(name_and_group("12 (sleep) S 11 7 7 34816 7 0"), Some(("sleep", 7)));
        assert_eq!(name_and_group("12 (a) R 1 (b) c) D 11 7 7"), Some(("a) R 1 (b) c", 7)));
        assert_eq!(name_and_group("12 (sleep) Z 11 7 7"), None);
        assert_eq!(name_and_group("nothing"), None);
    }
}
