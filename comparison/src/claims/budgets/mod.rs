//! Our own budgets, held against the same results: each with its bound, and undecided where that lies inside of the
//! interval of the turns. How many requests we make is none of them: the stores' own tests assert that.

use std::collections::BTreeSet;

use super::claim;
use super::finding::{Bound, Finding, times};
use super::goals::{GOALS, Goals, OF_POSTGRES, POSTGRES, QUORUM};
use super::spent::Spent;
use crate::figures::median;
use crate::implementation::{DURABLE, DURABLE_FLOOR, QUEUE_FLOOR, SCRIPTS};
use crate::options::{IN_BLOCK_ON, ON_THREADS, ONE_THREAD};
use crate::report::table::{number, time};
use crate::report::{BUDGET, Claim, Free, Report, Row};
use crate::scale::CRASH_TTL;

/// What is promised of a row of ours, where it is promised, and what was found.
struct Budget {
    scenario: &'static str,
    /// Of any number, if none is named.
    contenders: Option<u64>,
    claim: fn(&Here<'_>) -> Option<String>,
    finding: fn(&Here<'_>) -> Option<Finding>,
}

const BUDGETS: [Budget; 25] = [
    Budget {
        scenario: "uncontended",
        contenders: Some(1),
        claim: |here| {
            let (_, who) = here.goals.of_the_floor;
            here.unless_memory(&format!("a free lock, share of the rate of {who}"))
        },
        finding: |here| here.against_the_floor(here.goals.of_the_floor, here.at_a_distance()),
    },
    Budget {
        scenario: "uncontended",
        contenders: Some(1),
        claim: |here| here.if_others("a free lock as fast as the fastest other library"),
        finding: |here| here.against_the_best(),
    },
    Budget {
        scenario: "uncontended",
        contenders: Some(1),
        claim: |here| {
            here.on(
                POSTGRES,
                "a free lock whose release waits for the disk, share of the rate of such a floor",
            )
        },
        finding: |here| {
            let (ours, floor) = (here.row_of(DURABLE)?, here.row_of(DURABLE_FLOOR)?);
            let found = Finding::of(&ours.shares_of(floor), Bound::AtLeast(OF_POSTGRES), times)?;
            Some(found.and(&here.rates(ours, floor, DURABLE_FLOOR)?).held_against(DURABLE_FLOOR))
        },
    },
    Budget {
        scenario: "distance",
        contenders: Some(1),
        claim: |_| Some("a free lock a millisecond away, share of the floor's rate".to_owned()),
        finding: |here| here.against_the_floor((AFAR, "floor"), None),
    },
    Budget {
        scenario: "distance",
        contenders: Some(1),
        claim: |here| here.if_others("a free lock a millisecond away, as fast as the fastest other library"),
        finding: |here| here.against_the_best(),
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
            Some(here.against(peer, times)?.because(here.reach(peer, times)))
        },
    },
    Budget {
        scenario: "processes",
        contenders: Some(8),
        claim: |here| here.if_others("8 contenders, as fast as the fastest other library, in any order"),
        finding: |here| here.against_the_best(),
    },
    Budget {
        scenario: "processes",
        contenders: Some(8),
        claim: |here| {
            here.goals.queue.map(|_| "8 contenders, share of the rate of our own scripts sent raw".to_owned())
        },
        finding: |here| {
            let (share, why) = here.goals.queue?;
            let found = here.against(SCRIPTS, share)?;
            Some(found.because(here.beside(SCRIPTS).chain([why.to_owned()])))
        },
    },
    Budget {
        scenario: "processes",
        contenders: Some(8),
        claim: |_| Some("8 contenders, hand-off at p99".to_owned()),
        finding: |here| {
            let found = Finding::of(&here.row.handoff_p99s, Bound::AtMost(5_000.0), time)?;
            Some(found.because(here.alone()))
        },
    },
    Budget {
        scenario: "crowd",
        contenders: Some(100),
        claim: |here| here.if_others("100 contenders, as fast as the fastest other library"),
        finding: |here| here.against_the_best(),
    },
    Budget {
        scenario: "crowd",
        contenders: Some(100),
        claim: |here| here.unless_memory("100 contenders, share of the rate with 8"),
        finding: |here| {
            let few = here.report.row("crowd", &here.row.store, "leasehold", 8)?;
            let found = Finding::of(&here.by_the_middle_of(few)?, Bound::AtLeast(0.5), times)?;
            Some(found.because(here.with_more(few)))
        },
    },
    Budget {
        scenario: "processes",
        contenders: Some(8),
        claim: |here| here.on(QUORUM, "8 contenders, the longest hand-off"),
        finding: |here| here.longest(),
    },
    Budget {
        scenario: "crowd",
        contenders: Some(32),
        claim: |here| here.on(QUORUM, "32 contenders, the longest hand-off"),
        finding: |here| here.longest(),
    },
    Budget {
        scenario: "crowd",
        contenders: Some(32),
        claim: |here| {
            here.on(QUORUM, "32 contenders, as fast as the fastest other library, in any order")
                .filter(|_| here.others().next().is_some())
        },
        finding: |here| here.against_the_best(),
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
            let most = CRASH_TTL.as_secs_f64() + here.goals.grace;
            Finding::of(&here.row.handoff_p99s, Bound::AtMost(most * 1e6), time)
        },
    },
    Budget {
        scenario: "held",
        contenders: Some(10_000),
        claim: |here| {
            let locks = here.row.contenders;
            Some(format!("{locks} held locks, bytes of each at rest, the client library's included"))
        },
        finding: |here| Finding::of(&here.row.bytes_of_runs, Bound::AtMost(1_024.0), number),
    },
    Budget {
        scenario: ON_THREADS,
        contenders: Some(1),
        claim: |here| here.unless_memory("1 name on the default runtime, time of a cycle on one thread"),
        finding: |here| {
            let on_one = here.on_one_thread()?;
            let found = Finding::of(&on_one.shares_of(here.row), Bound::AtMost(1.1), times)?;
            Some(found.and(&here.rates(here.row, on_one, "one thread")?).because(here.of_the_floors_there()))
        },
    },
    names(ONE_THREAD),
    names(ON_THREADS),
    Budget {
        scenario: ON_THREADS,
        contenders: Some(8),
        claim: |here| here.on("redis", "8 names on the default runtime, share of the floor's rate"),
        finding: |here| Some(here.against("floor", 0.9)?.because(here.beside("floor"))),
    },
    Budget {
        scenario: ON_THREADS,
        contenders: Some(64),
        claim: |here| {
            here.on(
                "redis",
                "64 names on the default runtime, share of the rate on one thread that our own scripts keep",
            )
        },
        finding: |here| {
            let on_one = here.on_one_thread()?;
            let scripts = here.report.row(ONE_THREAD, &here.row.store, SCRIPTS, here.row.contenders)?;
            let kept = median(here.row_of(SCRIPTS)?.shares_of(scripts).into_iter())?;
            let shares: Vec<_> =
                here.row.shares_of(on_one).iter().map(|share| share / kept.min(1.0)).collect();
            let found = Finding::of(&shares, Bound::AtLeast(1.0), times)?;
            let rates = here.rates(here.row, on_one, "one thread")?;
            Some(found.and(&format!("{rates}; {SCRIPTS} keeps {}", times(kept))))
        },
    },
    Budget {
        scenario: IN_BLOCK_ON,
        contenders: Some(1),
        claim: |here| {
            here.on("redis", "1 name in block_on of the default runtime, share of the floor's rate")
        },
        finding: |here| Some(here.against("floor", 1.0)?.because(here.beside("floor"))),
    },
    client_us(ONE_THREAD),
    client_us(ON_THREADS),
];

/// Many names on one client, as a share of what the store allows.
const fn names(scenario: &'static str) -> Budget {
    Budget {
        scenario,
        contenders: Some(64),
        claim: |here| {
            let (_, who) = here.goals.names?;
            Some(format!("64 {}, share of the rate of {who}", here.row.scenario))
        },
        finding: |here| {
            let (share, who) = here.goals.names?;
            Some(here.against(who, share)?.because(here.beside(who).chain(here.row.limit())))
        },
    }
}

/// What many names take of the client's processors.
const fn client_us(scenario: &'static str) -> Budget {
    Budget {
        scenario,
        contenders: Some(64),
        claim: |here| {
            here.goals.names_us.map(|_| format!("64 {}, µs of the client per cycle", here.row.scenario))
        },
        finding: |here| {
            let found =
                Finding::of(&here.row.client_us_of_turns, Bound::AtMost(here.goals.names_us?), number)?;
            Some(found.because(here.beside("floor")))
        },
    }
}

/// Which share of the floor's rate a free lock has a millisecond away.
const AFAR: f64 = 0.95;

/// Who overtakes as often as that serves in no order.
const IN_NO_ORDER: f64 = 0.1;

/// In microseconds.
const VOTED: f64 = 1e6;

pub(crate) fn claims(report: &Report) -> Vec<Claim> {
    let mut stores = report.stores();
    stores.sort_unstable();
    let all = stores.into_iter().flat_map(|store| {
        BUDGETS.iter().filter_map(move |budget| {
            let mut rows = report.rows(budget.scenario).filter(move |row| row.store == store);
            let row = rows.find(|row| budget.is_about(row))?;
            let here = Here::of(report, row)?;
            let what = (budget.claim)(&here)?;
            Some(claim(format!("{store}: {what}"), BUDGET, (budget.finding)(&here)))
        })
    });
    all.collect()
}

/// Who has to go on for more turns, as budgets about the results from the number `from` on are undecided.
pub(crate) fn undecided(report: &Report, from: usize) -> BTreeSet<String> {
    let mut who = BTreeSet::new();
    for row in &report.results[from..] {
        let Some(here) = Here::of(report, row) else { continue };
        for budget in BUDGETS.iter().filter(|budget| budget.scenario == row.scenario && budget.is_about(row))
        {
            let found = (budget.claim)(&here).and_then(|_| (budget.finding)(&here));
            if let Some(Finding { holds: None, rival, .. }) = found {
                who.extend([row.implementation.clone()].into_iter().chain(rival));
            }
        }
    }
    who
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
        claims.push(claim(what, BUDGET, finding));
    }
    claims
}

impl Budget {
    fn is_about(&self, row: &Row) -> bool {
        row.is_ours() && self.contenders.is_none_or(|count| row.contenders == count)
    }
}

/// The row that a budget is about, and what it is held against.
struct Here<'a> {
    report: &'a Report,
    goals: &'static Goals,
    row: &'a Row,
}

impl<'a> Here<'a> {
    fn of(report: &'a Report, row: &'a Row) -> Option<Self> {
        let goals = GOALS.iter().find(|goals| goals.store == row.store)?;
        Some(Self { report, goals, row })
    }

    /// The same of ours on one thread.
    fn on_one_thread(&self) -> Option<&Row> {
        self.report.row(ONE_THREAD, &self.row.store, &self.row.implementation, self.row.contenders)
    }

    /// The time of a floor's cycle there, by that on one thread: what the runtime costs who does the least.
    fn of_the_floors_there(&self) -> impl Iterator<Item = String> {
        ["floor", SCRIPTS].into_iter().filter_map(|who| {
            let (there, row) = (self.row_of(who)?, self.row);
            let on_one = self.report.row(ONE_THREAD, &row.store, who, row.contenders)?;
            let more = median(on_one.shares_of(there).into_iter())?;
            Some(format!("There {who} takes {} its time on one thread", times(more)))
        })
    }

    /// Somebody else's, in the same place.
    fn row_of(&self, who: &str) -> Option<&Row> {
        self.report.row(&self.row.scenario, &self.row.store, who, self.row.contenders)
    }

    /// Our rate by theirs of the same round, which is to be `share` of it at least.
    fn against(&self, who: &str, share: f64) -> Option<Finding> {
        let theirs = self.row_of(who)?;
        let found = Finding::of(&self.row.shares_of(theirs), Bound::AtLeast(share), times)?;
        let remark = theirs.remark.as_ref().map(|remark| format!("; {who}: {remark}")).unwrap_or_default();
        Some(found.and(&(self.rates(self.row, theirs, who)? + &remark)).held_against(who))
    }

    /// Both, in words.
    fn rates(&self, ours: &Row, theirs: &Row, who: &str) -> Option<String> {
        let (ours, theirs) = (ours.cycles_per_s?, theirs.cycles_per_s?);
        Some(format!(" ({} cycles/s against {} with {who})", number(ours), number(theirs)))
    }

    /// The same of the floor, of a free lock; with what else was measured of it.
    fn against_the_floor(&self, (share, who): (f64, &str), measured: Option<String>) -> Option<Finding> {
        let reasons = self.beside(who).chain(measured).chain([self.goals.free.to_owned()]);
        Some(self.against(who, share)?.because(reasons))
    }

    /// The same of the fastest, who may serve in no order.
    fn against_the_best(&self) -> Option<Finding> {
        let best = self.best()?;
        let overtakes = self.row_of(best).and_then(|row| row.overtakes);
        let overtakes = overtakes.filter(|share| *share > IN_NO_ORDER).map(|share| {
            let (theirs, ours) = (share * 100.0, self.row.overtakes.unwrap_or_default() * 100.0);
            format!("Served out of order: {ours:.0} : {theirs:.0} %")
        });
        Some(self.against(best, 1.0)?.because(self.beside(best).chain(overtakes)))
    }

    /// The fastest of the others; nothing, if one of them is not known.
    fn best(&self) -> Option<&str> {
        let rates: Option<Vec<_>> =
            self.others().map(|row| Some((row.implementation.as_str(), row.cycles_per_s?))).collect();
        rates?.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).map(|(best, _)| best)
    }

    /// Libraries of others, in the same place.
    fn others(&self) -> impl Iterator<Item = &Row> {
        let here = self
            .report
            .rows(&self.row.scenario)
            .filter(|row| row.store == self.row.store && row.contenders == self.row.contenders);
        here.filter(|row| !["leasehold", "floor"].iter().any(|ours| row.implementation.starts_with(ours)))
    }

    fn if_others(&self, claim: &str) -> Option<String> {
        self.others().next().is_some().then(|| claim.to_owned())
    }

    fn unless_memory(&self, claim: &str) -> Option<String> {
        (self.goals.store != "memory").then(|| claim.to_owned())
    }

    fn on(&self, store: &str, claim: &str) -> Option<String> {
        (self.goals.store == store).then(|| claim.to_owned())
    }

    /// Of each run, of the middle one of `others`: they did not take turns.
    fn by_the_middle_of(&self, others: &Row) -> Option<Vec<f64>> {
        let middle = median(others.rates.iter().copied())?;
        Some(self.row.rates.iter().map(|rate| rate / middle).collect())
    }

    /// How long it took at most until somebody had the votes. Where they split that has no bound of its own, so beside
    /// it stands what no hand-off can be cheaper than.
    fn longest(&self) -> Option<Finding> {
        let most = self.row.handoff_us.max?;
        let floor = self.report.row("uncontended", &self.row.store, "floor", 1);
        let share = floor.and_then(|floor| median(self.by_the_middle_of(floor)?.into_iter()));
        let share = share.map(|share| format!("; {} the rate of the floor's free lock", times(share)));
        let wait = self.row.acquire_us.max.map(|most| format!("; the longest wait {}", time(most)));
        let found = Finding::seen(time(most), most <= VOTED).within(format!("at most {}", time(VOTED)));
        Some(found.and(&[wait, share].into_iter().flatten().collect::<String>()))
    }

    /// The cost of our cycle and of theirs, as far as it is known: requests and processor times.
    fn beside(&self, who: &str) -> impl Iterator<Item = String> + use<> {
        let (ours, theirs) = (Spent::of(self.row), self.row_of(who).map(Spent::of));
        let told = theirs.map(|theirs| ours.against(&theirs)).unwrap_or_default();
        let told = (!told.is_empty()).then(|| format!("Beside {who}: {}", told.join(", ")));
        told.into_iter()
    }

    /// What becomes of a share of the floor's rate where there is a network in between.
    fn at_a_distance(&self) -> Option<String> {
        let row = |who| self.report.row("distance", &self.row.store, who, 1);
        let share = median(row("leasehold")?.shares_of(row("floor")?).into_iter())?;
        let round_trip = self.report.environment.distance.as_ref()?.round_trip_us.p50?;
        Some(format!("With a round trip of {}: {} the floor's rate", time(round_trip), times(share)))
    }

    /// What so many times theirs is, beside the rate of the floor that has a queue.
    fn reach(&self, who: &str, times: f64) -> Option<String> {
        let wanted = number(times * self.row_of(who)?.cycles_per_s?);
        let floor = number(self.row_of(QUEUE_FLOOR)?.cycles_per_s?);
        Some(format!("Wanted: {wanted} cycles/s; the floor with a queue makes {floor}"))
    }

    /// What changes with more contenders, also for who asks the least.
    fn with_more(&self, few: &Row) -> impl Iterator<Item = String> + use<> {
        let asked = few.requests_per_cycle.zip(self.row.requests_per_cycle);
        let asked =
            asked.map(|(few, many)| format!("Requests per cycle {} then, {} now", number(few), number(many)));
        let server = few.server_us_per_cycle.zip(self.row.server_us_per_cycle);
        let server =
            server.map(|(few, many)| format!("µs of the server {} then, {} now", number(few), number(many)));
        let floor =
            |contenders| self.report.row("crowd", &self.row.store, QUEUE_FLOOR, contenders)?.cycles_per_s;
        let floor = floor(few.contenders)
            .zip(floor(self.row.contenders))
            .map(|(few, many)| format!("the floor with a queue keeps {} of its own rate", times(many / few)));
        [asked, server, floor].into_iter().flatten()
    }

    /// What the same requests take when nobody else asks for anything.
    fn alone(&self) -> Option<String> {
        let floor = self.report.row("uncontended", &self.row.store, "floor", 1)?;
        let (acquire, release) = (floor.acquire_us.p99? / 1e3, floor.release_us.p99? / 1e3);
        Some(format!("Of the floor alone, p99: {acquire:.2} ms to acquire, {release:.2} ms to release"))
    }
}

#[cfg(test)]
mod tests;
