//! The tables at the end.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Cell, CellAlignment, Color, ContentArrangement, Table};

use super::kinds::{KINDS, LEAKS, kind_cells, leak_cells};
use super::{Claim, Free, Move, Report, Row, Stretch};
use crate::figures::Spread;

/// Prints the report for a person.
pub(crate) fn print(report: &Report) {
    for scenario in report.scenarios() {
        println!("\n{}\n{}", heading(report, scenario), results(report.rows(scenario)));
    }
    if !report.kinds.is_empty() {
        println!("\nlocks that several hold\n{}", kinds(report));
    }
    if !report.leaks.is_empty() {
        println!("\npermits\n{}", leaks(report));
    }
    if !report.claims.is_empty() {
        println!("\nclaims\n{}", claims(report));
    }
    for Claim { claim, why, .. } in &report.claims {
        if let Some(why) = why {
            println!("{claim}: {why}");
        }
    }
    for left_out in &report.environment.left_out {
        println!("left out: {}: {}", left_out.what, left_out.why);
    }
    for moved in &report.moves {
        let Move { what, cycles, overlaps, tokens_back, .. } = moved;
        let gap = moved.longest_gap_ms.map_or_else(|| "–".to_owned(), |gap| time(gap * 1e3));
        println!(
            "\na move, {what}: {cycles} cycles, {overlaps} overlaps, {tokens_back} tokens that did not grow, longest gap {gap}\n{}",
            stretches(moved)
        );
    }
    if !report.free.is_empty() {
        println!("\na free lock in each phase of a move\n{}", free(report));
    }
    for check in &report.checks {
        println!(
            "{}, {}: found out {} times in {} cycles",
            check.what, check.contenders, check.found, check.cycles
        );
    }
    println!("\nviolations of mutual exclusion: {}", report.violations());
}

/// With how far away it was.
fn heading(report: &Report, scenario: &str) -> String {
    let distance = report.environment.distance.as_ref().filter(|_| scenario == "distance");
    scenario.to_owned() + &distance.map(|distance| format!(": {}", distance.told())).unwrap_or_default()
}

fn results<'a>(rows: impl Iterator<Item = &'a Row> + Clone) -> Table {
    let columns = columns(rows.clone());
    let names = columns.iter().map(|(name, _)| *name);
    let mut table = table(["store", "implementation"].into_iter().chain(names));
    for row in rows {
        let mut cells = vec![Cell::new(&row.store), Cell::new(&row.implementation)];
        for column in &columns {
            let (text, is_violated) = cell(row, column);
            let cell = Cell::new(text).set_alignment(CellAlignment::Right);
            cells.push(if is_violated { cell.fg(Color::Red) } else { cell });
        }
        table.add_row(cells);
    }
    table
}

fn claims(report: &Report) -> Table {
    let mut table = table(["claim", "source", "bound", "measured", "spread", "holds"].into_iter());
    for claim in &report.claims {
        let holds = Cell::new(claim.verdict());
        let holds = match claim.holds {
            Some(true) => holds.fg(Color::Green),
            Some(false) => holds.fg(Color::Red),
            None => holds,
        };
        let told = |told: &Option<String>| Cell::new(told.as_deref().unwrap_or("–"));
        let (bound, measured, spread) = (told(&claim.bound), told(&claim.measured), told(&claim.spread));
        table.add_row([Cell::new(&claim.claim), Cell::new(&claim.source), bound, measured, spread, holds]);
    }
    table
}

fn stretches(moved: &Move) -> Table {
    let mut table = table(STRETCHES.into_iter());
    for stretch in &moved.stretches {
        table.add_row(stretch_cells(stretch).map(|cell| Cell::new(cell).set_alignment(CellAlignment::Right)));
    }
    table
}

fn free(report: &Report) -> Table {
    let mut table = table(FREE.into_iter());
    for free in &report.free {
        table.add_row(free_cells(free).map(|cell| Cell::new(cell).set_alignment(CellAlignment::Right)));
    }
    table
}

/// With how often too many held, and why it has no more figures.
fn kinds(report: &Report) -> Table {
    let mut table = table(KINDS.into_iter().chain([VIOLATIONS, "remark"]));
    for kind in &report.kinds {
        let violations = kind.violations.unwrap_or_default();
        let found = Cell::new(violations);
        let found = if violations > 0 { found.fg(Color::Red) } else { found };
        let remark = Cell::new(kind.remark.as_deref().unwrap_or("–"));
        table.add_row(kind_cells(report, kind).map(Cell::new).into_iter().chain([found, remark]));
    }
    table
}

fn leaks(report: &Report) -> Table {
    let mut table = table(LEAKS.into_iter());
    for leak in &report.leaks {
        table.add_row(leak_cells(leak).map(Cell::new));
    }
    table
}

/// What is said of a free lock in a phase of a move.
pub(crate) const FREE: [&str; 4] = ["phase", "cycles/s", "on the stores alone", "ratios to them"];

pub(crate) fn free_cells(free: &Free) -> [String; 4] {
    let beside: Vec<_> = free.beside.iter().map(|rate| number(*rate)).collect();
    let ratio = |(ratio, runs): (&f64, &Vec<f64>)| {
        let range = range(runs, number).map(|range| format!(" ({range})")).unwrap_or_default();
        number(*ratio) + &range
    };
    let ratios: Vec<_> = free.ratios.iter().zip(&free.ratios_of_runs).map(ratio).collect();
    [free.phase.clone(), number(free.cycles_per_s), beside.join(" and "), ratios.join(" and ")]
}

/// What is said of a phase of a move.
pub(crate) const STRETCHES: [&str; 5] =
    ["phase", "for", "cycles/s", "longest gap between grants", "requests per cycle, left + moved to"];

pub(crate) fn stretch_cells(stretch: &Stretch) -> [String; 5] {
    let unknown = || "–".to_owned();
    let each: Vec<_> = stretch.requests_per_cycle.iter().map(|requests| number(*requests)).collect();
    [
        stretch.phase.clone(),
        time(stretch.seconds * 1e6),
        number(stretch.cycles_per_s),
        stretch.longest_gap_ms.map_or_else(unknown, |gap| time(gap * 1e3)),
        if each.is_empty() { unknown() } else { each.join(" + ") },
    ]
}

fn table<'a>(header: impl Iterator<Item = &'a str>) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    if table.width().is_none() {
        table.set_width(WIDTH);
    }
    table.set_header(header.collect::<Vec<_>>());
    table
}

/// Where there is no terminal that has one.
const WIDTH: u16 = 170;

/// A column of results: its name, and what it shows of a row.
pub(crate) type Column = (&'static str, fn(&Row) -> Option<String>);

const COLUMNS: [Column; 22] = [
    ("contenders", |row| Some(row.contenders.to_string())),
    ("cycles/s", |row| row.cycles_per_s.map(number)),
    ("of the runs", |row| range(&row.rates, number)),
    ("n", |row| (row.cycles > 0).then(|| grouped(row.cycles as f64))),
    ("acquire p50 / p99", |row| spread(&row.acquire_us)),
    ("longest wait", |row| row.acquire_us.max.filter(|_| row.contenders > 1).map(time)),
    ("release p50 / p99", |row| spread(&row.release_us)),
    ("hand-off p50 / p99", |row| spread(&row.handoff_us)),
    ("requests", |row| row.requests_per_cycle.map(number)),
    ("sent", |row| row.messages_per_cycle.map(number)),
    ("bytes", |row| row.bytes_per_cycle.map(number)),
    ("client µs", |row| row.client_us_per_cycle.map(number)),
    ("server µs", |row| row.server_us_per_cycle.map(number)),
    ("× floor", |row| row.floor_ratio.map(|ratio| format!("{ratio:.2}"))),
    ("overtakes", |row| row.overtakes.map(|share| format!("{:.1} %", share * 100.0))),
    ("served", |row| served(row)),
    ("least / most", |row| Some(format!("{:.2} / {:.2}", row.least_share?, row.most_share?))),
    ("bytes per lock", |row| row.bytes_per_lock.map(number)),
    ("processor, client / server", |row| processors(row)),
    (VIOLATIONS, |row| row.violations.map(|violations| violations.to_string())),
    ("runs", |row| Some(row.runs.to_string())),
    ("remark", |row| row.remark.clone()),
];

/// How many of all, if not all of them.
fn served(row: &Row) -> Option<String> {
    let served = row.served.filter(|served| *served < row.contenders)?;
    Some(format!("{served} of {}", row.contenders))
}

/// Shares of one processor.
fn processors(row: &Row) -> Option<String> {
    let share =
        |share: Option<f64>| share.map_or_else(|| "–".to_owned(), |share| format!("{:.1} %", share * 100.0));
    (row.client_share.or(row.server_share).is_some())
        .then(|| format!("{} / {}", share(row.client_share), share(row.server_share)))
}

/// From the smallest to the largest.
pub(crate) fn range(values: &[f64], unit: fn(f64) -> String) -> Option<String> {
    let (least, most) = (values.iter().copied().reduce(f64::min)?, values.iter().copied().reduce(f64::max)?);
    Some(format!("{} – {}", unit(least), unit(most)))
}

const VIOLATIONS: &str = "violations";

/// Those that say something of `rows`.
pub(crate) fn columns<'a>(rows: impl Iterator<Item = &'a Row> + Clone) -> Vec<&'static Column> {
    COLUMNS.iter().filter(|(_, value)| rows.clone().any(|row| value(row).is_some())).collect()
}

/// What a row shows there, and whether that is a broken lock.
pub(crate) fn cell(row: &Row, (name, value): &Column) -> (String, bool) {
    let is_violated = *name == VIOLATIONS && row.violations.is_some_and(|violations| violations > 0);
    (value(row).unwrap_or_else(|| "–".to_owned()), is_violated)
}

/// The median and the 99th percentile.
pub(crate) fn spread(spread: &Spread) -> Option<String> {
    Some(format!("{} / {}", time(spread.p50?), time(spread.p99?)))
}

/// As many digits as are worth reading, thousands apart.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        small if small < 10.0 => format!("{value:.2}"),
        middle if middle < 100.0 => format!("{value:.1}"),
        _large => grouped(value),
    }
}

/// A time in the unit a person would choose.
pub(crate) fn time(micros: f64) -> String {
    match micros {
        small if small < 1_000.0 => format!("{} µs", number(small)),
        middle if middle < 1_000_000.0 => format!("{} ms", number(middle / 1e3)),
        large => format!("{} s", number(large / 1e6)),
    }
}

/// A whole number, thousands apart.
pub(crate) fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut grouped = if value < 0.0 { "-".to_owned() } else { String::new() };
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            grouped.push('\u{202f}');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thousands stand apart, small numbers keep what tells them apart.
    #[test]
    fn numbers_are_readable() {
        for (value, text) in [
            (0.0, "0.00"),
            (2.004, "2.00"),
            (47.26, "47.3"),
            (123.4, "123"),
            (1_234_567.0, "1\u{202f}234\u{202f}567"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
