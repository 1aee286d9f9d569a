//! Many tasks, one lock: within a process the lock passes on without the store.
//!
//! `cargo run --release --example many_tasks`

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold::FenceGate;
use tokio::task::JoinSet;

#[tokio::main]
async fn main() -> leasehold::Result<()> {
    const TASKS: u64 = 64;
    const CYCLES: u64 = 1_000;
    let locks = leasehold::connect("memory://").await?;
    let gate = Arc::new(FenceGate::new());
    let count = Arc::new(AtomicU64::new(0));

    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (lock, gate, count) = (locks.lock("counter")?, Arc::clone(&gate), Arc::clone(&count));
        tasks.spawn(async move {
            for _ in 0..CYCLES {
                let guard = lock.acquire().await?;
                gate.admit(guard.token()).expect("tokens grow from holder to holder");
                // Reading and writing apart is a mistake that only the lock makes good.
                let seen = count.load(Ordering::Relaxed);
                tokio::task::yield_now().await;
                count.store(seen + 1, Ordering::Relaxed);
                guard.release().await?;
            }
            leasehold::Result::Ok(())
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("no task panics")?;
    }
    assert_eq!(count.load(Ordering::Relaxed), TASKS * CYCLES);
    println!("{TASKS} tasks counted to {}, nothing was lost", TASKS * CYCLES);
    locks.shutdown().await
}
