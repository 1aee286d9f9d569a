use super::*;
use crate::environment::Latency;
use crate::figures::{Spread, Times};
use crate::history::Hold;
use crate::report::{ALONE, Claim, Free, Kind, Leak, Move, Stretch};

/// The report that is kept, with a peer that is called something evil.
fn report() -> Report {
    let kept = include_str!("../../../../docs/comparison/report.json");
    serde_json::from_str(&kept.replace("rslock", "<script>alert(1)</script>")).unwrap()
}

fn drawings() -> Drawings {
    let who = ("redis".to_owned(), "leasehold".to_owned());
    let mut drawings = Drawings::default();
    let times: Times = (1..1_000).map(|n| n * 100).collect();
    drawings.cycles.insert(who.clone(), times);
    let hold = Hold { contender: 3, from_ms: 0.0, until_ms: 1.0, waited_ms: 2.0 };
    drawings.turns.insert(who.clone(), vec![hold; 5]);
    drawings.memory.insert(who.clone(), 900.0);
    drawings.recovery.insert(who, vec![Duration::from_secs(2); 2]);
    drawings
}

/// The page works offline, and nothing that a peer calls itself becomes part of it.
#[test]
fn the_page_stands_alone() {
    let page = page(&report(), &drawings());
    for outside in ["http://", "https://", "<link", "src=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(!page.contains("<script>alert"));
    assert!(page.contains("prefers-color-scheme:dark"));
    assert!(!page.contains("NaN") && !page.contains("inf"), "a value that is no number is drawn");
}

/// Everything that can be drawn is, and opens and closes.
#[test]
fn every_drawing_is_there() {
    let page = page(&report(), &drawings());
    for section in ["latency", "profile", "tasks", "fairness", "recovery", "memory"] {
        assert!(page.contains(&format!("<h2 id=\"{section}\">")), "{section}");
    }
    for element in ["svg", "g", "section", "table", "div", "details"] {
        let opened =
            page.matches(&format!("<{element}>")).count() + page.matches(&format!("<{element} ")).count();
        assert_eq!(opened, page.matches(&format!("</{element}>")).count(), "{element}");
    }
    assert!(page.matches("<svg").count() >= 7);
}

/// A free lock a millisecond away stands beside the one near by: how far it was, what a cycle takes, and the share of the
/// floor's rate.
#[test]
fn a_free_lock_far_away_stands_beside_one_near_by() {
    let row = |who: &str, rate: f64, ratio| Row {
        scenario: "distance".into(),
        store: "redis".into(),
        implementation: who.into(),
        contenders: 1,
        cycles_per_s: Some(rate),
        rates: vec![rate; 3],
        floor_ratio: Some(ratio),
        ..Row::default()
    };
    let round_trip_us = Spread { p50: Some(1_120.0), ..Spread::default() };
    let mut report = report();
    report.results.retain(|row| row.scenario != "distance");
    report.results.extend([row("leasehold", 400.0, 0.98), row("floor", 410.0, 1.0)]);
    report.environment.distance = Some(Latency::of(Duration::from_millis(1), round_trip_us));
    let page = page(&report, &drawings());
    let at = |id: &str| page.find(&format!("<h2 id=\"{id}\">")).unwrap_or_else(|| panic!("{id} is missing"));
    assert!(at("latency") < at("distance") && at("distance") < at("profile"));
    let section = &page[at("distance")..at("profile")];
    for told in ["1.00 ms asked for, 1.12 ms per round trip", "2.50 ms (0.98)", "2.44 ms (1.00)"] {
        assert!(section.contains(told), "{told}: {section}");
    }
    assert!(page.contains("<dt>the same a millisecond away</dt><dd>0.98</dd>"));
}

/// What is missed says why right below it, and who keeps a bound says nothing.
#[test]
fn what_is_missed_says_why() {
    let claim = |why: Option<&str>| Claim { why: why.map(str::to_owned), ..Claim::default() };
    let claims = vec![claim(Some("2 < 3 requests")), claim(None)];
    let page = page(&Report { claims, ..report() }, &drawings());
    assert_eq!(page.matches("<tr class=\"why\">").count(), 1);
    assert!(page.contains("colspan=\"6\">2 &lt; 3 requests</td>"));
}

/// A move shows what it did to those who locked meanwhile, phase by phase.
#[test]
fn a_move_is_told_phase_by_phase() {
    let stretch = Stretch {
        phase: "both to drain".into(),
        longest_gap_ms: Some(12.0),
        requests_per_cycle: vec![3.0, 2.5],
        ..Stretch::default()
    };
    let moved =
        Move { what: "under <load>".into(), overlaps: 7, stretches: vec![stretch], ..Move::default() };
    let free = Free {
        phase: "drain".into(),
        cycles_per_s: 9.0,
        beside: vec![18.0, 10.0],
        ratios: vec![0.5, 0.9],
        ratios_of_runs: vec![vec![0.5], vec![0.9, 0.8, 1.0]],
    };
    let report = Report { moves: vec![moved], free: vec![free], ..Report::default() };
    let page = page(&report, &Drawings::default());
    let ratios = "0.50 (0.50 – 0.50) and 0.90 (0.80 – 1.00)";
    let told = ["under &lt;load&gt;", "7 overlaps", "both to drain", "12.0 ms", "3.00 + 2.50", ratios];
    for told in told.into_iter().chain(["href=\"#move\""]) {
        assert!(page.contains(told), "{told}");
    }
}

/// Locks that several hold stand in a section of their own, with what sharing gains and what became of permits.
#[test]
fn locks_that_several_hold_are_told() {
    let kind = |who: &str, rate, violations| Kind {
        load: "8 readers".into(),
        store: "redis".into(),
        implementation: who.into(),
        cycles_per_s: Some(rate),
        violations: Some(violations),
        ..Kind::default()
    };
    let kinds = vec![kind("leasehold", 600.0, 0), kind(ALONE, 100.0, 0), kind("<peer>", 50.0, 4)];
    let leak = Leak { permits: 3, after_a_kill: Some(2), ..Leak::default() };
    let report = Report { kinds, leaks: vec![leak], ..Report::default() };
    let page = page(&report, &Drawings::default());
    let broken = "&lt;peer&gt; on redis broke mutual exclusion 4 times";
    for told in
        ["href=\"#kinds\"", "<td class=\"text\">6.00</td>", "2 of 3", "<td class=\"no\">4</td>", broken]
    {
        assert!(page.contains(told), "{told}");
    }
    assert!(!page.contains("<peer>"));
}

/// Who is fastest of the others is a library, and not what no library can be.
#[test]
fn a_floor_is_nobody_to_be_compared_with_at_a_glance() {
    let row = |who: &str, rate| Row {
        scenario: "processes".into(),
        store: "etcd".into(),
        implementation: who.into(),
        contenders: 8,
        cycles_per_s: Some(rate),
        ..Row::default()
    };
    let results = vec![row("leasehold", 800.0), row("floor+queue", 900.0), row("go-mutex", 80.0)];
    let page = page(&Report { results, ..Report::default() }, &Drawings::default());
    assert!(page.contains("the same, go-mutex"));
}

/// A report without results is a page all the same.
#[test]
fn nothing_is_drawn_of_nothing() {
    let page = page(&Report::default(), &Drawings::default());
    assert!(!page.contains("<svg") && page.ends_with("</html>\n"));
}

fn point(x: f64, y: f64) -> Point {
    Point { x, y, range: None }
}

/// "Ten times as fast" is true of some numbers of contenders: where it stops to be is told.
#[test]
fn curves_that_cross_say_where() {
    let ours = [point(1.0, 1_000.0), point(10.0, 1_000.0), point(100.0, 100.0)];
    let theirs = [point(1.0, 100.0), point(10.0, 100.0), point(100.0, 1_000.0)];
    let [(at, we_lead)] = crossed(&ours, &theirs)[..] else { panic!("one crossing") };
    assert!((at - 31.6).abs() < 0.1 && !we_lead, "{at}");
    assert_eq!(crossed(&ours, &ours), []);
    let few = [point(10.0, 2_000.0)];
    assert_eq!(crossed(&ours, &few), [], "one number in common is no curve");
}

/// A line goes from left to right and has one place for a number, whatever scenarios have it.
#[test]
fn a_line_goes_from_left_to_right() {
    let row = |scenario: &str, who: &str, contenders| Row {
        scenario: scenario.into(),
        store: "etcd".into(),
        implementation: who.into(),
        contenders,
        handoff_us: Spread { p99: Some(9.0), ..Spread::default() },
        ..Row::default()
    };
    let results = vec![
        row("hand-off", "leasehold", 2),
        row("processes", "leasehold", 8),
        row("processes", "jetcd", 8),
        row("crowd", "leasehold", 2),
        row("crowd", "leasehold", 8),
        row("crowd", "leasehold", 100),
    ];
    let (report, drawings) = (Report { results, ..Report::default() }, Drawings::default());
    let page = Page { report: &report, drawings: &drawings };
    let drawn =
        page.drawn(&["crowd", "processes", "hand-off"], "etcd", |row| Some((row.handoff_us.p99?, None)));
    let across: Vec<Vec<f64>> =
        drawn.iter().map(|line| line.points.iter().map(|point| point.x).collect()).collect();
    assert_eq!(across, [vec![2.0, 8.0, 100.0], vec![8.0]]);
}

/// The first thing that is seen is the rate against contenders, with the crossing in words.
#[test]
fn the_first_plot_is_the_rate_against_contenders() {
    let row = |who: &str, contenders, rate| Row {
        scenario: "crowd".into(),
        store: "etcd".into(),
        implementation: who.into(),
        contenders,
        cycles_per_s: Some(rate),
        rates: vec![rate * 0.9, rate, rate * 1.1],
        requests_per_cycle: Some(2.0),
        messages_per_cycle: Some(2.0),
        ..Row::default()
    };
    let results = vec![
        row("leasehold", 8, 800.0),
        row("leasehold", 100, 200.0),
        row("go-mutex", 8, 80.0),
        row("go-mutex", 100, 460.0),
    ];
    let page = page(&Report { results, ..Report::default() }, &Drawings::default());
    let (crowd, first_line) = (page.find("<h2 id=\"crowd\">"), page.find("<svg"));
    assert_eq!(page.find("<h2"), crowd);
    assert!(crowd < first_line);
    assert!(page.contains("<h2 id=\"requests\">"));
    assert!(page.contains("contenders on go-mutex is faster than leasehold"));
    assert!(page.contains("contenders (logarithmic)") && page.contains("cycles/s (logarithmic)"));
}
