//! The terminal: the command gets it once it reads from it.
//!
//! A process group of its own puts the command into the background, where its output appears and where reading stops it
//! (SIGTTIN). Then it is given the terminal, if this process has that, and goes on. Until then the keyboard's signals reach
//! this process, which forwards them, and from then on the command. A command that never reads the terminal leaves it to its
//! neighbours in a pipeline, such as a pager.

use std::fs::File;

use nix::sys::signal::{SigSet, SigmaskHow, Signal as Blocked};
use rustix::process::{Signal, getpgrp, kill_current_process_group};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

use crate::run::group::Group;

/// The terminal that controls this process, if one does.
#[derive(Debug)]
pub(crate) struct Terminal {
    device: Option<File>,
}

impl Terminal {
    pub(crate) fn of_this_process() -> Self {
        Self { device: File::open("/dev/tty").ok() }
    }

    /// Whether the group has the terminal.
    pub(crate) fn belongs_to(&self, group: &Group) -> bool {
        self.device.as_ref().is_some_and(|device| tcgetpgrp(device) == Ok(group.leader))
    }

    /// Gives the terminal to the group if this process has it; returns whether the group has it now.
    pub(crate) fn give_to(&self, group: &Group) -> bool {
        let Some(device) = &self.device else {
            return false;
        };
        if tcgetpgrp(device) == Ok(getpgrp()) {
            return tcsetpgrp(device, group.leader).is_ok();
        }
        self.belongs_to(group)
    }

    /// Takes the terminal back from the group; whether it had it.
    pub(crate) fn take_back(&self, group: &Group) -> bool {
        let Some(device) = self.device.as_ref().filter(|_| self.belongs_to(group)) else {
            return false;
        };
        // From the background the system allows that only with SIGTTOU blocked.
        let mut output_stop = SigSet::empty();
        output_stop.add(Blocked::SIGTTOU);
        let Ok(before) = output_stop.thread_swap_mask(SigmaskHow::SIG_BLOCK) else {
            return false;
        };
        let taken = tcsetpgrp(device, getpgrp()).is_ok();
        let _restored = before.thread_set_mask();
        taken
    }
}

/// Stops this process and its neighbours in the shell's job, until the shell lets them go on. The
/// system ignores it where no shell could.
pub(crate) fn stop_this_job() {
    let _ignored = kill_current_process_group(Signal::TTOU);
}
