//! Figures as text, and the tables of them, for the page and for a terminal.

use askama::Template;

use super::glance::called;
use super::{Free, Kind, Leak, Move, Report, Row};
use crate::figures::{Spread, interval};
use crate::scenarios::kinds::ONE_WRITER;

/// Names and rows of cells.
#[derive(Clone, Debug, Template)]
#[template(path = "table.html")]
pub(crate) struct Table {
    pub(crate) head: Vec<&'static str>,
    pub(crate) rows: Vec<Cells>,
    /// So many columns begin at the left, the others end at the right.
    pub(super) texts: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Cells {
    pub(crate) cells: Vec<Cell>,
    is_ours: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) text: String,
    /// `yes` is good, `no` is bad.
    class: &'static str,
}

impl Cell {
    fn of(text: Option<String>, class: &'static str) -> Self {
        Self { text: text.unwrap_or_else(|| "–".to_owned()), class }
    }
}

impl Table {
    /// A row of each, and a column of each name; a number of violations is bad unless it is 0.
    fn of<'a, T: 'a>(
        rows: impl Iterator<Item = &'a T>,
        texts: usize,
        who: fn(&T) -> &str,
        columns: &[Column<'_, T>],
    ) -> Self {
        let row = |row: &T| {
            let cell = |(name, value): &Column<'_, T>| {
                let text = value(row);
                let is_bad = *name == VIOLATIONS && text.as_deref().is_some_and(|found| found != "0");
                Cell::of(text, if is_bad { "no" } else { "" })
            };
            Cells { cells: columns.iter().map(cell).collect(), is_ours: who(row) == "leasehold" }
        };
        Self { head: columns.iter().map(|(name, _)| *name).collect(), rows: rows.map(row).collect(), texts }
    }

    /// Of what is known already.
    pub(super) fn plain(head: Vec<&'static str>, rows: impl Iterator<Item = Vec<Option<String>>>) -> Self {
        let row = |cells: Vec<Option<String>>| Cells {
            cells: cells.into_iter().map(|text| Cell::of(text, "")).collect(),
            is_ours: false,
        };
        Self { head, rows: rows.map(row).collect(), texts: 1 }
    }
}

impl Report {
    /// The rows of a scenario, with the columns that say something of them.
    pub(crate) fn results_table(&self, scenario: &str) -> Table {
        let says = |value: OfRow| self.rows(scenario).any(|row| value(row).is_some());
        let columns = COLUMNS.iter().filter(|(_, value)| says(*value));
        let columns: Vec<Column<'_, Row>> = columns.map(|(name, value)| (*name, value as _)).collect();
        Table::of(self.rows(scenario), 2, |row| &row.implementation, &columns)
    }

    pub(crate) fn kinds_table(&self) -> Table {
        Table::of(
            self.kinds.iter(),
            usize::MAX,
            |kind| &kind.implementation,
            &[
                ("load", &|kind: &Kind| Some(kind.load.clone())),
                ("store", &|kind: &Kind| Some(kind.store.clone())),
                ("implementation", &|kind: &Kind| Some(kind.implementation.clone())),
                ("cycles/s", &|kind: &Kind| kind.cycles_per_s.map(number)),
                ("95 %", &|kind: &Kind| sure(&kind.rates, number)),
                ("× our exclusive lock", &|kind: &Kind| self.gain(kind).map(number)),
                ("holders at a time", &|kind: &Kind| kind.holders.map(number)),
                ("acquire p50 / p99", &|kind: &Kind| spread(&kind.acquire_us)),
                ("requests", &|kind: &Kind| kind.requests_per_cycle.map(number)),
                ("overtakes", &|kind: &Kind| kind.overtakes.map(percent)),
                ("longest wait of a writer, of the run", &|kind: &Kind| kind.starved.map(percent)),
                (VIOLATIONS, &|kind: &Kind| kind.violations.map(|violations| violations.to_string())),
                ("remark", &|kind: &Kind| kind.remark.clone()),
            ],
        )
    }

    /// What sharing gains, a row for each implementation.
    pub(crate) fn gains_table(&self) -> Table {
        let mut everybody: Vec<Vec<&Kind>> = Vec::new();
        for kind in &self.kinds {
            let is_same = |row: &&mut Vec<&Kind>| {
                (&row[0].store, &row[0].implementation) == (&kind.store, &kind.implementation)
            };
            match everybody.iter_mut().find(is_same) {
                Some(row) => row.push(kind),
                None => everybody.push(vec![kind]),
            }
        }
        let rate = |load| {
            move |row: &Vec<&Kind>| {
                let kind = row.iter().find(|kind| kind.load == load)?;
                Some(format!("{} ({} ×)", number(kind.cycles_per_s?), number(self.gain(kind)?)))
            }
        };
        let most = |value: fn(&Kind) -> Option<f64>| {
            move |row: &Vec<&Kind>| row.iter().filter_map(|kind| value(kind)).reduce(f64::max).map(percent)
        };
        Table::of(
            everybody.iter(),
            2,
            |row| &row[0].implementation,
            &[
                ("store", &|row: &Vec<&Kind>| Some(called(&row[0].store).to_owned())),
                ("implementation", &|row: &Vec<&Kind>| Some(row[0].implementation.clone())),
                ("8 readers", &rate("8 readers")),
                ("90 % reads", &rate("90 % reads")),
                (ONE_WRITER, &rate(ONE_WRITER)),
                ("3 permits for 8", &rate("3 permits for 8")),
                ("a writer waits at most, of the run", &most(|kind| kind.starved)),
                ("overtakes, at most", &most(|kind| kind.overtakes)),
                (VIOLATIONS, &|row: &Vec<&Kind>| {
                    row.iter().map(|kind| kind.violations).sum::<Option<u64>>().map(|found| found.to_string())
                }),
            ],
        )
    }

    /// What became of permits.
    pub(crate) fn leaks_table(&self) -> Table {
        fn of(free: Option<u64>, leak: &Leak) -> Option<String> {
            free.map(|free| format!("{free} of {}", leak.permits))
        }
        // No row of them stands out.
        Table::of(
            self.leaks.iter(),
            usize::MAX,
            |_| "",
            &[
                ("store", &|leak: &Leak| Some(called(&leak.store).to_owned())),
                ("implementation", &|leak: &Leak| Some(leak.implementation.clone())),
                ("free after a kill", &|leak: &Leak| of(leak.after_a_kill, leak)),
                ("a second release", &|leak: &Leak| {
                    leak.second_release.split(" (").next().map(str::to_owned)
                }),
                ("free after it", &|leak: &Leak| of(leak.after_two_releases, leak)),
            ],
        )
    }

    /// A free lock in each phase of a move.
    pub(crate) fn free_table(&self) -> Table {
        let ratio = |(ratio, runs): (&f64, &Vec<f64>)| {
            let range = sure(runs, number).map(|range| format!(" ({range})"));
            number(*ratio) + &range.unwrap_or_default()
        };
        let both = |told: Vec<String>| Some(told.join(" and "));
        Table::of(
            self.free.iter(),
            0,
            |_| "",
            &[
                ("phase", &|free: &Free| Some(free.phase.clone())),
                ("cycles/s", &|free: &Free| Some(number(free.cycles_per_s))),
                ("on the stores alone", &|free: &Free| {
                    both(free.beside.iter().map(|rate| number(*rate)).collect())
                }),
                ("ratios to them", &|free: &Free| {
                    both(free.ratios.iter().zip(&free.ratios_of_runs).map(ratio).collect())
                }),
            ],
        )
    }
}

impl Move {
    pub(crate) fn told(&self) -> String {
        let Self { cycles, overlaps, tokens_back, longest_gap_ms, .. } = self;
        let gap = longest_gap_ms.map_or_else(|| "–".to_owned(), |gap| time(gap * 1e3));
        let cycles = number(*cycles as f64);
        format!(
            "{cycles} cycles, {overlaps} overlaps, {tokens_back} tokens that did not grow; longest gap {gap}"
        )
    }

    /// Phase by phase.
    pub(crate) fn table(&self) -> Table {
        Table::of(
            self.stretches.iter(),
            0,
            |_| "",
            &[
                ("phase", &|stretch| Some(stretch.phase.clone())),
                ("for", &|stretch| Some(time(stretch.seconds * 1e6))),
                ("cycles/s", &|stretch| Some(number(stretch.cycles_per_s))),
                ("longest gap between grants", &|stretch| stretch.longest_gap_ms.map(|gap| time(gap * 1e3))),
                ("requests per cycle, left + moved to", &|stretch| {
                    let each: Vec<_> =
                        stretch.requests_per_cycle.iter().map(|asked| number(*asked)).collect();
                    (!each.is_empty()).then(|| each.join(" + "))
                }),
            ],
        )
    }
}

/// A column: its name, and what it shows of a row.
type Column<'a, T> = (&'static str, &'a dyn Fn(&T) -> Option<String>);

const VIOLATIONS: &str = "violations";

type OfRow = fn(&Row) -> Option<String>;

/// Of results.
const COLUMNS: [(&str, OfRow); 26] = [
    ("store", |row| Some(row.store.clone())),
    ("implementation", |row| Some(row.implementation.clone())),
    ("contenders", |row| Some(row.contenders.to_string())),
    ("cycles/s", |row| row.cycles_per_s.map(number)),
    ("95 %", |row| sure(&row.rates, number)),
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
    ("switches", |row| row.switches_per_cycle.map(number)),
    ("limit", Row::limit),
    ("× floor", |row| {
        let range = sure(&row.floor_ratios, number).map(|range| format!(" ({range})")).unwrap_or_default();
        Some(format!("{:.2}{range}", row.floor_ratio?))
    }),
    ("overtakes", |row| row.overtakes.map(percent)),
    ("served", |row| {
        let served = row.served.filter(|served| *served < row.contenders)?;
        Some(format!("{served} of {}", row.contenders))
    }),
    ("least / most", |row| Some(format!("{:.2} / {:.2}", row.least_share?, row.most_share?))),
    ("bytes per lock", |row| row.bytes_per_lock.map(number)),
    ("processor, client / server", |row| {
        row.client_share.or(row.server_share)?;
        let share = |share: Option<f64>| share.map_or_else(|| "–".to_owned(), percent);
        Some(format!("{} / {}", share(row.client_share), share(row.server_share)))
    }),
    (VIOLATIONS, |row| row.violations.map(|violations| violations.to_string())),
    ("runs", |row| Some(row.runs.to_string())),
    ("remark", |row| row.remark.clone()),
];

/// The interval in which the median lies, as surely as it is known; from the smallest to the largest of few values.
pub(crate) fn sure(values: &[f64], unit: fn(f64) -> String) -> Option<String> {
    let ends = || values.iter().copied().reduce(f64::min).zip(values.iter().copied().reduce(f64::max));
    let (low, high) = interval(values).or_else(ends)?;
    let (low, high) = (unit(low), unit(high));
    // One unit is enough.
    let shared = low.split_once(' ').zip(high.split_once(' ')).filter(|(low, high)| low.1 == high.1);
    let low = shared.map_or(low.as_str(), |((number, _), _)| number);
    Some(format!("{low} – {high}"))
}

/// The median and the 99th percentile.
pub(crate) fn spread(spread: &Spread) -> Option<String> {
    Some(format!("{} / {}", time(spread.p50?), time(spread.p99?)))
}

pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
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
