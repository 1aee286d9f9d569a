//! The comparison as a program, mostly on the stores that need no server.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

fn compare(out: &Path, arguments: &[&str]) -> std::process::Output {
    compare_on("memory,file", out, arguments)
}

fn compare_on(stores: &str, out: &Path, arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_compare"));
    command.args(["--quick", "--peers", "none", "--store", stores, "--out"]).arg(out).args(arguments);
    command.output().expect("the program starts")
}

fn report(out: &Path) -> Value {
    let json = std::fs::read_to_string(out.join("report.json")).expect("there is a report");
    serde_json::from_str(&json).expect("the report is JSON")
}

/// Both stores are measured in every scenario that is possible there, nobody breaks exclusion, and what
/// is not known is null.
#[test]
fn stores_without_servers_are_compared() {
    let out = tempfile::tempdir().expect("there is room for a report");
    let ran =
        compare(out.path(), &["--scenario", "uncontended,tasks,processes,crowd,fairness,counter,crash,held"]);
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}\n{}", String::from_utf8_lossy(&ran.stderr));
    assert!(said.contains("violations of mutual exclusion: 0"), "{said}");

    let report = report(out.path());
    let results = report["results"].as_array().expect("results are a list");
    for store in ["memory", "file"] {
        for scenario in ["uncontended", "tasks", "processes", "crowd", "fairness", "counter"] {
            let row = results.iter().find(|row| row["scenario"] == scenario && row["store"] == store);
            let row = row.unwrap_or_else(|| panic!("{scenario} on {store} is missing: {said}"));
            assert!(row["cycles"].as_u64() > Some(0), "{row}");
            if scenario == "counter" {
                assert!(row["cycles_per_s"].is_null(), "it checks, and times nothing: {row}");
            } else {
                assert!(row["cycles_per_s"].as_f64().expect("a rate") > 0.0, "{row}");
                assert_eq!(
                    row["rates"].as_array().map(Vec::len),
                    Some(3),
                    "every figure is of several: {row}"
                );
            }
            if ["processes", "crowd"].contains(&scenario) {
                assert!(row["held_share"].as_f64() > Some(0.1), "the check of exclusion sees little: {row}");
            }
            assert_eq!(row["violations"], 0, "{row}");
            assert!(row["requests_per_cycle"].is_null(), "nobody counts there: {row}");
        }
    }
    let waiting = results.iter().filter(|row| row["scenario"] == "tasks" && row["contenders"] == 10_000);
    assert_eq!(
        waiting.filter(|row| row["remark"].is_null()).count(),
        2,
        "ten thousand have their turns: {said}"
    );
    for held in results.iter().filter(|row| row["scenario"] == "held") {
        assert_eq!((&held["contenders"], &held["remark"]), (&2_000.into(), &Value::Null), "{held}");
        assert!(held["bytes_per_lock"].as_f64() > Some(0.0), "what is held takes memory: {held}");
    }
    assert_eq!(results.iter().filter(|row| row["scenario"] == "held").count(), 2, "on each store: {said}");
    let floor =
        results.iter().find(|row| row["implementation"] == "floor").expect("the file store has a floor");
    assert_eq!(floor["floor_ratio"], 1.0);
    let crash = results.iter().find(|row| row["scenario"] == "crash").expect("a process can be killed");
    assert!(crash["handoff_us"]["p50"].as_f64().expect("a time") > 0.0);

    let page = std::fs::read_to_string(out.path().join("report.html")).expect("there is a page");
    assert!(page.contains("<svg"));
}

/// What is no lock is found out in every comparison, whatever is compared, or nobody's exclusion was checked.
#[test]
fn what_is_no_lock_is_found_out() {
    let out = tempfile::tempdir().expect("there is room for a report");
    let ran = compare(out.path(), &["--scenario", "uncontended"]);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let report = report(out.path());
    let checks = report["checks"].as_array().expect("a list");
    for what in [
        "no lock at all",
        "a lock that two hold at once",
        "a lock that readers hold beside a writer",
        "a semaphore with a permit too many",
    ] {
        for contenders in ["8 processes", "8 sessions of one process"] {
            let check =
                checks.iter().find(|check| check["what"] == what && check["contenders"] == contenders);
            let check = check.unwrap_or_else(|| panic!("{what} with {contenders} is missing: {checks:?}"));
            let (found, cycles) = (check["found"].as_u64(), check["cycles"].as_u64());
            assert!(found.expect("a number") * 8 >= cycles.expect("a number"), "{check}");
        }
    }
    let leaks = "a semaphore that loses a permit, and makes one up";
    let leaks = checks.iter().find(|check| check["what"] == leaks).expect("leaks are put to the test, too");
    assert_eq!(leaks["found"], 2, "{leaks}");
}

/// Locks that several hold are compared on every store that has them, beside the exclusive one: nobody holds who does
/// not fit, all read at the same time, a writer does not starve, and no permit is lost or made up.
#[test]
fn locks_that_several_hold_are_compared() {
    let out = tempfile::tempdir().expect("there is room for a report");
    let ran = compare_on("memory,file,redis", out.path(), &["--scenario", "kinds,claims"]);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let report = report(out.path());
    let kinds = report["kinds"].as_array().expect("a list");
    let left_out = report["environment"]["left_out"].as_array().expect("a list");
    assert!(left_out.iter().any(|missing| missing["what"] == "file in kinds"), "{left_out:?}");
    for store in ["memory", "redis"] {
        for load in ["8 readers", "90 % reads", "1 writer, 7 readers", "3 permits for 8"] {
            let [ours, alone] = ["leasehold", "leasehold, exclusive"].map(|who| {
                let is = |row: &&Value| {
                    row["store"] == store && row["load"] == load && row["implementation"] == who
                };
                kinds
                    .iter()
                    .find(is)
                    .unwrap_or_else(|| panic!("{load}: {who} on {store} is missing: {report}"))
            });
            for row in [ours, alone] {
                assert_eq!((&row["violations"], &row["remark"]), (&0.into(), &Value::Null), "{row}");
                assert_eq!(row["rates"].as_array().map(Vec::len), Some(3), "{row}");
                assert!(row["overtakes"].as_f64() < Some(0.2), "first come, first served: {row}");
                assert_eq!(row["requests_per_cycle"].is_null(), store == "memory", "{row}");
            }
            assert!(ours["holders"].as_f64() > Some(1.0), "several hold at a time: {ours}");
            assert!(alone["holders"].as_f64() <= Some(1.0), "one holds at a time: {alone}");
            let reads = load == "8 readers" || load == "3 permits for 8";
            assert_eq!(ours["starved"].is_null(), reads, "there is a writer to wait: {ours}");
        }
        let leak = report["leaks"].as_array().expect("a list").iter().find(|leak| leak["store"] == store);
        let leak = leak.unwrap_or_else(|| panic!("permits on {store} are missing: {report}"));
        let free = if store == "memory" { Value::Null } else { 3.into() };
        assert_eq!((&leak["after_a_kill"], &leak["after_two_releases"]), (&free, &3.into()), "{leak}");
        let told = format!("Readers that come and go starve a writer: leasehold on {store}");
        let claims = report["claims"].as_array().expect("a list");
        let claim = claims.iter().find(|claim| claim["claim"] == told.as_str()).expect("it is asked");
        assert_ne!(claim["holds"], true, "{claim}");
    }
    let page = std::fs::read_to_string(out.path().join("report.html")).expect("there is a page");
    assert!(page.contains("<h2 id=\"kinds\">"));
}

/// ZooKeeper has shared locks and no permits: readers hold together there, a writer among them does not starve, and nobody is
/// asked for permits.
#[test]
fn readers_share_a_lock_on_zookeeper() {
    let out = tempfile::tempdir().expect("there is room for a report");
    let ran = compare_on("zk", out.path(), &["--scenario", "kinds,claims"]);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let report = report(out.path());
    let kinds = report["kinds"].as_array().expect("a list");
    for load in ["8 readers", "90 % reads", "1 writer, 7 readers"] {
        let [ours, alone] = ["leasehold", "leasehold, exclusive"].map(|who| {
            let is = |row: &&Value| row["load"] == load && row["implementation"] == who;
            kinds.iter().find(is).unwrap_or_else(|| panic!("{load}: {who} is missing: {report}"))
        });
        for row in [ours, alone] {
            assert_eq!((&row["violations"], &row["remark"]), (&0.into(), &Value::Null), "{row}");
            assert!(row["overtakes"].as_f64() < Some(0.2), "first come, first served: {row}");
            assert!(row["requests_per_cycle"].as_f64() > Some(0.0), "the server counts: {row}");
        }
        assert!(ours["holders"].as_f64() > alone["holders"].as_f64(), "several hold at a time: {ours}");
    }
    assert!(kinds.iter().all(|row| row["load"] != "3 permits for 8"), "nobody there has permits: {report}");
    assert_eq!(report["leaks"].as_array().map(Vec::len), Some(0), "{report}");
    let told = "Readers that come and go starve a writer: leasehold on zk";
    let claims = report["claims"].as_array().expect("a list");
    let claim = claims.iter().find(|claim| claim["claim"] == told).expect("it is asked");
    assert_ne!(claim["holds"], true, "{claim}");
}

/// `--json` prints what `report.json` holds, and a store that cannot be had is left out with the reason.
#[test]
fn the_report_is_printed_and_says_what_is_missing() {
    let out = tempfile::tempdir().expect("there is room for a report");
    let ran = compare(out.path(), &["--scenario", "crash", "--json"]);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let printed: Value = serde_json::from_slice(&ran.stdout).expect("JSON and nothing else is printed");
    assert_eq!(printed, report(out.path()));
    let left_out = printed["environment"]["left_out"].as_array().expect("a list");
    assert!(left_out.iter().any(|missing| missing["what"] == "memory in crash"), "{left_out:?}");
}

/// Contended rates stand beside a floor that waits in a queue as they do: it excludes, asks no more than it must,
/// and what servers send to those who wait is counted on the servers that tell.
#[test]
fn contended_rates_have_a_floor() {
    let out = tempfile::tempdir().expect("there is room for a report");
    let ran = compare_on("redis,etcd,zk", out.path(), &["--scenario", "processes"]);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let report = report(out.path());
    let rows = report["results"].as_array().expect("results are a list");
    for (store, requests) in [("redis", 2.0), ("etcd", 2.0), ("zk", 4.0)] {
        let row = |who| rows.iter().find(|row| row["store"] == store && row["implementation"] == who);
        let [floor, ours] = ["floor+queue", "leasehold"]
            .map(|who| row(who).unwrap_or_else(|| panic!("{who} on {store} is missing: {report}")));
        assert_eq!(floor["violations"], 0, "{floor}");
        let asked = floor["requests_per_cycle"].as_f64().expect("servers count");
        assert!((asked - requests).abs() < 0.1, "{floor}");
        assert!(ours["floor_ratio"].as_f64() > Some(0.0), "{ours}");
        assert_eq!(ours["messages_per_cycle"].is_null(), store == "redis", "{ours}");
        assert_eq!(ours["bytes_per_cycle"].is_null(), store == "zk", "{ours}");
        for row in [floor, ours] {
            let spent = |side: &str| row[format!("{side}_us_per_cycle").as_str()].as_f64();
            assert!(spent("server") > Some(0.0) && spent("client") > Some(0.0), "{row}");
        }
        let settings = &report["environment"]["servers"][store]["settings"];
        assert!(settings.as_str().is_some_and(|settings| !settings.is_empty()), "{settings}");
    }
}

/// Three servers that know nothing of each other are one store: their counts are added up, its floor is three requests each
/// way, and what is said of majorities is tried. Two of three are enough and one is not; a server that forgets gives the
/// lock away only where it may, and then a token tells.
#[test]
fn a_quorum_is_compared_on_three_servers() {
    let out = tempfile::tempdir().expect("there is room for a report");
    let ran = compare_on("redis-quorum", out.path(), &["--scenario", "uncontended,processes,crowd,claims"]);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let report = report(out.path());
    let rows = report["results"].as_array().expect("results are a list");
    let row = |scenario: &str, who: &str, contenders: u64| {
        let is = |row: &&Value| {
            row["scenario"] == scenario && row["implementation"] == who && row["contenders"] == contenders
        };
        let row = rows.iter().find(is);
        row.unwrap_or_else(|| panic!("{scenario} with {contenders} × {who} is missing: {report}"))
    };
    let floor = row("uncontended", "floor", 1);
    let asked = |row: &Value| row["requests_per_cycle"].as_f64().expect("servers count");
    assert!((asked(floor) - 6.0).abs() < 0.1, "{floor}");
    let free = row("uncontended", "leasehold", 1);
    // Where a server's clock has passed the proposal, the others are told.
    assert!((5.9..6.75).contains(&asked(free)), "{free}");
    assert!(free["floor_ratio"].as_f64() > Some(0.0), "{free}");
    for contended in [row("processes", "leasehold", 8), row("crowd", "leasehold", 32)] {
        assert!(contended["cycles"].as_u64() > Some(0), "{contended}");
    }
    for row in rows {
        assert_eq!(row["violations"], 0, "{row}");
    }
    let claims = report["claims"].as_array().expect("a list");
    let claim = |about: &str| {
        let claim =
            claims.iter().find(|claim| claim["claim"].as_str().is_some_and(|told| told.contains(about)));
        claim.unwrap_or_else(|| panic!("{about} is missing: {report}"))
    };
    for (about, holds) in [
        ("survive the loss of one: leasehold", true),
        ("without its data loses a lock: leasehold", false),
        ("the fence refuses the old holder: leasehold", true),
    ] {
        assert_eq!(claim(about)["holds"], holds, "{}", claim(about));
    }
    assert_eq!(claim("32 contenders, the longest hand-off")["bound"], "at most 1.00 s");
}

/// A free lock a millisecond away takes the round trips that it makes, by whatever way clients find their servers; the
/// servers count the same requests as near by, and what has no network is left out.
#[test]
fn a_free_lock_is_compared_from_afar() {
    let out = tempfile::tempdir().expect("there is room for a report");
    let scenarios = ["--scenario", "uncontended,distance,claims"];
    let ran = compare_on("file,redis,redis-quorum,etcd,zk", out.path(), &scenarios);
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}\n{}", String::from_utf8_lossy(&ran.stderr));
    let report = report(out.path());
    let round_trip = &report["environment"]["distance"]["round_trip_us"]["p50"];
    assert!(round_trip.as_f64() >= Some(1_000.0), "{round_trip}");
    assert!(said.contains("distance: 1.00 ms asked for, "), "{said}");
    let rows = report["results"].as_array().expect("results are a list");
    let far: Vec<_> = rows.iter().filter(|row| row["scenario"] == "distance").collect();
    for row in &far {
        assert_eq!((&row["violations"], &row["remark"]), (&0.into(), &Value::Null), "{row}");
        for way in ["acquire_us", "release_us"] {
            assert!(row[way]["p50"].as_f64() >= Some(1_000.0), "a request and its answer: {row}");
        }
        assert!(row["cycles_per_s"].as_f64() <= Some(500.0), "two of each, one after the other: {row}");
    }
    for (store, requests) in [("redis", 2.0), ("redis-quorum", 6.0), ("etcd", 2.0), ("zk", 2.0)] {
        let row = |who| far.iter().find(|row| row["store"] == store && row["implementation"] == who);
        let [floor, ours] = ["floor", "leasehold"]
            .map(|who| row(who).unwrap_or_else(|| panic!("{who} on {store}: {report}")));
        let asked = floor["requests_per_cycle"].as_f64().expect("servers count");
        assert!((asked - requests).abs() < 0.1, "{floor}");
        assert!(ours["floor_ratio"].as_f64() > Some(0.0), "{ours}");
        let told = format!("{store}: a free lock a millisecond away, share of the floor's rate");
        let claims = report["claims"].as_array().expect("a list");
        let claim = claims.iter().find(|claim| claim["claim"] == told.as_str()).expect("it has a budget");
        assert_eq!(
            (&claim["bound"], claim["measured"].is_null()),
            (&"at least 0.95 ×".into(), false),
            "{claim}"
        );
    }
    let left_out = &report["environment"]["left_out"];
    let missing = |what| left_out.as_array().expect("a list").iter().any(|missing| missing["what"] == what);
    assert!(missing("file in distance") && far.iter().all(|row| row["store"] != "file"), "{left_out}");
    let page = std::fs::read_to_string(out.path().join("report.html")).expect("there is a page");
    assert!(page.contains("<h2 id=\"distance\">"));
}

/// A quick look does without some of it, says so, and finds out what is no lock all the same; what is claimed of the rest is
/// not measured.
#[test]
fn a_quick_look_says_what_it_does_without() {
    let out = tempfile::tempdir().expect("there is room for a report");
    let mut command = Command::new(env!("CARGO_BIN_EXE_compare"));
    let ran = command.args(["--quick", "--store", "memory,file", "--out"]).arg(out.path()).output();
    let ran = ran.expect("the program starts");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let report = report(out.path());
    let left_out = report["environment"]["left_out"].as_array().expect("a list");
    for (what, why) in [
        (
            "distance, hand-off, tasks, fairness, counter, kinds, move",
            "not in the quick mode, unless --scenario names them",
        ),
        (
            "libraries with a virtual machine or an interpreter",
            "not in the quick mode, unless --peers names them",
        ),
        ("churn", "only in the full mode"),
    ] {
        let said = |missing: &Value| missing["what"] == what && missing["why"] == why;
        assert!(left_out.iter().any(said), "{what}: {left_out:?}");
    }
    for row in report["results"].as_array().expect("results are a list") {
        let scenario = row["scenario"].as_str().expect("a name");
        assert!(["uncontended", "processes", "crowd", "crash", "held"].contains(&scenario), "{row}");
    }
    assert!(report["checks"].as_array().map(Vec::len) >= Some(9), "{}", report["checks"]);
    let claims = report["claims"].as_array().expect("a list");
    let counted = claims
        .iter()
        .find(|claim| claim["claim"].as_str().is_some_and(|told| told.contains("lose no count")));
    let counted = counted.expect("it is a published claim");
    assert_eq!((&counted["holds"], &counted["measured"]), (&Value::Null, &Value::Null), "{counted}");
}

/// Locks move from one store to another while they are wanted: nobody holds with somebody else, tokens grow, and
/// every phase tells what it did to those who waited.
#[test]
fn locks_move_under_load() {
    let out = tempfile::tempdir().expect("there is room for a report");
    let ran = compare_on("redis,etcd", out.path(), &["--scenario", "move"]);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let report = report(out.path());
    let moves = report["moves"].as_array().expect("a list");
    assert_eq!(moves.len(), 2, "{}", report["environment"]["left_out"]);
    for moved in moves {
        assert_eq!((&moved["overlaps"], &moved["tokens_back"]), (&0.into(), &0.into()), "{moved}");
        assert!(moved["longest_gap_ms"].as_f64() > Some(0.0), "{moved}");
    }
    let stretches = moves[0]["stretches"].as_array().expect("a list");
    let phases: Vec<_> = stretches.iter().filter_map(|stretch| stretch["phase"].as_str()).collect();
    assert_eq!(phases.iter().filter(|phase| !phase.contains(' ')).count(), 5, "{phases:?}");
    for stretch in stretches.iter().filter(|stretch| stretch["phase"] == "both") {
        let asked = stretch["requests_per_cycle"].as_array().expect("both servers count");
        assert!(
            asked.iter().all(|asked| asked.as_f64() > Some(1.0)),
            "both stores are asked in it: {stretch}"
        );
    }
    let free = report["free"].as_array().expect("a list");
    let phases: Vec<_> = free.iter().filter_map(|free| free["phase"].as_str()).collect();
    assert_eq!(phases, ["old", "shadow", "both", "drain", "new"], "{}", report["environment"]["left_out"]);
    for figures in free.iter().flat_map(|free| [&free["beside"], &free["ratios"]]) {
        let figures = figures.as_array().expect("of the store that is left and the one moved to");
        assert!(figures.len() == 2 && figures.iter().all(|figure| figure.as_f64() > Some(0.0)), "{free:?}");
    }
}
