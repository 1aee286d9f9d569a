//! Many locks held by one process: what they cost its memory, and the server.

use std::time::Duration;

use crate::comparison::Comparison;
use crate::driver::Worker;
use crate::error::Result;
use crate::figures::rounded;
use crate::implementation::Implementation;
use crate::options::Scenario;
use crate::report::Row;
use crate::servers::Target;

pub(super) async fn run(comparison: &mut Comparison, target: &Target, everybody: &[Implementation]) {
    let locks = comparison.scale.locks;
    let only_ours = comparison.scale.spares_heavy;
    let able = everybody.iter().filter(|who| !who.is_floor() && !who.is_heavy());
    for who in able.filter(|who| who.is_ours() || !only_ours) {
        comparison.progress.doing(format!("{}: {} holds {locks} locks", target.label, who.name()));
        let row = Row::of(Scenario::Held, target, who, locks as u64);
        match hold(comparison, target, who, locks).await {
            Ok((bytes, requests_per_cycle)) => {
                comparison.drawings.memory.insert(row.who(), bytes);
                comparison.add(Row { requests_per_cycle, ..row });
            }
            Err(error) => comparison.give_up(&row, &error),
        }
    }
}

/// Bytes per lock, and requests per third of the ttl.
async fn hold(
    comparison: &Comparison,
    target: &Target,
    who: &Implementation,
    locks: usize,
) -> Result<(f64, Option<f64>)> {
    let mut worker = Worker::start(who, std::slice::from_ref(&target.url), comparison.room()).await?;
    let ttl = comparison.scale.held_ttl;
    worker.open(1, ttl).await?;
    // What a first lock brings along is not what a further one costs.
    worker.hold(&format!("compare-first-{}", who.name()), 64).await?;
    let before = worker.memory()?;
    worker.hold(&format!("compare-held-{}", who.name()), locks).await?;
    let bytes = worker.memory()?.saturating_sub(before) as f64 / locks as f64;
    let requests = if target.counts() { renewals(target, ttl).await? } else { None };
    Ok((rounded(bytes), requests))
}

/// Requests per third of the ttl.
async fn renewals(target: &Target, ttl: Duration) -> Result<Option<f64>> {
    // What a lock that is kept asks once, with its first renewal, is not what it asks for ever.
    tokio::time::sleep(ttl / 2).await;
    let Some(counting) = target.count().await else {
        return Ok(None);
    };
    tokio::time::sleep(ttl).await;
    Ok(Some(rounded(counting.end().await? as f64 / 3.0)))
}
