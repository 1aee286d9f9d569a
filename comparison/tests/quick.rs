//! The comparison as a program, on servers of its own.

use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

/// What a run has left: its report, what it printed, and its directory.
struct Ran {
    report: Value,
    printed: String,
    out: TempDir,
}

/// Runs the program, without libraries of others.
fn compare(stores: &str, arguments: &[&str]) -> Ran {
    let out = tempfile::tempdir().expect("there is room for a report");
    let mut command = Command::new(env!("CARGO_BIN_EXE_compare"));
    command.args(["--quick", "--store", stores, "--out"]).arg(out.path()).args(arguments);
    let ran = command.output().expect("the program starts");
    let printed = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{printed}\n{}", String::from_utf8_lossy(&ran.stderr));
    let json = std::fs::read_to_string(out.path().join("report.json")).expect("there is a report");
    Ran { report: serde_json::from_str(&json).expect("the report is JSON"), printed, out }
}

fn compare_alone(stores: &str, scenarios: &str) -> Ran {
    compare(stores, &["--peers", "none", "--scenario", scenarios])
}

impl Ran {
    fn list(&self, name: &str) -> &[Value] {
        self.report[name].as_array().expect("a list")
    }

    /// The one of a list that has those values.
    fn one(&self, list: &str, values: &[(&str, &str)]) -> &Value {
        let is = |row: &&Value| values.iter().all(|(name, value)| row[*name] == *value);
        self.list(list).iter().find(is).unwrap_or_else(|| panic!("{values:?} is missing: {}", self.report))
    }

    fn row(&self, scenario: &str, store: &str, who: &str) -> &Value {
        self.one("results", &[("scenario", scenario), ("store", store), ("implementation", who)])
    }

    fn claim(&self, about: &str) -> &Value {
        let is = |claim: &&Value| claim["claim"].as_str().is_some_and(|claim| claim.contains(about));
        self.list("claims").iter().find(is).unwrap_or_else(|| panic!("{about} is missing: {}", self.report))
    }

    /// Why something was left out.
    fn why_without(&self, what: &str) -> &Value {
        let left_out = self.report["environment"]["left_out"].as_array().expect("a list");
        let missing = left_out.iter().find(|missing| missing["what"] == what);
        &missing.unwrap_or_else(|| panic!("{what}: {left_out:?}"))["why"]
    }
}

fn asked(row: &Value) -> f64 {
    row["requests_per_cycle"].as_f64().expect("servers count")
}

/// Both stores are measured in every scenario that is possible there, nobody breaks exclusion, and what
/// is not known is null.
#[test]
fn stores_without_servers_are_compared() {
    let scenarios = ["uncontended", "tasks", "processes", "crowd", "fairness", "counter"];
    let ran = compare_alone("memory,file", &format!("{},crash,held", scenarios.join(",")));
    assert!(ran.printed.contains("violations of mutual exclusion: 0"), "{}", ran.printed);
    for store in ["memory", "file"] {
        for scenario in scenarios {
            let row = ran.row(scenario, store, "leasehold");
            assert!(row["cycles"].as_u64() > Some(0), "{row}");
            if scenario == "counter" {
                assert!(row["cycles_per_s"].is_null(), "it checks, and times nothing: {row}");
            } else {
                assert!(row["cycles_per_s"].as_f64() > Some(0.0), "{row}");
                let turns = row["rates"].as_array().map(Vec::len);
                assert!(turns >= Some(5), "every figure is of several: {row}");
            }
            if ["processes", "crowd"].contains(&scenario) {
                assert!(row["held_share"].as_f64() > Some(0.1), "the check of exclusion sees little: {row}");
            }
            assert_eq!(row["violations"], 0, "{row}");
            assert!(row["requests_per_cycle"].is_null(), "nobody counts there: {row}");
        }
        let held = ran.row("held", store, "leasehold");
        assert_eq!((&held["contenders"], &held["remark"]), (&2_000.into(), &Value::Null), "{held}");
        assert!(held["bytes_per_lock"].as_f64() > Some(0.0), "what is held takes memory: {held}");
    }
    let environment = &ran.report["environment"];
    assert_eq!(environment["profile"], "debug", "{environment}");
    assert!(environment["timed_s"].as_f64() < environment["took_s"].as_f64(), "{environment}");
    let steps = environment["steps"].as_array().expect("a list");
    assert!(
        steps.iter().any(|step| step["what"] == "file: crowd" && step["load"][0].is_number()),
        "{steps:?}"
    );
    let tasks = ran.list("results").iter().filter(|row| row["scenario"] == "tasks");
    let waiting = tasks.filter(|row| row["contenders"] == 10_000 && row["remark"].is_null());
    assert_eq!(waiting.count(), 2, "ten thousand have their turns: {}", ran.report);
    assert_eq!(ran.row("uncontended", "file", "floor")["floor_ratio"], 1.0);
    assert_eq!(ran.row("uncontended", "file", "floor+calls")["remark"], Value::Null);
    assert!(ran.row("crash", "file", "leasehold")["handoff_us"]["p50"].as_f64() > Some(0.0));
    let page = std::fs::read_to_string(ran.out.path().join("report.html")).expect("there is a page");
    assert!(page.contains("<svg"));
}

/// Locks that several hold are compared on every store that has them, beside the exclusive one: nobody holds who does
/// not fit, readers hold together, a writer does not starve, and no permit is lost or made up.
#[test]
fn locks_that_several_hold_are_compared() {
    let ran = compare_alone("memory,file,redis,zk", "kinds,claims");
    ran.why_without("file in kinds");
    for store in ["memory", "redis", "zk"] {
        for load in ["8 readers", "90 % reads", "1 writer, 7 readers", "3 permits for 8"] {
            if store == "zk" && load == "3 permits for 8" {
                continue;
            }
            let [ours, alone] = ["leasehold", "leasehold, exclusive"]
                .map(|who| ran.one("kinds", &[("store", store), ("load", load), ("implementation", who)]));
            for row in [ours, alone] {
                assert_eq!((&row["violations"], &row["remark"]), (&0.into(), &Value::Null), "{row}");
                assert_eq!(row["rates"].as_array().map(Vec::len), Some(5), "{row}");
                assert!(row["overtakes"].as_f64() < Some(0.2), "first come, first served: {row}");
                assert_eq!(row["requests_per_cycle"].is_null(), store == "memory", "{row}");
            }
            assert!(ours["holders"].as_f64() > alone["holders"].as_f64(), "several hold at a time: {ours}");
            assert!(alone["holders"].as_f64() <= Some(1.0), "one holds at a time: {alone}");
            let reads = load == "8 readers" || load == "3 permits for 8";
            assert_eq!(ours["starved"].is_null(), reads, "there is a writer to wait: {ours}");
        }
        let claim = ran.claim(&format!("Readers that come and go starve a writer: leasehold on {store}"));
        assert_ne!(claim["holds"], true, "{claim}");
    }
    for (store, free) in [("memory", Value::Null), ("redis", 3.into())] {
        let leak = ran.one("leaks", &[("store", store)]);
        assert_eq!((&leak["after_a_kill"], &leak["after_two_releases"]), (&free, &3.into()), "{leak}");
    }
    let of_zk = |list| ran.list(list).iter().filter(|row| row["store"] == "zk").count();
    assert_eq!((of_zk("kinds"), of_zk("leaks")), (6, 0), "nobody there has permits: {}", ran.report);
}

/// `--json` prints what `report.json` holds, a store that cannot be had is left out with the reason, and `--redraw` makes the
/// same page of the report alone.
#[test]
fn the_report_is_printed_and_says_what_is_missing() {
    let ran = compare("memory,file", &["--peers", "none", "--scenario", "crash", "--json"]);
    let printed: Value = serde_json::from_str(&ran.printed).expect("JSON and nothing else is printed");
    assert_eq!(printed, ran.report);
    ran.why_without("memory in crash");
    let path = ran.out.path().join("report.html");
    let page = std::fs::read_to_string(&path).expect("there is a page");
    std::fs::remove_file(&path).expect("it is ours");
    let mut command = Command::new(env!("CARGO_BIN_EXE_compare"));
    let redrawn =
        command.args(["--redraw", "--out"]).arg(ran.out.path()).status().expect("the program starts");
    assert!(redrawn.success() && std::fs::read_to_string(&path).expect("there is a page again") == page);
}

/// Contended rates stand beside a floor that waits in a queue as they do: it excludes, asks no more than it must,
/// and what servers send to those who wait is counted on the servers that tell. Many names have floors on both runtimes.
#[test]
fn contended_rates_have_a_floor() {
    let ran = compare_alone("redis,etcd,zk", "processes,names");
    for (store, requests) in [("redis", 2.0), ("etcd", 3.0), ("zk", 4.0)] {
        let runtimes = [
            ("names", 2),
            ("names on the default runtime", 2),
            ("names on the default runtime, in block_on", 1),
        ];
        for (scenario, counts) in runtimes {
            let rows =
                ran.list("results").iter().filter(|row| row["scenario"] == scenario && row["store"] == store);
            let rows: Vec<_> = rows.collect();
            assert_eq!(rows.len(), counts * if store == "redis" { 3 } else { 2 }, "{rows:?}");
            for row in rows {
                assert_eq!((&row["violations"], &row["remark"]), (&0.into(), &Value::Null), "{row}");
                assert!(row["floor_ratio"].as_f64() > Some(0.0), "{row}");
                assert!(row["client_us_of_turns"][0].as_f64() > Some(0.0), "{row}");
                assert!(row["switches_per_cycle"].as_f64() > Some(0.0), "{row}");
            }
        }
        ran.row("processes", "redis", "floor+scripts");
        let [floor, ours] = ["floor+queue", "leasehold"].map(|who| ran.row("processes", store, who));
        assert_eq!(floor["violations"], 0, "{floor}");
        assert!((asked(floor) - requests).abs() < 0.1, "{floor}");
        assert!(ours["floor_ratio"].as_f64() > Some(0.0), "{ours}");
        assert_eq!(ours["messages_per_cycle"].is_null(), store == "redis", "{ours}");
        assert_eq!(ours["bytes_per_cycle"].is_null(), store == "zk", "{ours}");
        for row in [floor, ours] {
            for side in ["server_us_per_cycle", "client_us_per_cycle"] {
                assert!(row[side].as_f64() > Some(0.0), "{row}");
            }
        }
        let settings = &ran.report["environment"]["servers"][store]["settings"];
        assert!(settings.as_str().is_some_and(|settings| !settings.is_empty()), "{settings}");
    }
}

/// On Postgres a release waits for the disk or not, each with a floor of its own; who waits sends a statement more. Syncs are
/// counted apart.
#[test]
fn postgres_has_a_floor_per_release() {
    let ran = compare_alone("postgres", "uncontended,processes,claims");
    for who in ["leasehold", "leasehold+durable", "floor", "floor+durable"] {
        let row = ran.row("uncontended", "postgres", who);
        assert!((asked(row) - 2.0).abs() < 0.1, "{row}");
    }
    for who in ["leasehold", "floor+scripts"] {
        let row = ran.row("processes", "postgres", who);
        assert_eq!((&row["violations"], &row["remark"]), (&0.into(), &Value::Null), "{row}");
        assert!((asked(row) - 3.0).abs() < 0.2, "{row}");
    }
    for about in ["a free lock, syncs of the disk per cycle", "8 contenders, syncs of the disk per cycle"] {
        assert!(!ran.claim(&format!("postgres: {about}"))["measured"].is_null(), "{about}");
    }
}

/// Three servers that know nothing of each other are one store: their counts are added up, its floor is three requests each
/// way, and what is said of majorities is tried. Two of three are enough and one is not; a server that forgets gives the
/// lock away only where it may, and then a token tells.
#[test]
fn a_quorum_is_compared_on_three_servers() {
    let ran = compare_alone("redis-quorum", "uncontended,processes,crowd,claims");
    let floor = ran.row("uncontended", "redis-quorum", "floor");
    assert!((asked(floor) - 6.0).abs() < 0.1, "{floor}");
    let free = ran.row("uncontended", "redis-quorum", "leasehold");
    // Where a server's clock has passed the proposal, the others are told.
    assert!((5.9..6.75).contains(&asked(free)), "{free}");
    assert!(free["floor_ratio"].as_f64() > Some(0.0), "{free}");
    for scenario in ["processes", "crowd"] {
        let contended = ran.row(scenario, "redis-quorum", "leasehold");
        assert!(contended["cycles"].as_u64() > Some(0), "{contended}");
    }
    for row in ran.list("results") {
        assert_eq!(row["violations"], 0, "{row}");
    }
    for (about, holds) in [
        ("survive the loss of one: leasehold", true),
        ("without its data loses a lock: leasehold", false),
        ("the fence refuses the old holder: leasehold", true),
    ] {
        assert_eq!(ran.claim(about)["holds"], holds, "{}", ran.claim(about));
    }
    assert_eq!(ran.claim("32 contenders, the longest hand-off")["bound"], "at most 1.00 s");
}

/// A free lock a millisecond away takes the round trips that it makes, by whatever way clients find their servers; the
/// servers count the same requests as near by, and what has no network is left out.
#[test]
fn a_free_lock_is_compared_from_afar() {
    let ran = compare_alone("file,redis,redis-quorum,etcd,zk", "uncontended,distance,claims");
    let round_trip = &ran.report["environment"]["distance"]["round_trip_us"]["p50"];
    assert!(round_trip.as_f64() >= Some(1_000.0), "{round_trip}");
    let tables = std::fs::read_to_string(ran.out.path().join("report.txt")).expect("there are tables");
    assert!(tables.contains("distance: 1.00 ms asked for, "), "{tables}");
    let far: Vec<_> = ran.list("results").iter().filter(|row| row["scenario"] == "distance").collect();
    for row in &far {
        assert_ne!(row["store"], "file", "{row}");
        assert_eq!((&row["violations"], &row["remark"]), (&0.into(), &Value::Null), "{row}");
        for way in ["acquire_us", "release_us"] {
            assert!(row[way]["p50"].as_f64() >= Some(1_000.0), "a request and its answer: {row}");
        }
        assert!(row["cycles_per_s"].as_f64() <= Some(500.0), "two of each, one after the other: {row}");
    }
    for (store, requests) in [("redis", 2.0), ("redis-quorum", 6.0), ("etcd", 2.0), ("zk", 2.0)] {
        let [floor, ours] = ["floor", "leasehold"].map(|who| ran.row("distance", store, who));
        assert!((asked(floor) - requests).abs() < 0.1, "{floor}");
        assert!(ours["floor_ratio"].as_f64() > Some(0.0), "{ours}");
        let claim = ran.claim(&format!("{store}: a free lock a millisecond away, share of the floor's rate"));
        assert_eq!(claim["bound"], "at least 0.95 ×", "{claim}");
        assert!(!claim["measured"].is_null(), "{claim}");
    }
    ran.why_without("file in distance");
}

/// A quick look does without some of it, and says so; what is claimed of the rest is not measured. What is no lock is found
/// out all the same, or nobody's exclusion was checked.
#[test]
fn a_quick_look_says_what_it_does_without() {
    let ran = compare("memory,file", &[]);
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
        assert_eq!(ran.why_without(what), why);
    }
    for row in ran.list("results") {
        let scenario = row["scenario"].as_str().expect("a name");
        let name = scenario.split(' ').next().unwrap_or_default();
        assert!(["uncontended", "names", "processes", "crowd", "crash", "held"].contains(&name), "{row}");
    }
    let counted = ran.claim("lose no count");
    assert_eq!((&counted["holds"], &counted["measured"]), (&Value::Null, &Value::Null), "{counted}");
    for what in [
        "no lock at all",
        "a lock that two hold at once",
        "a lock that readers hold beside a writer",
        "a semaphore with a permit too many",
    ] {
        for contenders in ["8 processes", "8 sessions of one process"] {
            let check = ran.one("checks", &[("what", what), ("contenders", contenders)]);
            let (found, cycles) = (check["found"].as_u64(), check["cycles"].as_u64());
            assert!(found.expect("a number") * 8 >= cycles.expect("a number"), "{check}");
        }
    }
    let leaks = ran.one("checks", &[("what", "a semaphore that loses a permit, and makes one up")]);
    assert_eq!(leaks["found"], 2, "{leaks}");
}

/// Several servers of a cluster are one store: a free lock costs as many requests, whichever of them is asked.
#[test]
fn clusters_are_compared() {
    let ran = compare("etcd,zk", &["--members", "3", "--peers", "none", "--scenario", "uncontended"]);
    for store in ["etcd", "zk"] {
        let floor = ran.row("uncontended", store, "floor");
        assert!((asked(floor) - 2.0).abs() < 0.1, "{floor}");
        assert!(ran.row("uncontended", store, "leasehold")["floor_ratio"].as_f64() > Some(0.0));
    }
}

/// Locks move from one store to another while they are wanted: nobody holds with somebody else, tokens grow, and
/// every phase tells what it did to those who waited.
#[test]
fn locks_move_under_load() {
    let ran = compare_alone("redis,etcd", "move");
    let moves = ran.list("moves");
    assert_eq!(moves.len(), 2, "{}", ran.report["environment"]["left_out"]);
    for moved in moves {
        assert_eq!((&moved["overlaps"], &moved["tokens_back"]), (&0.into(), &0.into()), "{moved}");
        assert!(moved["longest_gap_ms"].as_f64() > Some(0.0), "{moved}");
    }
    let stretches = moves[0]["stretches"].as_array().expect("a list");
    let phases: Vec<_> = stretches.iter().filter_map(|stretch| stretch["phase"].as_str()).collect();
    assert_eq!(phases.iter().filter(|phase| !phase.contains(' ')).count(), 5, "{phases:?}");
    for stretch in stretches.iter().filter(|stretch| stretch["phase"] == "both") {
        let asked = stretch["requests_per_cycle"].as_array().expect("both servers count");
        let both = asked.iter().all(|asked| asked.as_f64() > Some(1.0));
        assert!(both, "both stores are asked in it: {stretch}");
    }
    let phases: Vec<_> = ran.list("free").iter().filter_map(|free| free["phase"].as_str()).collect();
    let left_out = &ran.report["environment"]["left_out"];
    assert_eq!(phases, ["old", "shadow", "both", "drain", "new"], "{left_out}");
    for figures in ran.list("free").iter().flat_map(|free| [&free["beside"], &free["ratios"]]) {
        let figures = figures.as_array().expect("of the store that is left and the one moved to");
        assert!(figures.len() == 2 && figures.iter().all(|of| of.as_f64() > Some(0.0)), "{figures:?}");
    }
}
