//! What the comparison is going to do, step by step, and about how long each takes: what a person is told who waits.
//!
//! It is calculated from what is measured anyway, so that a mode that gets longer says so, and a test holds it against what
//! the modes promise.

use leasehold::Guarantees;

use crate::implementation::Implementation;
use crate::options::{Scenario, Store};
use crate::scale::{CRASH_TTL, Scale};
use crate::scenarios::held::{LEASE_OF_MANY, MOST_TOGETHER, PATIENCE};
use crate::scenarios::{AT_ONCE, FEW_RUNS, PROFILED};

/// Everybody on one store.
type There<'a> = (Store, &'a [Implementation]);

/// In seconds, in the order in which they are run.
pub(crate) fn steps(scale: &Scale, scenarios: &[Scenario], stores: &[There<'_>]) -> Vec<f64> {
    let mut steps = Vec::new();
    for scenario in scenarios {
        match scenario {
            Scenario::Held => steps.push(held(scale, stores)),
            Scenario::Move => steps.push(12.0 * scale.phase.as_secs_f64() + 280.0 * scale.span.as_secs_f64()),
            Scenario::Claims => steps.push(30.0),
            scenario => steps.extend(stores.iter().map(|there| on_store(scale, *scenario, *there))),
        }
    }
    steps
}

fn on_store(scale: &Scale, scenario: Scenario, (store, everybody): There<'_>) -> f64 {
    let (span, warm_up) = (scale.span.as_secs_f64(), scale.warm_up.as_secs_f64());
    let (checked, counted) = (scale.checked.as_secs_f64(), scale.counted.as_secs_f64());
    let heavy = scale.with_heavy;
    // Who waits, may be slow to start if that is asked for, and takes so many.
    let able = |contenders: u64, heavy: bool| {
        let able = everybody.iter().filter(move |who| contenders <= who.most_contenders());
        able.filter(move |who| heavy || !who.is_heavy())
    };
    let slow = everybody.iter().filter(|who| who.is_heavy()).count() as f64;
    // What has a virtual machine starts, and is warm after a part of the time that it has.
    let start = slow * (1.0 + warm_up / 3.0);
    // Each is started, looked at, counted and then timed in turns that end when the last one was served.
    let turns = |runs: u32, span: f64| f64::from(runs) * (span + 0.08);
    let contest =
        |able: usize, runs: u32, span: f64| able as f64 * (0.1 + checked + counted + turns(runs, span));
    let contested = |contenders: u64, heavy: bool| contest(able(contenders, heavy).count(), scale.runs, span);
    // Nobody can be in the way of who is alone.
    let alone = |able: usize| able as f64 * (0.1 + counted + turns(scale.runs, span));
    match scenario {
        Scenario::Uncontended => {
            alone(everybody.len()) + everybody.len() as f64 * PROFILED.as_secs_f64() + start
        }
        Scenario::Distance if matches!(store, Store::Memory | Store::File) => 0.0,
        Scenario::Distance => alone(able(1, heavy).count()) + if heavy { start } else { 0.0 },
        Scenario::HandOff => contested(2, heavy) + if heavy { start } else { 0.0 },
        Scenario::Tasks => {
            let (runs, span) = scale.tasks_runs;
            let timed = |tasks: &u32| {
                let able = able(u64::from(*tasks), heavy).filter(|who| !who.is_floor());
                // With a mutex in front as well.
                let entries: usize = able.map(|who| 1 + usize::from(who.fronted().is_some())).sum();
                contest(entries, runs, span.as_secs_f64() + 0.15)
            };
            scale.tasks.iter().map(timed).sum()
        }
        Scenario::Processes => {
            let counts = scale.processes.iter().map(|count| contested(*count as u64, true));
            counts.sum::<f64>() + if heavy { 0.0 } else { start }
        }
        Scenario::Crowd => {
            let counts = if store == Store::RedisQuorum { scale.crowd_of_voters } else { scale.crowd };
            let each = |count: &u64| match *count {
                few if few <= AT_ONCE => contested(few, heavy),
                many => {
                    let turns = able(many, heavy).count() as f64 * f64::from(FEW_RUNS);
                    turns * (span + 1.0 + many as f64 / 250.0)
                }
            };
            counts.iter().map(each).sum()
        }
        Scenario::Fairness => contest(able(8, true).count(), FEW_RUNS, 2.0 * span),
        Scenario::Crash if store == Store::Memory => 0.0,
        Scenario::Crash => {
            let able = everybody.iter().filter(|who| !who.is_floor()).count();
            let crashes = able as f64 * f64::from(scale.crashes);
            CRASH_TTL.as_secs_f64() * 2.0 + (crashes + slow * f64::from(scale.crashes)) * 0.3
        }
        Scenario::Counter => {
            let each = |clients: &u32| able(u64::from(*clients), heavy).count() as f64 * 1.2 + 1.0;
            scale.counters.iter().map(each).sum()
        }
        Scenario::Kinds if matches!(store, Store::File | Store::RedisQuorum) => 0.0,
        Scenario::Kinds => {
            let kinds = Guarantees::SHARED | Guarantees::PERMITS;
            let able = everybody.iter().filter(|who| !who.kinds(kinds).is_empty()).count();
            // With our exclusive lock beside them, under three or four loads.
            contest(3 * (able + 1), scale.runs, span) + CRASH_TTL.as_secs_f64() + slow * warm_up / 3.0
        }
        Scenario::Churn => scale.churn.1.as_secs_f64() * if store == Store::File { 1.5 } else { 2.5 },
        Scenario::Held | Scenario::Move | Scenario::Claims => 0.0,
    }
}

/// The few on all stores together, the many one store after the other.
fn held(scale: &Scale, stores: &[There<'_>]) -> f64 {
    let (few, many): (Vec<usize>, Vec<usize>) =
        scale.locks.iter().partition(|locks| **locks <= MOST_TOGETHER);
    let (wait, others) = (1.5 * scale.held_ttl.as_secs_f64(), if scale.with_heavy { 3.0 } else { 0.0 });
    // A part of them goes on when the patience is over, and they are looked at for five sixths of their lease.
    let of_many = (PATIENCE + LEASE_OF_MANY * 5 / 6).as_secs_f64();
    (few.len() as f64 + others) * (wait + 2.0) + (many.len() * stores.len()) as f64 * of_many
}

#[cfg(test)]
mod tests {
    use clap::{Parser, ValueEnum};

    use super::*;
    use crate::options::Options;

    /// With everybody on every store, no mode is planned to take longer than it is said to.
    #[test]
    fn modes_take_as_long_as_they_say() {
        for (mode, most) in [(Some("--quick"), 3.0), (None, 15.0), (Some("--full"), 45.0)] {
            let options = Options::parse_from(["compare"].into_iter().chain(mode));
            let scale = Scale::of(&options);
            let everybody: Vec<_> =
                options.store.iter().map(|store| (*store, Implementation::of(*store, &options))).collect();
            let stores: Vec<There<'_>> = everybody.iter().map(|(store, who)| (*store, &who[..])).collect();
            let planned = steps(&scale, &options.scenarios(), &stores).iter().sum::<f64>() / 60.0;
            assert!(planned < most, "{}: {planned:.1} min", scale.mode);
        }
    }

    /// Every scenario is planned, and what takes part in nothing takes no time.
    #[test]
    fn what_is_asked_is_planned() {
        let nobody: [There<'_>; 1] = [(Store::Redis, &[])];
        let of = |scenario| steps(&Scale::FULL, &[scenario], &nobody);
        assert!(Scenario::value_variants().iter().all(|scenario| of(*scenario).len() == 1));
        assert!(of(Scenario::Tasks)[0] + of(Scenario::Crowd)[0] < 1e-9);
    }
}
