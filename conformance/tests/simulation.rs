//! Thousands of seeds of the simulation, and the proof that it can fail.
//!
//! `LEASEHOLD_DEPTH` says how many seeds run; `LEASEHOLD_SEED=n` runs that one and shows all of it.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use leasehold_conformance::bugs::bugs;
use leasehold_conformance::history::What;
use leasehold_conformance::invariants::Property;
use leasehold_conformance::simulation::{self, FINDS, Report};
use leasehold_core::FencingToken;
use libtest_mimic::{Arguments, Failed, Trial};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    if let Some(seed) = testbed::seed() {
        return replay(seed);
    }
    let mut trials = vec![
        Trial::test("simulation::seeds_keep_every_promise", seeds_keep_every_promise),
        Trial::test("simulation::a_seed_repeats_exactly", a_seed_repeats_exactly),
    ];
    for (bug, shows_as) in FINDS {
        let name = format!("simulation::finds::{bug}");
        trials.push(Trial::test(name, move || a_planted_bug_is_found(bug, shows_as)));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Whatever goes wrong, the core keeps what it promises.
fn seeds_keep_every_promise() -> Result<(), Failed> {
    let seeds = testbed::Depth::of_run().seeds(300, 2_000, 100_000);
    let began = began();
    let total = Mutex::new(Total::default());
    let next = AtomicU64::new(seeds.start);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let ran = std::panic::catch_unwind(|| simulation::run(seed, None));
                    let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
                    match ran {
                        Ok(report) => total.add(report),
                        Err(_) => total.panicked.push(seed),
                    }
                }
            });
        }
    });
    let total = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{total}, {:.1} s", began.elapsed().as_secs_f64());
    if let Some(seed) = total.panicked.iter().min() {
        let count = total.panicked.len();
        return Err(format!("{count} seeds panicked, replay with LEASEHOLD_SEED={seed}").into());
    }
    match total.worst {
        None => Ok(()),
        Some(report) => {
            let failed = total.failed.iter().map(|(seed, first)| format!("seed {seed}: {first}"));
            let failed: Vec<_> = failed.collect();
            Err(format!(
                "{}\n\n{} of {} seeds failed:\n{}\nreplay with LEASEHOLD_SEED={}",
                describe(&report, TAIL),
                failed.len(),
                seeds.end - seeds.start,
                failed.join("\n"),
                report.seed
            )
            .into())
        }
    }
}

/// The same seed gives the same history, so a failure can be looked at again.
fn a_seed_repeats_exactly() -> Result<(), Failed> {
    for seed in 0..REPEATED_SEEDS {
        let (first, second) = (simulation::run(seed, None), simulation::run(seed, None));
        if first.history != second.history {
            let events = first.history.events().iter().zip(second.history.events());
            let differ = events.into_iter().find(|(one, other)| one != other);
            return Err(match differ {
                Some((one, other)) => format!("seed {seed} differs:\n{one}\n{other}"),
                None => format!("seed {seed}: one history is longer than the other"),
            }
            .into());
        }
    }
    Ok(())
}

/// A silence of the simulation means something.
fn a_planted_bug_is_found(name: &str, shows_as: &[Property]) -> Result<(), Failed> {
    let bug = bugs().find(|bug| bug.name == name).ok_or_else(|| format!("there is no bug {name}"))?;
    let found = (0..SEEDS_TO_FIND).find_map(|seed| {
        let violations = simulation::run(seed, Some(bug)).violations;
        let shown = violations.into_iter().find(|found| shows_as.contains(&found.property))?;
        Some((seed, shown))
    });
    match found {
        Some((seed, violation)) => {
            println!("mutant simulation {name}: caught by {:?}", violation.property);
            println!("  seed {seed}: {violation}");
            Ok(())
        }
        None => Err(format!("{bug:?} is not found within {SEEDS_TO_FIND} seeds: the run is void").into()),
    }
}

fn replay(seed: u64) -> ExitCode {
    let report = simulation::run(seed, None);
    println!("{}", describe(&report, usize::MAX));
    if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The violations and the last events of the trace.
fn describe(report: &Report, events: usize) -> String {
    let trace = report.history.events();
    let skipped = trace.len().saturating_sub(events);
    let mut lines: Vec<_> = trace[skipped..].iter().map(ToString::to_string).collect();
    lines.push(format!(
        "seed {}: {} events, {} violations",
        report.seed,
        trace.len(),
        report.violations.len()
    ));
    lines.extend(report.violations.iter().map(ToString::to_string));
    lines.join("\n")
}

fn began() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "how long a test run took, for people")]
    Instant::now()
}

/// What all seeds came to.
#[derive(Default)]
struct Total {
    seeds: u64,
    /// Seeds that broke the simulation, or an assertion of the core.
    panicked: Vec<u64>,
    /// Failed seeds, each with its first violation.
    failed: BTreeMap<u64, String>,
    acquisitions: u64,
    holds: u64,
    hand_offs: u64,
    losses: u64,
    faults: u64,
    events: u64,
    /// The failed report of the smallest seed.
    worst: Option<Report>,
}

impl Total {
    fn add(&mut self, report: Report) {
        self.seeds += 1;
        self.faults += report.faults;
        for event in report.history.events() {
            match event.what {
                What::Invoked { .. } => self.acquisitions += 1,
                What::Granted { token, .. } => {
                    self.holds += 1;
                    self.hand_offs += u64::from(Some(token) != FencingToken::new(token.counter(), 0));
                }
                What::LostTold { .. } => self.losses += 1,
                _ => {}
            }
        }
        self.events += report.history.events().len() as u64;
        if !report.violations.is_empty() {
            self.failed.insert(report.seed, report.violations[0].to_string());
            if self.worst.as_ref().is_none_or(|worst| report.seed < worst.seed) {
                self.worst = Some(report);
            }
        }
    }
}

impl std::fmt::Display for Total {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { seeds, acquisitions, holds, hand_offs, losses, faults, events, .. } = self;
        write!(
            f,
            "simulation: {seeds} seeds, {acquisitions} acquisitions, {holds} holds, {hand_offs} of them \
             handed on locally, {losses} lost, {faults} faults, {events} events"
        )
    }
}

const REPEATED_SEEDS: u64 = 25;
const SEEDS_TO_FIND: u64 = 200;
const TAIL: usize = 60;
