//! Many sessions that are lost at the same time, on a server that gets little of the processor.
//!
//! At depth `soak` 1 000 are lost.

use std::time::Duration;

use futures_util::future::try_join_all;
use leasehold_core::{LockManager, Timing};
use libtest_mimic::Trial;
use testbed::{Depth, pass, trial_within};

use crate::fixture::{BOUND, Beside, Fixture, PREFIX, eventually, hold};

pub(crate) fn trials() -> Vec<Trial> {
    let name = "starved::sessions_come_back_to_a_starved_server";
    vec![trial_within(10 * BOUND, name, sessions_come_back_to_a_starved_server)]
}

/// Of each ten sessions one holds and nine wait, for a lock of their own, so the turns are short. All sessions are lost, and
/// every wait goes on in the next one. An opening that fails is paced, so most leases that are granted are used.
async fn sessions_come_back_to_a_starved_server() {
    let names = Depth::of_run().pick(2, 4, 100);
    let mut fixture = Fixture::start().await;
    let (mut holders, mut waiting) = (Vec::new(), Vec::new());
    for name in 0..names {
        let opening = (0..10).map(|_| LockManager::builder(fixture.config()).connect_wait(BOUND).build());
        let mut sessions = try_join_all(opening).await.unwrap();
        let holder = sessions.remove(0);
        holders.push((hold(&holder, &format!("n{name}")).await, holder));
        waiting.extend(sessions.into_iter().map(|locks| acquires_once(locks, format!("n{name}"))));
    }
    let entries = async || fixture.store.keys(&format!("{PREFIX}/n")).await.len();
    eventually("all are queued", async || entries().await == holders.len() + waiting.len()).await;
    let before = fixture.etcd.requests().await.unwrap();

    fixture.etcd.stop(0).await.unwrap();
    pass(Timing::DEFAULT_TTL + Duration::from_secs(1)).await;
    holders.iter().for_each(|(guard, _)| assert!(guard.ensure_held().is_err()));
    let mut windows = 0;
    while !waiting.iter().all(Beside::is_finished) && windows < MOST {
        windows += 1;
        let before = computed(&fixture);
        fixture.etcd.cont(0).unwrap();
        // A busy machine gives it no less.
        for _ in 0..25 {
            pass(WINDOW / 100).await;
            if computed(&fixture) - before >= WINDOW / 25 {
                break;
            }
        }
        fixture.etcd.stop(0).await.unwrap();
        pass(WINDOW * 3 / 4).await;
    }
    let back = waiting.iter().filter(|waiting| waiting.is_finished()).count();
    fixture.etcd.cont(0).unwrap();
    let made = fixture.etcd.requests().await.unwrap() - &before;
    println!("{back} of {} came back in {windows} windows of {WINDOW:?}: {made}", waiting.len());
    // At depth `soak` 1.5 to 2.0 for each session that comes back, the more the busier the machine; without a pause 17.
    assert!(made.of("LeaseGrant") <= 4 * back as u64, "{made}");
    assert_eq!(back, waiting.len(), "{made}");
}

fn acquires_once(locks: LockManager, name: String) -> Beside<()> {
    Beside::start(async move {
        let guard = locks.lock(name).unwrap().acquire().await.unwrap();
        // A server that does not answer ends the lock with its lease.
        let _ = guard.release().await;
    })
}

/// How long the server has computed, by the kernel's count of each thread.
fn computed(fixture: &Fixture) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", fixture.etcd.pids()[0])).unwrap();
    let counts = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok());
    let nanoseconds = counts.filter_map(|count| count.split(' ').next()?.parse::<u64>().ok());
    Duration::from_nanos(nanoseconds.sum())
}

/// The server computes for a twenty-fifth of it, and a little more.
const WINDOW: Duration = Duration::from_millis(100);
/// In so many windows all are back.
const MOST: usize = 1_800;
