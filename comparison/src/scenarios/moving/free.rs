//! What a move costs who locks without contention: in each phase a free lock, beside the same on the plain stores.
//!
//! All three run in short turns on the same servers, in random order: what the machine does meanwhile befalls all of them,
//! and so does what one leaves to the next, such as a server that was busy a moment ago. As where a free lock is compared, who takes
//! it shares a processor with Redis.

use contender_protocol::now;
use leasehold::migrate::Phase;

use super::live::{DOING, PHASES, admin, step};
use super::{NAME, servers};
use crate::comparison::Comparison;
use crate::driver::{Effort, Shape, Team};
use crate::error::{Error, Result};
use crate::figures::{Chance, median, rounded};
use crate::implementation::Implementation;
use crate::proc::OneProcessor;
use crate::report::Free;
use crate::scenarios::MOST_CYCLES;
use crate::servers::Target;

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
        told.push(in_phase(comparison, phase, &mut teams, &redis).await?);
    }
    admin.close().await.map_err(Error::during("closing the administrator"))?;
    Ok(told)
}

/// What the turns of a phase come to; the first ones warm up.
async fn in_phase(
    comparison: &Comparison,
    phase: Phase,
    teams: &mut [Team; 3],
    redis: &Target,
) -> Result<Free> {
    let scale = comparison.scale;
    let effort = Effort::cycles(MOST_CYCLES).until(scale.turn);
    let (mut chance, mut rates, mut order) = (Chance::of(now()), [const { Vec::new() }; 3], [0, 1, 2]);
    for round in 0..=scale.rounds {
        chance.shuffle(&mut order);
        for who in order {
            let bound = OneProcessor::of([teams[who].pids(), redis.pids()].concat());
            let history = teams[who].contest(NAME, &effort).await?.whole()?;
            drop(bound);
            let rate = history.cycles_per_s().ok_or_else(|| Error::new("nobody was granted a free lock"))?;
            if round > 0 {
                rates[who].push(rounded(rate));
            }
        }
    }
    let [moving, left, moved_to] = rates;
    let middle = |of: &[f64]| median(of.iter().copied()).map_or(0.0, rounded);
    let ratios =
        |store: &[f64]| moving.iter().zip(store).map(|(rate, plain)| rounded(rate / plain)).collect();
    let ratios_of_runs: Vec<Vec<f64>> = vec![ratios(&left), ratios(&moved_to)];
    Ok(Free {
        phase: phase.to_string(),
        cycles_per_s: middle(&moving),
        beside: vec![middle(&left), middle(&moved_to)],
        ratios: ratios_of_runs.iter().map(|of| middle(of)).collect(),
        ratios_of_runs,
    })
}

const ONE: Shape = Shape { processes: 1, contenders: 1, sessions: 1 };

const BESIDE: &str = "beside";
