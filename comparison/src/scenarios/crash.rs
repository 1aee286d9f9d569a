//! A holder is killed: how long until the next one holds.

use std::path::Path;
use std::time::Duration;

use futures_util::future::join_all;

use crate::comparison::Comparison;
use crate::driver::Worker;
use crate::error::Result;
use crate::figures::Times;
use crate::implementation::Implementation;
use crate::options::{Scenario, Store};
use crate::report::Row;
use crate::scale::CRASH_TTL;
use crate::servers::Target;

pub(super) async fn run(comparison: &mut Comparison, target: &Target, everybody: &[Implementation]) {
    if target.store == Store::Memory {
        comparison.leave_out("memory in crash", "its locks end with the process that has them");
        return;
    }
    let able: Vec<_> = everybody.iter().filter(|who| !who.is_floor()).collect();
    // They mostly wait, so they can do that together.
    let crashes = able.iter().map(|who| crashes(comparison.room(), target, who, comparison.scale.crashes));
    for (who, recovered) in able.iter().zip(join_all(crashes).await) {
        let row = Row::of(Scenario::Crash, target, who, 2);
        match recovered {
            Ok(recovered) => {
                let nanos = |time: &Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
                let times: Times = recovered.iter().map(nanos).collect();
                comparison.drawings.recovery.insert(row.who(), recovered);
                let runs = comparison.scale.crashes;
                comparison.add(Row { handoff_us: times.spread(), runs, ..row });
            }
            Err(error) => comparison.leave_row(&row, &error),
        }
    }
}

async fn crashes(room: &Path, target: &Target, who: &Implementation, times: u32) -> Result<Vec<Duration>> {
    // Over one renewal of the lease, wherever that begins.
    let after = |index: u32| QUEUED + CRASH_TTL / 3 * (2 * index + 1) / (2 * times);
    let crash = |index| async move { crash(room, target, who, index, after(index)).await };
    join_all((0..times).map(crash)).await.into_iter().collect()
}

async fn crash(
    room: &Path,
    target: &Target,
    who: &Implementation,
    index: u32,
    after: Duration,
) -> Result<Duration> {
    let urls = std::slice::from_ref(&target.url);
    let name = format!("compare-crash-{index}-{}", who.name());
    let (mut holder, mut next) =
        (Worker::start(who, urls, room).await?, Worker::start(who, urls, room).await?);
    holder.open(1, CRASH_TTL).await?;
    next.open(1, CRASH_TTL).await?;
    holder.acquire(&name, BOUND).await?;
    next.ask_for(&name).await?;
    // Nobody tells when a library of others has queued.
    tokio::time::sleep(after).await;
    let killed_at = contender_protocol::now();
    holder.kill().await?;
    let held = next.held(BOUND).await?;
    Ok(Duration::from_nanos(held.at.saturating_sub(killed_at)))
}

/// Far longer than a request takes.
const QUEUED: Duration = Duration::from_millis(500);

/// Far longer than a lease lasts.
const BOUND: Duration = Duration::from_secs(45);
