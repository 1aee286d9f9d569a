//! A contest of all implementations on one store: warmed up, checked, counted, then timed in turns.
//!
//! # Invariants
//! - **contest-5** Exclusion is looked at while holders hold for long enough to be seen. What is timed is checked
//!   as well, but holds last for next to nothing there.
//! - **contest-6** Every figure is of several turns, and nobody is always first. Who is not done says so in a row.

mod entry;
mod warming;

use std::time::Duration;

use contender_protocol::now;

use crate::comparison::Comparison;
use crate::driver::{Effort, Outcome, Shape, Team};
use crate::error::{Error, Result};
use crate::implementation::Implementation;
use crate::options::Scenario;
use crate::report::Row;
use crate::scale::Scale;
use crate::servers::Target;

use entry::{Cost, Entry, Spent};

pub(super) use warming::Warming;

/// What is to be run.
#[derive(Clone, Debug)]
pub(crate) struct Contest {
    pub(crate) scenario: Scenario,
    /// By which contenders find the store.
    pub(crate) url: String,
    /// As the report counts them.
    pub(crate) contenders: u64,
    pub(crate) shape: Shape,
    pub(crate) effort: Effort,
    pub(crate) runs: u32,
}

impl Contest {
    pub(crate) async fn run(
        &self,
        comparison: &mut Comparison,
        target: &Target,
        everybody: &[Implementation],
    ) {
        let scale = comparison.scale;
        let able = everybody.iter().filter(|who| self.is_for(who, scale)).copied();
        // Who has no queue within the process would be given one by its users.
        let fronted = |who: Implementation| {
            let fronted = if self.scenario == Scenario::Tasks { who.fronted() } else { None };
            [who].into_iter().chain(fronted)
        };
        let able: Vec<_> = able.flat_map(fronted).collect();
        let mut entries: Vec<_> = able
            .iter()
            .map(|who| Entry::of(*who, Row::of(self.scenario, target, who, self.contenders)))
            .collect();
        for round in 0..self.runs {
            // Nobody is always first.
            let count = entries.len().max(1);
            entries.rotate_left(round as usize % count);
            for entry in entries.iter_mut().filter(|entry| entry.stopped.is_none()) {
                let doing = format!(
                    "{}: {}, {} × {}",
                    target.label,
                    self.scenario,
                    self.contenders,
                    entry.who.name()
                );
                comparison.progress.doing(doing);
                let began = now();
                let turn = self.take_turn(entry, round, comparison, target).await;
                entry.spent += Duration::from_nanos(now().saturating_sub(began));
                match turn {
                    Err(error) => entry.stop(error),
                    Ok(()) if entry.spent > PATIENCE && round + 1 < self.runs => {
                        entry.stop_as_slow(self.runs)
                    }
                    Ok(()) => {}
                }
            }
        }
        for entry in &mut entries {
            if let Some(team) = entry.team.take() {
                comparison.kept.keep(&self.url, &entry.who, team);
            }
        }
        let floors = [Implementation::Floor, Implementation::QueueFloor].map(|floor| {
            let entry = entries.iter().find(|entry| entry.who.name() == floor.name());
            entry.map(Entry::rates)
        });
        let floor = floors.into_iter().flatten().next();
        for who in able {
            if let Some(entry) = entries.iter().find(|entry| entry.who.name() == who.name()) {
                entry.conclude(comparison, self.scenario, floor.as_deref());
            }
        }
    }

    fn is_for(&self, who: &Implementation, scale: Scale) -> bool {
        let within = self.scenario == Scenario::Tasks;
        // A floor that does not wait is for a lock that nobody else wants.
        self.contenders <= who.most_contenders()
            && !(within && who.is_floor())
            && (!who.is_heavy() || self.is_for_heavy(scale))
    }

    /// Whether it is worth the time that a virtual machine or an interpreter takes to start.
    fn is_for_heavy(&self, scale: Scale) -> bool {
        match self.scenario {
            Scenario::Uncontended | Scenario::Processes => true,
            Scenario::Fairness => !scale.warm_up.is_zero(),
            _ => scale.with_heavy,
        }
    }

    /// How `who` is spread: what has a virtual machine or an interpreter contends from one process, as a
    /// dozen of them would mostly compete for processors.
    fn shape_of(&self, who: &Implementation) -> Shape {
        let Shape { processes, sessions, .. } = self.shape;
        if !who.is_heavy() {
            return self.shape;
        }
        let contenders = u32::try_from(self.shape.everyone()).unwrap_or(u32::MAX);
        Shape { processes: 1, contenders, sessions: processes * sessions }
    }

    /// Whether all stay open between their turns: so many idle sessions are in nobody's way.
    fn stays(&self) -> bool {
        self.contenders <= AT_ONCE || self.shape.sessions == 1
    }

    async fn take_turn(
        &self,
        entry: &mut Entry,
        round: u32,
        comparison: &mut Comparison,
        target: &Target,
    ) -> Result<()> {
        let name =
            if self.stays() { self.name(&entry.who) } else { format!("{}-{round}", self.name(&entry.who)) };
        let effort = Effort { front: entry.who.is_fronted(), ..self.effort.clone() };
        let mut team = match entry.team.take() {
            Some(team) => team,
            None => {
                let team = self.team(&entry.who, comparison).await?;
                self.prepare(entry, team, &name, comparison, target).await?
            }
        };
        let counting = if self.stays() { None } else { target.count_aside().await };
        let before = spent_by(&team, target);
        let Outcome { history, gave_up } = team.contest(&name, &effort).await?;
        let after = spent_by(&team, target);
        if let Some(counting) = counting {
            entry.counted(counting.end().await?, history.len());
        }
        entry.take(history, before, after);
        if let Some(gave_up) = gave_up {
            return Err(gave_up);
        }
        if self.scenario == Scenario::Uncontended {
            self.profile(entry, &mut team, target, &name).await?;
        }
        if self.stays() {
            entry.team = Some(team);
        }
        Ok(())
    }

    /// Started for this contest, or for one before and kept.
    async fn team(&self, who: &Implementation, comparison: &mut Comparison) -> Result<Team> {
        let shape = self.shape_of(who);
        let kept = if self.stays() { comparison.kept.take(&self.url, who, shape) } else { None };
        match kept {
            Some(team) => team.reshape(shape).await,
            None => Team::start(*who, std::slice::from_ref(&self.url), shape, comparison.room()).await,
        }
    }

    /// Lets them find their places, looks at exclusion, and counts what they ask.
    async fn prepare(
        &self,
        entry: &mut Entry,
        mut team: Team,
        name: &str,
        comparison: &Comparison,
        target: &Target,
    ) -> Result<Team> {
        if !self.stays() {
            return Ok(team);
        }
        let everyone = self.shape.everyone();
        let front = entry.who.is_fronted();
        // An order is none the worse for being slow.
        if entry.who.is_heavy() && self.scenario != Scenario::Fairness {
            self.warm(entry, &mut team, name, comparison.scale.warm_up).await?;
        } else if everyone == 1 {
            let warm_up = Effort::cycles(20).until(WARM_UP);
            entry.look_at(team.contest(name, &warm_up).await?)?;
        }
        if everyone > 1 {
            let checked =
                team.contest(name, &Effort { front, ..Effort::checked(comparison.scale.checked) }).await?;
            entry.row.held_share = checked.history.held_share();
            entry.look_at(checked)?;
        }
        if let Some(counting) = target.count().await {
            let effort =
                Effort { front, ..Effort::cycles((2 * everyone).max(200)).until(comparison.scale.counted) };
            let outcome = team.contest(name, &effort).await?;
            entry.counted(counting.end().await?, outcome.history.len());
            entry.look_at(outcome)?;
        }
        Ok(team)
    }

    /// Lets it run until its rate stands still. What was warm already shows that soon.
    async fn warm(&self, entry: &mut Entry, team: &mut Team, name: &str, most: Duration) -> Result<()> {
        let mut warming = Warming::of(most, team.is_warm);
        while let Some(window) = warming.window() {
            let outcome = team.contest(name, &Effort::cycles(0).until(window)).await?;
            warming.saw(outcome.history.cycles_per_s().unwrap_or(0.0));
            entry.look_at(outcome)?;
        }
        team.is_warm = true;
        if !warming.stands_still() {
            entry.row.remark = Some("still getting faster when it was timed".to_owned());
        }
        Ok(())
    }

    /// What a cycle costs both processors; a part of it in every turn, so that nobody has the cold server.
    async fn profile(&self, entry: &mut Entry, team: &mut Team, target: &Target, name: &str) -> Result<()> {
        let before = spent_by(team, target);
        let effort = Effort { journal: false, ..Effort::cycles(0).until(PROFILED / self.runs) };
        let ended = team.go(name, &effort).await?;
        entry.cost.add(Cost::between(before, spent_by(team, target), ended.cycles));
        ended.gave_up.map_or(Ok(()), Err::<(), Error>)
    }

    /// Of the lock: nobody else's, and the same in every turn.
    fn name(&self, who: &Implementation) -> String {
        format!("compare-{}-{}-{}", self.scenario, self.contenders, who.name())
    }
}

/// The processor time of the client and of the server so far.
fn spent_by(team: &Team, target: &Target) -> Spent {
    (team.cpu_nanos(), target.cpu_nanos())
}

/// Above so many contenders with sessions of their own, implementations start anew for each turn.
pub(super) const AT_ONCE: u64 = 128;

/// How long those who begin may look for their places.
const WARM_UP: Duration = Duration::from_millis(500);

/// How long one of them may keep the others from their turns.
const PATIENCE: Duration = Duration::from_secs(60);

/// Long enough, over all turns, for processor times, which are told in hundredths of a second.
const PROFILED: Duration = Duration::from_millis(600);
