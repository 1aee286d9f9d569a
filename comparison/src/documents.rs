//! The pages on choosing and on speed show the report that is kept in `docs/comparison`.
//!
//! With `UPDATE_DOCS=1` the test writes them anew, without a new run; `make fix` does that.

use std::path::{Path, PathBuf};

use crate::claims::judge_anew;
use crate::report::glance::{LINES, STORES, number, percent, rate, time, within};
use crate::report::{BUDGET, Claim, Move, Report, distinct, page};

/// Where, when and with what.
fn origin(report: &Report) -> String {
    let here = &report.environment;
    let version = |store| here.servers.get(store)?.version.as_deref();
    let versions = STORES.iter().filter_map(|(store, name)| Some(format!("{name} {}", version(*store)?)));
    format!(
        "{}, {}, {} cores, an fsync {} (p50), {}; {}; mode `{}`.\n",
        here.date,
        known(here.cpu.clone()),
        known(here.cores.map(|cores| cores.to_string())),
        known(here.fsync_us.p50.map(time)),
        here.system,
        versions.collect::<Vec<_>>().join(", "),
        here.mode,
    )
}

/// A table of Markdown: its names, and a row of cells for each.
fn markdown(head: &str, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let line = "|---".repeat(head.split('|').count());
    // What has no name, and no value, is one space.
    let written = |cells: &str| format!("| {cells} |\n").replace("|  |", "| |").replace("|  |", "| |");
    let rows = rows.into_iter().map(|cells| written(&cells.join(" | ")));
    format!("{}{line}|\n{}", written(head), rows.collect::<String>())
}

/// The stores that the report is about.
fn compared(report: &Report) -> impl Iterator<Item = (&'static str, &'static str)> {
    let stores = report.stores();
    STORES.into_iter().filter(move |(store, _)| stores.contains(store))
}

/// A column per store.
fn stores(report: &Report) -> String {
    let rows = LINES.map(|(name, _, scenario, contenders, value)| {
        let row = |store| report.row(scenario, store, "leasehold", contenders);
        let cells = compared(report).map(|(store, _)| row(store).and_then(value));
        [name.to_owned()].into_iter().chain(cells.map(known)).collect()
    });
    let names: Vec<_> = compared(report).map(|(_, name)| name).collect();
    markdown(&format!(" | {}", names.join(" | ")), rows)
}

/// Everybody on one store: alone, and eight contenders.
fn everybody(report: &Report, store: &str) -> String {
    let rows = report.rows("uncontended").filter(|row| row.store == store).map(|free| {
        let who = free.implementation.as_str();
        let crowd = report.row("processes", store, who, 8).cloned().unwrap_or_default();
        vec![
            emphasised(who),
            known(rate(free)),
            known(rate(&crowd)),
            known(crowd.handoff_us.p50.map(time)),
            known(within(crowd.handoff_us.p99, &crowd.handoff_p99s, time)),
            known(crowd.requests_per_cycle.map(number)),
            known(crowd.overtakes.map(percent)),
        ]
    });
    markdown(
        " | a free lock, cycles/s | 8 contenders, cycles/s | hand-off p50 | hand-off p99 | requests per cycle | overtakes",
        rows,
    )
}

/// The rates of everybody on every store, from a few contenders to many.
fn crowd(report: &Report) -> String {
    const COUNTS: [u64; 4] = [8, 16, 32, 100];
    let mut table = Vec::new();
    for (store, name) in compared(report) {
        let rows = report.rows("crowd").filter(|row| row.store == store);
        for who in distinct(rows.map(|row| row.implementation.as_str())) {
            let rate = |count| rate(report.row("crowd", store, who, count)?);
            let who = [name.to_owned(), emphasised(who)];
            table.push(who.into_iter().chain(COUNTS.map(|count| known(rate(count)))).collect());
        }
    }
    markdown(&format!(" |  | {}", COUNTS.map(|count| format!("{count} contenders")).join(" | ")), table)
}

/// Locks that several hold, load by load.
fn kinds(report: &Report) -> String {
    let rows = report.kinds.iter().map(|kind| {
        let cells = [
            within(kind.cycles_per_s, &kind.rates, number),
            report.gain(kind).map(number),
            kind.holders.map(number),
            kind.requests_per_cycle.map(number),
            kind.overtakes.map(percent),
            kind.starved.map(percent),
            kind.violations.map(|violations| violations.to_string()),
        ];
        let who = [kind.load.clone(), called(&kind.store).to_owned(), emphasised(&kind.implementation)];
        who.into_iter().chain(cells.map(known)).collect()
    });
    markdown(
        "load |  |  | cycles/s | × our exclusive lock | holders at a time | requests per cycle | overtakes | a writer's longest wait, of the run | too many at once",
        rows,
    )
}

/// What becomes of permits.
fn leaks(report: &Report) -> String {
    let rows = report.leaks.iter().map(|leak| {
        let free = |count: Option<u64>| known(count.map(|count| format!("{count} of {}", leak.permits)));
        vec![
            called(&leak.store).to_owned(),
            emphasised(&leak.implementation),
            free(leak.after_a_kill),
            leak.second_release.clone(),
            free(leak.after_two_releases),
        ]
    });
    markdown(
        " |  | a holder was killed, and twice its lease is over | a second release of one was | after it",
        rows,
    )
}

fn called(store: &str) -> &str {
    STORES.iter().find(|(name, _)| *name == store).map_or(store, |(_, called)| called)
}

fn emphasised(who: &str) -> String {
    if who == "leasehold" { format!("**{who}**") } else { who.to_owned() }
}

/// Moves from one store to another, phase by phase.
fn moves(report: &Report) -> String {
    let mut table = Vec::new();
    for moved in &report.moves {
        for row in moved.table().rows {
            let cells = row.cells.into_iter().map(|cell| cell.text);
            table.push([moved.what.clone()].into_iter().chain(cells).collect());
        }
        let Move { cycles, overlaps, tokens_back, .. } = moved;
        let all = format!(
            "**all of it**: {cycles} cycles, {overlaps} overlaps, {tokens_back} tokens that did not grow"
        );
        let gap = known(moved.longest_gap_ms.map(|gap| time(gap * 1e3)));
        table.push(vec![moved.what.clone(), all, String::new(), String::new(), gap, String::new()]);
    }
    markdown(&format!(" | {}", Move::default().table().head.join(" | ")), table)
}

/// Claims of one kind: published, or budgets of our own.
fn claims(report: &Report, ours: bool) -> String {
    let claims = report.claims.iter().filter(|claim| (claim.source == BUDGET) == ours);
    let rows = claims.map(|claim| {
        let holds = if claim.holds == Some(false) { "**no**" } else { claim.verdict() };
        let [bound, measured, spread] =
            [&claim.bound, &claim.measured, &claim.spread].map(|told| known(told.clone()));
        vec![claim.claim.clone(), bound, measured, spread, holds.to_owned()]
    });
    markdown("claim | bound | measured | 95 % | holds", rows)
}

/// Why budgets are missed, or may be.
fn reasons(report: &Report) -> String {
    let budgets = report.claims.iter().filter(|claim| claim.source == BUDGET);
    let reasons = budgets.filter_map(|Claim { claim, measured, why, .. }| {
        Some(format!("- **{claim}**, {}. {}\n", measured.as_ref()?, why.as_ref()?))
    });
    let told: String = reasons.collect();
    if told.is_empty() { "None is missed in the report that is kept.\n".to_owned() } else { told }
}

/// What is not known has a sign of its own.
fn known(value: Option<String>) -> String {
    value.unwrap_or_else(|| "–".to_owned())
}

/// Checks, or writes, what stands between the marks of a table.
fn stands(document: &str, table: &str, current: &str) {
    let path = place(document);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{document}: {error}"));
    let begin = format!("<!-- {table}: written by comparison/src/documents.rs -->\n");
    let (before, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("{document} has no {begin}"));
    let (found, after) =
        rest.split_once("<!-- end -->\n").unwrap_or_else(|| panic!("{document}: {table} has no end"));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{before}{begin}{current}<!-- end -->\n{after}")).unwrap();
    } else {
        assert_eq!(found, current, "{document}: {table} is stale; `make fix` writes it anew");
    }
}

/// Every figure in the documents is one of the report, and the page is made of it.
#[test]
fn documents_show_the_report_that_is_kept() {
    let kept = include_str!("../../docs/comparison/report.json");
    let mut report: Report = serde_json::from_str(kept).unwrap();
    judge_anew(&mut report);
    let stores = format!("{}\n{}", origin(&report), stores(&report));
    stands("docs/src/choosing.md", "stores", &stores);
    for (store, _) in compared(&report) {
        stands("docs/src/speed.md", store, &everybody(&report, store));
    }
    stands("docs/src/speed.md", "crowd", &crowd(&report));
    stands("docs/src/speed-kinds.md", "kinds", &kinds(&report));
    stands("docs/src/speed-kinds.md", "leaks", &leaks(&report));
    stands("docs/src/speed.md", "moves", &moves(&report));
    stands("docs/src/claims.md", "claims", &claims(&report, false));
    stands("docs/src/budgets.md", "budgets", &claims(&report, true));
    stands("docs/src/budgets.md", "reasons", &reasons(&report));
    let (path, page) = (place("docs/comparison/report.html"), page(&report).unwrap());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, page).unwrap();
    } else {
        assert!(
            std::fs::read_to_string(path).unwrap() == page,
            "report.html is stale; `make fix` writes it anew"
        );
    }
}

fn place(document: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(document)
}
