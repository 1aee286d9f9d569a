//! The pages on choosing and on speed, and `report.html`, show the report that is kept in `docs/comparison/report.json`.
//!
//! With `UPDATE_DOCS=1` the test writes them anew, without a new run; `make fix` does that.

use std::path::{Path, PathBuf};

use crate::claims::judge_anew;
use crate::report::glance::{LINES, STORES, number, percent, time};
use crate::report::question::{Answer, Question};
use crate::report::table::Table;
use crate::report::{Report, distinct, page};

/// Where, when and with what.
fn origin(report: &Report) -> String {
    let here = &report.environment;
    let version = |store| here.servers.get(store)?.version.as_deref();
    let versions = STORES.iter().filter_map(|(store, name, _)| Some(format!("{name} {}", version(*store)?)));
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
    STORES.into_iter().map(|(store, name, _)| (store, name)).filter(move |(store, _)| stores.contains(store))
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

/// Every library on every store: a free lock, and eight contenders.
fn everybody(report: &Report) -> String {
    let rows = compared(report).flat_map(|(store, name)| {
        report.rows("uncontended").filter(move |row| row.store == store).map(move |free| {
            let who = free.implementation.as_str();
            let crowd = report.row("processes", store, who, 8).cloned().unwrap_or_default();
            vec![
                name.to_owned(),
                emphasised(who),
                known(free.cycles_per_s.map(number)),
                known(crowd.cycles_per_s.map(number)),
                known(crowd.handoff_us.p50.map(time)),
                known(crowd.handoff_us.p99.map(time)),
                known(crowd.requests_per_cycle.map(number)),
                known(crowd.overtakes.map(percent)),
            ]
        })
    });
    markdown(
        " |  | a free lock, cycles/s | 8 contenders, cycles/s | hand-off p50 | hand-off p99 | requests per cycle | overtakes",
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
            let rate = |count| report.row("crowd", store, who, count)?.cycles_per_s.map(number);
            let who = [name.to_owned(), emphasised(who)];
            table.push(who.into_iter().chain(COUNTS.map(|count| known(rate(count)))).collect());
        }
    }
    markdown(&format!(" |  | {}", COUNTS.map(|count| format!("{count} contenders")).join(" | ")), table)
}

/// As the page has it.
fn told(table: Table) -> String {
    let rows =
        table.rows.into_iter().map(|row| row.cells.iter().map(|cell| emphasised(&cell.text)).collect());
    markdown(&table.head.join(" | "), rows)
}

fn emphasised(who: &str) -> String {
    if who == "leasehold" { format!("**{who}**") } else { who.to_owned() }
}

/// Moves from one store to another: what each phase did to the rate, and the whole to those who waited.
fn moves(report: &Report) -> String {
    let rows = report.moves.iter().map(|moved| {
        let lasting = moved.stretches.iter().filter(|stretch| !stretch.phase.contains(" to "));
        let rates = lasting.map(|stretch| format!("{} {}", stretch.phase, number(stretch.cycles_per_s)));
        vec![
            moved.what.clone(),
            rates.collect::<Vec<_>>().join(", "),
            known(moved.longest_gap_ms.map(|gap| time(gap * 1e3))),
            moved.overlaps.to_string(),
            moved.tokens_back.to_string(),
        ]
    });
    markdown(" | cycles/s | longest time without a grant | overlaps | tokens that did not grow", rows)
}

/// Claims that others have published, or budgets of our own, each with all answers. Bad news is bold.
fn claims(report: &Report, ours: bool) -> String {
    let rows = report.questions(ours).into_iter().map(|Question { what, bound, answers }| {
        let answers = answers.iter().map(|answer| match (answer.claim.class(), answer.told()) {
            ("no", told) => format!("{} **{told}**", answer.who),
            (_, told) => format!("{} {told}", answer.who),
        });
        vec![what.to_owned(), bound.to_owned(), answers.collect::<Vec<_>>().join("; ").trim().to_owned()]
    });
    markdown("claim | bound | holds", rows)
}

/// Why budgets are missed.
fn reasons(report: &Report) -> String {
    let mut told = String::new();
    for Question { what, answers, .. } in report.questions(true) {
        for Answer { who, claim } in answers.into_iter().filter(|answer| answer.claim.holds == Some(false)) {
            let why = claim.why.iter().map(|why| format!("- {who}, {what}. {why}\n"));
            told.extend(why);
        }
    }
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
    stands("docs/src/choosing.md", "stores", &format!("{}\n{}", origin(&report), stores(&report)));
    stands("docs/src/speed.md", "libraries", &everybody(&report));
    stands("docs/src/speed.md", "crowd", &crowd(&report));
    stands("docs/src/speed-kinds.md", "kinds", &told(report.gains_table()));
    stands("docs/src/speed-kinds.md", "leaks", &told(report.leaks_table()));
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
