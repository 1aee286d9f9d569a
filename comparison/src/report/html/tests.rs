use super::*;
use crate::figures::Times;
use crate::history::Hold;

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
    let page = page(&Report::default(), &Drawings::default());
    assert!(!page.contains("<svg") && page.ends_with("</html>\n"));
}
