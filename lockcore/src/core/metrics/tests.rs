use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use parking_lot::Mutex;

use crate::memory::MemoryConfig;
use crate::{LockManager, LostReason, Revoke};

/// Adds everything up, by name and labels.
#[derive(Clone, Default)]
struct Sums(Arc<Mutex<BTreeMap<String, f64>>>);

struct Sum {
    of: String,
    sums: Sums,
}

impl Sums {
    fn sum(&self, key: &Key) -> Arc<Sum> {
        let labels: Vec<_> = key.labels().map(|label| label.value()).collect();
        let of = [&[key.name()], &labels[..]].concat().join(" ");
        Arc::new(Sum { of, sums: self.clone() })
    }

    fn get(&self, of: &str) -> f64 {
        self.0.lock().get(of).copied().unwrap_or_default()
    }
}

impl Sum {
    fn add(&self, value: f64) {
        *self.sums.0.lock().entry(self.of.clone()).or_default() += value;
    }
}

impl CounterFn for Sum {
    fn increment(&self, value: u64) {
        self.add(value as f64);
    }

    fn absolute(&self, _value: u64) {
        unreachable!("counters only grow")
    }
}

impl GaugeFn for Sum {
    fn increment(&self, value: f64) {
        self.add(value);
    }

    fn decrement(&self, value: f64) {
        self.add(-value);
    }

    fn set(&self, _value: f64) {
        unreachable!("a gauge of several managers is never set")
    }
}

impl HistogramFn for Sum {
    /// How many, not how long.
    fn record(&self, value: f64) {
        assert!(value >= 0.0);
        self.add(1.0);
    }
}

impl Recorder for Sums {
    fn describe_counter(&self, _key: KeyName, _unit: Option<Unit>, _text: SharedString) {
        self.0.lock().entry("described".to_owned()).and_modify(|count| *count += 1.0).or_insert(1.0);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe_counter(key, unit, text);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe_counter(key, unit, text);
    }

    fn register_counter(&self, key: &Key, _metadata: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.sum(key))
    }

    fn register_gauge(&self, key: &Key, _metadata: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.sum(key))
    }

    fn register_histogram(&self, key: &Key, _metadata: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.sum(key))
    }
}

/// Runs `scene` with a recorder of its own.
fn recorded<F: Future<Output = ()>>(scene: impl FnOnce(LockManager, Sums) -> F) -> Sums {
    let sums = Sums::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    metrics::with_local_recorder(&sums, || {
        runtime.block_on(async {
            let locks = LockManager::builder(MemoryConfig::private()).build().await.expect("a manager");
            scene(locks, sums.clone()).await;
        });
    });
    sums
}

/// Every way an acquisition can end is an outcome, and those that were granted have waited.
#[test]
fn acquisitions_are_counted_by_outcome() {
    let sums = recorded(async |locks, sums| {
        let lock = locks.lock("a").unwrap();
        let guard = lock.acquire().await.unwrap();
        assert_eq!(sums.get("leasehold_held_locks"), 1.0);
        assert!(lock.try_acquire().await.unwrap().is_none());
        lock.clone().wait(Duration::from_millis(1)).acquire().await.unwrap_err();
        let mut waits = Box::pin(lock.acquire());
        assert!(futures_util::FutureExt::now_or_never(waits.as_mut()).is_none());
        assert_eq!(sums.get("leasehold_waiting_acquisitions"), 1.0);
        drop(waits);
        assert_eq!(sums.get("leasehold_waiting_acquisitions"), 0.0);
        guard.release().await.unwrap();
        locks.shutdown().await.unwrap();
        lock.acquire().await.unwrap_err();
    });
    for outcome in ["granted", "busy", "timeout", "cancelled", "closed"] {
        assert_eq!(sums.get(&format!("leasehold_acquisitions_total {outcome}")), 1.0, "{outcome}");
    }
    assert_eq!(sums.get("leasehold_acquire_seconds"), 1.0);
    assert_eq!(sums.get("leasehold_hold_seconds"), 1.0);
    assert_eq!(sums.get("leasehold_releases_total store"), 1.0);
    assert_eq!(sums.get("leasehold_held_locks"), 0.0);
}

/// A lock that passes within the process stays held; guards that are dropped are counted.
#[test]
fn hand_offs_and_drops_are_counted() {
    let sums = recorded(async |locks, sums| {
        let lock = locks.lock("a").unwrap();
        let guard = lock.acquire().await.unwrap();
        let (next, ()) = tokio::join!(lock.acquire(), async {
            guard.release().await.unwrap();
            assert_eq!(sums.get("leasehold_held_locks"), 1.0);
        });
        drop(next.unwrap());
        locks.shutdown().await.unwrap();
    });
    assert_eq!(sums.get("leasehold_releases_total local"), 1.0);
    assert_eq!(sums.get("leasehold_releases_total store"), 1.0);
    assert_eq!(sums.get("leasehold_guards_dropped_total"), 1.0);
    assert_eq!(sums.get("leasehold_hold_seconds"), 2.0);
    assert_eq!(sums.get("leasehold_held_locks"), 0.0);
}

#[test]
fn losses_and_renewals_are_counted() {
    let sums = recorded(async |locks, _| {
        let guard = locks.lock("a").unwrap().acquire().await.unwrap();
        guard.renew().await.unwrap();
        locks.revoke("a", Revoke::AT_ONCE).await.unwrap();
        assert_eq!(guard.lost().await, LostReason::Revoked);
        drop(guard);
        let guard = locks.lock("a").unwrap().acquire().await.unwrap();
        locks.shutdown().await.unwrap();
        assert_eq!(guard.lost().await, LostReason::Shutdown);
    });
    assert_eq!(sums.get("leasehold_renewals_total renewed"), 1.0);
    assert_eq!(sums.get("leasehold_losses_total revoked"), 1.0);
    assert_eq!(sums.get("leasehold_losses_total shutdown"), 1.0);
    assert_eq!(sums.get("leasehold_held_locks"), 0.0);
}

#[test]
fn every_metric_is_described() {
    let sums = Sums::default();
    metrics::with_local_recorder(&sums, super::describe);
    assert_eq!(sums.get("described"), 9.0);
    for at_zero in ["leasehold_losses_total expired", "leasehold_guards_dropped_total"] {
        assert_eq!(sums.0.lock().get(at_zero), Some(&0.0), "{at_zero}");
    }
}
