//! A program that is not async: threads that work under one lock, and one that watches it.
//!
//! `cargo run --features blocking --example blocking`

use std::thread;
use std::time::Duration;

use leasehold::Result;
use leasehold::blocking::{self, LockManager};

fn work(locks: &LockManager, worker: u32) -> Result<()> {
    let lock = locks.lock("report")?.metadata(format!("worker {worker}")).handoff_limit(0);
    let Some(guard) = lock.try_acquire_for(Duration::from_secs(10))? else {
        println!("worker {worker}: busy");
        return Ok(());
    };
    for step in 1..=3 {
        // The lease is renewed meanwhile, on the manager's thread.
        let sum: u64 = (0..5_000_000u64).fold(0, |sum, n| sum.rotate_left(1) ^ n);
        guard.ensure_held()?;
        println!("worker {worker}: step {step}, token {}, {sum:x}", guard.token());
    }
    guard.release()
}

fn main() -> Result<()> {
    let store = std::env::args().nth(1).unwrap_or_else(|| "memory://blocking".to_owned());
    let (locks, observer) = (blocking::connect(&store)?, blocking::connect(&store)?);
    let states = observer.watch("report")?;
    let watching = thread::spawn(move || {
        for state in states.flatten() {
            println!("held by {:?}", state.holder().and_then(|holder| holder.metadata.clone()));
        }
    });
    thread::scope(|scope| {
        let workers = [1, 2].map(|worker| {
            scope.spawn({
                let locks = &locks;
                move || work(locks, worker)
            })
        });
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })?;
    // Ends the iterator, too.
    observer.shutdown()?;
    watching.join().expect("the observer does not panic");
    locks.shutdown()
}
