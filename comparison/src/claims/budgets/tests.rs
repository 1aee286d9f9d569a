use std::time::Duration;

use super::*;
use crate::environment::{Environment, Latency};
use crate::figures::Spread;
use crate::peers::PEERS;

fn row(who: &str, rates: &[f64]) -> Row {
    Row {
        scenario: "processes".into(),
        store: "redis".into(),
        implementation: who.into(),
        contenders: 8,
        cycles_per_s: median(rates.iter().copied()),
        rates: rates.to_vec(),
        turns: (0..rates.len() as u32).collect(),
        ..Row::default()
    }
}

fn found(results: Vec<Row>, about: &str) -> Claim {
    let report = Report { results, ..Report::default() };
    let found = claims(&report).into_iter();
    found.into_iter().find(|claim| claim.claim.contains(about)).unwrap()
}

/// The best of all is one of those we are held against, whoever it is.
#[test]
fn the_best_is_a_comparator() {
    let best = Row { overtakes: Some(0.9), ..row("rslock", &[11.0; 5]) };
    let rows = [row("leasehold", &[10.0; 5]), row("redisson-fair", &[1.0; 5]), best];
    let claim = found(rows.to_vec(), "as fast as the fastest other library");
    assert_eq!(claim.holds, Some(false));
    let why = claim.why.unwrap();
    assert!(why.contains("Served out of order: 0 : 90 %"), "{why}");
    assert!(claim.measured.unwrap().contains("rslock"));
    assert_eq!(claim.bound.unwrap(), "at least 1.00 ×");
}

/// What stands beside a missed budget is measured: requests, processor times, and whether the goal lies beyond a floor.
#[test]
fn missed_goal_has_its_evidence() {
    let spent = |who: &str, rate, client, server| Row {
        requests_per_cycle: Some(2.0),
        client_us_per_cycle: Some(client),
        server_us_per_cycle: Some(server),
        ..row(who, &[rate; 5])
    };
    let rows = || {
        let rows = [
            ("leasehold", 7.0, 60.0, 40.0),
            (QUEUE_FLOOR, 10.0, 45.0, 40.0),
            (SCRIPTS, 10.0, 45.0, 40.0),
            ("redisson-fair", 1.0, 1.0, 1.0),
        ];
        rows.map(|(who, rate, client, server)| spent(who, rate, client, server)).to_vec()
    };
    let why = |about| found(rows(), about).why.unwrap();
    let beside = why("share of the rate of our own scripts sent raw");
    for evidence in [
        "Beside floor+scripts: requests 2.00 : 2.00, server 40.0 : 40.0 µs, client 60.0 : 45.0 µs. The reader",
        "keeps a lease",
    ] {
        assert!(beside.contains(evidence), "{beside}");
    }
    let reach = why("times as many cycles");
    assert!(reach.contains("15.0 cycles/s; the floor with a queue makes 10.0"), "{reach}");
}

/// A free lock, near by and a millisecond away.
fn free(share: f64, share_away: f64) -> Vec<Row> {
    let row = |scenario: &str, who: &str, rate| Row {
        scenario: scenario.into(),
        contenders: 1,
        requests_per_cycle: Some(2.0),
        ..row(who, &[rate; 5])
    };
    vec![
        row("uncontended", "leasehold", 9_000.0 * share),
        row("uncontended", "floor", 9_900.0),
        row("uncontended", SCRIPTS, 9_000.0),
        row("distance", "leasehold", 450.0 * share_away),
        row("distance", "floor", 450.0),
        row("distance", "rslock", 440.0),
    ]
}

/// A millisecond away a free lock is held against the floor there, and against the fastest there; who misses that says why.
#[test]
fn a_free_lock_far_away_has_bounds_of_its_own() {
    let [floor, best] = ["share of the floor's rate", "as fast as the fastest other library"]
        .map(|about| format!("redis: a free lock a millisecond away, {about}"));
    for (share, holds) in [(0.99, [true, true]), (0.96, [true, false]), (0.9, [false, false])] {
        let claims = [&floor, &best].map(|about| found(free(1.0, share), about));
        assert_eq!(claims.each_ref().map(|claim| claim.holds), holds.map(Some), "{share}");
        let bounds = claims.each_ref().map(|claim| claim.bound.as_deref().unwrap());
        assert_eq!(bounds, ["at least 0.95 ×", "at least 1.00 ×"]);
        let says_why = claims.each_ref().map(|claim| claim.why.is_some());
        assert_eq!(says_why, holds.map(|holds| !holds), "{share}");
    }
    let why = found(free(1.0, 0.9), &floor).why.unwrap();
    assert!(why.starts_with("Beside floor: requests 2.00 : 2.00. Beside the scripts"), "{why}");
    let near = free(1.0, 1.0).into_iter().filter(|row| row.scenario == "uncontended").collect();
    let claims = claims(&Report { results: near, ..Report::default() });
    assert!(claims.iter().all(|claim| !claim.claim.contains("away")), "nobody asked");
}

/// A missed share of the floor's rate says what it is where there is a network, if that was measured.
#[test]
fn a_missed_share_says_what_becomes_of_it_at_a_distance() {
    let why = |results, round_trip: Option<f64>| {
        let round_trip_us = Spread { p50: round_trip, ..Spread::default() };
        let distance = Some(Latency::of(Duration::from_millis(1), round_trip_us));
        let environment = Environment { distance, ..Environment::default() };
        let report = Report { environment, results, ..Report::default() };
        let found = claims(&report).into_iter();
        let mut found =
            found.filter(|claim| claim.claim.ends_with("a free lock, share of the rate of floor+scripts"));
        found.next().unwrap().why
    };
    let told = " : 2.00. With a round trip of 1.10 ms: 0.99 × the floor's rate. Beside the scripts";
    let measured = why(free(0.75, 0.99), Some(1_100.0)).unwrap();
    assert!(measured.contains(told), "{measured}");
    assert_eq!(why(free(0.96, 0.99), Some(1_100.0)), None, "it is kept");
    let near = free(0.75, 0.99).into_iter().filter(|row| row.scenario == "uncontended").collect();
    for why in [why(near, Some(1_100.0)), why(free(0.75, 0.99), None)] {
        assert!(!why.unwrap().contains("round trip"));
    }
}

/// A peer that did not finish could have been the best.
#[test]
fn a_peer_that_did_not_finish_leaves_the_best_unknown() {
    let rows = [row("leasehold", &[10.0; 5]), row("redisson-fair", &[1.0; 5]), row("rslock", &[])];
    let claim = found(rows.to_vec(), "as fast as the fastest other library");
    assert_eq!((claim.holds, claim.verdict()), (None, "not measured"));
}

/// Where votes split, how long that took at most is held against a second, beside what is the least.
#[test]
fn split_votes_have_a_bound() {
    let at_32 = |most, rate| Row {
        scenario: "crowd".into(),
        store: QUORUM.into(),
        contenders: 32,
        handoff_us: Spread { max: Some(most), ..Spread::default() },
        acquire_us: Spread { max: Some(3e6), ..Spread::default() },
        ..row("leasehold", &[rate; 5])
    };
    let floor = Row {
        scenario: "uncontended".into(),
        store: QUORUM.into(),
        contenders: 1,
        ..row("floor", &[1_000.0; 5])
    };
    let judged = |most| found(vec![at_32(most, 250.0), floor.clone()], "32 contenders, the longest hand-off");
    assert_eq!((judged(2e6).holds, judged(9e5).holds), (Some(false), Some(true)));
    let claim = judged(2e6);
    assert_eq!(
        claim.measured.unwrap(),
        "2.00 s; the longest wait 3.00 s; 0.25 × the rate of the floor's free lock"
    );
    assert_eq!(claim.bound.unwrap(), "at most 1.00 s");
}

/// A move is held against the store that its phase is in, run by run.
#[test]
fn a_move_is_held_against_the_store_that_it_is_in() {
    let free = |phase: &str, of_runs: [[f64; 5]; 2]| Free {
        phase: phase.into(),
        beside: vec![10.0, 20.0],
        ratios_of_runs: of_runs.map(Vec::from).to_vec(),
        ..Free::default()
    };
    let claims = of_a_move(&[
        free("old", [[0.96, 0.95, 0.97, 0.95, 0.96], [0.5; 5]]),
        free("drain", [[0.1; 5]; 2]),
        free("new", [[0.5; 5], [0.94, 0.94, 0.96, 0.97, 0.97]]),
    ]);
    assert_eq!(claims.iter().map(Claim::verdict).collect::<Vec<_>>(), ["yes", "undecided"]);
    assert!(claims[1].measured.as_ref().unwrap().contains("against 20"));
    assert_eq!(of_a_move(&[]), []);
}

/// A budget against nobody would never be missed.
#[test]
fn goals_name_peers_of_their_store() {
    for (goals, (_, name)) in GOALS.iter().filter_map(|goals| Some((goals, goals.margin?))) {
        let mut peers = PEERS.iter().filter(|peer| peer.name == name);
        let there = peers.any(|peer| peer.stores.iter().any(|store| store.to_string() == goals.store));
        assert!(there, "{}: {name}", goals.store);
    }
}

/// Who is undecided goes on, with whom it is held against; who is decided, or has no budget, does not.
#[test]
fn undecided_rows_go_on_with_their_rivals() {
    let undecided = |ours: &[f64]| {
        let results = vec![row("leasehold", ours), row("rslock", &[10.0; 5]), row("redsync", &[1.0; 5])];
        undecided(&Report { results, ..Report::default() }, 0)
    };
    assert_eq!(
        undecided(&[9.0, 11.0, 9.0, 11.0, 10.0]),
        BTreeSet::from(["leasehold", "rslock"].map(str::to_owned))
    );
    assert_eq!(undecided(&[11.0; 5]), BTreeSet::new());
    let known = vec![row("leasehold", &[9.0, 11.0, 9.0, 11.0, 10.0]), row("rslock", &[10.0; 5])];
    assert_eq!(super::undecided(&Report { results: known, ..Report::default() }, 2), BTreeSet::new());
}

/// Many names are held against what the store allows, on either runtime, and the default one against one thread.
#[test]
fn many_names_have_budgets_on_both_runtimes() {
    let of = |scenario: &str, who: &str, rate| Row {
        scenario: scenario.into(),
        contenders: 64,
        client_us_of_turns: vec![20.0; 5],
        ..row(who, &[rate; 5])
    };
    let results = vec![
        of(ONE_THREAD, "leasehold", 9.0),
        of(ONE_THREAD, SCRIPTS, 10.0),
        of(ON_THREADS, "leasehold", 9.6),
        of(ON_THREADS, SCRIPTS, 10.0),
    ];
    for (about, holds) in [
        ("64 names, share of the rate of floor+scripts", false),
        ("64 names on the default runtime, share of the rate of floor+scripts", true),
        ("64 names on the default runtime, share of the rate on one thread", true),
        ("64 names, µs of the client per cycle", false),
    ] {
        assert_eq!(found(results.clone(), about).holds, Some(holds), "{about}");
    }
    let of_one = |scenario, who, rate| Row { contenders: 1, ..of(scenario, who, rate) };
    let results = vec![
        of_one(ONE_THREAD, "leasehold", 12.0),
        of_one(ON_THREADS, "leasehold", 10.0),
        of_one(ONE_THREAD, "floor", 11.0),
        of_one(ON_THREADS, "floor", 10.0),
    ];
    let slower = found(results, "1 name on the default runtime");
    assert_eq!(slower.holds, Some(false));
    assert_eq!(slower.why.unwrap(), "There floor takes 1.10 × its time on one thread.");
}
