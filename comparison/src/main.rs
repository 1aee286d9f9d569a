//! The comparison: every store, its floor and the libraries of others, measured in one run on real
//! servers.
//!
//! It starts the servers it finds, puts the same questions to every implementation in processes of the
//! same kind, and leaves `report.json`, `report.html` and `report.txt`. What cannot take part is left out and said to
//! be, with the reason.
//!
//! | part | where |
//! |---|---|
//! | what is asked for | [`Options`], `scale` |
//! | who takes part, and on what | `implementation`, `peers`, `servers` |
//! | processes that contend | `worker` (what they do), `driver` (how they are told), `comparison/peers/README.md` (the lines in between) |
//! | the questions | `scenarios`, `claims` |
//! | whether the answers can be believed | `scrutiny` |
//! | what follows from the answers | `history`, `figures`, `proc` |
//! | what is shown | `report`, `comparison/templates`, `environment`, `progress` |
//!
//! # Invariants
//! - **comparison-1** Every rate and every time of a contest comes from a history whose exclusion was checked,
//!   by a check that has found out, in the same run, what is no lock; violations are counted and printed, whoever's
//!   they are.
//! - **comparison-2** What is not known is null.
//! - **comparison-3** Servers and processes end with the comparison.
//!
//! Not promised: that two reports compare. Within one they do.

#![cfg_attr(
    not(feature = "etcd"),
    allow(dead_code, reason = "a move is to etcd, and much is there for it alone")
)]

mod claims;
mod comparison;
#[cfg(test)]
mod documents;
mod driver;
mod environment;
mod error;
mod figures;
mod history;
mod implementation;
mod options;
mod peers;
mod proc;
mod progress;
mod report;
mod scale;
mod scenarios;
mod scrutiny;
mod servers;
mod worker;

use std::fs;
use std::process::ExitCode;

use clap::Parser;
use contender_protocol::now;
use rustix::process::{Resource, getrlimit, setrlimit};
use rustix::termios::tcgetwinsize;
use tokio::signal::unix::{SignalKind, signal};

use crate::comparison::Comparison;
use crate::error::Error;
use crate::figures::rounded;
use crate::options::{Options, Scenario};
use crate::report::Report;

fn main() -> ExitCode {
    let ended = match worker::work_if_told() {
        Some(worked) => worked.map_err(Error::during("contending")),
        None => match Options::parse() {
            options if options.redraw => redraw(&options),
            options => compare(&options),
        },
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn compare(options: &Options) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(Error::during("starting"))?;
    allow_many_files();
    runtime.block_on(async {
        tokio::select! {
            compared = compare_all(options) => compared,
            stopped = stopped() => Err(stopped),
        }
    })
}

/// What ends a comparison early. Servers and files go with the future that has them.
async fn stopped() -> Error {
    let mut terminate = match signal(SignalKind::terminate()) {
        Ok(terminate) => terminate,
        Err(error) => return Error::during("listening for signals")(error),
    };
    tokio::select! {
        _interrupted = tokio::signal::ctrl_c() => {}
        _terminated = terminate.recv() => {}
    }
    Error::new("stopped by a signal; there is no report")
}

async fn compare_all(options: &Options) -> Result<(), Error> {
    let began = now();
    let mut comparison = Comparison::prepare(options).await?;
    scrutiny::run(&mut comparison).await?;
    for scenario in options.scenarios() {
        match scenario {
            Scenario::Held => scenarios::held::run(&mut comparison).await,
            Scenario::Claims => claims::run(&mut comparison).await,
            #[cfg(feature = "etcd")]
            Scenario::Move => scenarios::moving::run(&mut comparison).await,
            #[cfg(not(feature = "etcd"))]
            Scenario::Move => comparison.leave_out("move", "this build has no etcd"),
            scenario => scenarios::run(&mut comparison, scenario).await,
        }
    }
    let of_a_move = claims::of_a_move(&comparison.report.free);
    comparison.report.claims.extend(of_a_move);
    comparison.progress.finish();
    comparison.report.environment.took_s = Some(rounded((now() - began) as f64 / 1e9));
    comparison.report.environment.timed_s = Some(comparison.report.timed_s());
    let json = comparison.report.json()?;
    write(options, "report.json", &json)?;
    write_to_read(options, &comparison.report)?;
    let width = terminal_size().map_or(WIDTH, usize::from);
    if options.json {
        print!("{json}");
    } else if options.tables {
        print!("{}", report::tables(&comparison.report, width));
    } else {
        print!("{}", report::screen(&comparison.report, width));
        let out = options.out.display();
        println!(
            "the report: {out}/report.html, and report.json and report.txt beside it; --tables prints that"
        );
    }
    match comparison.report.failing() {
        Some(failing) if options.strict => Err(Error::new(failing)),
        _ => Ok(()),
    }
}

/// Everything but the figures: by the words and the bounds of today.
fn redraw(options: &Options) -> Result<(), Error> {
    let path = options.out.join("report.json");
    let json = fs::read(&path).map_err(Error::during(format!("reading {}", path.display())))?;
    let mut report = serde_json::from_slice(&json).map_err(Error::during("reading the report"))?;
    claims::judge_anew(&mut report);
    write_to_read(options, &report)
}

/// The page and the tables.
fn write_to_read(options: &Options, report: &Report) -> Result<(), Error> {
    write(options, "report.html", &report::page(report)?)?;
    write(options, "report.txt", &report::tables(report, WIDTH))
}

fn write(options: &Options, name: &str, text: &str) -> Result<(), Error> {
    let path = options.out.join(name);
    fs::write(&path, text).map_err(Error::during(format!("writing {}", path.display())))
}

/// The columns of the terminal that is written to, if it is one.
fn terminal_size() -> Option<u16> {
    tcgetwinsize(std::io::stdout()).ok().map(|size| size.ws_col).filter(|columns| *columns >= NARROWEST)
}

/// Where there is no terminal, or one that is narrower than the longest words beside each other.
const WIDTH: usize = 120;
const NARROWEST: u16 = 60;

/// Ten thousand locks in files are ten thousand files. Children inherit it.
fn allow_many_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Where that is not allowed, the scenario that needs it says so.
    let _unchanged = setrlimit(Resource::Nofile, limit);
}
