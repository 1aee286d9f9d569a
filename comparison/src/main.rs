//! The comparison on its own, as `leasehold compare` runs it.

use std::process::ExitCode;

use clap::Parser;

/// Compare stores, their floors and other libraries on real servers.
#[derive(Parser)]
#[command(name = "compare", version)]
struct Command {
    #[command(flatten)]
    options: comparison::Options,
}

fn main() -> ExitCode {
    match comparison::run(Command::parse().options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
