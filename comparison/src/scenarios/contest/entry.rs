//! One implementation in a contest, and what is known of it so far.

use std::time::Duration;

use super::pace::Pace;
use crate::comparison::Comparison;
use crate::driver::{Outcome, Team};
use crate::error::{Error, Result};
use crate::figures::{Times, median, rounded};
use crate::history::{History, Service};
use crate::implementation::Implementation;
use crate::options::{ONE_THREAD, Scenario};
use crate::report::Row;
use crate::servers::Counted;

pub(super) struct Entry {
    pub(super) who: Implementation,
    /// What is known before it is timed.
    pub(super) row: Row,
    /// Between its turns, if it stays.
    pub(super) team: Option<Team>,
    pub(super) pace: Pace,
    /// How long it has taken, whatever it did.
    pub(super) spent: Duration,
    /// Whether all that depends on it is decided.
    pub(super) is_done: bool,
    /// Why it takes no more turns.
    pub(super) stopped: Option<Error>,
    /// Whether it was merely too slow, so that what it has shown stands.
    is_slow: bool,
    violations: u64,
    /// What its turns have shown, each with the round that it was in.
    pub(super) turns: Vec<(u32, Turn)>,
    acquisitions: Times,
    releases: Times,
    hand_offs: Times,
    /// Those of the last few turns, and what those before have come to.
    block: Times,
    handoff_p99s: Vec<f64>,
}

/// What one turn has shown.
#[derive(Debug)]
pub(super) struct Turn {
    cycles: u64,
    rate: Option<f64>,
    client_us: Option<f64>,
    server_us: Option<f64>,
    switches: Option<f64>,
    overtakes: Option<f64>,
    service: Option<Service>,
}

/// The processor times of the client and of the server, in nanoseconds, and the client's switches, in thousandths; nothing,
/// where it is not told.
pub(super) type Spent = [Option<u64>; 3];

impl Entry {
    pub(super) fn of(who: Implementation, row: Row) -> Self {
        Self {
            who,
            row,
            team: None,
            spent: Duration::ZERO,
            is_done: false,
            stopped: None,
            is_slow: false,
            violations: 0,
            pace: Pace::fixed(Duration::ZERO),
            turns: Vec::new(),
            acquisitions: Times::new(),
            releases: Times::new(),
            hand_offs: Times::new(),
            block: Times::new(),
            handoff_p99s: Vec::new(),
        }
    }

    /// Whether it has a turn in that round.
    pub(super) fn goes_on(&self, round: u32) -> bool {
        self.stopped.is_none() && !self.is_done && self.pace.is_due(round)
    }

    /// It takes no more turns.
    pub(super) fn stop(&mut self, error: Error) {
        self.team = None;
        self.is_slow = error.to_string().ends_with(UNSERVED);
        self.stopped = Some(error);
    }

    /// The same of who would go on, while all others wait for it.
    pub(super) fn stop_as_slow(&mut self) {
        let (turns, spent) = (self.turns.len(), self.spent.as_secs());
        self.stop(Error::new(format!("too slow for more turns: {turns} took {spent} s")));
        self.is_slow = true;
    }

    /// Takes what is not timed: what is asked of it is exclusion, also of those who gave up. The rate, for its pace.
    pub(super) fn look_at(&mut self, outcome: Outcome) -> Result<f64> {
        self.check(&outcome.history);
        Ok(outcome.whole()?.cycles_per_s().unwrap_or(0.0))
    }

    fn check(&mut self, history: &History) {
        self.violations += if self.is_of_names() { history.each_alone() } else { history.violations() };
    }

    fn is_of_names(&self) -> bool {
        self.row.scenario.starts_with(ONE_THREAD)
    }

    /// Takes what the server has counted in so many cycles.
    pub(super) fn counted(&mut self, counted: Counted, cycles: usize) {
        let each = |count: u64| rounded(count as f64 / cycles.max(1) as f64);
        self.row.requests_per_cycle = Some(each(counted.requests));
        self.row.messages_per_cycle = counted.messages.map(each);
        self.row.bytes_per_cycle = counted.bytes.map(each);
    }

    /// Takes a timed turn, and the processor times before and after it.
    pub(super) fn take(&mut self, round: u32, history: &History, before: Spent, after: Spent) {
        self.check(history);
        let cycles = history.len() as u64;
        let each = |at: usize| {
            Some(rounded(after[at]?.saturating_sub(before[at]?) as f64 / 1e3 / cycles.max(1) as f64))
        };
        self.acquisitions.add(&history.acquisitions());
        self.releases.add(&history.releases());
        let turn = Turn {
            cycles,
            rate: history.cycles_per_s().map(rounded),
            client_us: each(0),
            server_us: each(1),
            switches: each(2),
            overtakes: if self.is_of_names() { None } else { history.overtakes().map(rounded) },
            service: history.service(self.row.contenders),
        };
        self.turns.push((round, turn));
        if !self.is_of_names() {
            let hand_offs = history.hand_offs();
            self.hand_offs.add(&hand_offs);
            self.block.add(&hand_offs);
        }
        if self.block.len() >= ENOUGH {
            self.handoff_p99s.extend(std::mem::replace(&mut self.block, Times::new()).micros(0.99));
        }
    }

    /// What it comes to so far, beside the row that is its floor.
    pub(super) fn row(&self, floor: Option<&Row>) -> Row {
        let row = Row { violations: Some(self.violations), ..self.row.clone() };
        let stopped = self.stopped.as_ref().map(ToString::to_string);
        let row = Row { remark: stopped.or_else(|| row.remark.clone()), ..row };
        // Who was merely too slow has shown how slow; of any other failure there is no figure.
        if self.stopped.is_some() && (self.turns.is_empty() || !self.is_slow) {
            return row;
        }
        let turns = || self.turns.iter().map(|(_, turn)| turn);
        let timed = || self.turns.iter().filter_map(|(round, turn)| Some((*round, turn.rate?)));
        let rates: Vec<_> = timed().map(|(_, rate)| rate).collect();
        // Those of a crowd come all at once, so half of their first requests have no order.
        let is_ordered = row.scenario != Scenario::Crowd.to_string();
        let overtakes: Vec<_> = turns().filter_map(|turn| turn.overtakes).filter(|_| is_ordered).collect();
        let services = || turns().filter_map(|turn| turn.service);
        let row = Row {
            cycles_per_s: median(rates.iter().copied()).map(rounded),
            rates,
            turns: timed().map(|(round, _)| round).collect(),
            cycles: turns().map(|turn| turn.cycles).sum(),
            acquire_us: self.acquisitions.spread(),
            release_us: self.releases.spread(),
            handoff_us: self.hand_offs.spread(),
            handoff_p99s: self.handoff_p99s.clone(),
            overtakes: median(overtakes.iter().copied()).map(rounded),
            overtakes_of_runs: overtakes,
            served: services().map(|service| service.served).min(),
            least_share: services().map(|service| rounded(service.least)).reduce(f64::min),
            most_share: services().map(|service| rounded(service.most)).reduce(f64::max),
            client_us_per_cycle: median(turns().filter_map(|turn| turn.client_us)),
            client_us_of_turns: turns().filter_map(|turn| turn.client_us).collect(),
            server_us_per_cycle: median(turns().filter_map(|turn| turn.server_us)),
            switches_per_cycle: median(turns().filter_map(|turn| turn.switches)),
            runs: u32::try_from(self.turns.len()).unwrap_or(u32::MAX),
            ..row
        };
        let floor_ratios = floor.map(|floor| row.shares_of(floor)).unwrap_or_default();
        Row { floor_ratio: median(floor_ratios.iter().copied()).map(rounded), floor_ratios, ..row }
    }

    pub(super) fn conclude(&self, comparison: &mut Comparison, row: Row) {
        if let Some(why) = &self.stopped {
            comparison.give_up(&row, why);
        }
        comparison.add(row);
    }
}

/// What those say who were not served in time.
const UNSERVED: &str = ": unserved";

/// So many hand-offs have a 99th percentile.
const ENOUGH: u64 = 150;
