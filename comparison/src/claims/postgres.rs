//! How often Postgres waits for its disk, by its own count.
//!
//! A connection adds to that count when it ends, and so managers are closed before it is read.

use std::path::Path;
use std::time::Duration;

use contender_protocol::now;
use futures_util::FutureExt;
use futures_util::future::{join_all, try_join_all};
use leasehold::LockManager;
use testbed::postgres::Server;

use super::Experiment;
use super::finding::Finding;
use crate::error::{Error, Result};
use crate::report::BUDGET;
use crate::report::table::number;

const DOING: &str = "counting syncs";

pub(super) fn experiments(place: &Path) -> impl Iterator<Item = Experiment<'_>> {
    [("a free lock", 1, 1.1), ("8 contenders", 8, 0.7)].into_iter().map(move |(what, contenders, most)| {
        let claim = format!("postgres: {what}, {SYNCS}");
        (claim, BUDGET, syncs(place, contenders, most).boxed())
    })
}

async fn syncs(place: &Path, contenders: usize, most: f64) -> Result<Finding> {
    let data = tempfile::tempdir_in(place).map_err(Error::during("making a directory"))?;
    let server = crate::servers::postgres(data.path()).await.map_err(Error::during("starting a Postgres"))?;
    let url = format!("postgres://postgres@{}/postgres?ttl=60s", server.addr());
    let open = || try_join_all((0..contenders).map(|_| leasehold::connect(&url)));
    let managers = open().await.map_err(Error::during(DOING))?;
    let before = synced(&server, &managers).await?;
    let managers = open().await.map_err(Error::during(DOING))?;
    let end = now() + SPAN.as_nanos() as u64;
    let cycles =
        try_join_all(managers.iter().map(|locks| cycle(locks, end))).await.map_err(Error::during(DOING))?;
    let count: u32 = cycles.iter().sum();
    let each = (synced(&server, &managers).await? - before) / f64::from(count.max(1));
    let finding = Finding::seen(format!("{} in {count} cycles", number(each)), each <= most);
    Ok(finding.within(format!("at most {}", number(most))))
}

async fn cycle(locks: &LockManager, end: u64) -> leasehold::Result<u32> {
    let (lock, mut count) = (locks.lock("synced")?, 0);
    while now() < end {
        lock.acquire().await?.release().await?;
        count += 1;
    }
    Ok(count)
}

/// Closes the managers, and reads the count when the server has noticed.
async fn synced(server: &Server, managers: &[LockManager]) -> Result<f64> {
    join_all(managers.iter().map(LockManager::shutdown))
        .await
        .into_iter()
        .collect::<leasehold::Result<Vec<_>>>()
        .map_err(Error::during(DOING))?;
    let count = "SELECT (SELECT count(*) FROM pg_stat_activity WHERE application_name = 'leasehold'), wal_sync FROM pg_stat_wal";
    loop {
        let told = server.sql(count).await.map_err(Error::during(DOING))?;
        match told.split_once('|') {
            Some(("0", syncs)) => return syncs.parse().map_err(Error::during(DOING)),
            _ => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Of those that are not judged by the report's figures.
pub(super) const SYNCS: &str = "syncs of the disk per cycle";

const SPAN: Duration = Duration::from_secs(3);
