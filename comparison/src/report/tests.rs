use serde_json::Value;

use super::*;

fn report() -> Report {
    let row = Row {
        scenario: "crash".into(),
        store: "etcd".into(),
        implementation: "leasehold".into(),
        ..Row::default()
    };
    let claim = Claim { claim: "a".into(), source: "b".into(), ..Claim::default() };
    Report { results: vec![row], claims: vec![claim], ..Report::default() }
}

fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

/// What others read of it is called as they expect, and nothing is made up.
#[test]
fn the_report_has_the_agreed_form() {
    let json: Value = serde_json::from_str(&report().json().unwrap()).unwrap();
    assert_eq!(
        keys(&json),
        ["checks", "claims", "environment", "free", "kinds", "leaks", "moves", "profiles", "results"]
    );
    let row = &json["results"][0];
    let columns = [
        "acquire_us",
        "bytes_of_runs",
        "bytes_per_cycle",
        "bytes_per_lock",
        "client_share",
        "client_us_per_cycle",
        "contenders",
        "cycles",
        "cycles_per_s",
        "floor_ratio",
        "handoff_p99s",
        "handoff_us",
        "held_share",
        "implementation",
        "least_share",
        "messages_per_cycle",
        "most_share",
        "overtakes",
        "overtakes_of_runs",
        "rates",
        "release_us",
        "remark",
        "requests_per_cycle",
        "runs",
        "scenario",
        "served",
        "server_share",
        "server_us_per_cycle",
        "store",
        "violations",
    ];
    assert_eq!(keys(row), columns);
    for spread in ["acquire_us", "release_us", "handoff_us"] {
        assert_eq!(keys(&row[spread]), ["max", "p50", "p99"]);
        assert!(row[spread]["p50"].is_null());
    }
    assert!(row["cycles_per_s"].is_null() && row["violations"].is_null());
    assert_eq!(
        keys(&json["claims"][0]),
        ["bound", "claim", "holds", "measured", "source", "spread", "undecided", "why"]
    );
}

/// A report that was kept can be read again, for a table made from it.
#[test]
fn a_report_reads_back() {
    let json = report().json().unwrap();
    let again: Report = serde_json::from_str(&json).unwrap();
    assert_eq!(again.json().unwrap(), json);
    assert!(again.row("crash", "etcd", "leasehold", 0).is_some());
    assert!(again.row("crash", "etcd", "leasehold", 2).is_none());
}

/// "Undecided" is not "not measured", and neither is a yes.
#[test]
fn verdicts_are_four() {
    let of = |holds, undecided| Claim { holds, undecided, ..Claim::default() }.verdict();
    assert_eq!(
        [of(Some(true), false), of(Some(false), false), of(None, true), of(None, false)],
        ["yes", "no", "undecided", "not measured"]
    );
}
