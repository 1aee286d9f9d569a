//! The processes of a move, which are replaced as the phase allows; now and then as it does not.

use std::time::Duration;

use leasehold_conformance::entry_rule;
use leasehold_conformance::history::{Recorder, What};
use leasehold_conformance::invariants::Property;
use leasehold_conformance::network::{Fault, Operation};
use leasehold_conformance::simulation::{Cluster, Deployment, Scenario};
use leasehold_core::Result;
use leasehold_core::backend::StoreConfig;
use leasehold_core::backend::stage::{Phase, Side};
use leasehold_core::clock::{Clock, Moment};
use leasehold_migration::Migration;

use crate::plants::{Blind, Plant};
use crate::walker::{Done, Guide, Walker, named};

/// How a process is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// With the URL of that store.
    Plain(Side),
    /// With both.
    Moving,
    /// As `Plain`, and it looks at no record.
    Blind(Side),
}

/// Two stores, and a move between them.
#[derive(Debug)]
pub(crate) struct Move {
    planted: Option<Plant>,
    /// So many administrators there are at once, at most.
    admins: u64,
    /// Whether they go all the way at once, and wait for no process longer than they must.
    pub(crate) hurried: bool,
    /// How often records are looked at.
    poll: Duration,
    walkers: Vec<Walker>,
    /// The steps that were completed.
    pub(crate) done: Done,
}

impl Deployment for Move {
    type Kind = Kind;
    type Plant = Plant;

    const NAME: &'static str = "deployments";
    const STORES: usize = 2;
    const FIRST: Kind = Kind::Plain(Side::Old);

    fn plants() -> Vec<(&'static str, Plant, &'static [Property])> {
        vec![
            ("sessions_that_ignore_the_phase", Plant::IgnoresPhases, &[Property::Overlap]),
            ("entries_that_acknowledge_early", Plant::AcknowledgesEarly, &[Property::Overlap]),
        ]
    }

    fn new(scenario: &mut Scenario, planted: Option<Plant>) -> Self {
        let (dice, ttl) = (&mut scenario.dice, scenario.timing.ttl);
        scenario.timing.connect_timeout = ttl / 2;
        scenario.processes = dice.between(3, 12);
        scenario.workers_at_most = dice.between(1, 2);
        scenario.pause = ttl / *dice.pick(&[1, 2, 4]);
        scenario.turns = u32::MAX;
        scenario.storm = ttl * *dice.pick(&[20, 30, 40]);
        let poll = ttl / *dice.pick(&[8, 15, 30]);
        // A process notices a new phase with its next look.
        scenario.granularity += poll;
        let (admins, hurried) = (dice.between(1, 2), dice.chance(400));
        Self { planted, admins, hurried, poll, walkers: Vec::new(), done: Done::default() }
    }

    /// Every step, both ways, and every kind of process.
    fn wanted() -> Vec<String> {
        let steps = Phase::ALL.windows(2).flat_map(|pair| [(pair[0], pair[1]), (pair[1], pair[0])]);
        let kinds = [Kind::Plain(Side::Old), Kind::Moving, Kind::Plain(Side::New)];
        let kinds = kinds.map(|kind| format!("processes {kind:?}"));
        let others = ["processes refused", DIED].map(str::to_owned);
        steps.map(named).chain(kinds).chain(others).collect()
    }

    fn above(&self, at: usize, mut store: Box<dyn StoreConfig>, recorder: Recorder) -> Box<dyn StoreConfig> {
        if let Some(planted) = self.planted.and_then(|plant| plant.wrap(SIDES[at])) {
            store = planted(store);
        }
        entry_rule(recorder)(store)
    }

    fn config(&self, kind: Kind, ways: Vec<Box<dyn StoreConfig>>) -> Box<dyn StoreConfig> {
        let [old, new] = <[_; 2]>::try_from(ways).expect("a way to each store");
        match kind {
            Kind::Plain(Side::Old) => old,
            Kind::Plain(Side::New) => new,
            Kind::Blind(Side::Old) => Box::new(Blind(old)),
            Kind::Blind(Side::New) => Box::new(Blind(new)),
            Kind::Moving => Box::new(self.migration(old, new)),
        }
    }

    async fn admits(cluster: &Cluster<Self>, kind: Kind) -> bool {
        match kind {
            Kind::Plain(side) => {
                let stage = cluster.stores[usize::from(side == Side::New)].look().await.stage;
                stage.is_none_or(|stage| stage.admits_plain_sessions())
            }
            Kind::Moving | Kind::Blind(_) => true,
        }
    }

    /// Administrators come, walk through the phases, and die; processes are replaced.
    async fn act(cluster: &mut Cluster<Self>) -> bool {
        let dice = &mut cluster.scenario.dice;
        let died: Vec<_> = cluster.deployment.walkers.extract_if(.., |_| dice.chance(80)).collect();
        for walker in died {
            cluster.tally.count(DIED, 1);
            walker.dies(cluster);
        }
        let are_few = (cluster.deployment.walkers.len() as u64) < cluster.deployment.admins;
        if are_few && cluster.scenario.dice.chance(400) {
            let walker = Walker::start(cluster);
            cluster.deployment.walkers.push(walker);
        }
        let redeploys = cluster.scenario.fair_weather || cluster.scenario.dice.chance(400);
        if redeploys {
            redeploy(cluster).await;
        }
        redeploys
    }

    /// A ledger falls silent for longer than a whole move in a hurry takes.
    async fn strike(cluster: &mut Cluster<Self>, victim: usize) -> Option<Moment> {
        let at = *cluster.scenario.dice.pick(&[0, 1]);
        let process = &cluster.processes[victim].1;
        process.recorder.note(What::Disturbed("a ledger is silent"));
        let network = &cluster.networks(process)[at];
        for operation in [Operation::Sign, Operation::ReadRecord, Operation::Members] {
            network.always(operation, Fault::LoseRequest);
        }
        Some(cluster.truth.now() + cluster.scenario.dice.span(cluster.scenario.timing.ttl * 8))
    }

    /// Processes are replaced, and an administrator can go anywhere.
    async fn peace(cluster: &mut Cluster<Self>) {
        for walker in std::mem::take(&mut cluster.deployment.walkers) {
            walker.dies(cluster);
        }
        while let Some(at) = cluster.processes.iter().position(|(kind, _)| *kind != Kind::Moving) {
            cluster.retire(at, true);
            if cluster.deployment.planted != Some(Plant::IgnoresPhases) {
                cluster.start(Kind::Moving).await;
            }
        }
        if !cluster.processes.is_empty() {
            walk_in_peace(cluster).await;
        }
        for step in cluster.deployment.done.take() {
            cluster.tally.count(named(step), 1);
        }
    }
}

impl Move {
    pub(crate) fn migration(&self, old: Box<dyn StoreConfig>, new: Box<dyn StoreConfig>) -> Migration {
        Migration::new(old, new).poll(self.poll)
    }
}

/// The phase of the move, once it has begun.
async fn phase(cluster: &Cluster<Move>) -> Option<Phase> {
    let (old, new) = (cluster.stores[0].look().await.stage, cluster.stores[1].look().await.stage);
    let decides = new.filter(|stage| stage.phase >= Phase::Drain).or(old);
    decides.map(|stage| stage.phase)
}

async fn redeploy(cluster: &mut Cluster<Move>) {
    let phase = phase(cluster).await;
    let dice = &mut cluster.scenario.dice;
    if dice.chance(60) {
        let side = match phase {
            Some(Phase::Old) => Side::New,
            Some(Phase::New) => Side::Old,
            _ => *dice.pick(&SIDES),
        };
        if phase.is_some() {
            cluster.start(Kind::Plain(side)).await;
        }
        return;
    }
    let kind = match phase {
        _ if cluster.deployment.planted == Some(Plant::IgnoresPhases) && dice.chance(300) => {
            Kind::Blind(*dice.pick(&SIDES))
        }
        Some(Phase::Old) if dice.chance(300) => Kind::Plain(Side::Old),
        Some(Phase::New) if dice.chance(500) => Kind::Plain(Side::New),
        _ => Kind::Moving,
    };
    if cluster.processes.len() as u64 >= cluster.scenario.processes {
        let is_plain = |at: &usize| matches!(cluster.processes[*at].0, Kind::Plain(_));
        let all: Vec<_> = (0..cluster.processes.len()).collect();
        let plain: Vec<_> = all.iter().copied().filter(is_plain).collect();
        let choice = if kind == Kind::Moving && !plain.is_empty() { &plain } else { &all };
        let leaver = *cluster.scenario.dice.pick(choice);
        let gently = cluster.scenario.fair_weather || cluster.scenario.dice.chance(500);
        cluster.retire(leaver, gently);
    }
    cluster.start(kind).await;
}

/// The move goes to some phase and then to an end, where plain processes take the place of some.
async fn walk_in_peace(cluster: &mut Cluster<Move>) {
    let dice = &mut cluster.scenario.dice;
    let goals = [*dice.pick(&Phase::ALL), *dice.pick(&[Phase::Old, Phase::New])];
    for goal in goals {
        if let Err(error) = walk_to(cluster, goal).await {
            cluster.stuck(&format!("the way to {goal}: {error:#}"));
        }
    }
    let plain = match phase(cluster).await {
        Some(Phase::Old) => Kind::Plain(Side::Old),
        Some(Phase::New) => Kind::Plain(Side::New),
        _ => return,
    };
    for _ in 0..cluster.scenario.dice.below(cluster.processes.len() as u64) {
        cluster.retire(0, true);
        cluster.start(plain).await;
    }
    cluster.truth.sleep_until(cluster.truth.now() + cluster.scenario.timing.ttl * 3).await;
}

async fn walk_to(cluster: &mut Cluster<Move>, goal: Phase) -> Result<()> {
    // A process that retires in order is there until it has had its turns, behind everybody else.
    let patience = cluster.scenario.forgotten_after() * 10;
    let limit = cluster.truth.now() + patience * 2;
    let mut guide = Guide::start(cluster).await?;
    tokio::select! {
        biased;
        walked = guide.walk_to(goal, patience) => walked?,
        () = cluster.truth.sleep_until(limit) => cluster.stuck(&format!("the way to {goal}: not in time")),
    }
    cluster.tally.count("walks in peace", 1);
    guide.close().await
}

pub(crate) const SIDES: [Side; 2] = [Side::Old, Side::New];

const DIED: &str = "administrators died";
