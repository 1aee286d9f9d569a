//! Published sentences that the scenarios' results answer.

use super::{Finding, claim};
use crate::report::table::number;
use crate::report::{Claim, Report, Row, distinct};

pub(super) fn claims(report: &Report) -> Vec<Claim> {
    vec![
        claim(
            "Redis locks are faster than ZooKeeper's",
            "common comparisons of lock stores",
            redis_is_faster_than_zookeeper(report),
        ),
        claim("etcd's queue by revision is fair", "etcd's documentation of its lock", etcd_is_fair(report)),
        claim(
            "etcd's lock has no herd: a release costs no more requests however many wait",
            "etcd's documentation of its lock",
            etcd_has_no_herd(report),
        ),
        claim(
            "Clients that increment an unprotected number under the lock lose no count",
            "published comparisons with 10, 100 and 200 clients",
            counters_are_exact(report),
        ),
    ]
}

fn redis_is_faster_than_zookeeper(report: &Report) -> Option<Finding> {
    let rate =
        |scenario, store, contenders| report.row(scenario, store, "leasehold", contenders)?.cycles_per_s;
    let (redis, zk) = (rate("uncontended", "redis", 1)?, rate("uncontended", "zk", 1)?);
    let (busy_redis, busy_zk) = (rate("processes", "redis", 8)?, rate("processes", "zk", 8)?);
    let [a, b, c, d] = [redis, zk, busy_redis, busy_zk].map(number);
    let told = format!("a free lock: {a} against {b} cycles/s; 8 processes: {c} against {d}");
    Some((told, redis > zk && busy_redis > busy_zk))
}

fn etcd_is_fair(report: &Report) -> Option<Finding> {
    let rows = report.rows("fairness").filter(|row| row.store == "etcd");
    all(rows.filter_map(|row| {
        let share = row.overtakes?;
        Some((format!("{} {:.1} % overtakes", row.implementation, share * 100.0), share < 0.05))
    }))
}

fn etcd_has_no_herd(report: &Report) -> Option<Finding> {
    let rows = || report.rows("herd").filter(|row| row.store == "etcd" && row.requests_per_cycle.is_some());
    let everybody = distinct(rows().map(|row| row.implementation.as_str())).into_iter();
    all(everybody.filter_map(|who| {
        let counts = rows().filter(|row| row.implementation == who);
        let (few, many) = (counts.clone().next()?, counts.last()?);
        let (least, most) = (few.requests_per_cycle?, many.requests_per_cycle?);
        let told = format!(
            "{who}: {} requests per cycle with {} waiting, {} with {}",
            number(least),
            few.contenders,
            number(most),
            many.contenders
        );
        Some((told, most < least * 2.0 + 1.0))
    }))
}

fn counters_are_exact(report: &Report) -> Option<Finding> {
    let rows: Vec<&Row> = report.rows("counter").collect();
    let broken = rows.iter().filter(|row| row.violations != Some(0)).map(|row| {
        let Row { implementation, store, contenders, violations, .. } = row;
        (format!("{implementation} on {store} with {contenders}: {violations:?} lost or overlapping"), false)
    });
    let clients = distinct(rows.iter().map(|row| row.contenders.to_string())).join(", ");
    let stores = distinct(rows.iter().map(|row| row.store.as_str())).join(", ");
    let exact = format!("{} runs with {clients} clients on {stores}: every count exact", rows.len());
    all(broken).or_else(|| (!rows.is_empty()).then_some((exact, true)))
}

/// Nothing, if nobody was measured.
fn all(findings: impl Iterator<Item = Finding>) -> Option<Finding> {
    findings.reduce(|(told, holds), (more, too)| (format!("{told}; {more}"), holds && too))
}
