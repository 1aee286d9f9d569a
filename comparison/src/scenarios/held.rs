//! Many locks held by one process: what they cost its memory, its processor, and the server.
//!
//! Who holds mostly waits, so all stores are looked at together, but for very many locks: those keep the machine busy,
//! and a server of their own, which ends with them, so that nobody waits until it has let go of them.

use std::sync::Arc;
use std::time::Duration;

use contender_protocol::now;
use futures_util::future::join_all;

use crate::comparison::Comparison;
use crate::driver::Worker;
use crate::error::Result;
use crate::figures::{median, rounded};
use crate::implementation::Implementation;
use crate::options::Scenario;
use crate::report::Row;
use crate::report::table::grouped;
use crate::servers::Target;

pub(crate) async fn run(comparison: &mut Comparison) {
    let stores = Arc::clone(&comparison.stores);
    comparison.begin("held: on all stores");
    let here = &*comparison;
    let found = join_all(stores.iter().map(|(target, everybody)| few(here, target, everybody))).await;
    for (row, held) in found.into_iter().flatten() {
        add(comparison, row, held);
    }
    for &locks in comparison.scale.locks.iter().filter(|locks| **locks > MOST_TOGETHER) {
        for (target, everybody) in stores.iter() {
            for who in everybody.iter().filter(|who| who.is_ours()) {
                comparison.progress.doing(format!("held: {locks} locks on {}", target.label));
                let row = Row::of(Scenario::Held, target, who, locks as u64);
                let held = apart(comparison, target, who, row.clone()).await;
                add(comparison, row, held);
            }
        }
    }
    comparison.end();
}

/// Everybody who takes part there, one after the other.
async fn few(
    comparison: &Comparison,
    target: &Target,
    everybody: &[Implementation],
) -> Vec<(Row, Result<Row>)> {
    let mut found = Vec::new();
    let able = everybody.iter().filter(|who| !who.is_floor() && !who.is_heavy());
    for who in able.filter(|who| who.is_ours() || comparison.scale.with_heavy) {
        let locks = comparison.scale.locks.iter().filter(|locks| **locks <= MOST_TOGETHER);
        // Of others one number says what a lock costs.
        let locks = locks.filter(|locks| who.is_ours() || **locks == MOST_TOGETHER);
        for &locks in locks {
            let row = Row::of(Scenario::Held, target, who, locks as u64);
            found.push((row.clone(), hold(comparison, target, who, row).await));
        }
    }
    found
}

/// On a server that ends with them, where it is ours to start.
async fn apart(comparison: &Comparison, target: &Target, who: &Implementation, row: Row) -> Result<Row> {
    match target.another(comparison.place()).await {
        Some(another) => hold(comparison, &another?, who, row).await,
        None => hold(comparison, target, who, row).await,
    }
}

fn add(comparison: &mut Comparison, row: Row, held: Result<Row>) {
    match held {
        Ok(row) => {
            if row.remark.is_some() {
                let what = format!("leasehold on {} in {}", row.store, row.scenario);
                comparison.leave_out(what, row.remark.clone().unwrap_or_default());
            }
            comparison.add(row);
        }
        Err(error) => comparison.leave_row(&row, &error),
    }
}

/// The row, with what it costs.
async fn hold(comparison: &Comparison, target: &Target, who: &Implementation, row: Row) -> Result<Row> {
    let mut worker = Worker::start(who, std::slice::from_ref(&target.url), comparison.room()).await?;
    // All are renewed once within a third of that.
    let (ttl, renewals) = match row.contenders {
        many if many > MOST_TOGETHER as u64 => (LEASE_OF_MANY, 1_u32),
        _ => (comparison.scale.held_ttl, 3),
    };
    let window = ttl / 3 * renewals;
    worker.open(1, ttl).await?;
    // What a first lock brings along is not what a further one costs.
    worker.hold(&format!("compare-first-{}", who.name()), FIRST).await?;
    let locks = usize::try_from(row.contenders).unwrap_or(usize::MAX);
    let parts = locks.div_ceil(MOST_OF_A_PART);
    let (before, mut taken) = (worker.memory()?, 0);
    let begun = now();
    let mut why = format!("no more were asked for after {} s", PATIENCE.as_secs());
    for part in 0..parts {
        let name = format!("compare-held-{locks}-{part}-{}", who.name());
        match worker.hold(&name, locks / parts).await {
            Ok(()) => taken += locks / parts,
            Err(error) if taken == 0 => return Err(error),
            Err(error) => {
                why = error.to_string();
                break;
            }
        }
        if Duration::from_nanos(now().saturating_sub(begun)) > PATIENCE {
            break;
        }
    }
    // What a lock that is kept takes at first, and once with its first renewal, is not what it takes for ever.
    tokio::time::sleep(ttl + ttl / 3).await;
    let counting = target.count().await;
    let cpu = (worker.cpu_nanos(), target.cpu_nanos());
    let mut bytes = Vec::new();
    for _ in 0..WEIGHINGS {
        tokio::time::sleep(window / WEIGHINGS).await;
        bytes.push(rounded(worker.memory()?.saturating_sub(before) as f64 / taken.max(1) as f64));
    }
    let share = |before: Option<u64>, after: Option<u64>| {
        Some(rounded(after?.saturating_sub(before?) as f64 / window.as_nanos() as f64))
    };
    let (client_share, server_share) = (share(cpu.0, worker.cpu_nanos()), share(cpu.1, target.cpu_nanos()));
    let requests = match counting {
        Some(counting) => Some(rounded(counting.end().await?.asked_in_all() as f64 / f64::from(renewals))),
        None => None,
    };
    let remark = (taken + parts <= locks).then(|| {
        let (taken, locks) = (grouped(taken as f64), grouped(locks as f64));
        format!("{taken} of {locks} were taken: {why}")
    });
    Ok(Row {
        // Its figures are of those that it held.
        contenders: if remark.is_some() { taken as u64 } else { row.contenders },
        requests_per_cycle: requests,
        runs: u32::try_from(bytes.len()).unwrap_or(1),
        bytes_per_lock: median(bytes.iter().copied()),
        bytes_of_runs: bytes,
        client_share,
        server_share,
        remark,
        ..row
    })
}

/// Locks that are held before any is measured.
const FIRST: usize = 64;

/// Renewals take memory for a moment: how often it is weighed shows by how much a figure may be off.
const WEIGHINGS: u32 = 6;

/// After each part there is a look at the time.
const MOST_OF_A_PART: usize = 50_000;

/// For how long more of them are asked for.
const PATIENCE: Duration = Duration::from_secs(30);

/// The leases of very many: a million that are renewed every other second are more than a server does.
const LEASE_OF_MANY: Duration = Duration::from_secs(30);

/// More keep the machine busy; and others have shown by then what they cost.
const MOST_TOGETHER: usize = 10_000;
