//! Many sessions that are lost together, on a server that gets little of the processor.
//!
//! A soak loses 1 000.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::try_join_all;
use leasehold_core::{LockManager, Timing};
use libtest_mimic::Trial;
use testbed::{Depth, pass, trial_within};

use crate::rig::{BOUND, Beside, Rig, now};

pub(crate) fn trials() -> Vec<Trial> {
    let name = "starved::sessions_come_back_to_a_starved_server";
    vec![trial_within(10 * BOUND, name, sessions_come_back_to_a_starved_server)]
}

/// A session that cannot be opened is not tried again and again: each is opened in the end, and holds.
async fn sessions_come_back_to_a_starved_server() {
    let sessions = Depth::of_run().pick(20, 40, 1_000);
    let mut rig = Rig::start().await;
    let mut all = Vec::new();
    while all.len() < sessions {
        let opening = (0..40).map(|_| LockManager::builder(rig.config()).connect_wait(BOUND).build());
        all.extend(try_join_all(opening).await.unwrap());
    }
    let holds: Vec<_> = all.iter().map(|_| Arc::new(AtomicBool::new(false))).collect();
    let _contest: Vec<_> = all.into_iter().zip(&holds).map(|(locks, holds)| contends(locks, holds)).collect();
    let hold_all = || holds.iter().all(|holds| holds.load(Ordering::Relaxed));
    while !hold_all() {
        pass(BETWEEN).await;
    }
    let before = rig.etcd.requests().await.unwrap();

    rig.etcd.stop(0).await.unwrap();
    pass(Timing::DEFAULT_TTL + Duration::from_secs(1)).await;
    holds.iter().for_each(|holds| holds.store(false, Ordering::Relaxed));
    let began = now();
    // It runs for a twenty-fifth of the time.
    while !hold_all() {
        rig.etcd.cont(0).unwrap();
        pass(BETWEEN / 25).await;
        rig.etcd.stop(0).await.unwrap();
        pass(BETWEEN * 24 / 25).await;
    }
    let took = now().since(began);
    rig.etcd.cont(0).unwrap();
    println!("{sessions} came back in {took:?}: {}", rig.etcd.requests().await.unwrap() - &before);
}

/// Takes the lock again and again; whether it has been held is said by `holds`.
fn contends(locks: LockManager, holds: &Arc<AtomicBool>) -> Beside<()> {
    let holds = Arc::clone(holds);
    Beside::start(async move {
        loop {
            // Nobody gets a lock from a server that does not answer.
            match locks.lock("n").unwrap().acquire().await {
                Ok(guard) => {
                    holds.store(true, Ordering::Relaxed);
                    let _ = guard.release().await;
                }
                Err(_) => pass(BETWEEN).await,
            }
        }
    })
}

const BETWEEN: Duration = Duration::from_millis(100);
