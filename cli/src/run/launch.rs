//! Starting the command so that it does not outlive us.
//!
//! Only a process itself can ask the system to end it with its parent, before it becomes the command. So
//! `leasehold` starts itself again under another name, and that process becomes the command.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::Pid;

use crate::failure::{Exit, Failure};
use crate::run::group::Group;

pub(crate) use system::{hide_this_process, outlive_the_parent, this_program};

/// Starts `command` in a group of its own, with `environment` added to this process's, and without the `stale` variables of
/// that.
pub(crate) fn launch(
    command: &[OsString],
    environment: Vec<(&str, String)>,
    stale: &[&str],
    json: bool,
) -> Result<Group, Failure> {
    system::adopt_orphans();
    let mut launcher = Command::new(this_program()?);
    launcher.arg0(LAUNCHER).arg(rustix::process::getpid().to_string()).arg(json.to_string());
    launcher.args(command).envs(environment).process_group(0);
    for variable in stale {
        launcher.env_remove(variable);
    }
    let child = launcher.spawn().map_err(|error| Failure::system("cannot start the command", error))?;
    let leader = Pid::from_raw(child.id().cast_signed()).expect("a child has a number");
    Ok(Group::of(leader))
}

/// Becomes the command if this process was started for that; returns only if it cannot.
pub(crate) fn as_launcher() -> Option<Exit> {
    let mut arguments = env::args_os();
    if arguments.next()? != LAUNCHER {
        return None;
    }
    let (parent, json) = (arguments.next()?, arguments.next()? == "true");
    let program = arguments.next()?;
    if !dies_with(&parent) {
        return Some(Exit::LOST);
    }
    let error = Command::new(&program).args(arguments).exec();
    let exit = match error.kind() {
        io::ErrorKind::NotFound => Exit::NOT_FOUND,
        _ => Exit::NOT_EXECUTABLE,
    };
    let doing = format!("cannot run {}", program.display());
    Some(Failure::not_started(doing, &error, exit).report(json))
}

/// Ends this process with its parent, whose number is given; returns whether the parent lives.
pub(crate) fn dies_with(parent: &OsStr) -> bool {
    system::die_with_the_parent();
    // It may have died before that.
    rustix::process::getppid().is_some_and(|pid| OsStr::new(&pid.to_string()) == parent)
}

/// The name of the process until it is the command.
const LAUNCHER: &str = "leasehold: launcher";

#[cfg(any(target_os = "linux", target_os = "android"))]
mod system {
    use std::path::PathBuf;

    use rustix::process::{
        DumpableBehavior, Signal, getpid, set_child_subreaper, set_dumpable_behavior,
        set_parent_process_death_signal,
    };

    use crate::failure::Failure;

    /// This very program, also if its file was replaced meanwhile.
    pub(crate) fn this_program() -> Result<PathBuf, Failure> {
        Ok(PathBuf::from("/proc/self/exe"))
    }

    pub(super) fn die_with_the_parent() {
        // Refused by no system that has it; without it the command merely outlives a killed parent.
        let _refused = set_parent_process_death_signal(Some(Signal::KILL));
    }

    pub(crate) fn outlive_the_parent() {
        let _refused = set_parent_process_death_signal(None);
    }

    /// Makes this process the parent of descendants whose parent ends, so that the system reports their end.
    pub(super) fn adopt_orphans() {
        // Without it they are checked now and then.
        let _refused = set_child_subreaper(Some(getpid()));
    }

    /// Keeps other processes of the same user, the command among them, from reading our environment and memory.
    pub(crate) fn hide_this_process() {
        // No system refuses it.
        let _refused = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod system {
    use std::env;
    use std::path::PathBuf;

    use crate::failure::Failure;

    pub(crate) fn this_program() -> Result<PathBuf, Failure> {
        env::current_exe().map_err(|error| Failure::system("cannot find this program", error))
    }

    pub(super) fn die_with_the_parent() {}

    pub(crate) fn outlive_the_parent() {}

    pub(super) fn adopt_orphans() {}

    pub(crate) fn hide_this_process() {}
}
