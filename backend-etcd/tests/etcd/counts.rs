//! What the store is asked, by the server's own counters, and how long a hand-off takes.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use leasehold_core::LockManager;
use leasehold_core::clock::Moment;
use parking_lot::Mutex;
use tokio::sync::Barrier;

use crate::rig::{
    BOUND, Beside, PREFIX, Rig, TTL, eventually, hold, hold_aside, managers, now, open_with_ttl, trials,
    until, within, without_renewals,
};

trials![
    an_uncontended_cycle_takes_two_requests,
    eight_contenders_take_two_requests_per_cycle,
    a_release_costs_the_same_with_many_waiters,
    ten_thousand_held_locks_are_one_renewal,
    an_attempt_is_one_request,
];

/// Two requests per cycle, and the same key every time: a fresh one would slow down every range
/// until the next compaction.
async fn an_uncontended_cycle_takes_two_requests() {
    const CYCLES: u64 = 200;
    let rig = Rig::start().await;
    let manager = rig.manager().await;
    hold(&manager, "n").await.release().await.unwrap();
    let diary = rig.store.diary(&format!("{PREFIX}/n/")).await;

    let before = rig.etcd.requests().await.unwrap();
    for _ in 0..CYCLES {
        hold(&manager, "n").await.release().await.unwrap();
    }
    let made = rig.etcd.requests().await.unwrap() - &before;
    assert_eq!(without_renewals(&made), 2 * CYCLES, "{made}");

    let entries = || diary.entries().len() as u64;
    eventually("the store tells of every cycle", async || entries() == 2 * CYCLES).await;
    let names: HashSet<_> = diary.entries().into_iter().map(|entry| entry.key).collect();
    assert_eq!(names.len(), 1, "{names:?}");
}

/// Two requests per cycle under contention, and no hand-off waits for the server's 100 ms loop. The
/// times are shown, not judged.
async fn eight_contenders_take_two_requests_per_cycle() {
    const CONTENDERS: usize = 8;
    const CYCLES: usize = 150;
    let rig = Rig::start().await;
    let contenders = managers(&rig, CONTENDERS).await;
    contend(&contenders, 10).await;

    let before = rig.etcd.requests().await.unwrap();
    let began = now();
    let (handoffs, looks) = contend(&contenders, CYCLES).await;
    let took = now().since(began);
    let made = rig.etcd.requests().await.unwrap() - &before;
    let cycles = CONTENDERS * CYCLES;
    let expected = 2 * cycles as u64;
    let made = without_renewals(&made);
    assert!(
        (expected..=expected + looks).contains(&made),
        "{made} requests for {cycles} cycles, {looks} looks"
    );

    println!(
        "{CONTENDERS} contenders, {cycles} cycles: {:.0} a second; hand-off p50 {:.2} ms, p99 {:.2} ms, longest {:.2} ms",
        cycles as f64 / took.as_secs_f64(),
        handoffs.value_at_quantile(0.5) as f64 / 1000.0,
        handoffs.value_at_quantile(0.99) as f64 / 1000.0,
        handoffs.max() as f64 / 1000.0,
    );
}

/// Every contender goes through so many cycles as fast as it can. How long hand-offs took, in
/// microseconds, from before the release was sent until the next one held; and how often somebody
/// waited so long that it looked at the queue, which does not happen on a machine that keeps up.
async fn contend(contenders: &[LockManager], cycles: usize) -> (Histogram<u64>, u64) {
    let looks = Arc::new(AtomicU64::new(0));
    let released: Arc<Mutex<Option<Moment>>> = Arc::default();
    let handoffs = Arc::new(Mutex::new(Histogram::<u64>::new_with_bounds(1, 60_000_000, 3).unwrap()));
    let start = Arc::new(Barrier::new(contenders.len()));
    let tasks: Vec<_> = contenders
        .iter()
        .map(|manager| {
            let lock = manager.lock("n").unwrap();
            let (released, handoffs) = (Arc::clone(&released), Arc::clone(&handoffs));
            let (looks, start) = (Arc::clone(&looks), Arc::clone(&start));
            Beside::start(async move {
                start.wait().await;
                for _ in 0..cycles {
                    let asked = now();
                    let guard = lock.acquire().await.unwrap();
                    let held = now();
                    // A first time, then each time half a ttl has passed.
                    let waited = held.since(asked).as_millis();
                    let looked = waited.div_ceil((TTL / 2).as_millis()) * u128::from(waited >= FIRST_LOOK);
                    looks.fetch_add(u64::try_from(looked).unwrap(), Ordering::Relaxed);
                    if let Some(released) = released.lock().take() {
                        let micros = u64::try_from(held.since(released).as_micros()).unwrap();
                        handoffs.lock().saturating_record(micros);
                    }
                    *released.lock() = Some(now());
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.end_within(Duration::from_secs(60), "the contenders take turns").await;
    }
    (handoffs.lock().clone(), looks.load(Ordering::Relaxed))
}

/// In milliseconds; whoever waits so long asks whom it waits for.
const FIRST_LOOK: u128 = 250;

/// One request per release, and the next holder asks nothing, with 2 waiters as with 30.
async fn a_release_costs_the_same_with_many_waiters() {
    const WAITERS: usize = 30;
    let rig = Rig::start().await;
    // So long that waiting for one's turn is not long enough for looking again.
    let ttl = Duration::from_secs(30);
    let mut waiting = Vec::new();
    let mut kept = Vec::new();
    for place in 0..=WAITERS {
        let manager = open_with_ttl(rig.config(), ttl).await.unwrap();
        waiting.push(hold_aside(&manager, "n"));
        rig.store.queued("n", place + 1).await;
        kept.push(manager);
    }
    let mut waiting = waiting.into_iter();
    let mut guard = waiting.next().unwrap().end("the first holds").await;
    // The last one may still be opening its watch.
    rig.quiet().await;

    for ahead in waiting {
        let before = rig.etcd.requests().await.unwrap();
        guard.release().await.unwrap();
        guard = ahead.end("the next holds").await;
        let made = rig.etcd.requests().await.unwrap() - &before;
        assert_eq!(without_renewals(&made), 1, "{made}");
    }
}

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
    within(2 * ttl, "two renewals", until(async || renewals().await >= first + 2)).await;
    rig.quiet().await;
    let metrics = rig.etcd.metrics(0).await.unwrap();
    assert_eq!((metrics.open_streams("Watch"), metrics.open_streams("LeaseKeepAlive")), (1, 0));

    // From right after one renewal to right after the fourth from there.
    let first = renewals().await;
    within(ttl, "a renewal", until(async || renewals().await > first)).await;
    let (began, before) = (now(), rig.etcd.requests().await.unwrap());
    let fourth = before.of("LeaseKeepAlive") + 4;
    within(2 * ttl, "four renewals", until(async || renewals().await >= fourth)).await;
    let took = now().since(began);
    let made = rig.etcd.requests().await.unwrap() - &before;
    assert_eq!((made.of("LeaseKeepAlive"), made.total()), (4, 4), "{made}");
    // A third of the ttl apart, as nearly as the test looks.
    assert!(took >= 4 * (ttl / 3) - Duration::from_millis(500), "four renewals in {took:?}");
    assert!(guards.iter().all(|guard| guard.ensure_held().is_ok()));
    // However many of the releases it gets through in its time: the end of the lease does the rest.
    let _ = within(BOUND, "the shutdown", manager.shutdown()).await;
    eventually("nothing is left", async || rig.store.keys(PREFIX).await.is_empty()).await;
}

/// One round trip for a free lock and for one that is held, and no trace of the latter.
async fn an_attempt_is_one_request() {
    let rig = Rig::start().await;
    let (one, other) = (rig.manager().await, rig.manager().await);
    let diary = rig.store.diary(&format!("{PREFIX}/n/")).await;

    let before = rig.etcd.requests().await.unwrap();
    let guard = one.lock("n").unwrap().try_acquire().await.unwrap().expect("it is free");
    let made = rig.etcd.requests().await.unwrap() - &before;
    assert_eq!(without_renewals(&made), 1, "{made}");

    let before = rig.etcd.requests().await.unwrap();
    assert!(other.lock("n").unwrap().try_acquire().await.unwrap().is_none());
    let made = rig.etcd.requests().await.unwrap() - &before;
    assert_eq!(without_renewals(&made), 1, "{made}");
    guard.release().await.unwrap();
    let entries = || diary.entries().len();
    eventually("the store tells of the cycle", async || entries() >= 2).await;
    assert_eq!(entries(), 2, "{:?}", diary.entries());
}
