//! Our own budgets, held against the same results.

use crate::report::table::number;
use crate::report::{Claim, Drawings, Report};
use crate::scenarios::CRASH_TTL;

pub(super) fn claims(report: &Report, drawings: &Drawings) -> Vec<Claim> {
    let mut claims = Vec::new();
    let mut budget = |claim: String, finding: Option<(String, bool)>| {
        let (measured, holds) = finding.unzip();
        claims.push(Claim { claim, source: "our budget".to_owned(), measured, holds });
    };
    let mut stores: Vec<&str> = report.results.iter().map(|row| row.store.as_str()).collect();
    stores.dedup();
    stores.sort_unstable();
    stores.dedup();
    for store in stores {
        let ours = |scenario, contenders| report.row(scenario, store, "leasehold", contenders);
        let kind = store.trim_end_matches("-tmpfs");
        if kind != "memory" {
            let ratio = ours("uncontended", 1).and_then(|row| row.floor_ratio);
            budget(
                format!("{store}: a free lock at 0.95 of the floor's rate or more"),
                ratio.map(|ratio| (format!("{ratio:.2}"), ratio >= 0.95)),
            );
        }
        if let Some((times, peers)) = margin(kind) {
            budget(
                format!("{store}: 8 processes, {times} times as many cycles as {peers}"),
                rate(report, store, "leasehold").zip(rate(report, store, peers)).map(|(ours, theirs)| {
                    (
                        format!("{} against {}: {:.1} times", number(ours), number(theirs), ours / theirs),
                        ours >= times * theirs,
                    )
                }),
            );
        }
        if let Some(most) = most_requests(kind) {
            let requests = ours("processes", 8).and_then(|row| row.requests_per_cycle);
            budget(
                format!("{store}: 8 processes, at most {most} requests per cycle"),
                // Renewals come with time, not with cycles.
                requests.map(|requests| (number(requests), requests <= most + 0.05)),
            );
            let few = report.rows("herd").find(|row| row.store == store && row.implementation == "leasehold");
            let many = report
                .rows("herd")
                .filter(|row| row.store == store && row.implementation == "leasehold")
                .last();
            let counts = few
                .zip(many)
                .and_then(|(few, many)| Some((few.requests_per_cycle?, many, many.requests_per_cycle?)));
            budget(
                format!("{store}: a release costs the same however many wait"),
                counts.map(|(few, row, many)| {
                    (
                        format!(
                            "{} requests with 1 waiting, {} with {}",
                            number(few),
                            number(many),
                            row.contenders
                        ),
                        many <= most + 0.1,
                    )
                }),
            );
        }
        if let Some(p99) = ours("processes", 8).and_then(|row| row.handoff_us.p99) {
            budget(
                format!("{store}: 8 processes, hand-off within 5 ms at p99"),
                Some((format!("{:.2} ms", p99 / 1e3), p99 <= 5_000.0)),
            );
        }
        if let Some(rate) = ours("tasks", 64).and_then(|row| row.cycles_per_s) {
            budget(
                format!("{store}: 64 tasks of one process, 100\u{202f}000 cycles/s or more"),
                Some((number(rate), rate >= 100_000.0)),
            );
        }
        if let Some(longest) = ours("crash", 2).and_then(|row| row.handoff_us.max) {
            let bound = CRASH_TTL.as_secs_f64() + grace(kind);
            budget(
                format!(
                    "{store}: after a kill the next holds within {bound:.1} s, ttl {} s",
                    CRASH_TTL.as_secs()
                ),
                Some((format!("{:.2} s", longest / 1e6), longest <= bound * 1e6)),
            );
        }
        if let Some(row) =
            report.rows("held").find(|row| row.store == store && row.implementation == "leasehold")
        {
            let bytes = drawings.memory.get(&(store.to_owned(), "leasehold".to_owned()));
            budget(
                format!(
                    "{store}: {} held locks take 1 KiB each or less, the client library's included",
                    row.contenders
                ),
                bytes.map(|bytes| (format!("{} bytes", number(*bytes)), *bytes <= 1_024.0)),
            );
            if let Some(most) = most_renewals(kind, row.contenders) {
                budget(
                    format!(
                        "{store}: {} held locks are renewed by at most {most} requests per third of the ttl",
                        row.contenders
                    ),
                    row.requests_per_cycle.map(|requests| (number(requests), requests <= most * 1.25)),
                );
            }
        }
    }
    claims
}

fn rate(report: &Report, store: &str, who: &str) -> Option<f64> {
    report.row("processes", store, who, 8)?.cycles_per_s
}

/// How many times faster than which fair peer.
fn margin(store: &str) -> Option<(f64, &'static str)> {
    match store {
        "redis" => Some((3.0, "redisson-fair")),
        "etcd" => Some((10.0, "go-mutex")),
        "zk" => Some((1.5, "curator")),
        _ => None,
    }
}

fn most_requests(store: &str) -> Option<f64> {
    match store {
        "redis" | "etcd" => Some(2.0),
        "zk" => Some(5.0),
        _ => None,
    }
}

fn most_renewals(store: &str, locks: u64) -> Option<f64> {
    match store {
        "redis" => Some(locks as f64 / 100.0),
        "etcd" | "zk" => Some(1.0),
        _ => None,
    }
}

/// What comes on top of the ttl, in seconds: the store's own expiry, and one second.
fn grace(store: &str) -> f64 {
    match store {
        "etcd" => 1.5,
        "zk" => 1.1,
        _ => 1.0,
    }
}
