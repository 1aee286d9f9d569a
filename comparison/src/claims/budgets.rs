//! Our own budgets, held against the same results: each with its bound, and undecided where the runs lie on both
//! sides of it. How many requests we make is none of them: the stores' own tests assert that.

use super::claim;
use super::finding::{Bound, Finding, shares, times};
use crate::figures::median;
use crate::implementation::QUEUE_FLOOR;
use crate::report::table::{number, time};
use crate::report::{Claim, Drawings, Free, Report, Row};
use crate::scale::CRASH_TTL;

/// What is promised of a row of ours, where it is promised, and what was found.
struct Budget {
    scenario: &'static str,
    /// Of any number, if none is named.
    contenders: Option<u64>,
    claim: fn(&Here<'_>) -> Option<String>,
    finding: fn(&Here<'_>) -> Option<Finding>,
}

const BUDGETS: [Budget; 12] = [
    Budget {
        scenario: "uncontended",
        contenders: Some(1),
        claim: |here| here.unless_memory("a free lock, share of the floor's rate"),
        finding: |here| {
            let found = here.against("floor", 0.95)?;
            let missed = if found.holds == Some(true) { None } else { here.difference() };
            Some(found.and(&missed.unwrap_or_default()))
        },
    },
    Budget {
        scenario: "uncontended",
        contenders: Some(1),
        claim: |here| {
            let alike = here.goals.alike.join(", ");
            (!alike.is_empty()).then(|| format!("a free lock no slower than with {alike}"))
        },
        finding: |here| here.against_the_best(|who| here.goals.alike.contains(&who), 1.0),
    },
    Budget {
        scenario: "uncontended",
        contenders: Some(1),
        claim: |here| here.if_others("a free lock no slower than with anybody"),
        finding: |here| here.against_the_best(|_| true, 1.0),
    },
    Budget {
        scenario: "processes",
        contenders: Some(8),
        claim: |here| {
            let (times, peer) = here.goals.margin?;
            Some(format!("8 contenders, {times} times as many cycles as {peer}"))
        },
        finding: |here| {
            let (times, peer) = here.goals.margin?;
            here.against(peer, times)
        },
    },
    Budget {
        scenario: "processes",
        contenders: Some(8),
        claim: |here| here.if_others("8 contenders, no slower than with anybody, who may serve in no order"),
        finding: |here| here.against_the_best(|_| true, 1.0),
    },
    Budget {
        scenario: "processes",
        contenders: Some(8),
        claim: |here| {
            here.goals.queue.map(|_| "8 contenders, share of the rate of the floor with a queue".to_owned())
        },
        finding: |here| here.against(QUEUE_FLOOR, here.goals.queue?),
    },
    Budget {
        scenario: "processes",
        contenders: Some(8),
        claim: |_| Some("8 contenders, hand-off at p99".to_owned()),
        finding: |here| {
            let found = Finding::of(&here.row.handoff_p99s, Bound::AtMost(5_000.0), time)?;
            let alone = if found.holds == Some(true) { None } else { here.alone() };
            Some(found.and(&alone.unwrap_or_default()))
        },
    },
    Budget {
        scenario: "crowd",
        contenders: Some(100),
        claim: |here| here.if_others("100 contenders, no slower than with anybody"),
        finding: |here| here.against_the_best(|_| true, 1.0),
    },
    Budget {
        scenario: "crowd",
        contenders: Some(100),
        claim: |here| here.unless_memory("100 contenders, share of the rate with 8"),
        finding: |here| {
            let few = here.report.row("crowd", &here.row.store, "leasehold", 8)?;
            // They did not take turns, so every run by the middle one.
            let few = median(few.rates.iter().copied())?;
            let share: Vec<_> = here.row.rates.iter().map(|rate| rate / few).collect();
            Finding::of(&share, Bound::AtLeast(0.5), times)
        },
    },
    Budget {
        scenario: "tasks",
        contenders: Some(64),
        claim: |_| Some("64 tasks of one process, cycles/s".to_owned()),
        finding: |here| Finding::of(&here.row.rates, Bound::AtLeast(100_000.0), number),
    },
    Budget {
        scenario: "crash",
        contenders: Some(2),
        claim: |_| Some(format!("the next holds after a kill, ttl {} s", CRASH_TTL.as_secs())),
        finding: |here| {
            let times = here.drawings.recovery.get(&here.row.who())?;
            let times: Vec<_> = times.iter().map(|time| time.as_secs_f64() * 1e6).collect();
            Finding::of(&times, Bound::AtMost(here.recovery_s() * 1e6), time)
        },
    },
    Budget {
        scenario: "held",
        contenders: Some(10_000),
        claim: |here| {
            let locks = here.row.contenders;
            Some(format!("{locks} held locks, bytes of each, the client library's included"))
        },
        finding: |here| Finding::of(&here.row.bytes_of_runs, Bound::AtMost(1_024.0), number),
    },
];

/// What differs by store.
struct Goals {
    store: &'static str,
    /// Who serves in order, and does not lose a lock on the same servers.
    alike: &'static [&'static str],
    /// How many times faster than which fair peer.
    margin: Option<(f64, &'static str)>,
    /// Which share of the rate of the floor that has a queue.
    queue: Option<f64>,
    /// What comes on top of the ttl, in seconds: the store's own expiry, and one second.
    grace: f64,
}

const GOALS: [Goals; 5] = [
    Goals { store: "memory", alike: &[], margin: None, queue: None, grace: 1.0 },
    Goals { store: "file", alike: &[], margin: None, queue: None, grace: 1.0 },
    Goals {
        store: "redis",
        alike: &["redisson-fair"],
        margin: Some((15.0, "redisson-fair")),
        queue: Some(0.85),
        grace: 1.0,
    },
    Goals {
        store: "etcd",
        alike: &["etcd-lock-rpc", "go-mutex", "jetcd"],
        margin: Some((12.0, "go-mutex")),
        queue: None,
        grace: 1.5,
    },
    Goals {
        store: "zk",
        alike: &["zookeeper-client", "kazoo", "curator"],
        margin: Some((1.6, "curator")),
        queue: None,
        grace: 1.1,
    },
];

pub(super) fn claims(report: &Report, drawings: &Drawings) -> Vec<Claim> {
    let mut stores = report.stores();
    stores.sort_unstable();
    let mut claims = Vec::new();
    for store in stores {
        let Some(goals) = GOALS.iter().find(|goals| goals.store == store.trim_end_matches("-tmpfs")) else {
            continue;
        };
        for budget in &BUDGETS {
            let mut rows = report
                .rows(budget.scenario)
                .filter(|row| row.store == store && row.implementation == "leasehold");
            let Some(row) = rows.find(|row| budget.contenders.is_none_or(|count| row.contenders == count))
            else {
                continue;
            };
            let here = Here { report, drawings, goals, row };
            if let Some(what) = (budget.claim)(&here) {
                claims.push(claim(format!("{store}: {what}"), "our budget", (budget.finding)(&here)));
            }
        }
    }
    claims
}

/// Before a move and after it a free lock is as fast as on the store alone, or nearly.
pub(crate) fn of_a_move(free: &[Free]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for (phase, store) in [("old", 0), ("new", 1)] {
        let Some(free) = free.iter().find(|free| free.phase == phase) else { continue };
        let finding = free
            .ratios_of_runs
            .get(store)
            .and_then(|ratios| Finding::of(ratios, Bound::AtLeast(0.95), times))
            .zip(free.beside.get(store))
            .map(|(found, alone)| {
                let (ours, alone) = (number(free.cycles_per_s), number(*alone));
                found.and(&format!(" ({ours} cycles/s against {alone} on the store alone)"))
            });
        let what = format!("a move in phase `{phase}`: a free lock, share of the plain store's rate");
        claims.push(claim(what, "our budget", finding));
    }
    claims
}

/// The row that a budget is about, and what it is held against.
struct Here<'a> {
    report: &'a Report,
    drawings: &'a Drawings,
    goals: &'static Goals,
    row: &'a Row,
}

impl Here<'_> {
    /// Somebody else's, in the same place.
    fn row_of(&self, who: &str) -> Option<&Row> {
        self.report.row(&self.row.scenario, &self.row.store, who, self.row.contenders)
    }

    /// Our rate by theirs of the same round, which is to be `share` of it at least.
    fn against(&self, who: &str, share: f64) -> Option<Finding> {
        let theirs = self.row_of(who)?;
        let found = Finding::of(&shares(&self.row.rates, &theirs.rates), Bound::AtLeast(share), times)?;
        let (ours, theirs) = (self.row.cycles_per_s?, theirs.cycles_per_s?);
        Some(found.and(&format!(" ({} cycles/s against {} with {who})", number(ours), number(theirs))))
    }

    /// The same of the fastest of those `among` others; nothing, if one of them is not known.
    fn against_the_best(&self, among: impl Fn(&str) -> bool, share: f64) -> Option<Finding> {
        let rates: Option<Vec<_>> = self
            .others()
            .filter(|row| among(&row.implementation))
            .map(|row| Some((row.implementation.as_str(), row.cycles_per_s?)))
            .collect();
        let best = rates?.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        self.against(best?.0, share)
    }

    /// Libraries of others, in the same place.
    fn others(&self) -> impl Iterator<Item = &Row> {
        let here = self
            .report
            .rows(&self.row.scenario)
            .filter(|row| row.store == self.row.store && row.contenders == self.row.contenders);
        here.filter(|row| row.implementation != "leasehold" && !row.implementation.starts_with("floor"))
    }

    fn if_others(&self, claim: &str) -> Option<String> {
        self.others().next().is_some().then(|| claim.to_owned())
    }

    fn unless_memory(&self, claim: &str) -> Option<String> {
        (self.goals.store != "memory").then(|| claim.to_owned())
    }

    fn recovery_s(&self) -> f64 {
        CRASH_TTL.as_secs_f64() + self.goals.grace
    }

    /// What our cycle costs and the floor's does not.
    fn difference(&self) -> Option<String> {
        let profile = |who| self.report.profile(&self.row.store, who);
        let (ours, floor) = (profile("leasehold")?, profile("floor")?);
        let parts = [
            ("client", ours.client_us.zip(floor.client_us)),
            ("server", ours.server_us.zip(floor.server_us)),
            ("the rest", Some((ours.rest_us(), floor.rest_us()))),
        ];
        let told = parts.into_iter().filter_map(|(part, times)| {
            let (ours, floor) = times?;
            Some(format!("{part} {} against {} µs", number(ours), number(floor)))
        });
        Some(format!("; of a cycle: {}", told.collect::<Vec<_>>().join(", ")))
    }

    /// What the same requests take when nobody else asks for anything.
    fn alone(&self) -> Option<String> {
        let floor = self.report.row("uncontended", &self.row.store, "floor", 1)?;
        let (acquire, release) = (floor.acquire_us.p99? / 1e3, floor.release_us.p99? / 1e3);
        Some(format!("; of the floor alone, p99: {acquire:.2} ms to acquire, {release:.2} ms to release"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::PEERS;

    fn row(who: &str, rates: &[f64]) -> Row {
        Row {
            scenario: "processes".into(),
            store: "redis".into(),
            implementation: who.into(),
            contenders: 8,
            cycles_per_s: median(rates.iter().copied()),
            rates: rates.to_vec(),
            ..Row::default()
        }
    }

    fn found(results: Vec<Row>, about: &str) -> Claim {
        let report = Report { results, ..Report::default() };
        let found = claims(&report, &Drawings::default()).into_iter();
        found.into_iter().find(|claim| claim.claim.contains(about)).unwrap()
    }

    /// The best of all is one of those we are held against, whoever it is.
    #[test]
    fn the_best_is_a_comparator() {
        let rows = [row("leasehold", &[10.0; 3]), row("redisson-fair", &[1.0; 3]), row("rslock", &[11.0; 3])];
        let claim = found(rows.to_vec(), "no slower than with anybody");
        assert_eq!(claim.holds, Some(false));
        assert!(claim.measured.unwrap().contains("rslock"));
        assert_eq!(claim.bound.unwrap(), "at least 1.00 ×");
    }

    /// Where rounds lie on both sides, nothing is decided, and the reader sees why.
    #[test]
    fn rounds_on_both_sides_decide_nothing() {
        let rows = [row("leasehold", &[14.0, 15.0, 16.0]), row("redisson-fair", &[1.0; 3])];
        let claim = found(rows.to_vec(), "times as many cycles");
        assert_eq!((claim.holds, claim.undecided, claim.verdict()), (None, true, "undecided"));
        assert_eq!(claim.spread.unwrap(), "14.0 × – 16.0 ×, n = 3");
    }

    /// A peer that did not finish could have been the best.
    #[test]
    fn a_peer_that_did_not_finish_leaves_the_best_unknown() {
        let rows = [row("leasehold", &[10.0; 3]), row("redisson-fair", &[1.0; 3]), row("rslock", &[])];
        let claim = found(rows.to_vec(), "no slower than with anybody");
        assert_eq!((claim.holds, claim.verdict()), (None, "not measured"));
    }

    /// A move is held against the store that its phase is in, run by run.
    #[test]
    fn a_move_is_held_against_the_store_that_it_is_in() {
        let free = |phase: &str, of_runs: [[f64; 3]; 2]| Free {
            phase: phase.into(),
            beside: vec![10.0, 20.0],
            ratios_of_runs: of_runs.map(Vec::from).to_vec(),
            ..Free::default()
        };
        let claims = of_a_move(&[
            free("old", [[0.96, 0.95, 0.97], [0.5; 3]]),
            free("drain", [[0.1; 3]; 2]),
            free("new", [[0.5; 3], [0.94, 0.96, 0.97]]),
        ]);
        assert_eq!(claims.iter().map(Claim::verdict).collect::<Vec<_>>(), ["yes", "undecided"]);
        assert!(claims[1].measured.as_ref().unwrap().contains("against 20"));
        assert_eq!(of_a_move(&[]), []);
    }

    /// A budget against nobody would never be missed.
    #[test]
    fn goals_name_peers_of_their_store() {
        for goals in &GOALS {
            for name in goals.alike.iter().chain(goals.margin.as_ref().map(|(_, name)| name)) {
                let mut peers = PEERS.iter().filter(|peer| peer.store.to_string() == goals.store);
                assert!(peers.any(|peer| peer.name == *name), "{}: {name}", goals.store);
            }
        }
    }
}
