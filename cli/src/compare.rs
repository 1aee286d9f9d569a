//! `leasehold compare`: starts the comparison of the checkout it is called in.
//!
//! The comparison builds clients of others, installs servers and starts them, so it is a program of
//! the sources and no part of an installed command.

use std::env;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::arguments::Compare;
use crate::failure::{Exit, Failure};

/// Becomes the comparison; returns only if there is none.
pub(crate) fn compare(arguments: &Compare, json: bool) -> Result<Exit, Failure> {
    let here = env::current_dir();
    let here = here.map_err(|error| Failure::system("cannot read the current directory", error))?;
    let program = program_above(&here)?;
    let mut command = Command::new(&program);
    command.args(arguments.url.iter().flat_map(|url| ["--url", url])).args(json.then_some("--json"));
    let error = command.args(&arguments.options).exec();
    Err(Failure::system(format!("cannot start {}", program.display()), error))
}

/// The program of the nearest folder with one, if no other user can write to it or to a folder above it: it may run as root.
fn program_above(here: &Path) -> Result<PathBuf, Failure> {
    let mut programs = here.ancestors().map(|folder| folder.join("comparison/compare"));
    let Some(program) = programs.find(|program| program.exists()) else {
        return Err(Failure::usage(nowhere()));
    };
    match objection(&program)? {
        None => Ok(program),
        Some(objection) => Err(Failure::usage(format!(
            "cannot trust the comparison: {objection}; if you trust {}, start it yourself",
            program.display()
        ))),
    }
}

#[cfg(feature = "file")]
fn objection(program: &Path) -> Result<Option<String>, Failure> {
    Ok(leasehold::file::untrusted_path(program)?)
}

#[cfg(not(feature = "file"))]
fn objection(_: &Path) -> Result<Option<String>, Failure> {
    Ok(Some("cannot check the permissions of the comparison in this build".to_owned()))
}

/// Where to get one.
fn nowhere() -> String {
    let repository = option_env!("CARGO_PKG_REPOSITORY").filter(|place| !place.is_empty());
    let sources = repository.map_or_else(String::new, |place| format!(" (git clone {place})"));
    format!(
        "cannot find the comparison: run this command in a checkout of the sources of leasehold{sources}, \
         or `make compare` there"
    )
}
