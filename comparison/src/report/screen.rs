//! What a terminal shows at the end: one screen.

use super::glance::{LINES, Line, STORES};
use super::table::{Table, time};
use super::text::{cut, drawn};
use super::{BUDGET, Claim, Report, distinct};

/// What was measured, the glance, what is missed and why, and what was left out.
pub(crate) fn screen(report: &Report, width: usize) -> String {
    let here = &report.environment;
    let seconds =
        |seconds: Option<f64>| seconds.map_or_else(|| "–".to_owned(), |seconds| time(seconds * 1e6));
    let cycles: u64 = report.results.iter().map(|row| row.cycles).sum();
    let others = distinct(report.results.iter().map(|row| row.implementation.as_str()));
    let loads = || here.steps.iter().flat_map(|step| step.load).flatten();
    let steal = here.steps.iter().filter_map(|step| step.steal).reduce(f64::max).unwrap_or(0.0);
    let load = loads().reduce(f64::min).zip(loads().reduce(f64::max));
    let (least, most) = load.unwrap_or_default();
    let mut lines = vec![
        format!(
            "{} stores, {} implementations, {cycles} cycles in {}, {} of it timed",
            report.stores().len(),
            others.len(),
            seconds(here.took_s),
            seconds(here.timed_s),
        ),
        format!(
            "{} of {}{}; load {least} to {most}, steal up to {:.1} %",
            here.mode,
            here.commit.as_deref().map_or("no commit", |commit| commit.get(..8).unwrap_or(commit)),
            if here.changed == Some(true) { ", changed" } else { "" },
            steal * 100.0,
        ),
        format!("violations of mutual exclusion: {}", report.violations()),
        String::new(),
    ];
    lines.extend(drawn(&glance(report), 1, LONG, width).lines().map(str::to_owned));
    let [kept, missed, undecided, unknown] = report.verdicts();
    if kept + missed + undecided + unknown > 0 {
        lines.push(format!(
            "budgets: {kept} kept, {missed} missed, {undecided} undecided, {unknown} not measured"
        ));
    }
    let missed = report.claims.iter().filter(|claim| claim.source == BUDGET && claim.verdict() == "no");
    few(&mut lines, missed.map(in_two_lines).collect(), MOST_MISSED);
    let left_out =
        here.left_out.iter().map(|left_out| format!("left out: {}: {}", left_out.what, left_out.why));
    few(&mut lines, left_out.collect(), MOST_LEFT_OUT);
    lines.iter().flat_map(|line| line.split('\n')).map(|line| cut(line, width) + "\n").collect()
}

/// A budget, and the reason why it is missed.
fn in_two_lines(claim: &Claim) -> String {
    let measured = claim.measured.as_ref().and_then(|told| told.split(" (").next()).map(str::to_owned);
    let budget = Claim { measured, why: None, ..claim.clone() };
    format!("{}\nreason: {}", budget.told(), claim.why.as_deref().unwrap_or("none is known"))
}

/// The first of them; how many more there are.
fn few(lines: &mut Vec<String>, mut told: Vec<String>, most: usize) {
    let more = told.len().saturating_sub(most);
    told.truncate(most);
    lines.append(&mut told);
    if more > 0 {
        lines.push(format!("… and {more} more in report.txt"));
    }
}

/// A row per store.
fn glance(report: &Report) -> Table {
    let lines = || {
        LINES
            .iter()
            .filter(|(_, short, scenario, ..)| !short.is_empty() && report.scenarios().contains(scenario))
    };
    let stores = STORES.iter().filter(|(store, ..)| report.stores().contains(store));
    let rows = stores.map(|(store, name, _)| {
        let cell = |(_, _, scenario, contenders, value): &Line| {
            value(report.row(scenario, store, "leasehold", *contenders)?)
        };
        [Some((*name).to_owned())].into_iter().chain(lines().map(cell)).collect()
    });
    Table::plain([""].into_iter().chain(lines().map(|(_, short, ..)| *short)).collect(), rows)
}

/// Of a cell.
const LONG: usize = 25;

const MOST_MISSED: usize = 6;

const MOST_LEFT_OUT: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    /// It fits a terminal, whatever was found, and says where the rest is.
    #[test]
    fn one_screen_is_enough() {
        let report: Report =
            serde_json::from_str(include_str!("../../../docs/comparison/report.json")).unwrap();
        let text = screen(&report, 100);
        assert!(text.lines().count() <= 42, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        for told in [
            "violations of mutual exclusion: 0",
            "a free lock",
            "budgets: ",
            "missed, ",
            "more in report.txt",
        ] {
            assert!(text.contains(told), "{told}: {text}");
        }
    }
}
