//! The README and `docs/choosing.md` show the report that is kept in `docs/comparison`.
//!
//! `comparison/compare --out docs/comparison`, then `UPDATE_DOCS=1 cargo test -p comparison documents`
//! writes the tables anew.

use std::path::Path;

use crate::claims::budgets;
use crate::report::table::{grouped, range};
use crate::report::{Claim, Drawings, Kind, Leak, Move, Report, Row, distinct};

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

/// A column per store.
fn stores(report: &Report) -> String {
    let mut table =
        format!("| | {} |\n|---|---|---|---|---|---|---|\n", STORES.map(|(_, name)| name).join(" | "));
    for (name, scenario, contenders, value) in LINES {
        let cells =
            STORES.map(|(store, _)| report.row(scenario, store, "leasehold", contenders).and_then(value));
        // A report that was kept before the question was asked has no answer.
        if cells.iter().any(Option::is_some) {
            table += &format!("| {name} | {} |\n", cells.map(known).join(" | "));
        }
    }
    table
}

/// Everybody on one store: alone, and eight contenders.
fn everybody(report: &Report, store: &str) -> String {
    let mut table = String::from(
        "| | a free lock, cycles/s | 8 contenders, cycles/s | hand-off p50 | hand-off p99 | requests per cycle | overtakes |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for free in report.rows("uncontended").filter(|row| row.store == store) {
        let who = free.implementation.as_str();
        let crowd = report.row("processes", store, who, 8).cloned().unwrap_or_default();
        let cells = [
            emphasised(who),
            known(free.cycles_per_s.map(number)),
            known(crowd.cycles_per_s.map(number)),
            known(time(crowd.handoff_us.p50)),
            known(time(crowd.handoff_us.p99)),
            known(crowd.requests_per_cycle.map(number)),
            known(crowd.overtakes.map(share)),
        ];
        table += &format!("| {} |\n", cells.join(" | "));
    }
    table
}

/// The rates of everybody on every store, from a few contenders to many.
fn crowd(report: &Report) -> String {
    const COUNTS: [u64; 6] = [2, 8, 16, 32, 50, 100];
    let mut table = format!(
        "| | | {} |\n|---|---|---|---|---|---|---|---|\n",
        COUNTS.map(|count| format!("{count} contenders")).join(" | ")
    );
    for (store, name) in STORES {
        let rows = report.rows("crowd").filter(|row| row.store == store);
        for who in distinct(rows.map(|row| row.implementation.as_str())) {
            let rate = |count| {
                let row = report.row("crowd", store, who, count)?;
                let spread = range(&row.rates, number).map(|range| format!(" ({range})"));
                Some(number(row.cycles_per_s?) + &spread.unwrap_or_default())
            };
            let who = emphasised(who);
            table +=
                &format!("| {name} | {who} | {} |\n", COUNTS.map(|count| known(rate(count))).join(" | "));
        }
    }
    table
}

/// Locks that several hold, load by load.
fn kinds(report: &Report) -> String {
    if report.kinds.is_empty() {
        return NOT_MEASURED.to_owned();
    }
    let mut table = String::from(
        "| load | | | cycles/s | × our exclusive lock | holders at a time | requests per cycle | overtakes | a writer's longest wait, of the run | too many at once |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    for kind in &report.kinds {
        let Kind { load, store, implementation, .. } = kind;
        let cells = [
            kind.cycles_per_s.map(number),
            report.gain(kind).map(number),
            kind.holders.map(number),
            kind.requests_per_cycle.map(number),
            kind.overtakes.map(share),
            kind.starved.map(share),
            kind.violations.map(|violations| violations.to_string()),
        ];
        table += &format!(
            "| {load} | {} | {} | {} |\n",
            called(store),
            emphasised(implementation),
            cells.map(known).join(" | ")
        );
    }
    table
}

/// What becomes of permits.
fn leaks(report: &Report) -> String {
    if report.leaks.is_empty() {
        return NOT_MEASURED.to_owned();
    }
    let mut table = String::from(
        "| | | a holder was killed, and twice its lease is over | a second release of one was | after it |\n|---|---|---|---|---|\n",
    );
    for Leak { store, implementation, permits, after_a_kill, after_two_releases, second_release, .. } in
        &report.leaks
    {
        let free = |count: &Option<u64>| known(count.map(|count| format!("{count} of {permits}")));
        table += &format!(
            "| {} | {} | {} | {second_release} | {} |\n",
            called(store),
            emphasised(implementation),
            free(after_a_kill),
            free(after_two_releases),
        );
    }
    table
}

fn called(store: &str) -> &str {
    STORES.iter().find(|(name, _)| *name == store).map_or(store, |(_, called)| called)
}

fn emphasised(who: &str) -> String {
    if who == "leasehold" { format!("**{who}**") } else { who.to_owned() }
}

/// Of a report that was kept before the question was asked.
const NOT_MEASURED: &str = "Not measured in the report that is kept.\n";

/// Moves from one store to another, phase by phase.
fn moves(report: &Report) -> String {
    let mut table =
        format!("| | {} |\n|---|---|---|---|---|---|\n", Move::default().table().head.join(" | "));
    for moved in &report.moves {
        for row in moved.table().rows {
            let cells: Vec<_> = row.cells.into_iter().map(|cell| cell.text).collect();
            table += &format!("| {} | {} |\n", moved.what, cells.join(" | "));
        }
        let Move { cycles, overlaps, tokens_back, .. } = moved;
        table += &format!(
            "| {} | **all of it**: {cycles} cycles, {overlaps} overlaps, {tokens_back} tokens that did not grow | | | {} | |\n",
            moved.what,
            known(time(moved.longest_gap_ms.map(|gap| gap * 1e3))),
        );
    }
    table
}

/// Claims of one kind: published, or budgets of our own.
fn claims(report: &Report, ours: bool) -> String {
    let mut table = String::from("| claim | bound | measured | spread | holds |\n|---|---|---|---|---|\n");
    for claim in report.claims.iter().filter(|claim| (claim.source == "our budget") == ours) {
        let holds = if claim.holds == Some(false) { "**no**" } else { claim.verdict() };
        let [bound, measured, spread] =
            [&claim.bound, &claim.measured, &claim.spread].map(|told| known(told.clone()));
        table += &format!("| {} | {bound} | {measured} | {spread} | {holds} |\n", claim.claim);
    }
    table
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
