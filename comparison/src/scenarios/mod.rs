//! The questions that are put to every implementation.
//!
//! Most are contests: contenders, spread over processes and sessions, go through one lock again
//! and again, and their history answers. What differs is how many, how they are spread, and for how
//! long. Runs of different implementations are interleaved, so that what the machine does meanwhile
//! befalls all of them.

mod churn;
mod contest;
mod counter;
mod crash;
mod distance;
pub(crate) mod held;
pub(crate) mod kinds;
#[cfg(feature = "etcd")]
pub(crate) mod moving;

use std::sync::Arc;
use std::time::Duration;

use crate::comparison::Comparison;
use crate::driver::{Effort, Kept, Shape};
use crate::implementation::Implementation;
use crate::options::{Scenario, Store};
use crate::peers::MOST_CONNECTIONS;
use crate::servers::Target;

use contest::Contest;

/// Runs one scenario on every store.
pub(crate) async fn run(comparison: &mut Comparison, scenario: Scenario) {
    let stores = Arc::clone(&comparison.stores);
    if scenario > LAST_CONTEST {
        comparison.kept = Kept::default();
    }
    for (target, everybody) in stores.iter() {
        let is_brief = matches!(scenario, Scenario::Uncontended | Scenario::Processes);
        if target.store == Store::Postgres && !is_brief && !comparison.scale.with_heavy {
            comparison.leave_out(format!("{} in {scenario}", target.label), "only in the full mode");
            continue;
        }
        comparison.begin(&format!("{}: {scenario}", target.label));
        let everybody: Vec<_> = everybody.iter().filter(|who| who.takes_part_in(scenario)).copied().collect();
        on_store(comparison, scenario, target, &everybody).await;
        comparison.end();
    }
}

async fn on_store(
    comparison: &mut Comparison,
    scenario: Scenario,
    target: &Target,
    everybody: &[Implementation],
) {
    let scale = comparison.scale;
    let (runs, span) = scale.runs;
    let timed = Effort::cycles(MOST_CYCLES);
    let mut contests = Vec::new();
    let mut contest = |contenders: u64, shape: Shape, effort: Effort, rounds: u32| {
        contests.push(Contest { scenario, url: target.url.clone(), contenders, shape, effort, rounds });
    };
    match scenario {
        Scenario::Uncontended | Scenario::Distance => contest(1, sessions(1), timed, scale.rounds),
        Scenario::HandOff => contest(2, processes(target.store, 2), timed, scale.rounds),
        Scenario::Tasks => {
            for &tasks in scale.tasks {
                let shape = Shape { contenders: tasks, ..sessions(1) };
                // So many take long to have had their turn once.
                let long = Effort::cycles(NO_BOUND).until(span);
                let (effort, rounds) = if tasks > 64 { (long, runs) } else { (timed.clone(), scale.rounds) };
                contest(tasks.into(), shape, effort, rounds);
            }
        }
        Scenario::Names => {
            for &names in scale.names {
                contest(
                    names.into(),
                    Shape { contenders: names, ..sessions(1) },
                    timed.clone(),
                    scale.rounds,
                );
            }
        }
        Scenario::Processes => {
            for &count in scale.processes {
                contest(count as u64, processes(target.store, count), timed.clone(), scale.rounds);
            }
        }
        Scenario::Crowd => {
            let voters = target.store == Store::RedisQuorum;
            let most = if target.store == Store::Postgres { MOST_CONNECTIONS / 2 } else { u64::MAX };
            let counts = if voters { scale.crowd_of_voters } else { scale.crowd };
            for &count in counts.iter().filter(|count| **count <= most) {
                contest(count, sessions(count), timed.clone(), scale.rounds);
            }
        }
        Scenario::Fairness => {
            let effort = Effort { hold: HOLD, ..timed.until(span) };
            contest(8, processes(target.store, 8), effort, runs);
        }
        Scenario::Crash => return crash::run(comparison, target, everybody).await,
        Scenario::Churn => return churn::run(comparison, target, everybody).await,
        Scenario::Kinds => return kinds::run(comparison, target, everybody).await,
        Scenario::Counter => return counter::run(comparison, target, everybody).await,
        Scenario::Held | Scenario::Move | Scenario::Claims => {}
    }
    for contest in contests {
        match scenario {
            Scenario::Distance => distance::run(comparison, target, everybody, contest).await,
            _ => contest.run(comparison, target, everybody).await,
        }
    }
}

/// A process each; where locks do not leave the process, a session each.
fn processes(store: Store, count: usize) -> Shape {
    match store {
        Store::Memory => sessions(count as u64),
        _ => Shape { processes: count, ..sessions(1) },
    }
}

/// A session each, in one process.
fn sessions(count: u64) -> Shape {
    let contenders = u32::try_from(count).unwrap_or(u32::MAX);
    Shape { processes: 1, contenders, sessions: contenders as usize }
}

/// Enough for a median, and not too much for a journal.
const MOST_CYCLES: u64 = 50_000;

/// Those after it start processes of their own.
const LAST_CONTEST: Scenario = Scenario::Fairness;

/// No number of cycles ends it.
const NO_BOUND: u64 = 0;

/// How long each holds when the order is looked at.
const HOLD: Duration = Duration::from_millis(1);
