//! What a section of the page has found, in one sentence.

use super::glance::{called, number, percent, time};
use super::{Report, Row};
use crate::options::ON_THREADS;
use crate::scale::CRASH_TTL;

/// Nothing, if it was not measured.
pub(super) fn result(report: &Report, section: &str) -> String {
    let rate: Value = |row| row.cycles_per_s;
    let faster = |scenario, most, what: &str| {
        beside(report, scenario, most, what, rate)
            .or_else(|| ours(report, scenario, what, |row| rate(row).map(number)))
    };
    let told = match section {
        "glance" => fastest(report),
        "crowd" => faster("crowd", u64::MAX, "With the most contenders, the rate of leasehold"),
        "distance" => {
            ours(report, section, "Of the floor's rate a free lock keeps", |row| row.floor_ratio.map(number))
        }
        "hand-off" => {
            beside(report, "processes", 8, "With 8 contenders, the hand-off of leasehold (p99)", |row| {
                Some(1.0 / row.handoff_us.p99?)
            })
        }
        "requests" => {
            ours(report, "crowd", "With the most contenders, the server receives per cycle", |row| {
                row.requests_per_cycle.map(|requests| format!("{} requests", number(requests)))
            })
        }
        "tasks" => faster("tasks", 64, "With 64 tasks, the rate of leasehold"),
        "names" => faster(ON_THREADS, u64::MAX, "With the most locks at a time, the rate of leasehold"),
        "fairness" => ours(report, section, "Of all grants leasehold serves out of order", |row| {
            row.overtakes.map(percent)
        }),
        "recovery" => {
            let what =
                format!("With a ttl of {} s, the next waiter holds after at most", CRASH_TTL.as_secs());
            ours(report, "crash", &what, |row| row.handoff_us.max.map(time))
        }
        "memory" | "growth" => ours(report, "held", "A held lock takes of the client's memory", |row| {
            row.bytes_per_lock.map(|bytes| format!("{} B", number(bytes)))
        }),
        "kinds" => gains(report),
        "move" => moves(report),
        "claims" => {
            let [kept, missed, undecided, unknown] = report.verdicts();
            Some(format!(
                "Of our budgets {kept} are kept, {missed} are missed, {undecided} are undecided and {unknown} are not measured."
            ))
        }
        _ => None,
    };
    told.unwrap_or_default()
}

type Value = fn(&Row) -> Option<f64>;

/// Where it is, and how fast; within one host there is no need for a server.
fn fastest(report: &Report) -> Option<String> {
    let rows =
        report.rows("uncontended").filter(|row| row.is_ours() && !["memory", "file"].contains(&&*row.store));
    let (store, rate) = rows
        .filter_map(|row| Some((row.store.as_str(), row.cycles_per_s?)))
        .max_by(|(_, rate), (_, other)| rate.total_cmp(other))?;
    Some(format!(
        "Between hosts, {} has the fastest free lock: {} to acquire and release it.",
        called(store),
        time(1e6 / rate)
    ))
}

/// Our row of each store, with as many contenders as there were, up to `most`.
fn rows<'a>(report: &'a Report, scenario: &'a str, most: u64) -> impl Iterator<Item = &'a Row> {
    report.stores().into_iter().filter_map(move |store| {
        let rows = report.rows(scenario).filter(|row| row.store == store && row.is_ours());
        rows.filter(|row| row.contenders <= most).max_by_key(|row| row.contenders)
    })
}

/// Store by store.
fn ours(
    report: &Report,
    scenario: &str,
    what: &str,
    value: impl Fn(&Row) -> Option<String>,
) -> Option<String> {
    let each = rows(report, scenario, u64::MAX);
    let each = each.filter_map(|row| Some(format!("{} on {}", value(row)?, called(&row.store))));
    Some(format!("{what} {}.", listed(each)?))
}

/// As a multiple of the best other library's, store by store. More is better.
fn beside(report: &Report, scenario: &str, most: u64, what: &str, value: Value) -> Option<String> {
    let (mut ahead, mut behind) = (Vec::new(), Vec::new());
    for ours in rows(report, scenario, most) {
        let others = report.rows(scenario).filter(|row| {
            row.store == ours.store && row.contenders == ours.contenders && !row.is_ours() && !row.is_floor()
        });
        let others = others.filter_map(|row| Some((row, value(row)?)));
        let best = others.max_by(|(_, value), (_, other)| value.total_cmp(other));
        let (Some((best, theirs)), Some(ours_is)) = (best, value(ours)) else { continue };
        let told =
            format!("{} ({} × {})", called(&ours.store), number(ours_is / theirs), best.implementation);
        if ours_is >= theirs { ahead.push(told) } else { behind.push(told) }
    }
    let each = [("ahead of every other library on", ahead), ("behind on", behind)];
    let each = each.into_iter().filter_map(|(is, told)| Some(format!("{is} {}", listed(told.into_iter())?)));
    Some(format!("{what} is {}.", listed(each)?))
}

/// How many times as fast as alone.
fn gains(report: &Report) -> Option<String> {
    let gains = || {
        report
            .kinds
            .iter()
            .filter(|kind| kind.implementation == "leasehold")
            .filter_map(|kind| report.gain(kind))
    };
    let (least, most) = gains().reduce(f64::min).zip(gains().reduce(f64::max))?;
    Some(format!(
        "Sharing makes leasehold {} to {} times as fast as its exclusive lock under the same load.",
        number(least),
        number(most)
    ))
}

fn moves(report: &Report) -> Option<String> {
    let gaps = report.moves.iter().filter_map(|moved| {
        let gap = time(moved.longest_gap_ms? * 1e3);
        Some(format!("{gap} ({})", moved.what))
    });
    Some(format!("The longest time without a grant is {}.", listed(gaps)?))
}

/// As a sentence has them.
fn listed(each: impl Iterator<Item = String>) -> Option<String> {
    let mut each: Vec<_> = each.collect();
    let last = each.pop()?;
    Some(if each.is_empty() { last } else { format!("{} and {last}", each.join(", ")) })
}
