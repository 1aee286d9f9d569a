use super::super::Profile;
use super::*;
use crate::environment::Environment;
use crate::figures::{Spread, Times};
use crate::history::Hold;

fn report() -> Report {
    let row = |scenario: &str, who: &str, contenders: u64| Row {
        scenario: scenario.into(),
        store: "redis".into(),
        implementation: who.into(),
        contenders,
        cycles_per_s: Some(1_000.0 * contenders as f64),
        acquire_us: Spread { p50: Some(1.0), p99: Some(2.0), max: Some(3.0) },
        requests_per_cycle: Some(2.0),
        violations: Some(0),
        ..Row::default()
    };
    let mut results = Vec::new();
    for scenario in ["uncontended", "processes", "tasks", "herd", "fairness"] {
        for contenders in [1, 8, 64] {
            results.push(row(scenario, "leasehold", contenders));
            results.push(row(scenario, "<script>alert(1)</script>", contenders));
        }
    }
    let profile = Profile {
        store: "redis".into(),
        implementation: "leasehold".into(),
        cycle_us: 90.0,
        client_us: Some(30.0),
        server_us: None,
    };
    Report { environment: Environment::default(), results, claims: Vec::new(), profiles: vec![profile] }
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
    for section in ["latency", "profile", "throughput", "tasks", "requests", "fairness", "recovery", "memory"]
    {
        assert!(page.contains(&format!("<h2 id=\"{section}\">")), "{section}");
    }
    for element in ["svg", "g", "section", "table", "div", "details"] {
        let opened =
            page.matches(&format!("<{element}>")).count() + page.matches(&format!("<{element} ")).count();
        assert_eq!(opened, page.matches(&format!("</{element}>")).count(), "{element}");
    }
    assert!(page.matches("<svg").count() >= 7);
}

/// A report without results is a page all the same.
#[test]
fn nothing_is_drawn_of_nothing() {
    let empty = Report {
        environment: Environment::default(),
        results: Vec::new(),
        claims: Vec::new(),
        profiles: Vec::new(),
    };
    let page = page(&empty, &Drawings::default());
    assert!(!page.contains("<svg") && page.ends_with("</html>\n"));
}
