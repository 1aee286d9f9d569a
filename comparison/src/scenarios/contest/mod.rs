//! A contest of all implementations on one store: warmed up, checked, counted, then timed in turns.
//!
//! # Invariants
//! - **contest-5** Exclusion is looked at while holders hold for long enough to be seen. What is timed is checked
//!   as well, but holds last for next to nothing there.
//! - **contest-6** Every figure is of several turns, and nobody is always first. Who is not done says so in a row.
//! - **contest-9** One alone and a server of one thread take turns, and share a processor in its timed turns: on two, where the
//!   system puts them each time changes the rate by a factor of three, whoever they are.

mod entry;
mod pace;

use std::time::Duration;

use contender_protocol::now;

use crate::comparison::Comparison;
use crate::driver::{Effort, Outcome, Shape, Team};
use crate::error::Result;
use crate::figures::Chance;
use crate::implementation::{Implementation, SCRIPTS};
use crate::options::{Scenario, Store};
use crate::proc::{OneProcessor, cpu_nanos, switches};
use crate::report::Row;
use crate::scale::Scale;
use crate::servers::Target;

use entry::{Entry, Spent};
use pace::Pace;

/// What is to be run.
#[derive(Clone, Debug)]
pub(crate) struct Contest {
    pub(crate) scenario: Scenario,
    /// By which contenders find the store.
    pub(crate) url: String,
    /// As the report counts them.
    pub(crate) contenders: u64,
    pub(crate) shape: Shape,
    /// How long a turn is, if it does not follow from who takes it.
    pub(crate) effort: Effort,
    /// How many rounds there are; several times as many for those on whom a budget depends that is undecided.
    pub(crate) rounds: u32,
}

impl Contest {
    pub(crate) async fn run(
        &self,
        comparison: &mut Comparison,
        target: &Target,
        everybody: &[Implementation],
    ) {
        let able = everybody.iter().filter(|who| self.is_for(who, comparison.scale)).copied();
        // Who has no queue within the process would be given one by its users.
        let ways = |who: Implementation| match self.scenario {
            Scenario::Tasks => [who].into_iter().chain(who.fronted()).collect(),
            Scenario::Names => who.of_names(self.contenders),
            _ => vec![who],
        };
        let able = able.flat_map(ways);
        let row = |who: Implementation| Row {
            scenario: who.calls(self.scenario),
            ..Row::of(self.scenario, target, &who, self.contenders)
        };
        let mut entries: Vec<_> = able.map(|who| Entry::of(who, row(who))).collect();
        let (mut chance, rounds) = (Chance::of(now()), self.rounds);
        for round in 0..rounds * comparison.scale.longer {
            if round >= rounds && (round - rounds).is_multiple_of(rounds.div_ceil(2)) {
                let undecided = comparison.undecided(rows(&entries));
                for entry in &mut entries {
                    entry.is_done = !undecided.contains(entry.who.name());
                }
            }
            let mut order: Vec<_> = entries.iter_mut().filter(|entry| entry.goes_on(round)).collect();
            chance.shuffle(&mut order);
            for entry in order {
                let who = entry.who.name();
                let doing = format!("{}: {}, {} × {who}", target.label, entry.row.scenario, self.contenders);
                comparison.progress.doing(doing);
                let began = now();
                let turn = self.take_turn(entry, round, comparison, target).await;
                entry.spent += Duration::from_nanos(now().saturating_sub(began));
                match turn {
                    Err(error) => entry.stop(error),
                    Ok(()) if entry.spent > PATIENCE && round + 1 < rounds => entry.stop_as_slow(),
                    Ok(()) => {}
                }
            }
        }
        let rows = rows(&entries);
        for (entry, row) in entries.iter_mut().zip(rows) {
            entry.conclude(comparison, row);
            if let Some(team) = entry.team.take() {
                comparison.kept.keep(&self.url, &entry.who, team);
            }
        }
    }

    fn is_for(&self, who: &Implementation, scale: Scale) -> bool {
        let within = self.scenario == Scenario::Tasks;
        if self.scenario == Scenario::Names {
            return true;
        }
        if matches!(who, Implementation::Scripts) {
            return matches!(self.scenario, Scenario::Processes | Scenario::Uncontended);
        }
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

    async fn take_turn(
        &self,
        entry: &mut Entry,
        round: u32,
        comparison: &mut Comparison,
        target: &Target,
    ) -> Result<()> {
        let name = self.name(&entry.who);
        let mut team = match entry.team.take() {
            Some(team) => team,
            None => {
                let team = self.team(&entry.who, comparison).await?;
                self.prepare(entry, team, &name, comparison, target).await?
            }
        };
        let effort = Effort { span: entry.pace.span, ..self.effort(&entry.who) };
        // INVARIANT(contest-9)
        let in_turns = self.contenders == 1 && matches!(target.store, Store::Redis | Store::RedisQuorum);
        let bound = in_turns.then(|| OneProcessor::of([team.pids(), target.pids()].concat()));
        let before = spent_by(&team, target);
        let outcome = team.contest(&name, &effort).await;
        let after = spent_by(&team, target);
        drop(bound);
        let Outcome { history, gave_up } = outcome?;
        entry.take(round, &history, before, after);
        if let Some(gave_up) = gave_up {
            return Err(gave_up);
        }
        entry.team = Some(team);
        Ok(())
    }

    /// Started for this contest, or for one before and kept.
    async fn team(&self, who: &Implementation, comparison: &mut Comparison) -> Result<Team> {
        let shape = self.shape_of(who);
        match comparison.kept.take(&self.url, who, shape) {
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
        entry.pace = Pace::fixed(self.effort.span);
        let (scale, everyone) = (comparison.scale, self.shape.everyone());
        let alike = self.effort(&entry.who);
        // An order is none the worse for being slow.
        if entry.who.is_heavy() && self.scenario != Scenario::Fairness && !scale.warm_up.is_zero() {
            entry.look_at(team.warm(name, Effort::cycles(0), scale.warm_up).await?)?;
        }
        if everyone > 1 {
            let checked = Effort { span: scale.checked, ..alike.clone() }.checked();
            let checked = team.contest(name, &checked).await?;
            entry.row.held_share = checked.history.held_share();
            entry.look_at(checked)?;
        }
        if let Some(counting) = target.count().await {
            let effort = Effort { cycles: (2 * everyone).max(200), span: scale.counted, ..alike.clone() };
            let outcome = team.contest(name, &effort).await?;
            entry.counted(counting.end().await?, outcome.history.len());
            entry.look_at(outcome)?;
        }
        // Those who begin look for their places meanwhile.
        let trial = team.contest(name, &Effort { span: TRIAL, ..alike }).await?;
        let rate = entry.look_at(trial)?;
        if self.effort.span.is_zero() {
            entry.pace = Pace::of(everyone, self.scenario != Scenario::Names, rate, &scale);
        }
        Ok(team)
    }

    /// As `who` goes for it, for as long as is said elsewhere.
    fn effort(&self, who: &Implementation) -> Effort {
        Effort { way: who.way(self.scenario), ..self.effort.clone() }
    }

    /// Of the lock: nobody else's, and the same in every turn.
    fn name(&self, who: &Implementation) -> String {
        let scenario = who.calls(self.scenario).replace(' ', "-");
        format!("compare-{scenario}-{}-{}", self.contenders, who.name())
    }
}

/// What all have shown, each beside the floor that did the same.
fn rows(entries: &[Entry]) -> Vec<Row> {
    let plain: Vec<_> = entries.iter().map(|entry| entry.row(None)).collect();
    let floor_of = |row: &Row| {
        let mut alike = plain.iter().filter(|floor| floor.scenario == row.scenario);
        alike.find(|floor| floor.is_floor() && floor.implementation != SCRIPTS)
    };
    entries.iter().zip(&plain).map(|(entry, row)| entry.row(floor_of(row))).collect()
}

/// What the client and the server have spent so far.
fn spent_by(team: &Team, target: &Target) -> Spent {
    let of_team = |told: fn(u32) -> Option<u64>| team.pids().into_iter().map(told).sum::<Option<u64>>();
    [of_team(cpu_nanos), target.cpu_nanos(), of_team(switches).map(|switches| switches * 1_000)]
}

/// How long they go before their turns, to show how fast they are.
const TRIAL: Duration = Duration::from_millis(100);

/// How long one of them may keep the others from their turns.
const PATIENCE: Duration = Duration::from_secs(60);
