//! Many locks held by one process: what they cost its memory, its processor, and the server.

use crate::comparison::Comparison;
use crate::driver::Worker;
use crate::error::Result;
use crate::figures::{median, rounded};
use crate::implementation::Implementation;
use crate::options::Scenario;
use crate::report::Row;
use crate::servers::Target;

pub(super) async fn run(comparison: &mut Comparison, target: &Target, everybody: &[Implementation]) {
    let with_others = comparison.scale.with_heavy;
    let able = everybody.iter().filter(|who| !who.is_floor() && !who.is_heavy());
    for who in able.filter(|who| who.is_ours() || with_others) {
        for &locks in comparison.scale.locks {
            // Others have shown what they cost before a million of them.
            if !who.is_ours() && locks > MOST_OF_OTHERS {
                continue;
            }
            comparison.progress.doing(format!("{}: {} holds {locks} locks", target.label, who.name()));
            let row = Row::of(Scenario::Held, target, who, locks as u64);
            match hold(comparison, target, who, row.clone()).await {
                Ok(row) => {
                    if let Some(bytes) = row.bytes_per_lock {
                        comparison.drawings.memory.insert(row.who(), bytes);
                    }
                    comparison.add(row);
                }
                Err(error) => comparison.leave_row(&row, &error),
            }
        }
    }
}

/// The row, with what it costs.
async fn hold(comparison: &Comparison, target: &Target, who: &Implementation, row: Row) -> Result<Row> {
    let mut worker = Worker::start(who, std::slice::from_ref(&target.url), comparison.room()).await?;
    let ttl = comparison.scale.held_ttl;
    worker.open(1, ttl).await?;
    // What a first lock brings along is not what a further one costs.
    worker.hold(&format!("compare-first-{}", who.name()), FIRST).await?;
    let locks = usize::try_from(row.contenders).unwrap_or(usize::MAX);
    let parts = if locks < 2 * FIRST { 1 } else { PARTS };
    let (mut before, mut bytes) = (worker.memory()?, Vec::new());
    for part in 0..parts {
        let name = format!("compare-held-{locks}-{part}-{}", who.name());
        worker.hold(&name, locks / parts).await?;
        let now = worker.memory()?;
        bytes.push(rounded(now.saturating_sub(before) as f64 / (locks / parts) as f64));
        before = now;
    }
    // What a lock that is kept asks once, with its first renewal, is not what it asks for ever.
    tokio::time::sleep(ttl / 2).await;
    let counting = target.count().await;
    let cpu = (worker.cpu_nanos(), target.cpu_nanos());
    tokio::time::sleep(ttl).await;
    let share = |before: Option<u64>, after: Option<u64>| {
        Some(rounded(after?.saturating_sub(before?) as f64 / ttl.as_nanos() as f64))
    };
    let (client_share, server_share) = (share(cpu.0, worker.cpu_nanos()), share(cpu.1, target.cpu_nanos()));
    let requests = match counting {
        Some(counting) => Some(rounded(counting.end().await?.asked_in_all() as f64 / 3.0)),
        None => None,
    };
    Ok(Row {
        requests_per_cycle: requests,
        bytes_per_lock: median(bytes.iter().copied()),
        bytes_of_runs: bytes,
        client_share,
        server_share,
        runs: u32::try_from(parts).unwrap_or(1),
        ..row
    })
}

/// Locks that are held before any is measured.
const FIRST: usize = 64;

/// Memory grows by steps: several parts show by how much a figure may be off.
const PARTS: usize = 5;

const MOST_OF_OTHERS: usize = 10_000;
