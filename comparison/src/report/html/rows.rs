//! The parts of the page that are text: claims, every result, the environment.

use std::fmt::Write as _;

use super::svg::safe;
use crate::report::kinds::{KINDS, LEAKS, kind_cells, leak_cells};
use crate::report::table::{
    Column, FREE, STRETCHES, cell, columns, free_cells, number, spread, stretch_cells, time,
};
use crate::report::{Check, Claim, Kind, Report, Row};

/// What others have said and what we have promised, measured.
pub(super) fn claims(report: &Report) -> String {
    if report.claims.is_empty() {
        return String::new();
    }
    let row = |claim: &Claim| {
        let class = match claim.holds {
            Some(true) => "yes",
            Some(false) => "no",
            None => "soft",
        };
        let told = |told: &Option<String>| safe(told.as_deref().unwrap_or("–"));
        let why = claim.why.as_deref().map_or_else(String::new, |why| {
            format!("<tr class=\"why\"><td class=\"long soft\" colspan=\"6\">{}</td></tr>", safe(why))
        });
        format!(
            "<tr><td class=\"long\">{}</td><td class=\"text {class}\">{}</td><td class=\"long\">{}</td>\
             <td class=\"text\">{}</td><td class=\"text\">{}</td><td class=\"text soft\">{}</td></tr>{why}",
            safe(&claim.claim),
            claim.verdict(),
            told(&claim.measured),
            told(&claim.bound),
            told(&claim.spread),
            safe(&claim.source),
        )
    };
    let rows: String = report.claims.iter().map(row).collect();
    format!(
        "<h2 id=\"claims\">Claims, as experiments</h2><p class=\"soft\">Published sentences and our own budgets, each with what \
         was measured here. What has a spread holds when all runs are on one side of its bound; otherwise, and with fewer \
         than three runs, it is undecided. Below a budget that is missed, or may be, stands why: what a cycle costs beside the \
         other's, then what it is spent on and what was tried.</p>\
         <div class=\"scroll card tight wraps\"><table><tr><th class=\"text\">claim</th>\
         <th class=\"text\">holds</th><th class=\"text\">measured</th><th class=\"text\">bound</th>\
         <th class=\"text\">spread</th><th class=\"text\">source</th></tr>{rows}</table></div>"
    )
}

/// Locks that several hold, load by load.
pub(super) fn kinds(report: &Report) -> String {
    if report.kinds.is_empty() {
        return String::new();
    }
    let head = |names: &[&str]| {
        names.iter().map(|name| format!("<th class=\"text\">{name}</th>")).collect::<String>()
    };
    let cells = |cells: &[String]| {
        cells.iter().map(|cell| format!("<td class=\"text\">{}</td>", safe(cell))).collect::<String>()
    };
    let row = |kind: &Kind| {
        let Kind { violations, remark, implementation, .. } = kind;
        let class = if violations.is_some_and(|violations| violations > 0) { "no" } else { "soft" };
        let ours = if implementation == "leasehold" { " class=\"ours\"" } else { "" };
        let violations = violations.map_or_else(|| "–".to_owned(), |violations| violations.to_string());
        let remark = safe(remark.as_deref().unwrap_or("–"));
        let cells = cells(&kind_cells(report, kind));
        format!(
            "<tr{ours}>{cells}<td class=\"{class}\">{violations}</td><td class=\"text\">{remark}</td></tr>"
        )
    };
    let rows: String = report.kinds.iter().map(row).collect();
    let leaks: String =
        report.leaks.iter().map(|leak| format!("<tr>{}</tr>", cells(&leak_cells(leak)))).collect();
    format!(
        "<h2 id=\"kinds\">Locks that several hold</h2><p class=\"soft\">Eight contenders of one lock, each holding for a \
         millisecond: all of them read; each time nine in ten read and one writes; one only writes and seven only read; \
         each wants one of three permits. Beside them our exclusive lock under the same load, which shows what sharing \
         gains. A violation is a hold that does not fit beside those that are not over. An overtake takes the place of \
         somebody who came a millisecond earlier, or more, and waits. Where all want the lock alone, everybody is a \
         writer.</p><div class=\"scroll card tight\"><table><tr>{}<th>violations</th><th class=\"text\">remark</th></tr>{rows}\
         </table></div><p class=\"soft\">One who holds one of three permits is killed: how many can be taken when twice its \
         lease is over. And one permit is released twice: how many can be taken then.</p>\
         <div class=\"scroll card tight wraps\"><table><tr>{}</tr>{leaks}</table></div>",
        head(&KINDS),
        head(&LEAKS),
    )
}

/// Moves from one store to another, phase by phase.
pub(super) fn moves(report: &Report) -> String {
    let mut cards = String::new();
    for moved in &report.moves {
        let names: String = STRETCHES.map(|name| format!("<th>{name}</th>")).concat();
        let row = |stretch| {
            let cells = stretch_cells(stretch).map(|cell| format!("<td>{}</td>", safe(&cell)));
            format!("<tr>{}</tr>", cells.concat())
        };
        let rows: String = moved.stretches.iter().map(row).collect();
        let gap = moved.longest_gap_ms.map_or_else(|| "–".to_owned(), |gap| time(gap * 1e3));
        let _infallible = write!(
            cards,
            "<div class=\"scroll card\"><h3>{}</h3><p>{} cycles, {} overlaps, {} tokens that did not grow; longest gap {gap}</p>\
             <table><tr>{names}</tr>{rows}</table></div>",
            safe(&moved.what),
            number(moved.cycles as f64),
            moved.overlaps,
            moved.tokens_back,
        );
    }
    if cards.is_empty() {
        return cards;
    }
    if !report.free.is_empty() {
        let names: String = FREE.map(|name| format!("<th>{name}</th>")).concat();
        let row = |free| {
            let cells = free_cells(free).map(|cell| format!("<td>{}</td>", safe(&cell)));
            format!("<tr>{}</tr>", cells.concat())
        };
        let rows: String = report.free.iter().map(row).collect();
        let _infallible = write!(
            cards,
            "<div class=\"scroll card\"><h3>a free lock in each phase</h3><p>One process that nobody else disturbs, in turns with \
             one on each of the two stores alone: the one that is left, and the one moved to.</p>\
             <table><tr>{names}</tr>{rows}</table></div>"
        );
    }
    format!(
        "<h2 id=\"move\">A move under load</h2><p class=\"soft\">Eight processes want one lock, holding it for a millisecond \
         each, while its namespace moves from Redis to etcd. A gap counts in the phase that its second grant is of. Requests \
         are counted in a move of their own, as counting takes time. Beside it what one does without a move: everybody \
         stops, the tokens are carried over, everybody starts anew at once.</p>{cards}"
    )
}

/// Every row, scenario by scenario.
pub(super) fn results(report: &Report) -> String {
    let mut tables = String::new();
    for scenario in report.scenarios() {
        let columns = columns(report.rows(scenario));
        let names: String = columns.iter().map(|(name, _)| format!("<th>{name}</th>")).collect();
        let rows: String = report.rows(scenario).map(|row| result(row, &columns)).collect();
        tables += &format!(
            "<details><summary>{}</summary><div class=\"scroll card\"><table><tr><th class=\"text\">store</th>\
             <th class=\"text\">implementation</th>{names}</tr>{rows}</table></div></details>",
            safe(scenario)
        );
    }
    format!("<h2 id=\"results\">All results</h2><p class=\"soft\">As in report.json.</p>{tables}")
}

fn result(row: &Row, columns: &[&Column]) -> String {
    let mut cells = String::new();
    for name in [&row.store, &row.implementation] {
        cells += &format!("<td class=\"text\">{}</td>", safe(name));
    }
    for column in columns {
        let (text, is_violated) = cell(row, column);
        cells +=
            &if is_violated { format!("<td class=\"no\">{text}</td>") } else { format!("<td>{text}</td>") };
    }
    let ours = if row.implementation == "leasehold" { " class=\"ours\"" } else { "" };
    format!("<tr{ours}>{cells}</tr>")
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
    row("fsync of 512 bytes, p50 / p99", spread(&environment.fsync_us));
    for (store, server) in &environment.servers {
        let version = server.version.as_deref().map(|version| format!("{version}; ")).unwrap_or_default();
        let settings = server.settings.as_deref().map(|settings| format!("; started with {settings}"));
        let settings = settings.unwrap_or_default();
        row(store, Some(format!("{version}data: {}{settings}", server.durability)));
    }
    for Check { what, contenders, cycles, found } in &report.checks {
        let told = format!("{contenders}: found out {found} times in {cycles} cycles");
        row(&format!("the check of exclusion, put to {what}"), Some(told));
    }
    for (name, told) in environment.versions.iter().chain(&environment.columns) {
        row(name, Some(told.clone()));
    }
    let missing = environment.left_out.iter();
    let missing = missing.map(|missing| format!("<li>{}: {}</li>", safe(&missing.what), safe(&missing.why)));
    let mut left_out: String = missing.collect();
    if !left_out.is_empty() {
        left_out = format!("<h3>Left out</h3><ul>{left_out}</ul>");
    }
    format!(
        "<h2 id=\"environment\">Environment</h2>{left_out}<div class=\"scroll card\"><table>{rows}</table></div>"
    )
}
