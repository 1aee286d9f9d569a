use serde_json::Value;

use super::*;

fn report() -> Report {
    let row = Row {
        scenario: "crash".into(),
        store: "etcd".into(),
        implementation: "leasehold".into(),
        ..Row::default()
    };
    let claim = Claim { claim: "a".into(), source: "b".into(), measured: None, holds: None };
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
    assert_eq!(keys(&json), ["claims", "environment", "profiles", "results"]);
    let row = &json["results"][0];
    let columns = [
        "acquire_us",
        "contenders",
        "cycles_per_s",
        "floor_ratio",
        "handoff_us",
        "implementation",
        "overtakes",
        "release_us",
        "requests_per_cycle",
        "runs",
        "scenario",
        "store",
        "violations",
    ];
    assert_eq!(keys(row), columns);
    for spread in ["acquire_us", "release_us", "handoff_us"] {
        assert_eq!(keys(&row[spread]), ["max", "p50", "p99"]);
        assert!(row[spread]["p50"].is_null());
    }
    assert!(row["cycles_per_s"].is_null() && row["violations"].is_null());
    assert_eq!(keys(&json["claims"][0]), ["claim", "holds", "measured", "source"]);
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
