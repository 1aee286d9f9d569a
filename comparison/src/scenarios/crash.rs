//! A holder is killed: how long until the next one holds. On fleets also with the primary that has the lock.

use std::path::Path;
use std::time::Duration;

use futures_util::future::try_join_all;
use futures_util::{StreamExt, stream};

use crate::comparison::Comparison;
use crate::driver::Worker;
use crate::error::{Error, Result};
use crate::figures::{Times, rounded};
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
    // They mostly wait, so they can do that together; but those who start do not.
    let (room, times) = (comparison.room(), comparison.scale.crashes);
    // So many of ours decide a budget.
    let times = |who: &Implementation| if who.is_ours() { times.max(LEAST) } else { times };
    let crashes = able.iter().flat_map(|who| {
        let times = times(who);
        // Over one renewal of the lease, wherever that begins.
        let after = |index: u32, times: u32| QUEUED + CRASH_TTL / 3 * (2 * index + 1) / (2 * times);
        (0..times).map(move |index| crash(room, target, who, index, after(index, times)))
    });
    let mut crashed = stream::iter(crashes).buffered(AT_ONCE);
    let mut recovered = Vec::new();
    for who in &able {
        let times = crashed.by_ref().take(times(who) as usize).collect::<Vec<_>>().await;
        recovered.push((who, times.into_iter().collect::<Result<Vec<_>>>()));
    }
    drop(crashed);
    for (who, recovered) in recovered {
        add(comparison, Row::of(Scenario::Crash, target, who, 2), recovered);
    }
    if matches!(target.store, Store::RedisSentinel | Store::RedisCluster) {
        for who in able {
            with_primaries(comparison, target, who).await;
        }
    }
}

fn add(comparison: &mut Comparison, row: Row, recovered: Result<Vec<Duration>>) {
    match recovered {
        Ok(recovered) => {
            let nanos = |time: &Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            let times: Times = recovered.iter().map(nanos).collect();
            let handoff_p99s = recovered.iter().map(|time| rounded(time.as_secs_f64() * 1e6)).collect();
            let runs = u32::try_from(times.len()).unwrap_or(u32::MAX);
            comparison.add(Row { handoff_us: times.spread(), handoff_p99s, runs, ..row });
        }
        Err(error) => comparison.leave_row(&row, &error),
    }
}

/// The primary is killed together with the holder, each time that of another fleet: with several leases, and ours also with the
/// pause that lets no lock be granted twice.
async fn with_primaries(comparison: &mut Comparison, target: &Target, who: &Implementation) {
    let times = comparison.scale.crashes;
    for ttl in [CRASH_TTL, 3 * CRASH_TTL] {
        let pause = target.pausing(ttl).filter(|_| who.is_ours()).map(|(_, pause)| pause);
        for pause in [None, pause].into_iter().take(1 + usize::from(pause.is_some())) {
            let (room, place) = (comparison.room(), comparison.place());
            let killed =
                (0..times).map(|_| crash_with_primary(room, place, target, who, ttl, pause.is_some()));
            let recovered = try_join_all(killed).await;
            let paused = pause.map_or_else(|| "no pause".to_owned(), |pause| format!("pause {pause:?}"));
            let row = Row {
                scenario: "crash with the primary".to_owned(),
                implementation: format!("{}, ttl {ttl:?}, {paused}", who.name()),
                ..Row::of(Scenario::Crash, target, who, 2)
            };
            add(comparison, row, recovered);
        }
    }
}

async fn crash_with_primary(
    room: &Path,
    place: &Path,
    target: &Target,
    who: &Implementation,
    ttl: Duration,
    pauses: bool,
) -> Result<Duration> {
    const NAME: &str = "compare-crash";
    let fleet = target.another(place).await;
    let mut fleet = fleet.ok_or_else(|| Error::new("servers that were given are not killed"))??;
    let paused = fleet.pausing(ttl).filter(|_| pauses).map(|(url, _)| url);
    let urls = [paused.unwrap_or_else(|| fleet.url.clone())];
    let (mut holder, mut next) =
        (Worker::start(who, &urls, room).await?, Worker::start(who, &urls, room).await?);
    holder.open(1, ttl).await?;
    next.open(1, ttl).await?;
    holder.acquire(NAME, BOUND).await?;
    next.ask_for(NAME).await?;
    tokio::time::sleep(QUEUED).await;
    let killed_at = contender_protocol::now();
    fleet.kill_primary_of(NAME).await?;
    holder.kill().await?;
    let held = next.held(BOUND).await?;
    Ok(Duration::from_nanos(held.at.saturating_sub(killed_at)))
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

/// How many holders, each with its next one: of virtual machines, more would mostly wait for a processor.
const AT_ONCE: usize = 12;

/// The fewest kills that decide anything.
const LEAST: u32 = 5;

/// Far longer than a request takes.
const QUEUED: Duration = Duration::from_millis(500);

/// Far longer than a lease lasts.
const BOUND: Duration = Duration::from_secs(45);
