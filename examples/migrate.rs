//! Three managers and eight tasks on one lock, which is moved to another store and back meanwhile: no two hold it, tokens
//! grow, and nobody waits long.
//! `cargo run --example migrate`

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold::backend::Env;
use leasehold::memory::MemoryConfig;
use leasehold::migrate::{Migration, Phase, Steps};
use leasehold::{LockManager, Result, Timing};

/// Every grant: when, and with which token.
type Grants = Arc<Mutex<Vec<(Instant, u64)>>>;

async fn work(locks: LockManager, grants: Grants, is_over: Arc<AtomicBool>) -> Result<()> {
    while !is_over.load(Ordering::Relaxed) {
        let guard = locks.lock("report")?.acquire().await?;
        #[expect(clippy::disallowed_methods, reason = "a demonstration")]
        grants.lock().expect("nothing panics").push((Instant::now(), guard.token().get()));
        tokio::time::sleep(Duration::from_micros(500)).await;
        guard.release().await?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let (old, new) = (MemoryConfig::shared("left"), MemoryConfig::shared("moved-to"));
    let migration = Migration::new(old, new).poll(Duration::from_millis(50));
    let (grants, is_over) = (Grants::default(), Arc::new(AtomicBool::new(false)));
    let mut managers = Vec::new();
    let mut tasks = Vec::new();
    for _ in 0..3 {
        managers.push(LockManager::builder(migration.clone()).build().await?);
    }
    for task in 0..8 {
        let locks = managers[task % managers.len()].clone();
        #[expect(clippy::disallowed_methods, reason = "a demonstration")]
        tasks.push(tokio::spawn(work(locks, Arc::clone(&grants), Arc::clone(&is_over))));
    }

    let admin = migration.admin(Env::new(Timing::for_ttl(Timing::DEFAULT_TTL))?).await?;
    let steps = Steps::one().wait(Duration::from_secs(30)).quiet_for(Duration::ZERO);
    let mut told = |progress: &_| println!("  {progress}");
    for forth in [true, true, true, true, false, false, false, false] {
        let status = match forth {
            true => admin.advance(&steps, &mut told).await?,
            false => admin.rollback(&steps, &mut told).await?,
        };
        let granted = grants.lock().expect("nothing panics").len();
        println!("{:6} after {granted} grants", status.phase.map_or("?", Phase::word));
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    admin.close().await?;
    is_over.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.expect("no task panics")?;
    }
    for locks in &managers {
        locks.shutdown().await?;
    }

    let grants = grants.lock().expect("nothing panics");
    let gap = grants.windows(2).map(|two| two[1].0 - two[0].0).max().unwrap_or_default();
    let grow = grants.is_sorted_by(|one, next| one.1 < next.1);
    println!("{} grants, the longest gap between two {gap:?}, tokens grow: {grow}", grants.len());
    assert!(grow, "tokens must grow");
    Ok(())
}
