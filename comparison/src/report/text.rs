//! Tables and sentences for a terminal: cut to its width, and never through a word.

use super::table::{Cells, Table};
use super::{Claim, Report};

/// `report.txt`: everything, in so many columns.
pub(crate) fn tables(report: &Report, width: usize) -> String {
    let mut text = String::new();
    let mut add = |name: String, table: &Table, kept: usize| {
        if !table.rows.is_empty() {
            text += &format!("{}\n{}\n", wrapped(&name, width).join("\n"), drawn(table, kept, LONG, width));
        }
    };
    for scenario in report.scenarios() {
        let distance = report.environment.distance.as_ref().filter(|_| scenario == "distance");
        let told = distance.map(|distance| format!(": {}", distance.told())).unwrap_or_default();
        add(format!("{scenario}{told}"), &report.results_table(scenario), 3);
    }
    add("locks that several hold".to_owned(), &report.kinds_table(), 3);
    add("permits".to_owned(), &report.leaks_table(), 2);
    for moved in &report.moves {
        add(format!("a move, {}: {}", moved.what, moved.told()), &moved.table(), 1);
    }
    add("a free lock in each phase of a move".to_owned(), &report.free_table(), 1);
    let claims = report.claims.iter().map(Claim::told);
    let left_out = &report.environment.left_out;
    let left_out = left_out.iter().map(|left_out| format!("left out: {}: {}", left_out.what, left_out.why));
    let checks = report.checks.iter().map(|check| format!("{}, {}", check.what, check.told()));
    for line in claims.chain(left_out).chain(checks) {
        text += &(wrapped(&line, width).join("\n") + "\n");
    }
    text + &format!("\nviolations of mutual exclusion: {}\n", report.violations())
}

/// As many columns beside each other as there is room for, then the others, each time after the first `kept`. Cells have
/// several lines if they are longer than `long`.
pub(super) fn drawn(table: &Table, kept: usize, long: usize, width: usize) -> String {
    let cell = |Cells { cells, .. }: &Cells, at: usize| wrapped(&cells[at].text, long);
    let columns: Vec<Vec<Vec<String>>> = (0..table.head.len())
        .map(|at| {
            let head = wrapped(table.head[at], long);
            [head].into_iter().chain(table.rows.iter().map(|row| cell(row, at))).collect()
        })
        .collect();
    let length = |text: &String| text.chars().count();
    let wide = |at: &usize| columns[*at].iter().flatten().map(length).max().unwrap_or(0) + BETWEEN;
    let kept: Vec<usize> = (0..kept.min(columns.len())).collect();
    let mut blocks: Vec<Vec<usize>> = Vec::new();
    for at in kept.len()..columns.len() {
        match blocks.last_mut() {
            Some(block) if block.iter().map(wide).sum::<usize>() + wide(&at) <= width => block.push(at),
            _ => blocks.push(kept.iter().copied().chain([at]).collect()),
        }
    }
    let mut text = String::new();
    for block in blocks {
        let lines = |row: usize| block.iter().map(|at| columns[*at][row].len()).max().unwrap_or(0);
        let all = (0..=table.rows.len()).flat_map(|row| (0..lines(row)).map(move |line| (row, line)));
        for (row, line) in all {
            let padded = block.iter().map(|at| {
                let told = columns[*at][row].get(line).map_or("", String::as_str);
                let wide = wide(at) - BETWEEN;
                if *at < table.texts { format!("{told:<wide$}  ") } else { format!("{told:>wide$}  ") }
            });
            text += &(padded.collect::<String>().trim_end().to_owned() + "\n");
        }
        text.push('\n');
    }
    text
}

/// Lines that end between words. A word that is longer is longer.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is a line");
        if line.is_empty() {
            *line = word.to_owned();
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            *line += &format!(" {word}");
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// The first line, with a sign that there is more.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width { text.to_owned() } else { wrapped(text, width - 2)[0].clone() + " …" }
}

/// How many letters of a cell stand beside each other.
const LONG: usize = 20;

const BETWEEN: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing is wider than asked for, no word is in two parts, and nothing is lost.
    #[test]
    fn text_is_cut_between_words() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(
            (cut("one two three", 11), cut("one two", 7)),
            ("one two …".to_owned(), "one two".to_owned())
        );
        let report: Report =
            serde_json::from_str(include_str!("../../../docs/comparison/report.json")).unwrap();
        let text = tables(&report, 80);
        let too_wide = text.lines().filter(|line| line.chars().count() > 80).collect::<Vec<_>>();
        assert!(too_wide.is_empty(), "{too_wide:#?}");
        for told in ["etcd-lock-rpc", "hand-off", "implementation", "undecided"] {
            assert!(text.contains(told), "{told}");
        }
    }
}
