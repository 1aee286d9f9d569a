//! Requests of the store, by the server's own counters.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use leasehold_core::clock::ManualClock;
use leasehold_core::{Lock, LockManager, LockOptions, Mode};
use parking_lot::Mutex;
use tokio::sync::Barrier;

use crate::fixture::{Beside, Fixture, PREFIX, eventually, hold, hold_aside, trials};

trials![
    a_name_keeps_its_key,
    eight_contenders_take_two_requests_per_cycle = || contenders_take(8, [Mode::EXCLUSIVE], 150, 20),
    // Behind more than are watched together: one read more after the predecessor's end, as its key is watched already.
    forty_contenders_take_three_requests_per_cycle = || contenders_take(40, [Mode::EXCLUSIVE], 30, 30),
    // A contender whose watch has reported that all that block it are gone reads nothing, in every mode.
    eight_readers_and_writers_take_two_requests =
        || contenders_take(8, [Mode::SHARED, Mode::EXCLUSIVE], 50, 20),
    eight_contenders_for_two_permits_take_two_requests = || contenders_take(8, [some(1, 2)], 50, 20),
    eight_contenders_in_a_mix_take_two_requests =
        || contenders_take(8, [some(1, 3), some(2, 3), Mode::SHARED, some(1, 2), Mode::EXCLUSIVE], 50, 20),
    // A reader watches the nearest writer, and reads after its end. A writer watches some readers, one after the other.
    forty_readers_and_writers_take_four_requests_per_cycle =
        || contenders_take(40, [Mode::SHARED, Mode::EXCLUSIVE], 30, 35),
    // No single entry blocks a permit: after each end some have to read.
    forty_contenders_for_two_permits_take_four_requests = || contenders_take(40, [some(1, 2)], 30, 39),
    forty_contenders_for_four_permits_take_five_requests = || contenders_take(40, [some(1, 4)], 30, 45),
    // Of so many that all of them are watched.
    forty_contenders_for_many_permits_take_two_requests = || contenders_take(40, [some(1, 12)], 30, 20),
    queue_is_not_watched_without_waiters,
];

fn some(weight: u32, capacity: u32) -> Mode {
    Mode::permits(weight, capacity).unwrap()
}

/// A fresh one each time would slow down every range until the next compaction.
async fn a_name_keeps_its_key() {
    const CYCLES: u64 = 20;
    let fixture = Fixture::start().await;
    let manager = fixture.manager().await;
    hold(&manager, "n").await.release().await.unwrap();
    let diary = fixture.store.diary(&format!("{PREFIX}/n/")).await;

    for _ in 0..CYCLES {
        hold(&manager, "n").await.release().await.unwrap();
    }
    let entries = || diary.entries().len() as u64;
    eventually("the store tells of every cycle", async || entries() == 2 * CYCLES).await;
    let names: HashSet<_> = diary.entries().into_iter().map(|entry| entry.key).collect();
    assert_eq!(names.len(), 1, "{names:?}");
}

/// A queue stays watched for a moment after its last waiter: without an end the server would keep a watch for every name
/// that was ever waited for.
async fn queue_is_not_watched_without_waiters() {
    let fixture = Fixture::start().await;
    let (first, second) = (fixture.manager().await, fixture.manager().await);
    let watched =
        async || fixture.etcd.metrics(0).await.unwrap().sum("etcd_debugging_mvcc_watcher_total", "");
    let before = watched().await;
    for name in ["a", "b", "c"] {
        let held = hold(&first, name).await;
        let waits = hold_aside(&second, name);
        fixture.store.queued(name, 2).await;
        held.release().await.unwrap();
        waits.end("its turn").await.release().await.unwrap();
        assert!(watched().await > before, "a waiter watches the queue");
    }
    eventually("only session keys are watched", async || watched().await <= before).await;
    let metrics = fixture.etcd.metrics(0).await.unwrap();
    assert_eq!((metrics.open_streams("Watch"), metrics.open_streams("LeaseKeepAlive")), (2, 0));
}

/// So many contenders, in these modes by turns, take no more than `tenths` of a request per cycle once they have gone
/// through some, besides the requests of the beginning.
///
/// Their clock stands still, however slow the machine is: no lease is renewed, and no waiter reads a queue that seems not
/// to move.
async fn contenders_take<const N: usize>(count: usize, modes: [Mode; N], cycles: usize, tenths: usize) {
    let fixture = Fixture::start().await;
    let clock = Arc::new(ManualClock::new());
    let builder = || LockManager::builder(fixture.config()).ttl(LEASE).clock(Arc::clone(&clock) as _);
    let opening = (0..count).map(|_| builder().build());
    let managers = try_join_all(opening).await.unwrap();
    let contenders: Vec<_> =
        managers.iter().zip(modes.iter().cycle()).map(|(to, mode)| lock(to, *mode)).collect();
    let warmed_up = contend(&contenders, 10).await;

    let told = async || fixture.etcd.metrics(0).await.unwrap().sum("etcd_debugging_mvcc_events_total", "");
    let (before, told_before) = (fixture.etcd.requests().await.unwrap(), told().await);
    let turns = contend(&contenders, cycles).await;
    let told = (told().await - told_before) / (count * cycles) as f64;
    let made = fixture.etcd.requests().await.unwrap() - &before;
    let cycles = count * cycles;
    // Among few no contender watches the key of its predecessor alone.
    let is_behind_many = tenths > 20 && modes[..] == [Mode::EXCLUSIVE];
    let moves = if is_behind_many { changes(&warmed_up, &turns) } else { 0 };
    // A contender that ends before the others, or has another predecessor, costs three requests: one to close a watch, one
    // to open another, and one to read.
    let bound = tenths as u64 * cycles as u64 / 10 + 3 * (count as u64 + moves);
    assert!(
        2 * cycles as u64 <= made.total() && made.total() <= bound,
        "{made} for {cycles} cycles, {moves} behind another than before: more than {bound}"
    );

    println!(
        "{count} contenders, {modes:?}, {cycles} cycles: {:.2} requests, {moves} behind another than before, {told:.1} told of each",
        made.total() as f64 / cycles as f64,
    );
    // The sessions that once had that predecessor are notified, too.
    assert!(!is_behind_many || told < 10.0, "{told:.1} sessions are notified of a release");
}

fn lock(manager: &LockManager, mode: Mode) -> Lock {
    let options = LockOptions::default().mode(mode);
    manager.lock("n").unwrap().options(options)
}

/// How often a contender had another predecessor than in its turn before.
fn changes(earlier: &[usize], turns: &[usize]) -> u64 {
    let mut ahead = HashMap::new();
    let all: Vec<_> = earlier.iter().chain(turns).copied().collect();
    let pairs = all.windows(2).map(|pair| ahead.insert(pair[1], pair[0]) != Some(pair[0]));
    pairs.skip(earlier.len().saturating_sub(1)).filter(|differs| *differs).count() as u64
}

/// Every contender goes through so many cycles as fast as it can; returns the turns in the queue's order.
async fn contend(contenders: &[Lock], cycles: usize) -> Vec<usize> {
    let turns: Arc<Mutex<Vec<_>>> = Arc::default();
    let start = Arc::new(Barrier::new(contenders.len()));
    let tasks: Vec<_> = contenders
        .iter()
        .enumerate()
        .map(|(who, lock)| {
            let (lock, turns, start) = (lock.clone(), Arc::clone(&turns), Arc::clone(&start));
            Beside::start(async move {
                start.wait().await;
                for _ in 0..cycles {
                    let guard = lock.acquire().await.unwrap();
                    turns.lock().push((guard.token(), who));
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await;
    }
    let mut turns = std::mem::take(&mut *turns.lock());
    turns.sort_unstable();
    turns.into_iter().map(|(_, who)| who).collect()
}

/// Longer than any test.
const LEASE: Duration = Duration::from_secs(600);
