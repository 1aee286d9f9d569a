//! What the store is asked, by the server's own counters.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use leasehold_core::clock::ManualClock;
use leasehold_core::{Lock, LockManager, LockOptions, Mode};
use parking_lot::Mutex;
use tokio::sync::Barrier;

use crate::rig::{
    BOUND, Beside, PREFIX, Rig, TTL, eventually, hold, hold_aside, now, open_with_ttl, trials, within,
};

trials![
    a_name_keeps_its_key,
    eight_contenders_take_two_requests_per_cycle,
    forty_contenders_take_three_requests_per_cycle,
    eight_who_share_take_two_requests_per_cycle,
    forty_readers_and_writers_take_four_requests_per_cycle,
    forty_contenders_for_two_permits_take_four_requests,
    forty_contenders_for_four_permits_take_five_requests,
    forty_who_want_many_permits_take_two_requests_per_cycle,
    ten_thousand_held_locks_are_one_renewal,
    queue_is_not_watched_without_waiters,
];

/// A fresh one each time would slow down every range until the next compaction.
async fn a_name_keeps_its_key() {
    const CYCLES: u64 = 20;
    let rig = Rig::start().await;
    let manager = rig.manager().await;
    hold(&manager, "n").await.release().await.unwrap();
    let diary = rig.store.diary(&format!("{PREFIX}/n/")).await;

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
    let rig = Rig::start().await;
    let (first, second) = (rig.manager().await, rig.manager().await);
    let watched = async || rig.etcd.metrics(0).await.unwrap().sum("etcd_debugging_mvcc_watcher_total", "");
    let before = watched().await;
    for name in ["a", "b", "c"] {
        let held = hold(&first, name).await;
        let waits = hold_aside(&second, name);
        rig.store.queued(name, 2).await;
        held.release().await.unwrap();
        waits.end("its turn").await.release().await.unwrap();
        assert!(watched().await > before, "a waiter watches the queue");
    }
    eventually("only session keys are watched", async || watched().await <= before).await;
}

/// Two requests per cycle under contention.
async fn eight_contenders_take_two_requests_per_cycle() {
    contenders_take(8, &[Mode::EXCLUSIVE], 150, 20).await;
}

/// Behind more than are watched together: one read more, whoever hears of its predecessor's end. In turns that
/// is whose key is watched already.
async fn forty_contenders_take_three_requests_per_cycle() {
    let told = contenders_take(40, &[Mode::EXCLUSIVE], 30, 30).await;
    // Whoever once had that predecessor hears of it, too.
    assert!(told < 10.0, "{told:.1} sessions hear of a release");
}

/// The same in every mode and mix: whoever has heard that those in its way have gone asks nobody.
async fn eight_who_share_take_two_requests_per_cycle() {
    let some = |weight, capacity| Mode::permits(weight, capacity).unwrap();
    for modes in [
        &[Mode::SHARED, Mode::EXCLUSIVE][..],
        &[some(1, 2)],
        &[some(1, 3), some(2, 3), Mode::SHARED, some(1, 2), Mode::EXCLUSIVE],
    ] {
        contenders_take(8, modes, 50, 20).await;
    }
}

/// A reader listens to the nearest writer, and reads once that has gone; a writer behind readers reads some times, as one
/// after the other goes that it has listened to.
async fn forty_readers_and_writers_take_four_requests_per_cycle() {
    contenders_take(40, &[Mode::SHARED, Mode::EXCLUSIVE], 30, 35).await;
}

/// No single one keeps a permit out: with each that goes some have to read.
async fn forty_contenders_for_two_permits_take_four_requests() {
    contenders_take(40, &[Mode::permits(1, 2).unwrap()], 30, 39).await;
}

async fn forty_contenders_for_four_permits_take_five_requests() {
    contenders_take(40, &[Mode::permits(1, 4).unwrap()], 30, 45).await;
}

/// Of so many that all of them are listened to.
async fn forty_who_want_many_permits_take_two_requests_per_cycle() {
    contenders_take(40, &[Mode::permits(1, 12).unwrap()], 30, 20).await;
}

/// So many contenders, in these modes by turns, take no more than `tenths` of a request per cycle once they have gone
/// through some, and what it takes to begin anew. How many are told of each change.
///
/// Their clock stands still, however slow the machine is: no lease is renewed, and no waiter reads a queue that seems not
/// to move.
async fn contenders_take(count: usize, modes: &[Mode], cycles: usize, tenths: usize) -> f64 {
    let rig = Rig::start().await;
    let clock = Arc::new(ManualClock::new());
    let opening = (0..count).map(|_| {
        let builder = LockManager::builder(rig.config()).ttl(LEASE).clock(Arc::clone(&clock) as _);
        builder.build()
    });
    let managers = try_join_all(opening).await.unwrap();
    let contenders: Vec<_> =
        managers.iter().zip(modes.iter().cycle()).map(|(to, mode)| lock(to, *mode)).collect();
    let warmed_up = contend(&contenders, 10).await;

    let told = async || rig.etcd.metrics(0).await.unwrap().sum("etcd_debugging_mvcc_events_total", "");
    let (before, told_before) = (rig.etcd.requests().await.unwrap(), told().await);
    let turns = contend(&contenders, cycles).await;
    let told = (told().await - told_before) / (count * cycles) as f64;
    let made = rig.etcd.requests().await.unwrap() - &before;
    let cycles = count * cycles;
    // Among few nobody watches a key of its own for whoever is before it.
    let moves = if tenths > 20 && modes == [Mode::EXCLUSIVE] { changes(&warmed_up, &turns) } else { 0 };
    // It takes one request to close a watch, one to open another, and one to read: for each contender that ends before
    // the others, as its watch tells nobody then, and for each that has another entry before it.
    let bound = tenths as u64 * cycles as u64 / 10 + 3 * (count as u64 + moves);
    assert!(
        2 * cycles as u64 <= made.total() && made.total() <= bound,
        "{made} for {cycles} cycles, {moves} behind another than before: more than {bound}"
    );

    println!(
        "{count} contenders, {modes:?}, {cycles} cycles: {:.2} requests, {moves} behind another than before, {told:.1} told of each",
        made.total() as f64 / cycles as f64,
    );
    told
}

fn lock(manager: &LockManager, mode: Mode) -> Lock {
    let mut options = LockOptions::default();
    options.mode = mode;
    manager.lock("n").unwrap().options(options)
}

/// How often somebody came behind another than in its turn before.
fn changes(earlier: &[usize], turns: &[usize]) -> u64 {
    let mut ahead = HashMap::new();
    let all: Vec<_> = earlier.iter().chain(turns).copied().collect();
    let pairs = all.windows(2).map(|pair| ahead.insert(pair[1], pair[0]) != Some(pair[0]));
    pairs.skip(earlier.len().saturating_sub(1)).filter(|differs| *differs).count() as u64
}

/// Every contender goes through so many cycles as fast as it can; whose turn it was, in the queue's order.
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

/// Of those who contend: no test takes so long.
const LEASE: Duration = Duration::from_secs(600);

/// However many locks: one lease, one renewal per third of the ttl, one stream, of watches.
async fn ten_thousand_held_locks_are_one_renewal() {
    const LOCKS: usize = 10_000;
    let rig = Rig::start().await;
    let ttl = 2 * TTL;
    let manager = open_with_ttl(rig.config(), ttl).await.unwrap();
    let mut guards = Vec::new();
    for batch in 0..LOCKS / 50 {
        let acquiring = (0..50).map(|place| {
            let lock = manager.lock(format!("n{batch}-{place}")).unwrap();
            async move { lock.acquire().await.unwrap() }
        });
        guards.extend(futures_util::future::join_all(acquiring).await);
    }
    assert_eq!(rig.store.leases().await, 1);

    // What is held for longer is watched from the renewal after that on: asked for once.
    let renewals = async || rig.etcd.requests().await.unwrap().of("LeaseKeepAlive");
    let first = renewals().await;
    eventually("two renewals", async || renewals().await >= first + 2).await;
    rig.quiet().await;
    let metrics = rig.etcd.metrics(0).await.unwrap();
    assert_eq!((metrics.open_streams("Watch"), metrics.open_streams("LeaseKeepAlive")), (1, 0));

    // From right after one renewal to right after the fourth from there.
    let first = renewals().await;
    eventually("a renewal", async || renewals().await > first).await;
    let (began, before) = (now(), rig.etcd.requests().await.unwrap());
    let fourth = before.of("LeaseKeepAlive") + 4;
    eventually("four renewals", async || renewals().await >= fourth).await;
    let took = now().since(began);
    let made = rig.etcd.requests().await.unwrap() - &before;
    assert_eq!(made.of("LeaseKeepAlive"), made.total(), "{made}");
    // A third of the ttl apart, and one may have been in the first look's way.
    let thirds = took.as_millis() / (ttl / 3).as_millis();
    assert!(u128::from(made.total()) <= thirds + 2, "{made} in {took:?}");
    assert!(guards.iter().all(|guard| guard.ensure_held().is_ok()));
    // However many of the releases it gets through in its time: the end of the lease does the rest.
    let _ = within(BOUND, "the shutdown", manager.shutdown()).await;
    eventually("nothing is left", async || rig.store.keys(PREFIX).await.is_empty()).await;
}
