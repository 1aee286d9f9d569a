use serde_json::Value;

use super::page::Drawn;
use super::*;

const KEPT: &str = include_str!("../../../docs/comparison/report.json");

/// The report that is kept, with a peer that is called something evil.
fn report() -> Report {
    serde_json::from_str(&KEPT.replace("rslock", "<script>alert(1)</script>")).unwrap()
}

fn row(scenario: &str, who: &str, contenders: u64, rate: f64) -> Row {
    Row {
        scenario: scenario.into(),
        store: "etcd".into(),
        implementation: who.into(),
        contenders,
        cycles_per_s: Some(rate),
        ..Row::default()
    }
}

fn page_of(results: Vec<Row>) -> String {
    page(&Report { results, ..Report::default() }).unwrap()
}

/// The report that is kept has the form of today: nothing is called otherwise, missing, or more.
#[test]
fn a_report_reads_back() {
    let report: Report = serde_json::from_str(KEPT).unwrap();
    let [kept, written]: [Value; 2] =
        [KEPT, &report.json().unwrap()].map(|json| serde_json::from_str(json).unwrap());
    assert_eq!(kept, written);
}

/// The page works offline, and nothing that a peer calls itself becomes part of it.
#[test]
fn the_page_stands_alone() {
    let page = page(&report()).unwrap();
    for outside in ["http://", "https://", "<link", "src=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(!page.contains("<script>alert"));
    assert!(page.contains("prefers-color-scheme:dark"));
    assert!(!page.contains("NaN") && !page.contains("inf"), "a value that is no number is drawn");
}

/// Stores to choose from come first, then every section of the report that is kept, with links by name; every element ends.
#[test]
fn every_section_is_there() {
    let page = page(&report()).unwrap();
    let sections = page.split("<h2 id=\"").skip(1).map(|rest| rest.split('"').next().unwrap());
    let all = "crowd distance hand-off requests tasks names fairness recovery memory kinds move claims results environment";
    assert_eq!(sections.collect::<Vec<_>>().join(" "), all);
    let (first, rest) = page.split_once("<nav>").unwrap();
    assert!(
        first.contains("take it for") && first.contains("Between hosts, Redis has the fastest free lock"),
        "{first}"
    );
    assert!(rest.starts_with("<a href=\"#crowd\">Rate against contenders</a>"));
    for element in ["svg", "g", "section", "table", "div", "details"] {
        let opened =
            page.matches(&format!("<{element}>")).count() + page.matches(&format!("<{element} ")).count();
        assert_eq!(opened, page.matches(&format!("</{element}>")).count(), "{element}");
    }
}

/// A claim that is missed says why right below it, and one that holds says nothing.
#[test]
fn a_missed_claim_says_why() {
    let claim = |why: Option<&str>| Claim { why: why.map(str::to_owned), ..Claim::default() };
    let claims = vec![claim(Some("2 < 3 requests")), claim(None)];
    let page = page(&Report { claims, ..Report::default() }).unwrap();
    assert_eq!(page.matches("<p class=\"why").count(), 1);
    assert!(page.contains(": 2 &#60; 3 requests</p>"));
}

/// A budget that is missed, a violation, and more than a tenth of undecided budgets each fail `--strict`.
#[test]
fn strict_fails_on_missed_and_undecided_budgets() {
    let budget = |holds: Option<bool>| Claim {
        source: BUDGET.into(),
        holds,
        undecided: holds.is_none(),
        ..Claim::default()
    };
    let report = |kept: usize, other: Option<bool>, violations: u64| {
        let claims = vec![budget(Some(true)); kept].into_iter().chain([budget(other)]).collect();
        let results = vec![Row { violations: Some(violations), ..Row::default() }];
        Report { claims, results, ..Report::default() }.failing()
    };
    assert_eq!([report(9, None, 0), report(1, Some(true), 0)], [None, None]);
    for failing in [report(8, None, 0), report(20, Some(false), 0), report(1, Some(true), 1)] {
        assert!(failing.is_some());
    }
}

/// Who breaks exclusion is named first, wherever it was seen.
#[test]
fn a_violation_is_told_first() {
    let kinds = vec![Kind {
        store: "redis".into(),
        implementation: "a".into(),
        violations: Some(4),
        ..Kind::default()
    }];
    let results = vec![Row { violations: Some(3), ..row("crowd", "b", 2, 1.0) }];
    let page = page(&Report { kinds, results, ..Report::default() }).unwrap();
    let head = page.split("<nav>").next().unwrap();
    for told in ["a on redis broke mutual exclusion 4 times", "b on etcd broke mutual exclusion 3 times"] {
        assert!(head.contains(told), "{head}");
    }
    assert!(page.contains("no\">4</td>") && page.contains("no\">3</td>"));
}

/// A report without results is a page all the same.
#[test]
fn nothing_is_drawn_of_nothing() {
    let page = page_of(Vec::new());
    assert!(!page.contains("<svg") && page.ends_with("</html>"));
}

/// A line goes from left to right and has one place for a number, whatever scenarios have it.
#[test]
fn a_line_goes_from_left_to_right() {
    let results = vec![
        row("hand-off", "leasehold", 2, 9.0),
        row("processes", "leasehold", 8, 9.0),
        row("processes", "jetcd", 8, 9.0),
        row("crowd", "leasehold", 8, 9.0),
        row("crowd", "leasehold", 100, 9.0),
        row("crowd", "leasehold", 2, 9.0),
    ];
    let report = Report { results, ..Report::default() };
    let scenarios = ["crowd", "processes", "hand-off"];
    let drawn = Drawn { report: &report }.drawn(&scenarios, "etcd", |row| Some((row.cycles_per_s?, None)));
    let across: Vec<Vec<f64>> =
        drawn.iter().map(|line| line.points.iter().map(|point| point.x).collect()).collect();
    assert_eq!(across, [vec![2.0, 8.0, 100.0], vec![8.0]]);
}

/// Thousands stand apart, small numbers keep what tells them apart.
#[test]
fn numbers_are_readable() {
    for (value, text) in
        [(0.0, "0.00"), (47.26, "47.3"), (123.4, "123"), (1_234_567.0, "1\u{202f}234\u{202f}567")]
    {
        assert_eq!(table::number(value), text);
    }
}
