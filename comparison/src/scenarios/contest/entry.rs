//! One implementation in a contest, and what is known of it so far.

use std::time::Duration;

use crate::comparison::Comparison;
use crate::driver::{Outcome, Team};
use crate::error::{Error, Result};
use crate::figures::{Spread, Times, median, rounded};
use crate::history::History;
use crate::implementation::Implementation;
use crate::options::Scenario;
use crate::report::{Profile, Row};
use crate::servers::Counted;

pub(super) struct Entry {
    pub(super) who: Implementation,
    /// What is known before it is timed.
    pub(super) row: Row,
    /// Between its turns, if it stays.
    pub(super) team: Option<Team>,
    pub(super) cost: Cost,
    /// How long it has taken, whatever it did.
    pub(super) spent: Duration,
    /// Why it takes no more turns.
    pub(super) stopped: Option<Error>,
    /// Whether it was merely too slow, so that what it has shown stands.
    is_slow: bool,
    violations: u64,
    /// Of the timed turns.
    timed: Cost,
    runs: Vec<Row>,
    cycles: Times,
    last: Option<History>,
}

/// Processor time of the client and the server, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    pub(super) cycles: u64,
    pub(super) client: Option<u64>,
    pub(super) server: Option<u64>,
}

/// Of the client and the server, in nanoseconds; nothing, where it is not told.
pub(super) type Spent = (Option<u64>, Option<u64>);

impl Cost {
    /// What so many cycles have cost.
    pub(super) fn between(before: Spent, after: Spent, cycles: u64) -> Self {
        let spent = |before: Option<u64>, after: Option<u64>| Some(after?.saturating_sub(before?));
        Self { cycles, client: spent(before.0, after.0), server: spent(before.1, after.1) }
    }

    pub(super) fn add(&mut self, other: Self) {
        let sum = |a: Option<u64>, b: Option<u64>| a.map_or(b, |a| Some(a + b.unwrap_or(0)));
        let (client, server) = (sum(self.client, other.client), sum(self.server, other.server));
        *self = Self { cycles: self.cycles + other.cycles, client, server };
    }

    /// In microseconds per cycle.
    fn each(&self, nanos: Option<u64>) -> Option<f64> {
        Some(rounded(nanos? as f64 / 1e3 / self.cycles.max(1) as f64))
    }
}

impl Entry {
    pub(super) fn of(who: Implementation, row: Row) -> Self {
        Self {
            who,
            row,
            team: None,
            cost: Cost::default(),
            spent: Duration::ZERO,
            stopped: None,
            is_slow: false,
            violations: 0,
            timed: Cost::default(),
            runs: Vec::new(),
            cycles: Times::new(),
            last: None,
        }
    }

    /// It takes no more turns.
    pub(super) fn stop(&mut self, error: Error) {
        self.team = None;
        self.is_slow = error.to_string().ends_with(UNSERVED);
        self.stopped = Some(error);
    }

    /// The same of who would go on, while all others wait for it.
    pub(super) fn stop_as_slow(&mut self, runs: u32) {
        let (turns, spent) = (self.runs.len(), self.spent.as_secs());
        self.stop(Error::new(format!("too slow for all turns: {turns} of {runs} took {spent} s")));
        self.is_slow = true;
    }

    /// Takes what is not timed: what is asked of it is exclusion, also of those who gave up.
    pub(super) fn look_at(&mut self, outcome: Outcome) -> Result<()> {
        self.violations += outcome.history.violations();
        outcome.whole().map(drop)
    }

    /// Takes what the server has counted in so many cycles.
    pub(super) fn counted(&mut self, counted: Counted, cycles: usize) {
        let each = |count: u64| rounded(count as f64 / cycles.max(1) as f64);
        self.row.requests_per_cycle = Some(each(counted.requests));
        self.row.messages_per_cycle = counted.messages.map(each);
        self.row.bytes_per_cycle = counted.bytes.map(each);
    }

    /// Takes a timed turn, and the processor times before and after it.
    pub(super) fn take(&mut self, history: History, before: Spent, after: Spent) {
        self.violations += history.violations();
        self.cycles.add(&history.cycles());
        self.timed.add(Cost::between(before, after, history.len() as u64));
        self.runs.push(Row { contenders: self.row.contenders, ..Row::default() }.with(&history));
        self.last = Some(history);
    }

    pub(super) fn rates(&self) -> Vec<Option<f64>> {
        self.runs.iter().map(|run| run.cycles_per_s).collect()
    }

    /// Our rate by the floor's of the same round.
    fn ratio(&self, floor: &[Option<f64>]) -> Option<f64> {
        let rounds = self.rates().into_iter().zip(floor);
        median(rounds.filter_map(|(rate, floor)| Some(rate? / (*floor)?))).map(rounded)
    }

    pub(super) fn conclude(
        &self,
        comparison: &mut Comparison,
        scenario: Scenario,
        floor: Option<&[Option<f64>]>,
    ) {
        let row = Row { violations: Some(self.violations), ..self.row.clone() };
        if let Some(why) = &self.stopped {
            comparison.give_up(&row, why);
            // Who was merely too slow has shown how slow; of any other failure there is no figure.
            if self.runs.is_empty() || !self.is_slow {
                return comparison.add(Row { remark: Some(why.to_string()), ..row });
            }
        }
        let remark = self.stopped.as_ref().map(ToString::to_string).or_else(|| row.remark.clone());
        let runs = || self.runs.iter();
        let rate = median(runs().filter_map(|run| run.cycles_per_s)).map(rounded);
        // Those of a crowd come all at once, so half of their first requests have no order.
        let is_ordered = scenario != Scenario::Crowd;
        let overtakes = || runs().filter_map(|run| run.overtakes).filter(|_| is_ordered);
        let least = |of: fn(&Row) -> Option<f64>| runs().filter_map(of).reduce(f64::min);
        let most = |of: fn(&Row) -> Option<f64>| runs().filter_map(of).reduce(f64::max);
        comparison.add(Row {
            cycles_per_s: rate,
            rates: runs().filter_map(|run| run.cycles_per_s).collect(),
            cycles: runs().map(|run| run.cycles).sum(),
            acquire_us: Spread::over(runs().map(|run| run.acquire_us)),
            release_us: Spread::over(runs().map(|run| run.release_us)),
            handoff_us: Spread::over(runs().map(|run| run.handoff_us)),
            handoff_p99s: runs().filter_map(|run| run.handoff_us.p99).collect(),
            floor_ratio: floor.and_then(|floor| self.ratio(floor)),
            overtakes: median(overtakes()).map(rounded),
            overtakes_of_runs: overtakes().collect(),
            served: runs().filter_map(|run| run.served).min(),
            least_share: least(|run| run.least_share),
            most_share: most(|run| run.most_share),
            client_us_per_cycle: self.timed.each(self.timed.client),
            server_us_per_cycle: self.timed.each(self.timed.server),
            runs: u32::try_from(self.runs.len()).unwrap_or(u32::MAX),
            remark,
            ..row
        });
        let who = self.row.who();
        let cost = (self.cost.each(self.cost.client), self.cost.each(self.cost.server));
        if let (Scenario::Uncontended, Some(rate)) = (scenario, rate) {
            let ((store, implementation), (client_us, server_us)) = (who.clone(), cost);
            let profile =
                Profile { store, implementation, cycle_us: rounded(1e6 / rate), client_us, server_us };
            comparison.report.profiles.push(profile);
            comparison.drawings.cycles.insert(who, self.cycles.clone());
        } else if let (Scenario::Fairness, Some(history)) = (scenario, &self.last) {
            comparison.drawings.turns.insert(who, history.excerpt(TURNS));
        }
    }
}

/// What those say who were not served in time.
const UNSERVED: &str = ": unserved";

/// How many grants are drawn.
const TURNS: usize = 120;
