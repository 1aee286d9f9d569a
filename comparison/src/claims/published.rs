//! Published sentences that the scenarios' results answer.

use super::claim;
use super::finding::{Bound, Finding, times};
use crate::figures::{interval, rounded};
use crate::report::table::number;
use crate::report::{Claim, RANKING, Report, Row, distinct};

pub(super) fn claims(report: &Report) -> Vec<Claim> {
    vec![
        claim(RANKING, "common comparisons of lock stores", redis_is_faster_than_zookeeper(report)),
        claim("etcd's queue by revision is fair", "etcd's documentation of its lock", etcd_is_fair(report)),
        claim(
            "etcd's lock has no herd: a release costs the same however many wait",
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

/// By the most that the other's rate may be.
fn redis_is_faster_than_zookeeper(report: &Report) -> Option<Finding> {
    let compared = |scenario, contenders, what: &str| {
        let row = |store| report.row(scenario, store, "leasehold", contenders);
        let (redis, zk) = (row("redis")?, row("zk")?);
        let (_, most) = interval(&zk.rates)?;
        let shares: Vec<_> = redis.rates.iter().map(|rate| rounded(rate / most)).collect();
        let told = format!(
            " ({what}: {} against {} cycles/s)",
            number(redis.cycles_per_s?),
            number(zk.cycles_per_s?)
        );
        Some(Finding::of(&shares, Bound::AtLeast(1.0), times)?.and(&told))
    };
    Finding::all(
        [compared("uncontended", 1, "a free lock"), compared("processes", 8, "8 processes")].into_iter(),
    )
}

fn etcd_is_fair(report: &Report) -> Option<Finding> {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let rows = report.rows("fairness").filter(|row| row.store == "etcd" && !is_floor(row));
    Finding::all(rows.map(|row| {
        let finding = Finding::of(&row.overtakes_of_runs, Bound::AtMost(0.05), percent)?;
        Some(finding.and(&format!(" overtakes with {}", row.implementation)))
    }))
}

/// By what the server is asked and by what it sends: those who wait hear of a release without asking.
fn etcd_has_no_herd(report: &Report) -> Option<Finding> {
    let rows = || report.rows("crowd").filter(|row| row.store == "etcd" && !is_floor(row));
    let everybody = distinct(rows().map(|row| row.implementation.as_str())).into_iter();
    Finding::all(everybody.map(|who| {
        let of = |row: &Row| Some((row.requests_per_cycle? + row.messages_per_cycle?, row.contenders));
        let all: Option<Vec<_>> = rows().filter(|row| row.implementation == who).map(of).collect();
        let by_messages = |a: &(f64, u64), b: &(f64, u64)| a.0.total_cmp(&b.0);
        let all = all?.into_iter();
        let ((least, few), (most, many)) = (all.clone().min_by(by_messages)?, all.max_by(by_messages)?);
        let (at_least, at_most) = (number(least), number(most));
        let told =
            format!("{who}: {at_least} messages both ways per cycle with {few}, {at_most} with {many}");
        let bound = format!("at most {} as many", times(HERD));
        Some(Finding::seen(told, most <= HERD * least).within(bound))
    }))
}

fn counters_are_exact(report: &Report) -> Option<Finding> {
    let rows: Vec<&Row> = report.rows("counter").collect();
    let broken = rows.iter().filter(|row| row.violations.is_some_and(|broken| broken > 0)).map(|row| {
        let Row { implementation, store, contenders, violations, .. } = row;
        let lost = violations.unwrap_or_default();
        Some(Finding::seen(
            format!("{implementation} on {store} with {contenders}: {lost} lost or overlapping"),
            false,
        ))
    });
    if let Some(broken) = Finding::all(broken) {
        return Some(broken);
    }
    let counted: Vec<_> = rows.iter().filter(|row| row.violations.is_some()).collect();
    let clients = distinct(counted.iter().map(|row| row.contenders.to_string())).join(", ");
    let stores = distinct(counted.iter().map(|row| row.store.as_str())).join(", ");
    let told = format!(
        "{} of {} runs with {clients} clients on {stores}: every count exact",
        counted.len(),
        rows.len()
    );
    (!counted.is_empty()).then(|| Finding {
        // Who did not finish might have.
        holds: (counted.len() == rows.len()).then_some(true),
        ..Finding::seen(told, true)
    })
}

fn is_floor(row: &Row) -> bool {
    row.implementation.starts_with("floor")
}

/// How many times as many messages are "the same".
const HERD: f64 = 1.5;

#[cfg(test)]
mod tests {
    use super::*;

    fn crowd(who: &str, contenders: u64, requests: Option<f64>, messages: Option<f64>) -> Row {
        Row {
            scenario: "crowd".into(),
            store: "etcd".into(),
            implementation: who.into(),
            contenders,
            requests_per_cycle: requests,
            messages_per_cycle: messages,
            ..Row::default()
        }
    }

    fn herd(results: Vec<Row>) -> Option<Finding> {
        etcd_has_no_herd(&Report { results, ..Report::default() })
    }

    /// Two requests a cycle however many wait, and a hundred messages to those who wait, is a herd.
    #[test]
    fn a_herd_is_seen_by_what_the_server_sends() {
        let quiet = |who| [8, 100].map(|count| crowd(who, count, Some(2.0), Some(2.0)));
        // Wherever it is, and not only with the most.
        let loud = [(8, 10.0), (16, 102.0), (100, 10.0)]
            .map(|(count, sent)| crowd("a", count, Some(2.0), Some(sent)));
        assert_eq!(herd(quiet("b").to_vec()).unwrap().holds, Some(true));
        assert_eq!(herd([&loud[..], &quiet("b")].concat()).unwrap().holds, Some(false));
    }

    /// A row that did not finish makes the claim unknown.
    #[test]
    fn unfinished_candidate_is_not_passed_over() {
        let rows = [crowd("a", 8, Some(2.0), Some(2.0)), crowd("a", 100, None, None)];
        assert_eq!(herd(rows.to_vec()), None);
    }
}
