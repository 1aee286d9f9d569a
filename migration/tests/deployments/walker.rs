//! Administrators, who walk through the phases as a seed decides.

use std::sync::Arc;
use std::time::Duration;

use leasehold_conformance::history::{Recorder, What};
use leasehold_conformance::network::Rates;
use leasehold_conformance::simulation::SeededEntropy;
use leasehold_conformance::{Dice, Network};
use leasehold_core::backend::StoreConfig;
use leasehold_core::backend::stage::{Phase, Side};
use leasehold_core::clock::{Clock, TokioClock};
use leasehold_core::{Env, Result};
use leasehold_migration::{Admin, Migration, Steps};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::fleet::Fleet;
use crate::station::Sessions;

/// The way of a process that takes part.
pub(crate) fn moving(
    old: Box<dyn StoreConfig>,
    new: Box<dyn StoreConfig>,
    poll: Duration,
) -> Box<dyn StoreConfig> {
    Box::new(Migration::new(old, new).poll(poll))
}

/// The steps that somebody has completed.
type Done = Arc<Mutex<Vec<(Phase, Phase)>>>;

/// One who walks about until dismissed.
pub(crate) struct Walker {
    networks: [Network; 2],
    sessions: Vec<Sessions>,
    /// Ends with it.
    _task: JoinSet<()>,
    done: Done,
}

/// One who goes where it is told to.
pub(crate) struct Guide {
    admin: Admin,
    recorder: Recorder,
    done: Done,
    patience: Duration,
}

impl Walker {
    pub(crate) fn reaches(&self, side: Side, yes: bool) {
        let network = &self.networks[usize::from(side == Side::New)];
        if yes { network.heal() } else { network.cut() }
    }
}

impl Fleet {
    pub(crate) fn start_walker(&mut self) {
        let label = self.label("a");
        let (old, new) = (self.old.way(&label), self.new.way(&label));
        let networks = [old.network, new.network];
        let rates = if self.stormy { self.scenario.rates } else { Rates::default() };
        for network in &networks {
            network.seeded(self.scenario.dice.bits(), rates);
        }
        for (station, network) in [&self.old, &self.new].into_iter().zip(&networks) {
            if station.is_down {
                network.cut();
            }
        }
        let migration = Migration::new(old.config, new.config).poll(self.scenario.poll);
        let (done, mut task) = (Done::default(), JoinSet::new());
        let walk = Walk {
            migration,
            env: self.admin_env(),
            recorder: self.recorder_of(&label),
            done: Arc::clone(&done),
            ttl: self.scenario.timing.ttl,
            hurried: self.scenario.hurried,
            dice: self.scenario.dice.fork(),
        };
        task.spawn(walk.run());
        self.walkers.push(Walker { networks, sessions: vec![old.sessions, new.sessions], _task: task, done });
    }

    /// It dies.
    pub(crate) fn dismiss(&mut self, walker: Walker) {
        let Walker { networks, sessions, _task: task, done } = walker;
        drop(task);
        networks.iter().for_each(Network::cut);
        self.tally.add_steps(done.lock().drain(..));
        self.bury(sessions);
    }

    /// One whose networks are perfect.
    pub(crate) async fn guide(&mut self) -> Result<Guide> {
        let label = self.label("a");
        let (old, new) = (self.old.way(&label), self.new.way(&label));
        let migration = Migration::new(old.config, new.config).poll(self.scenario.poll);
        let admin = migration.admin(self.admin_env()).await?;
        // A process that retires in order is there until it has had its turns, behind everybody else.
        let (recorder, patience) = (self.recorder_of(&label), self.scenario.forgotten_after() * 10);
        Ok(Guide { admin, recorder, done: Done::default(), patience })
    }

    fn admin_env(&mut self) -> Env {
        let env = Env::new(self.scenario.timing.clone()).expect("inside the runtime");
        let entropy = SeededEntropy::new(self.scenario.dice.fork());
        env.with_clock(Arc::new(TokioClock::new())).with_entropy(Arc::new(entropy))
    }
}

impl Guide {
    pub(crate) async fn walk_to(&mut self, goal: Phase) -> Result<()> {
        let steps = Steps::default().quiet_for(Duration::ZERO).to(goal).wait(self.patience);
        let before = self.admin.status().await?.phase;
        let told = &mut |_: &_| {};
        let walked = if before < Some(goal) {
            self.admin.advance(&steps, told).await
        } else {
            self.admin.rollback(&steps, told).await
        };
        note(&self.recorder, before, goal, &walked.as_ref().map(|status| status.phase));
        if let Some(before) = before {
            self.done.lock().extend(steps_between(before, walked?.phase.unwrap_or(before)));
        }
        Ok(())
    }

    pub(crate) fn steps(&self) -> Vec<(Phase, Phase)> {
        self.done.lock().clone()
    }

    pub(crate) async fn close(self) -> Result<()> {
        self.admin.close().await
    }
}

/// What a walker does.
struct Walk {
    migration: Migration,
    env: Env,
    recorder: Recorder,
    done: Done,
    ttl: Duration,
    hurried: bool,
    dice: Dice,
}

impl Walk {
    async fn run(mut self) {
        loop {
            match self.migration.admin(self.env.clone()).await {
                Ok(admin) => return self.wander(admin).await,
                Err(error) => self.recorder.note(What::Noted(format!("cannot begin: {error:#}"))),
            }
            self.pause().await;
        }
    }

    async fn wander(&mut self, admin: Admin) {
        let goals = if self.hurried { &ENDS } else { &GOALS[..] };
        let mut goal = *self.dice.pick(goals);
        loop {
            self.pause().await;
            let Ok(status) = admin.status().await else { continue };
            // There are only so many, and those who walk in peace need some.
            let records = [&status.old, &status.new].map(|store| store.record.as_ref());
            if records.into_iter().flatten().any(|record| EPOCHS <= record.epoch) {
                continue;
            }
            let before = status.phase;
            if before == Some(goal) || self.dice.chance(150) {
                goal = *self.dice.pick(goals);
            }
            // Steps one by one, and now and then all that are to be taken at once.
            let wait = self.dice.span(self.ttl * if self.hurried { 8 } else { 4 });
            let steps = Steps::default().quiet_for(Duration::ZERO).wait(wait);
            let steps = if self.hurried || self.dice.chance(200) { steps.to(goal) } else { steps };
            let told = &mut |_: &_| {};
            let walked = if before < Some(goal) {
                admin.advance(&steps, told).await
            } else {
                admin.rollback(&steps, told).await
            };
            let after = walked.map(|status| status.phase);
            note(&self.recorder, before, goal, &after.as_ref().copied());
            if let (Some(before), Ok(Some(after))) = (before, after) {
                self.done.lock().extend(steps_between(before, after));
            }
        }
    }

    async fn pause(&mut self) {
        let clock = TokioClock::new();
        let span =
            Duration::from_millis(1) + self.dice.span(if self.hurried { self.ttl / 4 } else { self.ttl });
        clock.sleep_until(clock.now() + span).await;
    }
}

fn note(
    recorder: &Recorder,
    before: Option<Phase>,
    goal: Phase,
    after: &std::result::Result<Option<Phase>, impl std::fmt::Display>,
) {
    let came = match after {
        Ok(after) => format!("came to {after:?}"),
        Err(error) => format!("stopped: {error:#}"),
    };
    recorder.note(What::Noted(format!("from {before:?} toward {goal}, {came}")));
}

/// The single steps of a way.
fn steps_between(from: Phase, to: Phase) -> Vec<(Phase, Phase)> {
    let place = |phase| Phase::ALL.iter().position(|other| *other == phase).expect("it is one of them");
    let (from, to) = (place(from), place(to));
    let pair = |at: usize, next: usize| (Phase::ALL[at], Phase::ALL[next]);
    if from < to {
        (from..to).map(|at| pair(at, at + 1)).collect()
    } else {
        (to..from).rev().map(|at| pair(at + 1, at)).collect()
    }
}

/// So many times the store that counts may change while they wander: of 128 windows, some are left.
const EPOCHS: u64 = 100;

/// Where walkers want to be: at the ends more often, so that they cross everything.
const GOALS: [Phase; 7] =
    [Phase::Old, Phase::Old, Phase::Shadow, Phase::Both, Phase::Drain, Phase::New, Phase::New];

/// Where those who are in a hurry want to be.
const ENDS: [Phase; 2] = [Phase::Old, Phase::New];
