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

const BUDGETS: [Budget; 15] = [
    Budget {
        scenario: "uncontended",
        contenders: Some(1),
        claim: |here| here.unless_memory("a free lock, share of the floor's rate"),
        finding: |here| {
            let found = here.against("floor", 0.95)?;
            let missed = here.difference().unwrap_or_default() + here.goals.beyond_the_floor;
            Some(found.unless_it_holds(&missed))
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
        finding: |here| Some(here.against_the_best(|_| true, 1.0)?.unless_it_holds(IN_NO_ORDER)),
    },
    Budget {
        scenario: "processes",
        contenders: Some(8),
        claim: |here| {
            here.goals.queue.map(|_| "8 contenders, share of the rate of the floor with a queue".to_owned())
        },
        finding: |here| {
            let (share, beyond) = here.goals.queue?;
            Some(here.against(QUEUE_FLOOR, share)?.unless_it_holds(beyond))
        },
    },
    Budget {
        scenario: "processes",
        contenders: Some(8),
        claim: |_| Some("8 contenders, hand-off at p99".to_owned()),
        finding: |here| {
            let found = Finding::of(&here.row.handoff_p99s, Bound::AtMost(5_000.0), time)?;
            Some(found.unless_it_holds(&here.alone().unwrap_or_default()))
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
            Finding::of(&here.shares_of(few)?, Bound::AtLeast(0.5), times)
        },
    },
    Budget {
        scenario: "processes",
        contenders: Some(8),
        claim: |here| here.if_votes("8 contenders, the longest hand-off"),
        finding: |here| here.longest(),
    },
    Budget {
        scenario: "crowd",
        contenders: Some(32),
        claim: |here| here.if_votes("32 contenders, the longest hand-off"),
        finding: |here| here.longest(),
    },
    Budget {
        scenario: "crowd",
        contenders: Some(32),
        claim: |here| {
            here.if_votes("32 contenders, no slower than with anybody, who may serve in no order")
                .filter(|_| here.others().next().is_some())
        },
        finding: |here| here.against_the_best(|_| true, 1.0),
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
    /// Which share of the rate of the floor that has a queue, and what a cycle does beyond it.
    queue: Option<(f64, &'static str)>,
    /// What a cycle of a free lock does beyond the floor's: why a share of it may be out of reach.
    beyond_the_floor: &'static str,
    /// What comes on top of the ttl, in seconds: the store's own expiry, and one second.
    grace: f64,
}

/// Whoever has released is awake, and the lock is where it is: nobody has to be told, nor woken.
const IN_NO_ORDER: &str = "; who serves in no order takes the lock again itself: its overtakes say how often";

const GOALS: [Goals; 6] = [
    Goals { store: "memory", alike: &[], margin: None, queue: None, beyond_the_floor: "", grace: 1.0 },
    Goals {
        store: "file",
        alike: &[],
        margin: None,
        queue: None,
        beyond_the_floor: "; beyond the floor, which takes the kernel's lock: who holds and since when is written, with the next \
                           token, so that a holder that dies is told from one that lives",
        grace: 1.0,
    },
    Goals {
        store: "redis",
        alike: &["redisson-fair"],
        margin: Some((15.0, "redisson-fair")),
        queue: Some((
            0.85,
            "; beyond the floor, which is the same scripts sent raw: the client's deadline, its renewal, and the reader \
             of its inbox",
        )),
        beyond_the_floor: "; beyond the floor, which sets a key, counts, and deletes: the scripts look whether anybody waits, and \
                           keep who holds",
        grace: 1.0,
    },
    Goals {
        store: QUORUM,
        alike: &[],
        margin: None,
        queue: None,
        beyond_the_floor: "; beyond the floor, which sets a key at a majority and deletes it: each server counts, keeps the largest \
                           number that it gave, looks whether anybody waits, and is asked to forget by all",
        grace: 1.0,
    },
    Goals {
        store: "etcd",
        alike: &["etcd-lock-rpc", "go-mutex", "jetcd"],
        margin: Some((12.0, "go-mutex")),
        queue: None,
        beyond_the_floor: "; beyond the floor, which puts a key and deletes it: the answer shows who else is there, and the session \
                           is compared, so that a copy that comes late does nothing",
        grace: 1.5,
    },
    Goals {
        store: "zk",
        alike: &["zookeeper-client", "kazoo", "curator"],
        margin: Some((1.6, "curator")),
        queue: None,
        beyond_the_floor: "; beyond the floor, which creates a node and deletes it: the node is in a queue, says who holds, and may be \
                           written by its session alone",
        grace: 1.1,
    },
];

/// Where no server knows who is first.
const QUORUM: &str = "redis-quorum";

/// In microseconds.
const VOTED: f64 = 1e6;

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

    fn if_votes(&self, claim: &str) -> Option<String> {
        (self.goals.store == QUORUM).then(|| claim.to_owned())
    }

    /// Of each run, of the middle one of `others`: they did not take turns.
    fn shares_of(&self, others: &Row) -> Option<Vec<f64>> {
        let middle = median(others.rates.iter().copied())?;
        Some(self.row.rates.iter().map(|rate| rate / middle).collect())
    }

    /// How long it took at most until somebody had the votes. Where they split that has no bound of its own, so beside
    /// it stands what no hand-off can be cheaper than.
    fn longest(&self) -> Option<Finding> {
        let most = self.row.handoff_us.max?;
        let floor = self.report.row("uncontended", &self.row.store, "floor", 1);
        let share = floor.and_then(|floor| median(self.shares_of(floor)?.into_iter()));
        let share = share.map(|share| format!("; {} the rate of the floor's free lock", times(share)));
        let wait = self.row.acquire_us.max.map(|most| format!("; the longest wait {}", time(most)));
        let found = Finding::seen(time(most), most <= VOTED).within(format!("at most {}", time(VOTED)));
        Some(found.and(&[wait, share].into_iter().flatten().collect::<String>()))
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
            ..Row::default()
        }
    }

    fn found(results: Vec<Row>, about: &str) -> Claim {
        let report = Report { results, ..Report::default() };
        let found = claims(&report, &Drawings::default()).into_iter();
        found.into_iter().find(|claim| claim.claim.contains(about)).unwrap()
    }

    /// Only who misses a bound, or may miss it, says why.
    #[test]
    fn what_is_missed_says_why() {
        for (rates, says_why) in [([0.9; 3], true), ([0.9, 1.1, 1.2], true), ([1.1; 3], false)] {
            let rows = [row("leasehold", &rates), row("rslock", &[1.0; 3])];
            let claim = found(rows.to_vec(), "no slower than with anybody");
            assert_eq!(claim.measured.unwrap().contains(IN_NO_ORDER), says_why, "{rates:?}");
        }
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

    /// Where votes split, how long that took at most is held against a second, beside what is the least.
    #[test]
    fn split_votes_have_a_bound() {
        let at_32 = |most, rate| Row {
            scenario: "crowd".into(),
            store: QUORUM.into(),
            contenders: 32,
            handoff_us: Spread { max: Some(most), ..Spread::default() },
            acquire_us: Spread { max: Some(3e6), ..Spread::default() },
            ..row("leasehold", &[rate; 3])
        };
        let floor = Row {
            scenario: "uncontended".into(),
            store: QUORUM.into(),
            contenders: 1,
            ..row("floor", &[1_000.0; 3])
        };
        let judged =
            |most| found(vec![at_32(most, 250.0), floor.clone()], "32 contenders, the longest hand-off");
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
                let mut peers = PEERS.iter().filter(|peer| peer.name == *name);
                let there =
                    peers.any(|peer| peer.stores.iter().any(|store| store.to_string() == goals.store));
                assert!(there, "{}: {name}", goals.store);
            }
        }
    }
}
