//! What a move costs who locks without contention: in each phase a free lock, beside the same on the plain stores.
//!
//! All three run in short turns on the same servers, in every order equally often: what the machine does meanwhile befalls
//! all of them, and so does what one leaves to the next, such as a server that was busy a moment ago.

use leasehold::migrate::Phase;

use super::live::{DOING, PHASES, admin, step};
use super::{NAME, servers};
use crate::comparison::Comparison;
use crate::driver::{Effort, Shape, Team};
use crate::error::{Error, Result};
use crate::figures::{median, rounded};
use crate::implementation::Implementation;
use crate::report::Free;
use crate::scenarios::MOST_CYCLES;

pub(super) async fn run(comparison: &Comparison) -> Result<Vec<Free>> {
    let (redis, etcd) = servers(comparison).await?;
    let moving = format!("{}?migrate_to={}", redis.url, etcd.url);
    // A plain session of the same namespace would be barred on the way.
    let beside = |url: &str| format!("{url}?prefix={BESIDE}");
    let team = async |url: String| Team::start(Implementation::Ours, &[url], ONE, comparison.room()).await;
    let mut teams = [team(moving).await?, team(beside(&redis.url)).await?, team(beside(&etcd.url)).await?];
    let admin = admin(&redis.url, &etcd.url).await.map_err(Error::during(DOING))?;
    let mut told = Vec::new();
    for phase in PHASES {
        step(&admin, phase).await?;
        told.push(in_phase(comparison, phase, &mut teams).await?);
    }
    admin.close().await.map_err(Error::during("closing the administrator"))?;
    Ok(told)
}

/// What the runs of a phase come to; the first one warms up.
async fn in_phase(comparison: &Comparison, phase: Phase, teams: &mut [Team; 3]) -> Result<Free> {
    let effort = Effort::cycles(MOST_CYCLES).until(comparison.scale.span / SHARE);
    let mut runs = Vec::new();
    for run in 0..=comparison.scale.runs {
        let rates = in_turns(&effort, teams).await?;
        if run > 0 {
            runs.push(rates);
        }
    }
    let middle = |of: &dyn Fn(&Run) -> f64| median(runs.iter().map(of)).map_or(0.0, rounded);
    let each = |of: fn(&Run, usize) -> f64| vec![middle(&|run| of(run, 0)), middle(&|run| of(run, 1))];
    Ok(Free {
        phase: phase.to_string(),
        cycles_per_s: middle(&|run| run.cycles_per_s),
        beside: each(|run, store| run.beside[store]),
        ratios: each(|run, store| run.ratios[store]),
        ratios_of_runs: [0, 1].map(|store| runs.iter().map(|run| run.ratios[store]).collect()).to_vec(),
    })
}

/// The middle rates of a run's turns, and the middle ratios of those that were side by side: to the store that is left, and to
/// the one moved to.
struct Run {
    cycles_per_s: f64,
    beside: [f64; 2],
    ratios: [f64; 2],
}

async fn in_turns(effort: &Effort, teams: &mut [Team; 3]) -> Result<Run> {
    let mut turns = Vec::new();
    for order in ORDERS {
        let mut rates = [0.0; 3];
        for who in order {
            let history = teams[who].contest(NAME, effort).await?.whole()?;
            rates[who] =
                history.cycles_per_s().ok_or_else(|| Error::new("nobody was granted a free lock"))?;
        }
        turns.push(rates);
    }
    let middle = |of: fn(&[f64; 3]) -> f64| median(turns.iter().map(of)).map_or(0.0, rounded);
    Ok(Run {
        cycles_per_s: middle(|[moving, ..]| *moving),
        beside: [middle(|[_, left, _]| *left), middle(|[.., moved_to]| *moved_to)],
        ratios: [
            middle(|[moving, left, _]| moving / left),
            middle(|[moving, _, moved_to]| moving / moved_to),
        ],
    })
}

const ONE: Shape = Shape { processes: 1, contenders: 1, sessions: 1 };

const BESIDE: &str = "beside";

/// A turn takes that part of a span: there are many.
const SHARE: u32 = 4;

/// Every one of the three comes after each of the others, and in each place.
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
