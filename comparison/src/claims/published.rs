//! Published sentences that the scenarios' results answer.

use crate::report::table::number;
use crate::report::{Claim, Report, Row};

pub(super) fn claims(report: &Report) -> Vec<Claim> {
    vec![
        redis_is_faster_than_zookeeper(report),
        etcd_is_fair(report),
        etcd_has_no_herd(report),
        counters_are_exact(report),
    ]
}

fn claim(claim: &str, source: &str, finding: Option<(String, bool)>) -> Claim {
    let (measured, holds) = finding.unzip();
    Claim { claim: claim.to_owned(), source: source.to_owned(), measured, holds }
}

fn redis_is_faster_than_zookeeper(report: &Report) -> Claim {
    let rates = |scenario, contenders| {
        let rate = |store| report.row(scenario, store, "leasehold", contenders)?.cycles_per_s;
        Some((rate("redis")?, rate("zk")?))
    };
    let finding =
        rates("uncontended", 1).zip(rates("processes", 8)).map(|((redis, zk), (busy_redis, busy_zk))| {
            let told = format!(
                "a free lock: {} against {} cycles/s; 8 processes: {} against {}",
                number(redis),
                number(zk),
                number(busy_redis),
                number(busy_zk)
            );
            (told, redis > zk && busy_redis > busy_zk)
        });
    claim("Redis locks are faster than ZooKeeper's", "common comparisons of lock stores", finding)
}

fn etcd_is_fair(report: &Report) -> Claim {
    let rows: Vec<&Row> = report.rows("fairness").filter(|row| row.store == "etcd").collect();
    let shares: Vec<_> = rows.iter().filter_map(|row| Some((&row.implementation, row.overtakes?))).collect();
    let told = shares.iter().map(|(who, share)| format!("{who} {:.1} % overtakes", share * 100.0));
    let told = told.collect::<Vec<_>>().join("; ");
    let finding = (!shares.is_empty()).then(|| (told, shares.iter().all(|(_, share)| *share < 0.05)));
    claim("etcd's queue by revision is fair", "etcd's documentation of its lock", finding)
}

fn etcd_has_no_herd(report: &Report) -> Claim {
    let mut told = Vec::new();
    let mut holds = true;
    let mut everybody: Vec<&str> = Vec::new();
    for row in report.rows("herd").filter(|row| row.store == "etcd") {
        if !everybody.contains(&row.implementation.as_str()) {
            everybody.push(&row.implementation);
        }
    }
    for who in everybody {
        let rows = report.rows("herd").filter(|row| row.store == "etcd" && row.implementation == who);
        let counts: Vec<(u64, f64)> =
            rows.filter_map(|row| Some((row.contenders, row.requests_per_cycle?))).collect();
        if let (Some((fewest, least)), Some((most, largest))) = (counts.first(), counts.last()) {
            told.push(format!(
                "{who}: {} requests per cycle with {fewest} waiting, {} with {most}",
                number(*least),
                number(*largest)
            ));
            holds &= *largest < least * 2.0 + 1.0;
        }
    }
    let finding = (!told.is_empty()).then(|| (told.join("; "), holds));
    claim(
        "etcd's lock has no herd: a release costs no more requests however many wait",
        "etcd's documentation of its lock",
        finding,
    )
}

fn counters_are_exact(report: &Report) -> Claim {
    let rows: Vec<&Row> = report.rows("counter").collect();
    let mut stores: Vec<&str> = rows.iter().map(|row| row.store.as_str()).collect();
    stores.dedup();
    let broken: Vec<String> = rows
        .iter()
        .filter(|row| row.violations != Some(0))
        .map(|row| {
            format!(
                "{} on {} with {}: {:?} lost or overlapping",
                row.implementation, row.store, row.contenders, row.violations
            )
        })
        .collect();
    let mut clients: Vec<String> = Vec::new();
    for row in &rows {
        let count = row.contenders.to_string();
        if !clients.contains(&count) {
            clients.push(count);
        }
    }
    let told = if broken.is_empty() {
        format!(
            "{} runs with {} clients on {}: every count exact",
            rows.len(),
            clients.join(", "),
            stores.join(", ")
        )
    } else {
        broken.join("; ")
    };
    let finding = (!rows.is_empty()).then_some((told, broken.is_empty()));
    claim(
        "Clients that increment an unprotected number under the lock lose no count",
        "published comparisons with 10, 100 and 200 clients",
        finding,
    )
}
