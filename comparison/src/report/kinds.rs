//! Locks that several hold, as the report keeps and shows them.

use serde::{Deserialize, Serialize};

use super::Report;
use super::table::{number, range, time};
use crate::figures::Spread;

/// One implementation under one load of readers, writers or permits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Kind {
    pub(crate) load: String,
    pub(crate) store: String,
    pub(crate) implementation: String,
    pub(crate) cycles_per_s: Option<f64>,
    /// The same of each run.
    pub(crate) rates: Vec<f64>,
    /// That were timed, in all runs together.
    pub(crate) cycles: u64,
    /// How many held at a time, on average.
    pub(crate) holders: Option<f64>,
    pub(crate) acquire_us: Spread,
    pub(crate) requests_per_cycle: Option<f64>,
    /// The share of grants that took the place of somebody who came before and waited.
    pub(crate) overtakes: Option<f64>,
    pub(crate) overtakes_of_runs: Vec<f64>,
    /// The longest wait of somebody who wants it alone, as a share of the run; the longest of all runs.
    pub(crate) starved: Option<f64>,
    pub(crate) starved_of_runs: Vec<f64>,
    /// Holders that did not fit together, in every run, also those that are not timed.
    pub(crate) violations: Option<u64>,
    pub(crate) remark: Option<String>,
}

/// What becomes of the permits of one implementation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Leak {
    pub(crate) store: String,
    pub(crate) implementation: String,
    /// How many there are.
    pub(crate) permits: u64,
    /// How many of them can be taken when one who held one was killed and twice its lease is over.
    pub(crate) after_a_kill: Option<u64>,
    /// And when one was released twice.
    pub(crate) after_two_releases: Option<u64>,
    /// What was answered to the second release.
    pub(crate) second_release: String,
}

/// As the report calls our exclusive lock where others share.
pub(crate) const ALONE: &str = "leasehold, exclusive";

/// What is said of a load.
pub(crate) const KINDS: [&str; 11] = [
    "load",
    "store",
    "implementation",
    "cycles/s",
    "of the runs",
    "× our exclusive lock",
    "holders at a time",
    "acquire p50 / p99",
    "requests",
    "overtakes",
    "longest wait of a writer, of the run",
];

/// The cells of a row, as many as there are names.
pub(crate) fn kind_cells(report: &Report, kind: &Kind) -> [String; 11] {
    let known = |value: Option<String>| value.unwrap_or_else(|| "–".to_owned());
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let Spread { p50, p99, .. } = kind.acquire_us;
    [
        kind.load.clone(),
        kind.store.clone(),
        kind.implementation.clone(),
        known(kind.cycles_per_s.map(number)),
        known(range(&kind.rates, number)),
        known(gain(report, kind).map(number)),
        known(kind.holders.map(number)),
        known(p50.zip(p99).map(|(p50, p99)| format!("{} / {}", time(p50), time(p99)))),
        known(kind.requests_per_cycle.map(number)),
        known(kind.overtakes.map(percent)),
        known(kind.starved.map(percent)),
    ]
}

/// The rate as a multiple of that of our exclusive lock under the same load.
pub(crate) fn gain(report: &Report, kind: &Kind) -> Option<f64> {
    let is_alone = |other: &&Kind| {
        (&other.load, &other.store, other.implementation.as_str()) == (&kind.load, &kind.store, ALONE)
    };
    Some(kind.cycles_per_s? / report.kinds.iter().find(is_alone)?.cycles_per_s?)
}

/// What is said of permits.
pub(crate) const LEAKS: [&str; 5] =
    ["store", "implementation", "free after a kill", "a second release", "free after it"];

pub(crate) fn leak_cells(leak: &Leak) -> [String; 5] {
    let free = |count: Option<u64>| {
        count.map_or_else(|| "–".to_owned(), |count| format!("{count} of {}", leak.permits))
    };
    [
        leak.store.clone(),
        leak.implementation.clone(),
        free(leak.after_a_kill),
        leak.second_release.clone(),
        free(leak.after_two_releases),
    ]
}
