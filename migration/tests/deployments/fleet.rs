//! The stores, the processes that come and go, and the phases of a run.

use std::sync::Arc;

use leasehold_conformance::history::{History, Journal, Recorder, What};
use leasehold_conformance::invariants::{self, Violation};
use leasehold_conformance::simulation::{Makings, Process, Stage};
use leasehold_conformance::{HostClock, Network};
use leasehold_core::backend::StoreConfig;
use leasehold_core::backend::stage::{Phase, Side};
use leasehold_core::clock::{Clock, TokioClock};
use leasehold_core::{ErrorKind, LostReason, Result};
use tokio::task::{JoinError, JoinSet};

use crate::plants::{Blind, Plant};
use crate::scenario::Scenario;
use crate::station::{Sessions, Sight, Station};
use crate::tally::{PEACE, REFUSED, Tally};
use crate::walker::{self, Walker};

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

/// A process of the fleet.
pub(crate) struct Hand {
    pub(crate) process: Process,
    pub(crate) kind: Kind,
    /// Where its tasks work, until it is to retire.
    stage: Arc<Stage>,
    sessions: Vec<Sessions>,
}

/// One run.
pub(crate) struct Fleet {
    pub(crate) scenario: Scenario,
    pub(crate) truth: TokioClock,
    journal: Journal,
    pub(crate) recorder: Recorder,
    pub(crate) old: Station,
    pub(crate) new: Station,
    stage: Arc<Stage>,
    pub(crate) hands: Vec<Hand>,
    pub(crate) walkers: Vec<Walker>,
    /// What goes on for those who are leaving, or gone.
    pub(crate) errands: JoinSet<()>,
    /// The ways of those who are leaving.
    leaving: Vec<(Vec<Network>, HostClock)>,
    started: usize,
    /// Whether messages get lost.
    pub(crate) stormy: bool,
    pub(crate) tally: Tally,
}

/// What a run came to.
pub(crate) struct Report {
    pub(crate) seed: u64,
    pub(crate) history: History,
    pub(crate) stores: [(Side, History); 2],
    pub(crate) violations: Vec<String>,
    pub(crate) tally: Tally,
}

/// Runs `seed`, with `planted` in it if something is.
pub(crate) fn run(seed: u64, planted: Option<Plant>) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime without I/O needs nothing of the host");
    runtime.block_on(async { Fleet::open(Scenario::of_seed(seed, planted)).await.play(seed).await })
}

impl Fleet {
    async fn open(scenario: Scenario) -> Self {
        let truth = TokioClock::new();
        let journal = Journal::new(Arc::new(truth));
        let station = |side| {
            let planted = scenario.planted.and_then(|plant| plant.wrap(side));
            Station::new(side, &scenario.timing, planted)
        };
        let (old, new) = (station(Side::Old), station(Side::New));
        let stage = Stage::new(&scenario.names, scenario.timing.ttl, scenario.pause, u32::MAX);
        let mut fleet = Self {
            truth,
            recorder: journal.actor("world"),
            journal,
            old,
            new,
            stage: Arc::new(stage),
            hands: Vec::new(),
            walkers: Vec::new(),
            errands: JoinSet::new(),
            leaving: Vec::new(),
            started: 0,
            stormy: !scenario.fair_weather,
            tally: Tally::default(),
            scenario,
        };
        for _ in 0..fleet.scenario.processes {
            fleet.start(Kind::Plain(Side::Old)).await;
        }
        fleet
    }

    async fn play(mut self, seed: u64) -> Report {
        if !self.scenario.fair_weather {
            self.recorder.note(What::Disturbed("the storm begins"));
        }
        self.storm().await;
        self.heal();
        self.peace().await;
        self.finish().await;
        for hand in &self.hands {
            hand.process.take_everything_once(&self.scenario.names, self.scenario.forgotten_after()).await;
        }
        self.rest().await;
        self.close().await;
        self.judge(seed)
    }

    /// The phase of the move, and whether plain sessions are barred from each store.
    pub(crate) async fn phase(&self) -> Option<Phase> {
        let (old, new) = (self.old.look().await.stage, self.new.look().await.stage);
        let decides = new.filter(|stage| stage.phase >= Phase::Drain).or(old);
        decides.map(|stage| stage.phase)
    }

    pub(crate) fn station(&self, side: Side) -> &Station {
        match side {
            Side::Old => &self.old,
            Side::New => &self.new,
        }
    }

    /// Starts a process, which must be refused exactly if its store's record bars it.
    pub(crate) async fn start(&mut self, kind: Kind) {
        let label = self.label("p");
        let (old, new) = (self.old.way(&label), self.new.way(&label));
        let (networks, sessions) = (vec![old.network, new.network], vec![old.sessions, new.sessions]);
        let config: Box<dyn StoreConfig> = match kind {
            Kind::Plain(Side::Old) => old.config,
            Kind::Plain(Side::New) => new.config,
            Kind::Blind(Side::Old) => Box::new(Blind(old.config)),
            Kind::Blind(Side::New) => Box::new(Blind(new.config)),
            Kind::Moving => walker::moving(old.config, new.config, self.scenario.poll),
        };
        let admitted = match kind {
            Kind::Plain(side) => {
                let stage = self.station(side).look().await.stage;
                stage.is_none_or(|stage| stage.admits_plain_sessions())
            }
            Kind::Moving | Kind::Blind(_) => true,
        };
        let dice = &mut self.scenario.dice;
        let clock = HostClock::new(Arc::new(self.truth), *dice.pick(&DRIFTS));
        let workers = dice.between(1, self.scenario.workers_at_most);
        let makings = Makings {
            label: label.clone(),
            clock,
            timing: &self.scenario.timing,
            rates: self.scenario.rates,
            networks,
            journal: &self.journal,
            dice: dice.fork(),
        };
        let mut process = match Process::open(makings, config).await {
            Ok(process) => process,
            Err(error) => {
                let cut = self.old.is_down || self.new.is_down;
                if admitted && !cut {
                    self.stuck(&format!("{label}, {kind:?}: {error}"));
                } else if !admitted && *error.kind() != ErrorKind::Misuse {
                    self.stuck(&format!("{label}, {kind:?}, refused with: {error}"));
                }
                self.tally.count(REFUSED, u64::from(!admitted));
                self.recorder.note(What::Noted(format!("{label}, {kind:?}, not opened: {error}")));
                self.bury(sessions);
                return;
            }
        };
        if !admitted {
            self.stuck(&format!("{label}, {kind:?}, opened a store that was barred"));
        }
        self.recorder.note(What::Noted(format!("{label} is {kind:?}")));
        self.tally.opened(kind);
        if self.stormy {
            process.back_to_usual();
        }
        self.keep_cut(&process);
        let stage = Arc::new(self.stage.beside());
        for _ in 0..workers {
            process.employ(&stage);
        }
        self.hands.push(Hand { process, kind, stage, sessions });
    }

    /// A name that nobody had.
    pub(crate) fn label(&mut self, letter: &str) -> String {
        self.started += 1;
        format!("{letter}{}", self.started)
    }

    pub(crate) fn recorder_of(&self, label: &str) -> Recorder {
        self.journal.actor(label)
    }

    /// A store that nobody reaches stays that, whatever else ends.
    pub(crate) fn keep_cut(&self, process: &Process) {
        for (station, network) in [&self.old, &self.new].into_iter().zip(process.networks()) {
            if station.is_down {
                network.cut();
            }
        }
    }

    /// The sessions of somebody who is gone end when its leases have.
    pub(crate) fn bury(&mut self, sessions: Vec<Sessions>) {
        let (truth, after) = (self.truth, self.scenario.forgotten_after());
        self.errands.spawn(async move {
            truth.sleep_until(truth.now() + after).await;
            for sessions in sessions {
                sessions.end().await;
            }
        });
    }

    /// It dies: nothing leaves it any more.
    pub(crate) fn crash(&mut self, index: usize) {
        let hand = self.hands.remove(index);
        hand.process.crash();
        self.bury(hand.sessions);
    }

    /// It forgets its manager, and lives on.
    pub(crate) fn walk_away(&mut self, index: usize) {
        let Hand { process, sessions, .. } = self.hands.remove(index);
        self.leaving.push((process.networks().to_vec(), process.clock().clone()));
        process.recorder().note(What::Noted("walks away".to_owned()));
        drop(process);
        self.bury(sessions);
    }

    /// It shuts down in order; `gently` it lets its tasks come to their end before that.
    pub(crate) fn retire(&mut self, index: usize, gently: bool) {
        let Hand { mut process, stage, sessions, .. } = self.hands.remove(index);
        self.leaving.push((process.networks().to_vec(), process.clock().clone()));
        let recorder = process.recorder().clone();
        if gently {
            recorder.note(What::Noted("retires".to_owned()));
        } else {
            recorder.note(What::Disturbed("it shuts down"));
        }
        let (truth, after) = (self.truth, self.scenario.forgotten_after());
        let fair_weather = self.scenario.fair_weather;
        self.errands.spawn(async move {
            stage.calm_down();
            if gently {
                process.finished().await;
            }
            // In bad weather it fails, and leases end what it had.
            if let Err(error) = process.retire().await {
                if fair_weather {
                    recorder.note(What::Stuck { waits_for: format!("a shutdown: {error}") });
                }
                truth.sleep_until(truth.now() + after).await;
            }
            for sessions in sessions {
                sessions.end().await;
            }
        });
    }

    fn heal(&mut self) {
        self.stormy = false;
        (self.old.is_down, self.new.is_down) = (false, false);
        for hand in &self.hands {
            hand.process.heal();
        }
        for (networks, clock) in &self.leaving {
            networks.iter().for_each(Network::heal);
            clock.resume();
        }
        self.recorder.note(What::Healed);
    }

    /// Nothing goes wrong any more: processes are replaced, and an administrator can go anywhere.
    async fn peace(&mut self) {
        for walker in std::mem::take(&mut self.walkers) {
            self.dismiss(walker);
        }
        let plain = self.hands.extract_if(.., |hand| hand.kind != Kind::Moving).collect::<Vec<_>>();
        for hand in plain {
            self.hands.push(hand);
            self.retire(self.hands.len() - 1, true);
            if self.scenario.planted != Some(Plant::IgnoresPhases) {
                self.start(Kind::Moving).await;
            }
        }
        if self.hands.is_empty() {
            return;
        }
        let goals =
            [*self.scenario.dice.pick(&Phase::ALL), *self.scenario.dice.pick(&[Phase::Old, Phase::New])];
        for goal in goals {
            if let Err(error) = self.walk_in_peace(goal).await {
                self.stuck(&format!("the way to {goal}: {error:#}"));
            }
        }
        let plain = match self.phase().await {
            Some(Phase::Old) => Kind::Plain(Side::Old),
            Some(Phase::New) => Kind::Plain(Side::New),
            _ => return,
        };
        for _ in 0..self.scenario.dice.below(self.hands.len() as u64) {
            self.retire(0, true);
            self.start(plain).await;
        }
        self.truth.sleep_until(self.truth.now() + self.scenario.timing.ttl * 3).await;
    }

    async fn walk_in_peace(&mut self, goal: Phase) -> Result<()> {
        let limit = self.truth.now() + self.scenario.forgotten_after() * 20;
        let mut guide = self.guide().await?;
        tokio::select! {
            biased;
            walked = guide.walk_to(goal) => walked?,
            () = self.truth.sleep_until(limit) => self.stuck(&format!("the way to {goal}: not in time")),
        }
        self.tally.count(PEACE, 1);
        self.tally.add_steps(guide.steps());
        guide.close().await
    }

    /// Every task comes to its end, those that wait by being served.
    async fn finish(&mut self) {
        let limit = self.truth.now() + self.scenario.forgotten_after() * 50;
        let Self { hands, errands, truth, .. } = self;
        for hand in hands.iter() {
            hand.stage.calm_down();
        }
        let done = async {
            for hand in hands.iter_mut() {
                hand.process.finished().await;
            }
            while let Some(joined) = errands.join_next().await {
                joined_well(joined);
            }
        };
        tokio::select! {
            biased;
            () = done => {}
            () = truth.sleep_until(limit) => self.stuck("tasks that should have come to an end"),
        }
    }

    /// Whatever is forgotten now is renewed for ever, and shows.
    async fn rest(&self) {
        self.truth.sleep_until(self.truth.now() + self.scenario.forgotten_after()).await;
        for station in [&self.old, &self.new] {
            self.recorder.note(What::AtRest { left: station.look().await.names });
            if !station.is_empty() {
                self.stuck("entries that nobody can see");
            }
        }
    }

    /// Everybody goes, and nobody is left in a list.
    async fn close(&mut self) {
        for hand in &self.hands {
            if let Err(error) = hand.process.manager().shutdown().await {
                self.stuck(&format!("the shutdown of {}: {error}", hand.process.label()));
            }
        }
        for station in [&self.old, &self.new] {
            let Sight { members, sessions, .. } = station.look().await;
            if !members.is_empty() || sessions > 0 {
                let left = members.iter().map(|member| String::from_utf8_lossy(&member.value).into_owned());
                let left = left.collect::<Vec<_>>();
                self.stuck(&format!("{sessions} sessions and the members {left:?} of {:?}", station.side));
            }
        }
    }

    fn judge(mut self, seed: u64) -> Report {
        let history = self.journal.history();
        let bounds = self.scenario.bounds();
        let mut violations: Vec<_> = told(invariants::check_all(&history, &bounds), "");
        let abandoned = |what: &What| matches!(what, What::LostTold { reason: LostReason::RuntimeGone, .. });
        if history.events().iter().any(|event| abandoned(&event.what)) {
            violations.push("a watchdog ended while its runtime lived".to_owned());
        }
        let stores = [&self.old, &self.new].map(|station| (station.side, station.journal.history()));
        // Whoever takes no part adds a base to the store's own numbers, and the others do not: they are not compared.
        for (side, history) in &stores {
            violations.extend(told(invariants::one_entry::check(history), side.word()));
        }
        self.tally.add_history(&history);
        Report { seed, history, stores, violations, tally: self.tally }
    }

    pub(crate) fn stuck(&self, waits_for: &str) {
        self.recorder.note(What::Stuck { waits_for: waits_for.to_owned() });
    }
}

fn told(violations: Vec<Violation>, at: &str) -> Vec<String> {
    violations.into_iter().map(|violation| format!("{at} {violation}").trim_start().to_owned()).collect()
}

/// Passes a panic on.
fn joined_well(joined: std::result::Result<(), JoinError>) {
    if let Err(error) = joined {
        assert!(!error.is_panic(), "a task of the simulation panicked: {error}");
    }
}

/// How much clocks of processes gain on the stores', in millionths: as much as A1 allows.
const DRIFTS: [i32; 7] = [-10_000, -5_000, -100, 0, 100, 5_000, 10_000];
