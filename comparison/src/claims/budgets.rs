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
                ratio.map(|ratio| {
                    let missed = if ratio < 0.95 { difference(report, store) } else { None };
                    (format!("{ratio:.2}{}", missed.unwrap_or_default()), ratio >= 0.95)
                }),
            );
        }
        let alike = alike(kind);
        if !alike.is_empty() {
            let fastest = alike
                .iter()
                .filter_map(|peer| Some((*peer, report.row("uncontended", store, peer, 1)?.cycles_per_s?)))
                .max_by(|a, b| a.1.total_cmp(&b.1));
            budget(
                format!("{store}: a free lock no slower than with {}", alike.join(", ")),
                ours("uncontended", 1).and_then(|row| row.cycles_per_s).zip(fastest).map(
                    |(ours, (peer, theirs))| {
                        (
                            format!("{} cycles/s against {} with {peer}", number(ours), number(theirs)),
                            ours >= theirs,
                        )
                    },
                ),
            );
        }
        if let Some((times, peers)) = margin(kind) {
            budget(
                format!("{store}: 8 contenders, {times} times as many cycles as {peers}"),
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
                format!("{store}: 8 contenders, at most {most} requests per cycle"),
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
                .and_then(|(few, many)| Some((few, few.requests_per_cycle?, many, many.requests_per_cycle?)));
            budget(
                format!("{store}: a release costs the same however many wait"),
                counts.map(|(fewest, few, row, many)| {
                    (
                        format!(
                            "{} requests with {} waiting, {} with {}",
                            number(few),
                            fewest.contenders,
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
                format!("{store}: 8 contenders, hand-off within 5 ms at p99"),
                Some((
                    format!(
                        "{:.2} ms{}",
                        p99 / 1e3,
                        if p99 > 5_000.0 { alone(report, store) } else { String::new() }
                    ),
                    p99 <= 5_000.0,
                )),
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

/// What our cycle costs and the floor's does not.
fn difference(report: &Report, store: &str) -> Option<String> {
    let (ours, floor) = (report.profile(store, "leasehold")?, report.profile(store, "floor")?);
    let parts = [
        ("client", ours.client_us.zip(floor.client_us)),
        ("server", ours.server_us.zip(floor.server_us)),
        ("the rest", Some((ours.rest_us(), floor.rest_us()))),
    ];
    let told = parts.into_iter().filter_map(|(part, times)| {
        let (ours, floor) = times?;
        Some(format!("{part} {} against {} µs", number(ours), number(floor)))
    });
    Some(format!("; of a cycle: {}", told.collect::<Vec<_>>().join(", ")))
}

/// What the same requests take when nobody else asks for anything.
fn alone(report: &Report, store: &str) -> String {
    let floor = report.row("uncontended", store, "floor", 1);
    let told = floor.and_then(|row| {
        let (acquire, release) = (row.acquire_us.p99?, row.release_us.p99?);
        Some(format!(
            "; of the floor alone, p99: {:.2} ms to acquire, {:.2} ms to release",
            acquire / 1e3,
            release / 1e3
        ))
    });
    told.unwrap_or_default()
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

/// Who serves in order, and does not lose a lock on the same servers.
fn alike(store: &str) -> &'static [&'static str] {
    match store {
        "redis" => &["redisson-fair"],
        "etcd" => &["etcd-lock-rpc", "go-mutex", "jetcd"],
        "zk" => &["zookeeper-client", "kazoo", "curator"],
        _ => &[],
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
