//! Our own budgets, held against the same results. How many requests we make is none of them: the
//! stores' own tests assert that.

use super::{Finding, claim};
use crate::report::table::number;
use crate::report::{Claim, Drawings, Report, Row};
use crate::scale::CRASH_TTL;

/// What is promised of a row of ours, where it is promised, and what was found.
struct Budget {
    scenario: &'static str,
    /// Of any number, if none is named.
    contenders: Option<u64>,
    claim: fn(&Here<'_>) -> Option<String>,
    finding: fn(&Here<'_>) -> Option<Finding>,
}

const BUDGETS: [Budget; 7] = [
    Budget {
        scenario: "uncontended",
        contenders: Some(1),
        claim: |here| {
            (here.goals.store != "memory")
                .then(|| "a free lock at 0.95 of the floor's rate or more".to_owned())
        },
        finding: |here| {
            let ratio = here.row.floor_ratio?;
            let missed = if ratio < 0.95 { here.difference() } else { None };
            Some((format!("{ratio:.2}{}", missed.unwrap_or_default()), ratio >= 0.95))
        },
    },
    Budget {
        scenario: "uncontended",
        contenders: Some(1),
        claim: |here| {
            let alike = here.goals.alike.join(", ");
            (!alike.is_empty()).then(|| format!("a free lock no slower than with {alike}"))
        },
        finding: |here| {
            let rate = |peer: &&'static str| Some((*peer, here.rate(peer)?));
            let fastest = here.goals.alike.iter().filter_map(rate).max_by(|a, b| a.1.total_cmp(&b.1));
            let (ours, (peer, theirs)) = (here.row.cycles_per_s?, fastest?);
            let told = format!("{} cycles/s against {} with {peer}", number(ours), number(theirs));
            Some((told, ours >= theirs))
        },
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
            let (ours, theirs) = (here.row.cycles_per_s?, here.rate(peer)?);
            let told = format!("{} against {}: {:.1} times", number(ours), number(theirs), ours / theirs);
            Some((told, ours >= times * theirs))
        },
    },
    Budget {
        scenario: "processes",
        contenders: Some(8),
        claim: |_| Some("8 contenders, hand-off within 5 ms at p99".to_owned()),
        finding: |here| {
            let p99 = here.row.handoff_us.p99? / 1e3;
            let alone = if p99 > 5.0 { here.alone() } else { None };
            Some((format!("{p99:.2} ms{}", alone.unwrap_or_default()), p99 <= 5.0))
        },
    },
    Budget {
        scenario: "tasks",
        contenders: Some(64),
        claim: |_| Some("64 tasks of one process, 100\u{202f}000 cycles/s or more".to_owned()),
        finding: |here| here.row.cycles_per_s.map(|rate| (number(rate), rate >= 100_000.0)),
    },
    Budget {
        scenario: "crash",
        contenders: Some(2),
        claim: |here| {
            let (bound, ttl) = (here.recovery_s(), CRASH_TTL.as_secs());
            Some(format!("after a kill the next holds within {bound:.1} s, ttl {ttl} s"))
        },
        finding: |here| {
            let longest = here.row.handoff_us.max? / 1e6;
            Some((format!("{longest:.2} s"), longest <= here.recovery_s()))
        },
    },
    Budget {
        scenario: "held",
        contenders: None,
        claim: |here| {
            let locks = here.row.contenders;
            Some(format!("{locks} held locks take 1 KiB each or less, the client library's included"))
        },
        finding: |here| {
            let bytes = *here.drawings.memory.get(&(here.row.store.clone(), "leasehold".to_owned()))?;
            Some((format!("{} bytes", number(bytes)), bytes <= 1_024.0))
        },
    },
];

/// What differs by store.
struct Goals {
    store: &'static str,
    /// Who serves in order, and does not lose a lock on the same servers.
    alike: &'static [&'static str],
    /// How many times faster than which fair peer.
    margin: Option<(f64, &'static str)>,
    /// What comes on top of the ttl, in seconds: the store's own expiry, and one second.
    grace: f64,
}

const GOALS: [Goals; 5] = [
    Goals { store: "memory", alike: &[], margin: None, grace: 1.0 },
    Goals { store: "file", alike: &[], margin: None, grace: 1.0 },
    Goals { store: "redis", alike: &["redisson-fair"], margin: Some((3.0, "redisson-fair")), grace: 1.0 },
    Goals {
        store: "etcd",
        alike: &["etcd-lock-rpc", "go-mutex", "jetcd"],
        margin: Some((10.0, "go-mutex")),
        grace: 1.5,
    },
    Goals {
        store: "zk",
        alike: &["zookeeper-client", "kazoo", "curator"],
        margin: Some((1.5, "curator")),
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

/// The row that a budget is about, and what it is held against.
struct Here<'a> {
    report: &'a Report,
    drawings: &'a Drawings,
    goals: &'static Goals,
    row: &'a Row,
}

impl Here<'_> {
    /// Somebody else's, in the same place.
    fn rate(&self, who: &str) -> Option<f64> {
        self.report.row(&self.row.scenario, &self.row.store, who, self.row.contenders)?.cycles_per_s
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
