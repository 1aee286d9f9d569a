//! Many seeds of a deployment as tests, and the proof that they can fail.

use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use libtest_mimic::{Arguments, Failed, Trial};

use super::{Deployment, Report, Tally, run};
use crate::history::History;
use crate::invariants::Property;

/// Which seeds run.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "tests construct it")]
pub struct Runs {
    /// Those that must keep every promise.
    pub seeds: Range<u64>,
    /// So many run twice.
    pub repeated: u64,
    /// Within so many every plant must show.
    pub to_find: u64,
    /// The only one to run, with all of its events shown.
    pub replay: Option<u64>,
}

impl Runs {
    /// Runs them as the tests of a program.
    pub fn main<D: Deployment>(self) -> ExitCode {
        let arguments = Arguments::from_args();
        if let Some(seed) = self.replay {
            let report = run::<D>(seed, None);
            println!("{}", describe(&report, usize::MAX));
            return if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
        let Self { seeds, repeated, to_find, .. } = self;
        let named = |what: &str| format!("{}::{what}", D::NAME);
        let mut trials = vec![
            Trial::test(named("seeds_keep_every_promise"), || seeds_keep_every_promise::<D>(seeds)),
            Trial::test(named("a_seed_repeats_exactly"), move || a_seed_repeats_exactly::<D>(repeated)),
        ];
        for (name, plant, shows_as) in D::plants() {
            let found = move || a_plant_is_found::<D>(name, plant, shows_as, to_find);
            trials.push(Trial::test(named(&format!("finds::{name}")), found));
        }
        libtest_mimic::run(&arguments, trials).exit_code()
    }
}

fn seeds_keep_every_promise<D: Deployment>(seeds: Range<u64>) -> Result<(), Failed> {
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
                    let ran = std::panic::catch_unwind(|| run::<D>(seed, None));
                    let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
                    match ran {
                        Ok(report) => total.add(report),
                        Err(_) => total.failed.push((seed, "panicked".to_owned())),
                    }
                }
            });
        }
    });
    let mut total = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{}: {}, {:.1} s", D::NAME, total.tally, began.elapsed().as_secs_f64());
    total.failed.sort();
    if let Some((first, _)) = total.failed.first() {
        let events = total.worst.map(|report| describe(&report, TAIL)).unwrap_or_default();
        let failed: Vec<_> = total.failed.iter().map(|(seed, why)| format!("seed {seed}: {why}")).collect();
        let (count, of) = (failed.len(), seeds.end - seeds.start);
        return Err(format!(
            "{events}\n\n{count} of {of} seeds failed:\n{}\nreplay with LEASEHOLD_SEED={first}",
            failed.join("\n")
        )
        .into());
    }
    // Runs that went nowhere would show nothing; a few need not have been everywhere.
    let rare: Vec<_> = D::wanted().into_iter().filter(|what| total.tally.is_rare(what)).collect();
    if rare.is_empty() || seeds.end - seeds.start < MANY {
        Ok(())
    } else {
        Err(format!("hardly ever: {rare:?}").into())
    }
}

fn a_seed_repeats_exactly<D: Deployment>(seeds: u64) -> Result<(), Failed> {
    for seed in 0..seeds {
        let [first, second] = [(); 2].map(|()| run::<D>(seed, None).history);
        if first != second {
            let mut events = first.events().iter().zip(second.events());
            let differ = events.find(|(one, other)| one != other);
            let differ = differ.map(|(one, other)| format!("{one}\n{other}"));
            return Err(format!("seed {seed} differs:\n{}", differ.unwrap_or_default()).into());
        }
    }
    Ok(())
}

/// A silence of the judges means something.
fn a_plant_is_found<D: Deployment>(
    name: &str,
    plant: D::Plant,
    shows_as: &[Property],
    seeds: u64,
) -> Result<(), Failed> {
    let found = (0..seeds).find_map(|seed| {
        let violations = run::<D>(seed, Some(plant)).violations;
        Some((seed, violations.into_iter().find(|found| shows_as.contains(&found.property))?))
    });
    match found {
        Some((seed, violation)) => {
            println!("mutant {} {name}: caught by {}", D::NAME, violation.property);
            println!("  seed {seed}: {violation}");
            Ok(())
        }
        None => Err(format!("{plant:?} is not found within {seeds} seeds: the run is void").into()),
    }
}

/// The last events, in order; those of a store of several with its number; and the violations.
fn describe(report: &Report, events: usize) -> String {
    let lines = |history: &History, at: &str| -> Vec<_> {
        history.events().iter().map(|event| (event.at, format!("{at}{event}"))).collect()
    };
    let mut trace = lines(&report.history, "");
    for (at, history) in report.stores.iter().enumerate() {
        trace.extend(lines(history, &format!("store {at} ")));
    }
    trace.sort_by_key(|(at, _)| *at);
    let mut text: Vec<_> = trace.into_iter().map(|(_, line)| line).collect();
    text.drain(..text.len().saturating_sub(events));
    text.push(format!("seed {}: {} violations; {}", report.seed, report.violations.len(), report.tally));
    text.extend(report.violations.iter().map(ToString::to_string));
    text.join("\n")
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
    /// The failed report of the smallest seed.
    worst: Option<Report>,
}

impl Total {
    fn add(&mut self, report: Report) {
        self.tally.add(&report.tally);
        if let Some(first) = report.violations.first() {
            self.failed.push((report.seed, first.to_string()));
            if self.worst.as_ref().is_none_or(|worst| report.seed < worst.seed) {
                self.worst = Some(report);
            }
        }
    }
}

const MANY: u64 = 60;
const TAIL: usize = 60;
