//! A contest of all implementations on one store: warmed up, counted, then timed in interleaved runs.

use std::time::Duration;

use crate::comparison::Comparison;
use crate::contenders::{Effort, Shape, Team};
use crate::error::Result;
use crate::figures::{Spread, Times, median, rounded};
use crate::history::History;
use crate::implementation::Implementation;
use crate::options::Scenario;
use crate::report::{Row, Who};
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
    requests_per_cycle: Option<f64>,
    violations: u64,
    runs: Vec<Figures>,
    cycles: Times,
    last: Option<History>,
}

/// Of one run.
struct Figures {
    cycles_per_s: Option<f64>,
    acquire: Spread,
    release: Spread,
    hand_off: Spread,
    overtakes: Option<f64>,
}

impl Contest {
    pub(crate) async fn run(
        &self,
        comparison: &mut Comparison,
        target: &Target,
        everybody: &[Implementation],
    ) {
        let able = everybody.iter().filter(|who| self.is_for(who));
        if self.contenders > AT_ONCE {
            // So many sessions that idle ones of others would be in the way.
            for who in able {
                self.among(comparison, target, &[*who]).await;
            }
        } else {
            let able: Vec<_> = able.copied().collect();
            self.among(comparison, target, &able).await;
        }
    }

    fn is_for(&self, who: &Implementation) -> bool {
        // A floor does not wait, and the scenario with one task is the one without contention.
        let uncontended = self.scenario == Scenario::Uncontended;
        self.shape.processes <= who.most_processes()
            && self.contenders <= who.most_contenders()
            && (uncontended || !who.is_floor())
    }

    async fn among(&self, comparison: &mut Comparison, target: &Target, able: &[Implementation]) {
        let mut entries = Vec::new();
        for who in able {
            comparison.progress.doing(format!(
                "{}: {}, {} × {}",
                target.label,
                self.scenario.name(),
                self.contenders,
                who.name()
            ));
            match self.enter(*who, comparison, target).await {
                Ok(entry) => entries.push(entry),
                Err(error) => self.give_up(comparison, target, who, &error.to_string()),
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
                    Err(error) => self.give_up(comparison, target, &entry.team.who, &error.to_string()),
                }
            }
            entries = standing;
        }
        let floor = entries.iter().find(|entry| entry.team.who.is_floor()).map(Entry::rates);
        for who in able {
            if let Some(entry) = entries.iter().find(|entry| entry.team.who.name() == who.name()) {
                self.conclude(comparison, target, entry, floor.as_deref());
            }
        }
    }

    /// Starts the processes, lets them find their places, and counts what they ask.
    async fn enter(&self, who: Implementation, comparison: &Comparison, target: &Target) -> Result<Entry> {
        let urls = std::slice::from_ref(&target.url);
        let mut team = Team::start(who, urls, self.shape, comparison.room()).await?;
        let name = self.name(&who);
        let everyone = u64::from(self.shape.contenders) * self.shape.processes as u64;
        let warm_up = Effort::cycles((2 * everyone).max(20)).until(WARM_UP);
        let mut violations = team.contest(&name, &warm_up).await?.violations();

        let counting = target.count().await;
        let effort = Effort::cycles((2 * everyone).max(200)).until(COUNTED);
        let history = team.contest(&name, &effort).await?;
        violations += history.violations();
        let requests_per_cycle = match counting {
            Some(counting) => Some(rounded(counting.end().await? as f64 / history.len().max(1) as f64)),
            None => None,
        };
        Ok(Entry { team, requests_per_cycle, violations, runs: Vec::new(), cycles: Times::new(), last: None })
    }

    fn conclude(
        &self,
        comparison: &mut Comparison,
        target: &Target,
        entry: &Entry,
        floor: Option<&[Option<f64>]>,
    ) {
        let runs = &entry.runs;
        let who: Who = (target.label.clone(), entry.team.who.name().to_owned());
        // A herd comes all at once, so half of its requests have no order.
        let overtakes = median(runs.iter().filter_map(|run| run.overtakes));
        comparison.add(Row {
            scenario: self.scenario.name().to_owned(),
            store: who.0.clone(),
            implementation: who.1.clone(),
            contenders: self.contenders,
            cycles_per_s: median(runs.iter().filter_map(|run| run.cycles_per_s)).map(rounded),
            acquire_us: Spread::over(runs.iter().map(|run| run.acquire)),
            release_us: Spread::over(runs.iter().map(|run| run.release)),
            handoff_us: Spread::over(runs.iter().map(|run| run.hand_off)),
            requests_per_cycle: entry.requests_per_cycle,
            floor_ratio: floor.and_then(|floor| entry.ratio(floor)),
            overtakes: if self.scenario == Scenario::Herd { None } else { overtakes.map(rounded) },
            violations: Some(entry.violations),
            runs: self.runs,
        });
        if self.scenario == Scenario::Uncontended {
            comparison.drawings.cycles.insert(who, entry.cycles.clone());
        } else if let (Scenario::Fairness, Some(history)) = (self.scenario, &entry.last) {
            comparison.drawings.turns.insert(who, history.excerpt(TURNS));
        }
    }

    fn give_up(&self, comparison: &mut Comparison, target: &Target, who: &Implementation, why: &str) {
        let what = format!(
            "{} on {} in {} with {} contenders",
            who.name(),
            target.label,
            self.scenario.name(),
            self.contenders
        );
        comparison.leave_out(what, why);
    }

    /// Of the lock: nobody else's, and the same in every run.
    fn name(&self, who: &Implementation) -> String {
        format!("compare-{}-{}-{}", self.scenario.name(), self.contenders, who.name())
    }
}

impl Entry {
    fn take(&mut self, history: History) {
        self.violations += history.violations();
        self.cycles.add(&history.cycles());
        self.runs.push(Figures {
            cycles_per_s: history.cycles_per_s(),
            acquire: history.acquisitions().spread(),
            release: history.releases().spread(),
            hand_off: history.hand_offs().spread(),
            overtakes: history.overtakes(),
        });
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

/// Above so many contenders, implementations come one after the other.
const AT_ONCE: u64 = 16;

/// How long those who poll may look for their places.
const WARM_UP: Duration = Duration::from_millis(500);

/// How long requests are counted at most.
const COUNTED: Duration = Duration::from_secs(1);

/// How many grants are drawn.
const TURNS: usize = 120;
