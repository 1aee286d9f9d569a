//! The README and `docs/choosing.md` show the report that is kept in `docs/comparison`.
//!
//! `comparison/compare --out docs/comparison`, then `UPDATE_DOCS=1 cargo test -p comparison documents`
//! writes the tables anew.

use std::path::Path;

use crate::claims::budgets;
use crate::report::table::{grouped, range};
use crate::report::{Claim, Drawings, Move, Report, Row, distinct};

/// What stands in for a value that is not known.
const UNKNOWN: &str = "–";

/// Stores, as a document calls them.
const STORES: [(&str, &str); 6] = [
    ("memory", "memory"),
    ("file", "file"),
    ("redis", "Redis"),
    ("redis-quorum", "three Redis"),
    ("etcd", "etcd"),
    ("zk", "ZooKeeper"),
];

/// A line of the table with a column per store: its name, whose row it is from, and what it shows.
type Line = (&'static str, &'static str, u64, fn(&Row) -> Option<String>);

const LINES: [Line; 9] = [
    ("a free lock, taken and released, on average", "uncontended", 1, |row| {
        time(row.cycles_per_s.map(|rate| 1e6 / rate))
    }),
    ("… as a share of the floor's rate", "uncontended", 1, |row| {
        row.floor_ratio.map(|ratio| format!("{ratio:.2}"))
    }),
    ("… the same a millisecond away", "distance", 1, |row| {
        row.floor_ratio.map(|ratio| format!("{ratio:.2}"))
    }),
    ("8 contenders on one lock, cycles/s", "processes", 8, |row| row.cycles_per_s.map(number)),
    ("… hand-off, p99", "processes", 8, |row| time(row.handoff_us.p99)),
    ("… requests per cycle", "processes", 8, |row| row.requests_per_cycle.map(number)),
    ("… served out of order", "processes", 8, |row| row.overtakes.map(share)),
    ("64 tasks of one process, cycles/s", "tasks", 64, |row| row.cycles_per_s.map(number)),
    ("holder killed, ttl 3 s: the next holds after", "crash", 2, |row| time(row.handoff_us.max)),
];

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
        known(time(here.fsync_us.p50)),
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

/// A column per store.
fn stores(report: &Report) -> String {
    let rows = LINES.map(|(name, scenario, contenders, value)| {
        let cells =
            STORES.map(|(store, _)| report.row(scenario, store, "leasehold", contenders).and_then(value));
        [name.to_owned()].into_iter().chain(cells.map(known)).collect()
    });
    markdown(&format!(" | {}", STORES.map(|(_, name)| name).join(" | ")), rows)
}

/// Everybody on one store: alone, and eight contenders.
fn everybody(report: &Report, store: &str) -> String {
    let rows = report.rows("uncontended").filter(|row| row.store == store).map(|free| {
        let who = free.implementation.as_str();
        let crowd = report.row("processes", store, who, 8).cloned().unwrap_or_default();
        vec![
            emphasised(who),
            known(free.cycles_per_s.map(number)),
            known(crowd.cycles_per_s.map(number)),
            known(time(crowd.handoff_us.p50)),
            known(time(crowd.handoff_us.p99)),
            known(crowd.requests_per_cycle.map(number)),
            known(crowd.overtakes.map(share)),
        ]
    });
    markdown(
        " | a free lock, cycles/s | 8 contenders, cycles/s | hand-off p50 | hand-off p99 | requests per cycle | overtakes",
        rows,
    )
}

/// The rates of everybody on every store, from a few contenders to many.
fn crowd(report: &Report) -> String {
    const COUNTS: [u64; 6] = [2, 8, 16, 32, 50, 100];
    let mut table = Vec::new();
    for (store, name) in STORES {
        let rows = report.rows("crowd").filter(|row| row.store == store);
        for who in distinct(rows.map(|row| row.implementation.as_str())) {
            let rate = |count| {
                let row = report.row("crowd", store, who, count)?;
                let spread = range(&row.rates, number).map(|range| format!(" ({range})"));
                Some(number(row.cycles_per_s?) + &spread.unwrap_or_default())
            };
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
            kind.cycles_per_s.map(number),
            report.gain(kind).map(number),
            kind.holders.map(number),
            kind.requests_per_cycle.map(number),
            kind.overtakes.map(share),
            kind.starved.map(share),
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
        let gap = known(time(moved.longest_gap_ms.map(|gap| gap * 1e3)));
        table.push(vec![moved.what.clone(), all, String::new(), String::new(), gap, String::new()]);
    }
    markdown(&format!(" | {}", Move::default().table().head.join(" | ")), table)
}

/// Claims of one kind: published, or budgets of our own.
fn claims(report: &Report, ours: bool) -> String {
    let claims = report.claims.iter().filter(|claim| (claim.source == "our budget") == ours);
    let rows = claims.map(|claim| {
        let holds = if claim.holds == Some(false) { "**no**" } else { claim.verdict() };
        let [bound, measured, spread] =
            [&claim.bound, &claim.measured, &claim.spread].map(|told| known(told.clone()));
        vec![claim.claim.clone(), bound, measured, spread, holds.to_owned()]
    });
    markdown("claim | bound | measured | spread | holds", rows)
}

/// Why budgets are missed, or may be: judged anew, as the words are those of today.
fn reasons(report: &Report) -> String {
    let missed = budgets(report, &Drawings::default()).into_iter();
    let reasons = missed.filter_map(|Claim { claim, measured, why, .. }| {
        Some(format!("- **{claim}**, {}. {}\n", measured?, why?))
    });
    let told: String = reasons.collect();
    if told.is_empty() { "None is missed in the report that is kept.\n".to_owned() } else { told }
}

fn known(value: Option<String>) -> String {
    value.unwrap_or_else(|| UNKNOWN.to_owned())
}

fn number(value: f64) -> String {
    if value < 10.0 { format!("{value:.2}") } else { grouped(value) }
}

fn time(micros: Option<f64>) -> Option<String> {
    Some(match micros? {
        small if small < 10.0 => format!("{small:.2} µs"),
        small if small < 1e3 => format!("{small:.0} µs"),
        middle if middle < 1e6 => format!("{:.2} ms", middle / 1e3),
        large => format!("{:.2} s", large / 1e6),
    })
}

fn share(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Checks, or writes, what stands between the marks of a table.
fn stands(document: &str, table: &str, current: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(document);
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

/// Every figure in the documents is one of the report.
#[test]
fn documents_show_the_report_that_is_kept() {
    let kept = include_str!("../../docs/comparison/report.json");
    let report: Report = serde_json::from_str(kept).unwrap();
    let stores = format!("{}\n{}", origin(&report), stores(&report));
    stands("README.md", "results", &stores);
    stands("docs/choosing.md", "stores", &stores);
    for (store, _) in STORES {
        stands("docs/choosing.md", store, &everybody(&report, store));
    }
    stands("docs/choosing.md", "crowd", &crowd(&report));
    stands("docs/choosing.md", "kinds", &kinds(&report));
    stands("docs/choosing.md", "leaks", &leaks(&report));
    stands("docs/choosing.md", "moves", &moves(&report));
    stands("docs/choosing.md", "claims", &claims(&report, false));
    stands("docs/choosing.md", "budgets", &claims(&report, true));
    stands("docs/choosing.md", "reasons", &reasons(&report));
}
