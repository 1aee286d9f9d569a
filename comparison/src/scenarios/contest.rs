//! A contest of all implementations on one store: warmed up, counted, then timed in interleaved runs.

use std::time::Duration;

use crate::comparison::Comparison;
use crate::driver::{Effort, Shape, Team};
use crate::error::Result;
use crate::figures::{Spread, Times, median, rounded};
use crate::history::History;
use crate::implementation::Implementation;
use crate::options::Scenario;
use crate::report::{Profile, Row};
use crate::servers::Target;

/// What is to be run.
#[derive(Clone, Debug)]
pub(crate) struct Contest {
    pub(crate) scenario: Scenario,
    /// As the report counts them.
    pub(crate) contenders: u64,
    pub(crate) shape: Shape,
    pub(crate) effort: Effort,
    pub(crate) runs: u32,
}

/// One implementation in it.
struct Entry {
    team: Team,
    /// What is known before it is timed.
    row: Row,
    /// Of one cycle, in microseconds of the client's and the server's processors.
    cost: Option<(Option<f64>, Option<f64>)>,
    runs: Vec<Row>,
    cycles: Times,
    last: Option<History>,
}

impl Contest {
    pub(crate) async fn run(
        &self,
        comparison: &mut Comparison,
        target: &Target,
        everybody: &[Implementation],
    ) {
        let spares_heavy = comparison.scale.spares_heavy;
        let able = everybody.iter().filter(|who| self.is_for(who, spares_heavy));
        let able: Vec<_> = able.copied().collect();
        // With so many sessions, idle ones of others would be in the way.
        let together = if self.contenders > AT_ONCE { 1 } else { able.len().max(1) };
        for able in able.chunks(together) {
            self.among(comparison, target, able).await;
        }
    }

    fn is_for(&self, who: &Implementation, spares_heavy: bool) -> bool {
        // A floor does not wait, and the scenario with one task is the one without contention.
        let uncontended = self.scenario == Scenario::Uncontended;
        self.shape.processes <= who.most_processes()
            && self.contenders <= who.most_contenders()
            && (uncontended || !who.is_floor())
            && !(spares_heavy && who.is_heavy() && matches!(self.scenario, Scenario::Tasks | Scenario::Herd))
    }

    /// How `who` is spread: what is slow to start contends from one process if it is to be spared.
    fn shape_of(&self, who: &Implementation, spares_heavy: bool) -> Shape {
        let Shape { processes, contenders, sessions } = self.shape;
        if !(spares_heavy && who.is_heavy()) {
            return self.shape;
        }
        let everyone = processes * contenders as usize;
        Shape {
            processes: 1,
            contenders: u32::try_from(everyone).unwrap_or(u32::MAX),
            sessions: processes * sessions,
        }
    }

    async fn among(&self, comparison: &mut Comparison, target: &Target, able: &[Implementation]) {
        let mut entries = Vec::new();
        for who in able {
            let Self { scenario, contenders, .. } = self;
            let doing = format!("{}: {scenario}, {contenders} × {}", target.label, who.name());
            comparison.progress.doing(doing);
            let row = Row::of(self.scenario, target, who, self.contenders);
            match self.enter(*who, comparison, target, &row).await {
                Ok(entry) => entries.push(entry),
                Err(error) => comparison.give_up(&row, &error),
            }
        }
        for round in 0..self.runs {
            // Nobody is always first.
            let count = entries.len().max(1);
            entries.rotate_left(round as usize % count);
            let mut standing = Vec::new();
            for mut entry in entries {
                let name = self.name(&entry.team.who);
                match entry.team.contest(&name, &self.effort).await {
                    Ok(history) => {
                        entry.take(history);
                        standing.push(entry);
                    }
                    Err(error) => comparison.give_up(&entry.row, &error),
                }
            }
            entries = standing;
        }
        let floor = entries.iter().find(|entry| entry.team.who.is_floor()).map(Entry::rates);
        for who in able {
            if let Some(entry) = entries.iter().find(|entry| entry.team.who.name() == who.name()) {
                self.conclude(comparison, entry, floor.as_deref());
            }
        }
    }

    /// Starts the processes, lets them find their places, and counts what they ask.
    async fn enter(
        &self,
        who: Implementation,
        comparison: &Comparison,
        target: &Target,
        row: &Row,
    ) -> Result<Entry> {
        let urls = std::slice::from_ref(&target.url);
        let scale = comparison.scale;
        let shape = self.shape_of(&who, scale.spares_heavy);
        let mut team = Team::start(who, urls, shape, comparison.room()).await?;
        let name = self.name(&who);
        let everyone = u64::from(self.shape.contenders) * self.shape.processes as u64;
        // What is compiled while it runs needs all of the time.
        let most = if who.is_heavy() { NO_BOUND } else { (2 * everyone).max(20) };
        let warm_up = Effort::cycles(most).until(WARM_UP);
        let mut violations = team.contest(&name, &warm_up).await?.violations();

        let counting = target.count().await;
        let effort = Effort::cycles((2 * everyone).max(200)).until(COUNTED);
        let history = team.contest(&name, &effort).await?;
        violations += history.violations();
        let requests_per_cycle = match counting {
            Some(counting) => Some(rounded(counting.end().await? as f64 / history.len().max(1) as f64)),
            None => None,
        };
        let uncontended = self.scenario == Scenario::Uncontended;
        let cost = if uncontended { Some(self.cost(&mut team, target).await?) } else { None };
        let row = Row { requests_per_cycle, violations: Some(violations), runs: self.runs, ..row.clone() };
        Ok(Entry { team, row, cost, runs: Vec::new(), cycles: Times::new(), last: None })
    }

    async fn cost(&self, team: &mut Team, target: &Target) -> Result<(Option<f64>, Option<f64>)> {
        let before = (team.cpu_nanos(), target.cpu_nanos());
        let effort = Effort { journal: false, ..Effort::cycles(NO_BOUND).until(PROFILED) };
        let cycles = team.go(&self.name(&team.who), &effort).await?;
        let after = (team.cpu_nanos(), target.cpu_nanos());
        let each = |before: Option<u64>, after: Option<u64>| {
            Some(rounded(after?.saturating_sub(before?) as f64 / 1e3 / cycles.max(1) as f64))
        };
        Ok((each(before.0, after.0), each(before.1, after.1)))
    }

    fn conclude(&self, comparison: &mut Comparison, entry: &Entry, floor: Option<&[Option<f64>]>) {
        let runs = || entry.runs.iter();
        let rate = median(runs().filter_map(|run| run.cycles_per_s)).map(rounded);
        // A herd comes all at once, so half of its requests have no order.
        let is_ordered = self.scenario != Scenario::Herd;
        let overtakes = median(runs().filter_map(|run| run.overtakes)).filter(|_| is_ordered);
        comparison.add(Row {
            cycles_per_s: rate,
            acquire_us: Spread::over(runs().map(|run| run.acquire_us)),
            release_us: Spread::over(runs().map(|run| run.release_us)),
            handoff_us: Spread::over(runs().map(|run| run.handoff_us)),
            floor_ratio: floor.and_then(|floor| entry.ratio(floor)),
            overtakes: overtakes.map(rounded),
            violations: entry
                .row
                .violations
                .map(|begun| begun + runs().filter_map(|run| run.violations).sum::<u64>()),
            ..entry.row.clone()
        });
        let who = entry.row.who();
        if let Some(((client_us, server_us), rate)) = entry.cost.zip(rate) {
            let ((store, implementation), cycle_us) = (who.clone(), rounded(1e6 / rate));
            let profile = Profile { store, implementation, cycle_us, client_us, server_us };
            comparison.report.profiles.push(profile);
        }
        if self.scenario == Scenario::Uncontended {
            comparison.drawings.cycles.insert(who, entry.cycles.clone());
        } else if let (Scenario::Fairness, Some(history)) = (self.scenario, &entry.last) {
            comparison.drawings.turns.insert(who, history.excerpt(TURNS));
        }
    }

    /// Of the lock: nobody else's, and the same in every run.
    fn name(&self, who: &Implementation) -> String {
        format!("compare-{}-{}-{}", self.scenario, self.contenders, who.name())
    }
}

impl Entry {
    fn take(&mut self, history: History) {
        self.cycles.add(&history.cycles());
        self.runs.push(Row::default().with(&history));
        self.last = Some(history);
    }

    fn rates(&self) -> Vec<Option<f64>> {
        self.runs.iter().map(|run| run.cycles_per_s).collect()
    }

    /// Our rate by the floor's of the same round.
    fn ratio(&self, floor: &[Option<f64>]) -> Option<f64> {
        let rounds = self.rates().into_iter().zip(floor);
        median(rounds.filter_map(|(rate, floor)| Some(rate? / (*floor)?))).map(rounded)
    }
}

/// Of an effort.
const NO_BOUND: u64 = 0;

/// Above so many contenders, implementations come one after the other.
const AT_ONCE: u64 = 16;

/// How long those who poll may look for their places.
const WARM_UP: Duration = Duration::from_millis(500);

/// Long enough for processor times, which are told in hundredths of a second.
const PROFILED: Duration = Duration::from_millis(600);

/// How long requests are counted at most.
const COUNTED: Duration = Duration::from_secs(1);

/// How many grants are drawn.
const TURNS: usize = 120;
