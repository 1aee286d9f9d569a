//! The parts of the page that are text: claims, every result, the environment.

use std::fmt::Write as _;

use super::svg::{safe, time};
use crate::figures::Spread;
use crate::report::table::number;
use crate::report::{Report, Row};

/// What others have said and what we have promised, measured.
pub(super) fn claims(report: &Report) -> String {
    if report.claims.is_empty() {
        return String::new();
    }
    let mut rows = String::new();
    for claim in &report.claims {
        let (class, verdict) = match claim.holds {
            Some(true) => ("yes", "holds"),
            Some(false) => ("no", "does not hold"),
            None => ("soft", "unknown"),
        };
        let _infallible = write!(
            rows,
            "<tr><td class=\"long\">{}</td><td class=\"text soft\">{}</td><td class=\"long\">{}</td><td class=\"{class}\">{verdict}</td></tr>",
            safe(&claim.claim),
            safe(&claim.source),
            safe(claim.measured.as_deref().unwrap_or("–")),
        );
    }
    format!(
        "<h2 id=\"claims\">Claims, as experiments</h2><p class=\"soft\">Published sentences and our own budgets, each with what \
         was measured here.</p><div class=\"scroll card\"><table><tr><th class=\"text\">claim</th><th class=\"text\">source</th>\
         <th class=\"text\">measured</th><th></th></tr>{rows}</table></div>"
    )
}

/// Every row, scenario by scenario.
pub(super) fn results(report: &Report) -> String {
    let mut scenarios: Vec<&str> = Vec::new();
    for row in &report.results {
        if !scenarios.contains(&row.scenario.as_str()) {
            scenarios.push(&row.scenario);
        }
    }
    let mut tables = String::new();
    for scenario in scenarios {
        let rows: String = report.rows(scenario).map(result).collect();
        let _infallible = write!(
            tables,
            "<details><summary>{}</summary><div class=\"scroll card\"><table><tr><th class=\"text\">store</th>\
             <th class=\"text\">implementation</th><th>contenders</th><th>cycles/s</th><th>acquire p50 / p99</th>\
             <th>release p50 / p99</th><th>hand-off p50 / p99</th><th>requests</th><th>× floor</th><th>overtakes</th>\
             <th>violations</th><th>runs</th></tr>{rows}</table></div></details>",
            safe(scenario)
        );
    }
    format!("<h2 id=\"results\">All results</h2><p class=\"soft\">As in report.json.</p>{tables}")
}

fn result(row: &Row) -> String {
    let cell = |value: Option<String>| value.unwrap_or_else(|| "–".to_owned());
    let spread = |spread: &Spread| {
        cell(spread.p50.zip(spread.p99).map(|(p50, p99)| format!("{} / {}", time(p50), time(p99))))
    };
    let violations = match row.violations {
        Some(0) => "0".to_owned(),
        Some(some) => format!("<span class=\"no\">{some}</span>"),
        None => "–".to_owned(),
    };
    format!(
        "<tr class=\"{}\"><td class=\"text\">{}</td><td class=\"text\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
         <td>{}</td><td>{}</td><td>{}</td><td>{violations}</td><td>{}</td></tr>",
        if row.implementation == "leasehold" { "ours" } else { "" },
        safe(&row.store),
        safe(&row.implementation),
        row.contenders,
        cell(row.cycles_per_s.map(number)),
        spread(&row.acquire_us),
        spread(&row.release_us),
        spread(&row.handoff_us),
        cell(row.requests_per_cycle.map(number)),
        cell(row.floor_ratio.map(|ratio| format!("{ratio:.2}"))),
        cell(row.overtakes.map(|share| format!("{:.1} %", share * 100.0))),
        row.runs,
    )
}

/// Where it was measured, with what, and without what.
pub(super) fn environment(report: &Report) -> String {
    let environment = &report.environment;
    let mut rows = String::new();
    let mut row = |name: &str, value: Option<String>| {
        let value = value.unwrap_or_else(|| "not known".to_owned());
        let _infallible = write!(
            rows,
            "<tr><td class=\"text soft\">{}</td><td class=\"long\">{}</td></tr>",
            safe(name),
            safe(&value)
        );
    };
    row("date", Some(environment.date.clone()));
    row("mode", Some(environment.mode.clone()));
    row("system", Some(environment.system.clone()));
    row("processor", environment.cpu.clone());
    row("cores", environment.cores.map(|cores| cores.to_string()));
    row(
        "memory",
        environment.memory_bytes.map(|bytes| format!("{} MiB", number(bytes as f64 / 1_048_576.0))),
    );
    let fsync = &environment.fsync_us;
    row(
        "fsync of 512 bytes, p50 / p99",
        fsync.p50.zip(fsync.p99).map(|(p50, p99)| format!("{} / {}", time(p50), time(p99))),
    );
    for (store, server) in &environment.servers {
        let version = server.version.as_deref().map(|version| format!("{version}; ")).unwrap_or_default();
        row(store, Some(format!("{version}data: {}", server.durability)));
    }
    for (library, version) in &environment.versions {
        row(library, Some(version.clone()));
    }
    for (column, meaning) in &environment.columns {
        row(column, Some(meaning.clone()));
    }
    let mut left_out = String::new();
    for missing in &environment.left_out {
        let _infallible = write!(left_out, "<li>{}: {}</li>", safe(&missing.what), safe(&missing.why));
    }
    if !left_out.is_empty() {
        left_out = format!("<h3>Left out</h3><ul>{left_out}</ul>");
    }
    format!(
        "<h2 id=\"environment\">Environment</h2>{left_out}<div class=\"scroll card\"><table>{rows}</table></div>"
    )
}
