//! Administrators that walk through the phases as a seed decides.

use std::sync::Arc;
use std::time::Duration;

use leasehold_conformance::Dice;
use leasehold_conformance::history::{Recorder, What};
use leasehold_conformance::simulation::Cluster;
use leasehold_core::backend::stage::Phase;
use leasehold_core::clock::{Clock, TokioClock};
use leasehold_core::{Env, Result};
use leasehold_migration::{Admin, Migration, Steps};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::phases::Move;

/// The steps that administrators have completed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Done(Arc<Mutex<Vec<(Phase, Phase)>>>);

impl Done {
    pub(crate) fn take(&self) -> Vec<(Phase, Phase)> {
        std::mem::take(&mut *self.0.lock())
    }

    /// The single steps of a way.
    fn add(&self, from: Phase, to: Phase) {
        let place = |phase| Phase::ALL.iter().position(|other| *other == phase).expect("it is one of them");
        let (from, to) = (place(from), place(to));
        let pair = |at: usize, next: usize| (Phase::ALL[at], Phase::ALL[next]);
        let mut done = self.0.lock();
        done.extend((from..to).map(|at| pair(at, at + 1)));
        done.extend((to..from).rev().map(|at| pair(at + 1, at)));
    }
}

pub(crate) fn named((from, to): (Phase, Phase)) -> String {
    format!("steps {from}→{to}")
}

/// An administrator that walks about until it dies.
#[derive(Debug)]
pub(crate) struct Walker {
    label: String,
    /// Ends with it.
    _task: JoinSet<()>,
}

impl Walker {
    pub(crate) fn start(cluster: &mut Cluster<Move>) -> Self {
        let (label, recorder, migration) = enter(cluster);
        cluster.expose(&label);
        let walk = Walk {
            migration,
            env: cluster.env(),
            recorder,
            done: cluster.deployment.done.clone(),
            ttl: cluster.scenario.timing.ttl,
            hurried: cluster.deployment.hurried,
            dice: cluster.scenario.dice.fork(),
        };
        let mut task = JoinSet::new();
        task.spawn(walk.run());
        Self { label, _task: task }
    }

    pub(crate) fn dies(self, cluster: &mut Cluster<Move>) {
        cluster.bury(&self.label);
    }
}

fn enter(cluster: &mut Cluster<Move>) -> (String, Recorder, Migration) {
    let (label, ways, recorder) = cluster.enter("a");
    let [old, new] = <[_; 2]>::try_from(ways).expect("a way to each store");
    (label, recorder, cluster.deployment.migration(old, new))
}

/// An administrator that goes to a given phase, by perfect networks.
pub(crate) struct Guide {
    admin: Admin,
    recorder: Recorder,
    done: Done,
}

impl Guide {
    pub(crate) async fn start(cluster: &mut Cluster<Move>) -> Result<Self> {
        let (_, recorder, migration) = enter(cluster);
        let admin = migration.admin(cluster.env()).await?;
        Ok(Self { admin, recorder, done: cluster.deployment.done.clone() })
    }

    pub(crate) async fn walk_to(&mut self, goal: Phase, patience: Duration) -> Result<()> {
        let before = self.admin.status().await?.phase;
        let steps = Steps::default().quiet_for(Duration::ZERO).to(goal).wait(patience);
        walk(&self.admin, &self.recorder, &self.done, before, goal, &steps).await.map(drop)
    }

    pub(crate) async fn close(self) -> Result<()> {
        self.admin.close().await
    }
}

async fn walk(
    admin: &Admin,
    recorder: &Recorder,
    done: &Done,
    before: Option<Phase>,
    goal: Phase,
    steps: &Steps,
) -> Result<()> {
    let ignored = &mut |_: &_| {};
    let walked = if before < Some(goal) {
        admin.advance(steps, ignored).await
    } else {
        admin.rollback(steps, ignored).await
    };
    let came = match &walked {
        Ok(status) => format!("came to {:?}", status.phase),
        Err(error) => format!("stopped: {error:#}"),
    };
    recorder.note(What::Noted(format!("from {before:?} toward {goal}, {came}")));
    if let (Some(before), Some(after)) = (before, walked?.phase) {
        done.add(before, after);
    }
    Ok(())
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
            // There are only so many, and the walks in peace need some.
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
            // Why it stopped is noted, and it goes on.
            let _ = walk(&admin, &self.recorder, &self.done, before, goal, &steps).await;
        }
    }

    async fn pause(&mut self) {
        let clock = TokioClock::new();
        let span =
            Duration::from_millis(1) + self.dice.span(if self.hurried { self.ttl / 4 } else { self.ttl });
        clock.sleep_until(clock.now() + span).await;
    }
}

/// So many times the store that counts may change while they wander: of 128 windows, some are left.
const EPOCHS: u64 = 100;

/// The goals of walkers: the ends more often, so that they cross everything.
const GOALS: [Phase; 7] =
    [Phase::Old, Phase::Old, Phase::Shadow, Phase::Both, Phase::Drain, Phase::New, Phase::New];

/// The goals of walkers in a hurry.
const ENDS: [Phase; 2] = [Phase::Old, Phase::New];
