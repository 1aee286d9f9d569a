//! The tables at the end.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Cell, CellAlignment, Color, ContentArrangement, Table};

use super::{Report, Row};
use crate::figures::Spread;

/// Prints the report for a person.
pub(crate) fn print(report: &Report) {
    let mut scenarios: Vec<&str> = Vec::new();
    for row in &report.results {
        if !scenarios.contains(&row.scenario.as_str()) {
            scenarios.push(&row.scenario);
        }
    }
    for scenario in scenarios {
        println!("\n{scenario}\n{}", results(report.rows(scenario)));
    }
    if !report.claims.is_empty() {
        println!("\nclaims\n{}", claims(report));
    }
    for left_out in &report.environment.left_out {
        println!("left out: {}: {}", left_out.what, left_out.why);
    }
    let violations = report.results.iter().filter_map(|row| row.violations).sum::<u64>();
    println!("\nviolations of mutual exclusion: {violations}");
    for row in report.results.iter().filter(|row| row.violations.is_some_and(|violations| violations > 0)) {
        let Row { implementation, store, scenario, contenders, violations, .. } = row;
        println!(
            "  {implementation} on {store}: {} in {scenario} with {contenders}",
            violations.unwrap_or_default()
        );
    }
}

fn results<'a>(rows: impl Iterator<Item = &'a Row> + Clone) -> Table {
    // A column that says nothing in this scenario is left out.
    let columns: Vec<_> =
        COLUMNS.iter().filter(|(_, value)| rows.clone().any(|row| value(row).is_some())).collect();
    let mut table =
        table(["store", "implementation"].into_iter().chain(columns.iter().map(|(name, _)| *name)));
    for row in rows {
        let mut cells = vec![Cell::new(&row.store), Cell::new(&row.implementation)];
        for (name, value) in &columns {
            let cell =
                Cell::new(value(row).unwrap_or_else(|| "–".to_owned())).set_alignment(CellAlignment::Right);
            let is_violated =
                *name == "violations" && row.violations.is_some_and(|violations| violations > 0);
            cells.push(if is_violated { cell.fg(Color::Red) } else { cell });
        }
        table.add_row(cells);
    }
    table
}

fn claims(report: &Report) -> Table {
    let mut table = table(["claim", "source", "measured", "holds"].into_iter());
    for claim in &report.claims {
        let holds = match claim.holds {
            Some(true) => Cell::new("yes").fg(Color::Green),
            Some(false) => Cell::new("no").fg(Color::Red),
            None => Cell::new("unknown"),
        };
        let measured = claim.measured.as_deref().unwrap_or("–");
        table.add_row([Cell::new(&claim.claim), Cell::new(&claim.source), Cell::new(measured), holds]);
    }
    table
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

type Column = (&'static str, fn(&Row) -> Option<String>);

const COLUMNS: [Column; 9] = [
    ("contenders", |row| Some(row.contenders.to_string())),
    ("cycles/s", |row| row.cycles_per_s.map(number)),
    ("acquire µs p50/p99", |row| spread(&row.acquire_us)),
    ("release µs p50/p99", |row| spread(&row.release_us)),
    ("hand-off µs p50/p99", |row| spread(&row.handoff_us)),
    ("requests", |row| row.requests_per_cycle.map(number)),
    ("× floor", |row| row.floor_ratio.map(|ratio| format!("{ratio:.2}"))),
    ("overtakes", |row| row.overtakes.map(|share| format!("{:.1} %", share * 100.0))),
    ("violations", |row| row.violations.map(|violations| violations.to_string())),
];

fn spread(spread: &Spread) -> Option<String> {
    Some(format!("{} / {}", number(spread.p50?), number(spread.p99?)))
}

/// As many digits as are worth reading, thousands apart.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        small if small < 10.0 => format!("{value:.2}"),
        middle if middle < 100.0 => format!("{value:.1}"),
        _large => grouped(value),
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
