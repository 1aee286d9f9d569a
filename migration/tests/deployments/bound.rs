//! The rule that random deployments hardly ever meet: a hold is trusted no longer than its process's entry in the list of
//! members. A process holds in the old store alone, and nothing of it reaches a ledger any more, while its locks
//! are renewed; the move goes on to its end, and somebody takes the lock in the new store.

use std::sync::Arc;
use std::time::Duration;

use leasehold_conformance::Network;
use leasehold_conformance::network::{Fault, Operation};
use leasehold_core::backend::stage::{Phase, Side};
use leasehold_core::clock::TokioClock;
use leasehold_core::{Env, LockGuard, LockManager, Result, Timing};
use leasehold_migration::{Admin, Migration, Steps};

use crate::plants::Plant;
use crate::station::{Station, Way};

/// Whether two hold at the end.
pub(crate) fn two_hold(planted: Option<Plant>) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime without I/O needs nothing of the host").block_on(async {
        let timing = Timing::for_ttl(TTL);
        let stations = [Side::Old, Side::New].map(|side| {
            let planted = planted.and_then(|plant| plant.wrap(side));
            Station::new(side, &timing, planted)
        });
        let ways = |label| stations.each_ref().map(|station| station.way(label));
        let (silent, networks) = manager(ways("silent")).await?;
        let (rival, _) = manager(ways("rival")).await?;
        let (migration, _) = migration(ways("admin"));
        let env = Env::new(timing.clone())?.with_clock(Arc::new(TokioClock::new()));
        let admin = migration.admin(env).await?;
        walk(&admin, Phase::Shadow).await?;
        let guard = hold(&silent).await?;
        for operation in [Operation::Sign, Operation::ReadRecord, Operation::Members] {
            networks.iter().for_each(|network| network.always(operation, Fault::LoseRequest));
        }
        walk(&admin, Phase::New).await?;
        let _next = hold(&rival).await?;
        Ok(guard.ensure_held().is_ok())
    })
}

const TTL: Duration = Timing::DEFAULT_TTL;

fn migration(ways: [Way; 2]) -> (Migration, [Network; 2]) {
    let [old, new] = ways;
    (Migration::new(old.config, new.config), [old.network, new.network])
}

async fn manager(ways: [Way; 2]) -> Result<(LockManager, [Network; 2])> {
    let (migration, networks) = migration(ways);
    let manager = LockManager::builder(migration).ttl(TTL).clock(Arc::new(TokioClock::new()));
    Ok((manager.build().await?, networks))
}

/// The silent one's sessions are vouched for.
async fn walk(admin: &Admin, to: Phase) -> Result<()> {
    let steps = Steps::default().to(to).wait(10 * TTL).quiet_for(Duration::ZERO).strangers(1);
    admin.advance(&steps, &mut |_| {}).await.map(drop)
}

async fn hold(locks: &LockManager) -> Result<LockGuard> {
    locks.lock("a")?.wait(10 * TTL).acquire().await
}
