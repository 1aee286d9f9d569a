//! `leasehold`: locks on the command line, the same on every store.
//!
//! | part | where |
//! |---|---|
//! | command line | [`arguments`] |
//! | the commands, a file each | [`run`], [`hold`], [`inspect`], [`ls`], `top`, [`watch`], [`revoke`], [`doctor`], [`token_base`], `migrate`, `redis_scripts`, `postgres_schema`, [`compare`], [`completions`], [`manual`] |
//! | which store, and waiting for a lock | [`store`], [`wait`] |
//! | locks that a command under a lock must not wait for | [`held`] |
//! | output for people and programs | [`output`], [`table`], [`failure`] |
//! | signals to the process | [`signals`] |

mod arguments;
mod compare;
mod completions;
mod doctor;
mod failure;
mod held;
mod hold;
mod inspect;
mod ls;
mod manual;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "migrate")]
mod migrate;
mod output;
#[cfg(feature = "postgres")]
mod postgres_schema;
#[cfg(feature = "redis")]
mod redis_scripts;
mod revoke;
mod run;
mod signals;
mod store;
mod table;
mod token_base;
#[cfg(feature = "top")]
mod top;
mod wait;
mod watch;

use std::env::args_os;
use std::io::{self, IsTerminal};
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::arguments::{Cli, Command};
use crate::failure::{Exit, Failure};
use crate::output::Form;
use crate::run::detach::Front;
use crate::table::Width;

fn main() -> ExitCode {
    if let Some(exit) = run::launch::as_launcher() {
        return exit.into();
    }
    let holder = match run::detach::as_holder().transpose() {
        Ok(holder) => holder,
        Err(exit) => return exit.into(),
    };
    let (front, words) =
        holder.map_or_else(|| (None, args_os().collect()), |(front, words)| (Some(front), words));
    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(said) => return refused(&said).into(),
    };
    let json = cli.json;
    // With JSON, standard error has nothing but one error, unless more was requested.
    if cli.quiet || json {
        output::be_silent();
    }
    if let Err(failure) = trace(&cli) {
        return failure.report(json).into();
    }
    match carry_out(cli, front) {
        Ok(exit) => exit.into(),
        Err(failure) => failure.report(json).into(),
    }
}

/// The texts of clap instead of a command: help, the version, or a usage error.
fn refused(said: &clap::Error) -> Exit {
    let is_answer = matches!(said.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    let words: Vec<_> = args_os().skip(1).take_while(|word| word != "--").collect();
    let has_dashes = words.len() + 1 < args_os().len();
    let tip = match said.kind() {
        ErrorKind::UnknownArgument | ErrorKind::MissingRequiredArgument
            if !has_dashes && words.iter().any(|word| word == "run") =>
        {
            DASHES
        }
        _ => "",
    };
    if !is_answer && words.iter().any(|word| word == "--json") {
        return Failure::usage(format!("{}{tip}", said.to_string().trim_end())).report(true);
    }
    // A closed output needs no error.
    let _unread = said.print();
    if !tip.is_empty() {
        output::complain(tip);
    }
    if is_answer { Exit::SUCCESS } else { Exit::USAGE }
}

const DASHES: &str = "\n  tip: the command comes after --, as in: leasehold run NAME -- CMD ARGUMENTS";

fn carry_out(cli: Cli, front: Option<Front>) -> Result<Exit, Failure> {
    // The commands themselves run on this thread. Renewals have one of their own, so that nothing a
    // command does, such as writing to a pipe that is full, holds them up.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::system("cannot start the async runtime", error))?;
    let store = cli.store;
    let json = cli.json;
    let form = if json { Form::Json } else { Form::Words(Width::of_stdout(cli.wide)) };
    let exit = runtime.block_on(async {
        match cli.command {
            Command::Run(arguments) => run::run(&store, &arguments, json, front).await,
            Command::Hold(arguments) => hold::hold(&store, &arguments).await,
            Command::Inspect { name, exit_code } => inspect::inspect(&store, &name, exit_code, form).await,
            Command::Ls { prefix } => ls::ls(&store, &prefix, form).await,
            #[cfg(feature = "top")]
            Command::Top(arguments) => top::top(&store, &arguments).await,
            Command::Watch { name } => watch::watch(&store, &name).await,
            Command::Revoke(arguments) => revoke::revoke(&store, &arguments, form).await,
            Command::Doctor { name } => doctor::doctor(&store, name.as_deref(), form).await,
            #[cfg(feature = "redis")]
            Command::RedisScripts => redis_scripts::load(&store, form).await,
            #[cfg(feature = "postgres")]
            Command::PostgresSchema(arguments) => postgres_schema::print(&arguments),
            Command::TokenBase { action } => token_base::token_base(&store, &action, form).await,
            #[cfg(feature = "migrate")]
            Command::Migrate { action } => migrate::migrate(&store, &action, form).await,
            Command::Compare(arguments) => compare::compare(&arguments, json),
            Command::Completions { shell } => completions::print(shell),
            Command::Man { directory } => manual::write(&directory),
        }
    });
    // The rest need not be awaited: the locks are released, or their leases end them.
    runtime.shutdown_background();
    exit
}

/// Logs to standard error: warnings, or the requested level.
fn trace(cli: &Cli) -> Result<(), Failure> {
    let wanted = std::env::var("RUST_LOG").ok().filter(|wanted| !wanted.is_empty());
    let filter = match (cli.verbose, wanted) {
        (0, _) if cli.quiet => return Ok(()),
        // A line would tear the screen.
        #[cfg(feature = "top")]
        (_, _) if matches!(cli.command, Command::Top(_)) => return Ok(()),
        (0, Some(wanted)) => {
            let filter = wanted.parse::<Targets>();
            filter.map_err(|error| Failure::usage(format!("RUST_LOG={wanted:?} is invalid: {error}")))?
        }
        // `doctor` has a finding for each.
        (0, None) if cli.json || matches!(cli.command, Command::Doctor { .. }) => return Ok(()),
        (0, None) => {
            // A person or a log reads these lines between those of a command.
            let mut warnings = ours(LevelFilter::WARN, LevelFilter::OFF);
            if !io::stderr().is_terminal() {
                // `doctor` reports them, and cron would send them by mail after every success.
                warnings = warnings.with_target("leasehold_core::condition", LevelFilter::OFF);
            }
            let layer = tracing_subscriber::fmt::layer().with_writer(|| output::Log).without_time();
            let layer = layer.with_target(false).with_filter(warnings);
            tracing_subscriber::registry().with(layer).init();
            return Ok(());
        }
        (1, _) => ours(LevelFilter::DEBUG, LevelFilter::WARN),
        (_, _) => ours(LevelFilter::TRACE, LevelFilter::DEBUG),
    };
    let layer = tracing_subscriber::fmt::layer().with_writer(|| output::Log).with_filter(filter);
    tracing_subscriber::registry().with(layer).init();
    Ok(())
}

fn ours(ours: LevelFilter, others: LevelFilter) -> Targets {
    // All our packages begin with it.
    Targets::new().with_default(others).with_target("leasehold", ours)
}
