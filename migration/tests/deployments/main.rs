//! Whole deployments in virtual time: processes with the old store's URL, with both, with the new one's come and go
//! while administrators walk through the phases, and everything fails now and then. Judged as the simulation of the
//! kit is, in both stores besides; and the proof that this can fail.
//!
//! `LEASEHOLD_DEPTH` says how many seeds run; `LEASEHOLD_SEED=n` runs that one and shows all of it.
//!
//! | part | is |
//! |---|---|
//! | `scenario` | what a seed decides before |
//! | `station` | one of the two stores, and the ways to it |
//! | `fleet` | the processes, and the phases of a run |
//! | `chaos` | what goes wrong |
//! | `walker` | administrators |
//! | `plants` | rules that are broken on purpose |
//! | `tally` | what runs came to, in numbers |

mod chaos;
mod fleet;
mod plants;
mod scenario;
mod station;
mod tally;
mod walker;

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use leasehold_conformance::history::History;
use leasehold_core::backend::stage::Side;
use libtest_mimic::{Arguments, Failed, Trial};
use testbed::Depth;

use crate::fleet::{Report, run};
use crate::plants::Plant;
use crate::tally::Tally;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    if let Some(seed) = testbed::seed() {
        return replay(seed);
    }
    let mut trials = vec![
        Trial::test("deployments::seeds_keep_every_promise", seeds_keep_every_promise),
        Trial::test("deployments::a_seed_repeats_exactly", a_seed_repeats_exactly),
    ];
    for (name, plant, shows_as) in FINDS {
        let name = format!("deployments::finds::{name}");
        trials.push(Trial::test(name, move || a_broken_rule_is_found(plant, shows_as)));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Rules whose breach must show, and as what.
const FINDS: [(&str, Plant, &str); 2] = [
    ("sessions_that_ignore_the_phase", Plant::IgnoresPhases, "G1 overlap"),
    ("entries_that_acknowledge_early", Plant::AcknowledgesEarly, "G1 overlap"),
];

/// Whatever is replaced and whatever goes wrong, locks are kept as promised.
fn seeds_keep_every_promise() -> Result<(), Failed> {
    let depth = Depth::of_run();
    let seeds = depth.seeds(15, 60, 20_000);
    let began = began();
    let (total, next) = (Mutex::new(Total::default()), AtomicU64::new(seeds.start));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let ran = std::panic::catch_unwind(|| run(seed, None));
                    let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
                    match ran {
                        Ok(report) => total.add(&report),
                        Err(_) => total.failed.push((seed, "panicked".to_owned())),
                    }
                }
            });
        }
    });
    let mut total = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{}, {:.1} s", total.tally, began.elapsed().as_secs_f64());
    total.failed.sort();
    match total.failed.first() {
        None if depth == Depth::Check => Ok(()),
        None => Ok(total.tally.has_been_everywhere()?),
        Some((first, _)) => {
            let failed = total.failed.iter().map(|(seed, first)| format!("seed {seed}: {first}"));
            let failed = failed.collect::<Vec<_>>().join("\n");
            let (count, of) = (total.failed.len(), seeds.end - seeds.start);
            let message =
                format!("{count} of {of} seeds failed:\n{failed}\nreplay with LEASEHOLD_SEED={first}");
            Err(message.into())
        }
    }
}

/// The same seed gives the same history, so a failure can be looked at again.
fn a_seed_repeats_exactly() -> Result<(), Failed> {
    for seed in 0..REPEATED_SEEDS {
        let (first, second) = (run(seed, None), run(seed, None));
        if first.history != second.history {
            let events = first.history.events().iter().zip(second.history.events());
            let differ = events.into_iter().find(|(one, other)| one != other);
            return Err(format!("seed {seed} differs: {differ:?}").into());
        }
    }
    Ok(())
}

/// A silence of the judges means something.
fn a_broken_rule_is_found(plant: Plant, shows_as: &str) -> Result<(), Failed> {
    let found = (0..SEEDS_TO_FIND).find_map(|seed| {
        let violations = run(seed, Some(plant)).violations;
        let shown = violations.into_iter().find(|found| found.starts_with(shows_as))?;
        Some((seed, shown))
    });
    match found {
        Some((seed, violation)) => {
            model::caught("move simulation", plant, shows_as);
            println!("  seed {seed}: {violation}");
            Ok(())
        }
        None => Err(format!("{plant:?} is not found within {SEEDS_TO_FIND} seeds: the run is void").into()),
    }
}

fn replay(seed: u64) -> ExitCode {
    let report = run(seed, None);
    println!("{}", describe(&report));
    if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Everything that happened, in order; what happened in a store stands with its name.
fn describe(report: &Report) -> String {
    let mut lines = lines(&report.history, "");
    for (side, history) in &report.stores {
        lines.extend(self::lines(history, if *side == Side::Old { "old " } else { "new " }));
    }
    lines.sort_by_key(|(at, _)| *at);
    let mut text: Vec<_> = lines.into_iter().map(|(_, line)| line).collect();
    text.push(format!("seed {}: {} violations; {}", report.seed, report.violations.len(), report.tally));
    text.extend(report.violations.iter().cloned());
    text.join("\n")
}

fn lines(history: &History, at: &str) -> Vec<(u64, String)> {
    history.events().iter().map(|event| (event.at.as_nanos(), format!("{at:4}{event}"))).collect()
}

fn began() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "how long a test run took, for people")]
    Instant::now()
}

/// What all seeds came to.
#[derive(Default)]
struct Total {
    tally: Tally,
    /// Failed seeds, each with its first violation.
    failed: Vec<(u64, String)>,
}

impl Total {
    fn add(&mut self, report: &Report) {
        self.tally.add(&report.tally);
        if let Some(first) = report.violations.first() {
            self.failed.push((report.seed, first.clone()));
        }
    }
}

const REPEATED_SEEDS: u64 = 3;
const SEEDS_TO_FIND: u64 = 40;
