//! What a document, a terminal and the head of the page show of our library on each store.

use super::Row;
use super::table::{grouped, sure};

/// Every store: as the report calls it, as a document does, and what it is to be taken for.
pub(crate) const STORES: [(&str, &str, &str); 9] = [
    ("memory", "memory", "tasks of one process"),
    ("file", "file", "processes of one host: no server; in no order"),
    ("redis", "Redis", "the fastest between hosts, if a fail-over may lose a lock"),
    ("redis-sentinel", "Sentinel", "Redis whose fail-over doubles no lock"),
    ("redis-cluster", "Cluster", "a Redis Cluster that you have"),
    ("redis-quorum", "three Redis", "locks that survive the loss of one of three servers; in no order"),
    ("etcd", "etcd", "locks that survive the loss of a server, with three members"),
    ("postgres", "Postgres", "writes to that database, which commit only while the lock is held"),
    ("zk", "ZooKeeper", "locks that survive the loss of a server, with three members; many waiters"),
];

/// A store, as a document calls it.
pub(crate) fn called(store: &str) -> &str {
    STORES.iter().find(|(label, ..)| *label == store).map_or(store, |(_, name, _)| name)
}

/// A line of the table with a column per store: its name, that of a terminal's column, whose row it is from, and what it
/// shows.
pub(crate) type Line = (&'static str, &'static str, &'static str, u64, fn(&Row) -> Option<String>);

pub(crate) const LINES: [Line; 10] = [
    ("a free lock, taken and released, on average", "a free lock", "uncontended", 1, |row| {
        let times: Vec<_> = row.rates.iter().map(|rate| 1e6 / rate).collect();
        within(row.cycles_per_s.map(|rate| 1e6 / rate), &times, time)
    }),
    ("… as a share of the floor's rate", "of the floor", "uncontended", 1, of_the_floor),
    ("… the same a millisecond away", "1 ms away", "distance", 1, of_the_floor),
    ("64 names of one client, share of the floor's rate", "64 names", "names", 64, of_the_floor),
    ("8 contenders on one lock, cycles/s", "8 contenders/s", "processes", 8, rate),
    ("… hand-off, p99", "hand-off p99", "processes", 8, |row| {
        within(row.handoff_us.p99, &row.handoff_p99s, time)
    }),
    ("… requests per cycle", "", "processes", 8, |row| row.requests_per_cycle.map(number)),
    ("… served out of order", "", "processes", 8, |row| row.overtakes.map(percent)),
    ("64 tasks of one process, cycles/s", "", "tasks", 64, rate),
    ("holder killed, ttl 3 s: the next holds after", "killed, ttl 3 s", "crash", 2, |row| {
        within(row.handoff_us.max, &row.handoff_p99s, time)
    }),
];

fn of_the_floor(row: &Row) -> Option<String> {
    within(row.floor_ratio, &row.floor_ratios, number)
}

pub(crate) fn rate(row: &Row) -> Option<String> {
    within(row.cycles_per_s, &row.rates, number)
}

/// With the interval of 95 % around it, where it was measured several times.
pub(crate) fn within(value: Option<f64>, values: &[f64], unit: fn(f64) -> String) -> Option<String> {
    let range = sure(values, unit).map(|range| format!(" ({})", range.replace(" – ", "–")));
    Some(unit(value?) + &range.unwrap_or_default())
}

pub(crate) fn number(value: f64) -> String {
    if value < 10.0 { format!("{value:.2}") } else { grouped(value) }
}

pub(crate) fn time(micros: f64) -> String {
    match micros {
        small if small < 10.0 => format!("{small:.2} µs"),
        small if small < 1e3 => format!("{small:.0} µs"),
        middle if middle < 1e6 => format!("{:.2} ms", middle / 1e3),
        large => format!("{:.2} s", large / 1e6),
    }
}

pub(crate) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}
