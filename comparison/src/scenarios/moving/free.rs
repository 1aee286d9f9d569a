//! What a move costs who locks without contention: in each phase a free lock, beside the same on the plain stores.
//!
//! All three run in turns on the same servers, so that what the machine does meanwhile befalls all of them.

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

/// In turns; the first round warms up.
async fn in_phase(comparison: &Comparison, phase: Phase, teams: &mut [Team; 3]) -> Result<Free> {
    let effort = Effort::cycles(MOST_CYCLES).until(comparison.scale.span);
    let mut rounds = Vec::new();
    for round in 0..=comparison.scale.runs {
        let mut rates = [0.0; 3];
        for (team, rate) in teams.iter_mut().zip(&mut rates) {
            let history = team.contest(NAME, &effort).await?.whole()?;
            *rate = history.cycles_per_s().ok_or_else(|| Error::new("nobody was granted a free lock"))?;
        }
        if round > 0 {
            rounds.push(rates);
        }
    }
    let middle = |of: fn(&[f64; 3]) -> f64| median(rounds.iter().map(of)).map_or(0.0, rounded);
    Ok(Free {
        phase: phase.to_string(),
        cycles_per_s: middle(|[moving, ..]| *moving),
        beside: vec![middle(|[_, left, _]| *left), middle(|[.., moved_to]| *moved_to)],
        ratios: vec![
            middle(|[moving, left, _]| moving / left),
            middle(|[moving, _, moved_to]| moving / moved_to),
        ],
    })
}

const ONE: Shape = Shape { processes: 1, contenders: 1, sessions: 1 };

const BESIDE: &str = "beside";
