//! Names that are wanted once each, thousands a second: whether a library and its store keep up, and what they
//! keep of names that are over.

use std::time::Duration;

use crate::comparison::Comparison;
use crate::driver::Worker;
use crate::error::Result;
use crate::figures::{Times, rounded};
use crate::implementation::Implementation;
use crate::options::Scenario;
use crate::report::Row;
use crate::servers::Target;

pub(super) async fn run(comparison: &mut Comparison, target: &Target, everybody: &[Implementation]) {
    let (rate, span) = comparison.scale.churn;
    if span.is_zero() {
        return comparison.leave_out(Scenario::Churn.to_string(), "only in the full mode");
    }
    // Programs in other languages do not speak that order.
    for who in everybody.iter().filter(|who| who.is_ours()) {
        comparison.progress.doing(format!("{}: {rate} names a second with {}", target.label, who.name()));
        let row = Row::of(Scenario::Churn, target, who, rate);
        match churn(comparison, target, who, span, row.clone()).await {
            Ok(row) => comparison.add(row),
            Err(error) => comparison.leave_row(&row, &error),
        }
    }
}

async fn churn(
    comparison: &Comparison,
    target: &Target,
    who: &Implementation,
    span: Duration,
    row: Row,
) -> Result<Row> {
    let rate = row.contenders;
    let mut worker = Worker::start(who, std::slice::from_ref(&target.url), comparison.room()).await?;
    worker.open(1, TTL).await?;
    worker.churn("compare-first", rate, WARM_UP).await?;
    let (memory, cpu) = (worker.memory()?, target.cpu_nanos());
    let cycles = worker.churn("compare-churn", rate, span).await?;
    let server = cpu.zip(target.cpu_nanos()).map(|(before, after)| after.saturating_sub(before));
    let count = cycles.len().max(1) as f64;
    let begin = cycles.iter().map(|cycle| cycle.requested).min().unwrap_or_default();
    let end = cycles.iter().filter_map(|cycle| cycle.released).max().unwrap_or(begin + 1);
    let acquisitions: Times = cycles.iter().map(|cycle| cycle.granted - cycle.requested).collect();
    Ok(Row {
        cycles: cycles.len() as u64,
        cycles_per_s: Some(rounded(count * 1e9 / (end - begin).max(1) as f64)),
        acquire_us: acquisitions.spread(),
        // What the client keeps of a name.
        bytes_per_lock: Some(rounded(worker.memory()?.saturating_sub(memory) as f64 / count)),
        server_us_per_cycle: server.map(|nanos| rounded(nanos as f64 / 1e3 / count)),
        ..row
    })
}

const TTL: Duration = Duration::from_secs(30);

/// What is opened once is no cost of a name.
const WARM_UP: Duration = Duration::from_millis(500);
