//! What came out: `report.json`, and the page, the screen and the tables that are made of it alone.

mod axis;
mod chart;
pub(crate) mod glance;
mod page;
pub(crate) mod question;
mod result;
mod screen;
pub(crate) mod table;
mod text;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::figures::{Spread, rounded};
use crate::implementation::Implementation;
use crate::options::Scenario;
use crate::servers::Target;

pub(crate) use page::page;
pub(crate) use screen::screen;
pub(crate) use text::tables;

/// `report.json`. What is not known is null.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) environment: Environment,
    pub(crate) results: Vec<Row>,
    pub(crate) claims: Vec<Claim>,
    /// What is no lock, and how often it was found out.
    pub(crate) checks: Vec<Check>,
    /// Locks that several hold.
    pub(crate) kinds: Vec<Kind>,
    /// What became of permits.
    pub(crate) leaks: Vec<Leak>,
    /// From one store to another, under load.
    pub(crate) moves: Vec<Move>,
    /// A lock that nobody else wants, in each phase of a move.
    pub(crate) free: Vec<Free>,
}

/// A move from one store to another, under load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Move {
    pub(crate) what: String,
    pub(crate) cycles: u64,
    pub(crate) overlaps: u64,
    pub(crate) tokens_back: u64,
    /// Between two grants, from the beginning to the end.
    pub(crate) longest_gap_ms: Option<f64>,
    pub(crate) stretches: Vec<Stretch>,
}

/// A phase of it, or the way to the next one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stretch {
    pub(crate) phase: String,
    pub(crate) seconds: f64,
    pub(crate) cycles: u64,
    pub(crate) cycles_per_s: f64,
    /// Between two grants, the second of which is of this phase.
    pub(crate) longest_gap_ms: Option<f64>,
    /// Of the store that is left and the one moved to.
    pub(crate) requests_per_cycle: Vec<f64>,
}

/// A lock that nobody else wants in a phase of a move, and on the two stores without one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Free {
    pub(crate) phase: String,
    pub(crate) cycles_per_s: f64,
    /// Of the store that is left and the one moved to.
    pub(crate) beside: Vec<f64>,
    /// Of the rates, run by run; the middle of them.
    pub(crate) ratios: Vec<f64>,
    /// All of them.
    pub(crate) ratios_of_runs: Vec<Vec<f64>>,
}

/// One implementation under one load of readers, writers or permits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Kind {
    pub(crate) load: String,
    pub(crate) store: String,
    pub(crate) implementation: String,
    pub(crate) cycles_per_s: Option<f64>,
    /// The same of each run.
    pub(crate) rates: Vec<f64>,
    /// That were timed, in all runs together.
    pub(crate) cycles: u64,
    /// How many held at a time, on average.
    pub(crate) holders: Option<f64>,
    pub(crate) acquire_us: Spread,
    pub(crate) requests_per_cycle: Option<f64>,
    /// The share of grants that took the place of somebody who came before and waited.
    pub(crate) overtakes: Option<f64>,
    pub(crate) overtakes_of_runs: Vec<f64>,
    /// The longest wait of somebody who wants it alone, as a share of the run; the longest of all runs.
    pub(crate) starved: Option<f64>,
    pub(crate) starved_of_runs: Vec<f64>,
    /// Holders that did not fit together, in every run, also those that are not timed.
    pub(crate) violations: Option<u64>,
    pub(crate) remark: Option<String>,
}

/// What becomes of the permits of one implementation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Leak {
    pub(crate) store: String,
    pub(crate) implementation: String,
    /// How many there are.
    pub(crate) permits: u64,
    /// How many of them can be taken when one who held one was killed and twice its lease is over.
    pub(crate) after_a_kill: Option<u64>,
    /// And when one was released twice.
    pub(crate) after_two_releases: Option<u64>,
    /// What was answered to the second release.
    pub(crate) second_release: String,
}

/// A lock that is none was put to the same check as everybody else.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Check {
    pub(crate) what: String,
    pub(crate) contenders: String,
    pub(crate) cycles: u64,
    pub(crate) found: u64,
}

impl Check {
    pub(crate) fn told(&self) -> String {
        let Self { contenders, cycles, found, .. } = self;
        format!("{contenders}: found out {found} times in {cycles} cycles")
    }
}

/// One implementation in one scenario; `templates/columns.txt` says what each column is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) scenario: String,
    pub(crate) store: String,
    pub(crate) implementation: String,
    pub(crate) contenders: u64,
    pub(crate) cycles_per_s: Option<f64>,
    pub(crate) rates: Vec<f64>,
    pub(crate) turns: Vec<u32>,
    pub(crate) cycles: u64,
    pub(crate) acquire_us: Spread,
    pub(crate) release_us: Spread,
    pub(crate) handoff_us: Spread,
    pub(crate) handoff_p99s: Vec<f64>,
    pub(crate) requests_per_cycle: Option<f64>,
    pub(crate) messages_per_cycle: Option<f64>,
    pub(crate) bytes_per_cycle: Option<f64>,
    pub(crate) client_us_per_cycle: Option<f64>,
    pub(crate) client_us_of_turns: Vec<f64>,
    pub(crate) server_us_per_cycle: Option<f64>,
    pub(crate) switches_per_cycle: Option<f64>,
    pub(crate) floor_ratio: Option<f64>,
    pub(crate) floor_ratios: Vec<f64>,
    pub(crate) overtakes: Option<f64>,
    pub(crate) overtakes_of_runs: Vec<f64>,
    pub(crate) served: Option<u64>,
    pub(crate) least_share: Option<f64>,
    pub(crate) most_share: Option<f64>,
    pub(crate) bytes_per_lock: Option<f64>,
    pub(crate) bytes_of_runs: Vec<f64>,
    pub(crate) client_share: Option<f64>,
    pub(crate) server_share: Option<f64>,
    pub(crate) violations: Option<u64>,
    pub(crate) held_share: Option<f64>,
    pub(crate) runs: u32,
    pub(crate) remark: Option<String>,
}

/// A sentence somebody has published, or a budget of ours, and what was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claim {
    pub(crate) claim: String,
    pub(crate) source: String,
    /// From where on it holds.
    pub(crate) bound: Option<String>,
    pub(crate) measured: Option<String>,
    /// From the smallest to the largest of the runs.
    pub(crate) spread: Option<String>,
    /// Not known, or undecided, if it is none of both.
    pub(crate) holds: Option<bool>,
    /// It was measured, and the bound lies within the spread.
    pub(crate) undecided: bool,
    /// Why it is missed, or may be.
    pub(crate) why: Option<String>,
}

impl Claim {
    pub(crate) fn verdict(&self) -> &'static str {
        match self.holds {
            Some(true) => "yes",
            Some(false) => "no",
            None if self.undecided => "undecided",
            None => "not measured",
        }
    }

    /// In one sentence.
    pub(crate) fn told(&self) -> String {
        let Self { claim, measured, spread, bound, why, source, .. } = self;
        let verdict = match (source == BUDGET, self.holds) {
            (true, Some(true)) => "kept",
            (true, Some(false)) => "missed",
            _ => self.verdict(),
        };
        let spread = spread.as_ref().map(|spread| format!(" ({spread})")).unwrap_or_default();
        let measured = measured.as_deref().unwrap_or("–");
        let [bound, why] =
            [bound, why].map(|told| told.as_ref().map(|told| format!("; {told}")).unwrap_or_default());
        format!("{verdict}, {claim}: {measured}{spread}{bound}{why}")
    }

    /// As the page colours that: it is good that a fault which others report is not found.
    pub(crate) fn class(&self) -> &'static str {
        let is_fault = FAULTS.iter().any(|fault| self.claim.starts_with(fault));
        match self.holds {
            Some(_) if self.claim.starts_with(RANKING) => "soft",
            Some(holds) => {
                if holds != is_fault {
                    "yes"
                } else {
                    "no"
                }
            }
            None => "soft",
        }
    }
}

impl Row {
    /// Of nothing yet.
    pub(crate) fn of(scenario: Scenario, target: &Target, who: &Implementation, contenders: u64) -> Self {
        Self {
            scenario: scenario.to_string(),
            store: target.label.clone(),
            implementation: who.name().to_owned(),
            contenders,
            runs: 1,
            ..Self::default()
        }
    }

    /// The rate by the one of `theirs` of the same round, of all rounds that both took part in.
    pub(crate) fn shares_of(&self, theirs: &Self) -> Vec<f64> {
        let share = |(turn, rate): (&u32, &f64)| {
            let same = theirs.turns.iter().position(|other| other == turn)?;
            Some(rounded(rate / theirs.rates.get(same)?))
        };
        self.turns.iter().zip(&self.rates).filter_map(share).collect()
    }

    /// What of a free lock's cycle is neither the client's processor nor the server's, or not known to be: the way between
    /// the two, the disk, and whatever else they wait for.
    pub(crate) fn rest_us(&self) -> Option<f64> {
        let spent = self.client_us_per_cycle.unwrap_or(0.0) + self.server_us_per_cycle.unwrap_or(0.0);
        Some((1e6 / self.cycles_per_s? - spent).max(0.0))
    }

    /// Whose processor is the busier one, as far as both are known.
    pub(crate) fn limit(&self) -> Option<String> {
        let busy = |micros: Option<f64>| Some(micros? * self.cycles_per_s? / 1e6);
        let (client, server) = (busy(self.client_us_per_cycle)?, busy(self.server_us_per_cycle)?);
        let (who, busy) = if client > server { ("client", client) } else { ("server", server) };
        Some(format!("{who} busy {busy:.2}"))
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.implementation == "leasehold"
    }

    pub(crate) fn is_floor(&self) -> bool {
        self.implementation.starts_with("floor")
    }
}

impl Report {
    /// The row of an implementation in a scenario, if it was measured.
    pub(crate) fn row(
        &self,
        scenario: &str,
        store: &str,
        implementation: &str,
        contenders: u64,
    ) -> Option<&Row> {
        self.results.iter().find(|row| {
            (row.scenario.as_str(), row.store.as_str(), row.implementation.as_str(), row.contenders)
                == (scenario, store, implementation, contenders)
        })
    }

    /// The rows of a scenario.
    pub(crate) fn rows<'a>(&'a self, scenario: &'a str) -> impl Iterator<Item = &'a Row> + Clone {
        self.results.iter().filter(move |row| row.scenario == scenario)
    }

    /// The scenarios, in the order of the results.
    pub(crate) fn scenarios(&self) -> Vec<&str> {
        distinct(self.results.iter().map(|row| row.scenario.as_str()))
    }

    /// The stores, in the order of the results.
    pub(crate) fn stores(&self) -> Vec<&str> {
        distinct(self.results.iter().map(|row| row.store.as_str()))
    }

    /// The rate as a multiple of that of our exclusive lock under the same load.
    pub(crate) fn gain(&self, kind: &Kind) -> Option<f64> {
        let is_alone = |other: &&Kind| {
            (&other.load, &other.store, other.implementation.as_str()) == (&kind.load, &kind.store, ALONE)
        };
        Some(kind.cycles_per_s? / self.kinds.iter().find(is_alone)?.cycles_per_s?)
    }

    /// How often too many held, everywhere.
    pub(crate) fn violations(&self) -> u64 {
        let alone = self.results.iter().filter_map(|row| row.violations);
        alone.chain(self.kinds.iter().filter_map(|kind| kind.violations)).sum()
    }

    /// The budgets that are kept, missed, undecided and not measured.
    pub(crate) fn verdicts(&self) -> [usize; 4] {
        let budgets = || self.claims.iter().filter(|claim| claim.source == BUDGET);
        ["yes", "no", "undecided", "not measured"]
            .map(|verdict| budgets().filter(|claim| claim.verdict() == verdict).count())
    }

    /// Why `--strict` fails, if it does.
    pub(crate) fn failing(&self) -> Option<String> {
        let [kept, missed, undecided, _] = self.verdicts();
        let is_failing = missed > 0 || undecided * 10 > kept + missed + undecided || self.violations() > 0;
        is_failing.then(|| {
            let violations = self.violations();
            format!(
                "{missed} budgets missed, {undecided} undecided, {violations} violations of mutual exclusion"
            )
        })
    }

    /// How long was timed, of all of it: what so many cycles have taken at those rates.
    pub(crate) fn timed_s(&self) -> f64 {
        let rows = self.results.iter().map(|row| (row.cycles, row.cycles_per_s));
        let kinds = self.kinds.iter().map(|kind| (kind.cycles, kind.cycles_per_s));
        let all = rows.chain(kinds).filter_map(|(cycles, rate)| Some(cycles as f64 / rate?));
        let moves = self.moves.iter().flat_map(|moved| &moved.stretches).map(|stretch| stretch.seconds);
        rounded(all.chain(moves).sum())
    }

    pub(crate) fn json(&self) -> Result<String> {
        const DOING: &str = "writing the report";
        let Value::Object(parts) = serde_json::to_value(self).map_err(Error::during(DOING))? else {
            return Err(Error::new(DOING));
        };
        // A row is a line: its turns are many.
        let written = parts.iter().map(|(name, part)| match part {
            Value::Array(rows) if !rows.is_empty() => {
                format!(
                    "\"{name}\": [\n{}\n]",
                    rows.iter().map(Value::to_string).collect::<Vec<_>>().join(",\n")
                )
            }
            part => format!("\"{name}\": {part:#}"),
        });
        Ok(format!("{{\n{}\n}}\n", written.collect::<Vec<_>>().join(",\n")))
    }
}

/// Each once, in the order of their first.
pub(crate) fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for value in values {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

/// Where a claim of our own is from.
pub(crate) const BUDGET: &str = "our budget";

/// Claims that are bad news where they hold.
pub(crate) const FAULTS: [&str; 6] = [STARVES, LOST, ADDED, FORGETS, STAYS, TWICE];
pub(crate) const STARVES: &str = "Readers that come and go starve a writer";
pub(crate) const LOST: &str = "The permit of a process that dies is lost";
pub(crate) const ADDED: &str = "A second release adds a permit";
pub(crate) const FORGETS: &str = "A server that restarts without its data loses a lock";
pub(crate) const STAYS: &str = "Without a lease, the lock of a holder that was killed stays for ever";
pub(crate) const TWICE: &str = "etcd's Lock RPC grants a held lock again to the same lease";

/// One that is neither good news nor bad.
pub(crate) const RANKING: &str = "Redis locks are faster than ZooKeeper's";

/// As the report calls our exclusive lock where others share.
pub(crate) const ALONE: &str = "leasehold, exclusive";

#[cfg(test)]
mod tests;
