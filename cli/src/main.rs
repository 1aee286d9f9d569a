//! `leasehold`: locks on the command line, the same on every store.
//!
//! | part | where |
//! |---|---|
//! | what can be said | [`arguments`] |
//! | the commands, a file each | [`run`], [`hold`], [`inspect`], [`ls`], [`revoke`], [`doctor`], `redis_scripts`, [`completions`] |
//! | which store, and waiting for a lock | [`store`], [`wait`] |
//! | what people and programs are told | [`output`], [`failure`] |
//! | what the process is told | [`signals`] |

mod arguments;
mod completions;
mod doctor;
mod failure;
mod hold;
mod inspect;
mod ls;
#[cfg(feature = "metrics")]
mod metrics;
mod output;
#[cfg(feature = "redis")]
mod redis_scripts;
mod revoke;
mod run;
mod signals;
mod store;
mod wait;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::arguments::{Cli, Command};
use crate::failure::{Exit, Failure};

fn main() -> ExitCode {
    if let Some(exit) = run::launch::as_launcher() {
        return exit.into();
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(said) => return refused(&said).into(),
    };
    trace(cli.verbose);
    let json = cli.json;
    match carry_out(cli) {
        Ok(exit) => exit.into(),
        Err(failure) => failure.report(json).into(),
    }
}

/// What clap has to say instead of a command: help, the version, or what is wrong.
fn refused(said: &clap::Error) -> Exit {
    let is_answer = matches!(said.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    let wants_json = std::env::args_os().take_while(|word| word != "--").any(|word| word == "--json");
    if wants_json && !is_answer {
        return Failure::usage(said.to_string().trim_end()).report(true);
    }
    // Where nobody reads it, nothing is lost.
    let _unread = said.print();
    if is_answer { Exit::SUCCESS } else { Exit::USAGE }
}

fn carry_out(cli: Cli) -> Result<Exit, Failure> {
    // The commands themselves run on this thread. Renewals have one of their own, so that nothing a
    // command does, such as writing to a pipe that is full, holds them up.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::system("the async runtime cannot be started", error))?;
    let store = cli.store;
    let json = cli.json;
    let exit = runtime.block_on(async {
        match cli.command {
            Command::Run(arguments) => run::run(&store, &arguments, json).await,
            Command::Hold(arguments) => hold::hold(&store, &arguments).await,
            Command::Inspect { name } => inspect::inspect(&store, &name, json).await,
            Command::Ls { prefix } => ls::ls(&store, &prefix, json).await,
            Command::Revoke(arguments) => revoke::revoke(&store, &arguments, json).await,
            Command::Doctor => doctor::doctor(&store, json).await,
            #[cfg(feature = "redis")]
            Command::RedisScripts => redis_scripts::load(&store, json).await,
            #[cfg(feature = "compare")]
            Command::Compare(options) => {
                // It has threads and a runtime of its own.
                let compared = bench::run(*options);
                compared.map(|()| Exit::SUCCESS).map_err(|error| Failure::system("no comparison", error))
            }
            Command::Completions { shell } => completions::print(shell),
        }
    });
    // What still runs waits for nobody: the locks are released, or their leases end them.
    runtime.shutdown_background();
    exit
}

fn trace(verbose: u8) {
    let (ours, others) = match verbose {
        0 => return,
        1 => (LevelFilter::DEBUG, LevelFilter::WARN),
        _ => (LevelFilter::TRACE, LevelFilter::DEBUG),
    };
    let mut filter = Targets::new().with_default(others);
    for target in ["lockcore", "backend_file", "backend_redis", "backend_etcd", "backend_zk"] {
        filter = filter.with_target(target, ours);
    }
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_filter(filter);
    tracing_subscriber::registry().with(layer).init();
}
