//! `leasehold completions`: the scripts by which shells complete the command line.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::arguments::Cli;
use crate::failure::{Exit, Failure};
use crate::output;

pub(crate) fn print(shell: Shell) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "leasehold", &mut script);
    output::say(String::from_utf8_lossy(&script).trim_end())?;
    Ok(Exit::SUCCESS)
}
