//! The stores, the processes that come and go, and the phases of a run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::StoreConfig;
use leasehold_core::clock::{Clock, TokioClock};
use leasehold_core::{Env, ErrorKind, LostReason};
use tokio::task::JoinSet;

use super::Deployment;
use super::process::{Makings, Process, SeededEntropy, joined_well};
use super::scenario::Scenario;
use super::store::{Sessions, Store, Way};
use super::tally::Tally;
use super::worker::Stage;
use crate::history::{History, Journal, Recorder, What};
use crate::host::HostClock;
use crate::network::Network;
use crate::store_log::store_log;

/// One run.
#[derive(Debug)]
#[non_exhaustive]
pub struct Cluster<D: Deployment> {
    /// What the seed decided before.
    pub scenario: Scenario,
    /// What it is a run of.
    pub deployment: D,
    /// The clock of the stores.
    pub truth: TokioClock,
    /// The stores.
    pub stores: Vec<Store>,
    /// The processes that live, and how each is configured.
    pub processes: Vec<(D::Kind, Process)>,
    /// What happened how often.
    pub tally: Tally,
    /// Where things are written down that no process does.
    pub recorder: Recorder,
    journal: Journal,
    stage: Arc<Stage>,
    /// The ways of all that are not dead, by label.
    ways: BTreeMap<String, Way>,
    /// Work for processes that are leaving, or gone.
    errands: JoinSet<()>,
    started: usize,
    is_stormy: bool,
}

impl<D: Deployment> Cluster<D> {
    pub(super) async fn open(scenario: Scenario, deployment: D) -> Self {
        let truth = TokioClock::new();
        let journal = Journal::new(Arc::new(truth));
        let stores = (0..D::STORES).map(|_| {
            // Each of several stores has numbers of its own.
            let own = || Journal::new(Arc::new(truth));
            Store::new(if D::STORES == 1 { journal.clone() } else { own() }, &scenario.timing, truth)
        });
        let mut cluster = Self {
            truth,
            stores: stores.collect(),
            recorder: journal.actor("world"),
            stage: Arc::new(Stage::new(&scenario, deployment.bound())),
            journal,
            processes: Vec::new(),
            tally: Tally::default(),
            ways: BTreeMap::new(),
            errands: JoinSet::new(),
            started: 0,
            is_stormy: !scenario.fair_weather,
            scenario,
            deployment,
        };
        for _ in 0..cluster.scenario.processes {
            cluster.start(D::FIRST).await;
        }
        cluster
    }

    /// Plays all phases.
    pub(super) async fn play(mut self) -> (History, Vec<History>, Tally) {
        if !self.scenario.fair_weather {
            self.recorder.note(What::Disturbed("the storm begins"));
        }
        self.storm().await;
        self.heal();
        D::peace(&mut self).await;
        self.finish().await;
        for (_, process) in &self.processes {
            process.take_everything_once(&self.scenario.names, self.scenario.forgotten_after()).await;
        }
        self.rest().await;
        self.close().await;
        let history = self.journal.history();
        self.tally.add_history(&history);
        let ways = self.ways.values().flat_map(|way| &way.networks);
        self.tally.count("faults", ways.map(Network::injected).sum());
        let stores = self.stores.iter().filter(|_| D::STORES > 1).map(|store| store.journal.history());
        (history, stores.collect(), self.tally)
    }

    /// A label that nothing has, its ways to the stores, and where what it does is written down.
    pub fn enter(&mut self, letter: &str) -> (String, Vec<Box<dyn StoreConfig>>, Recorder) {
        self.started += 1;
        let label = format!("{letter}{}", self.started);
        let clock = HostClock::new(Arc::new(self.truth), *self.scenario.dice.pick(&DRIFTS));
        let sessions = Sessions::default();
        let networks: Vec<_> = self.stores.iter().map(|_| Network::new(Duration::ZERO)).collect();
        let is_perfect = self.scenario.dice.chance(PERFECT_NETWORKS);
        let ways = self.stores.iter().zip(&networks).enumerate().map(|(at, (store, network))| {
            let recorder = store.journal.actor(label.as_str());
            let mut config = store_log(recorder.clone())(self.deployment.beneath(store.kept_in(&sessions)));
            if !is_perfect {
                config = network.wrap()(config);
            }
            self.deployment.above(at, config, recorder)
        });
        let configs = ways.collect();
        self.ways.insert(label.clone(), Way { networks, clock, sessions });
        self.keep_cut(&label);
        let recorder = self.journal.actor(label.as_str());
        (label, configs, recorder)
    }

    /// The networks of that one are as bad as usual while the storm lasts, but perfect to begin with.
    pub fn expose(&mut self, label: &str) {
        for network in self.ways[label].networks.iter().filter(|_| self.is_stormy) {
            network.heal();
            network.seeded(self.scenario.dice.bits(), self.scenario.rates);
        }
        self.keep_cut(label);
    }

    /// Starts a process, which must be refused exactly if it is not admitted.
    pub async fn start(&mut self, kind: D::Kind) {
        let (label, ways, recorder) = self.enter("p");
        let admitted = D::admits(self, kind).await;
        let dice = &mut self.scenario.dice;
        let workers = dice.between(1, self.scenario.workers_at_most);
        let makings = Makings {
            label: label.clone(),
            clock: self.ways[&label].clock.clone(),
            timing: &self.scenario.timing,
            recorder,
            stage: Arc::clone(&self.stage),
            dice: dice.fork(),
        };
        let what = format!("{label}, {kind:?}");
        let mut process = match Process::open(makings, self.deployment.config(kind, ways)).await {
            Ok(process) => process,
            Err(error) => {
                let is_refused = *error.kind() == ErrorKind::Misuse;
                if (admitted || !is_refused) && !self.stores.iter().any(|store| store.is_down) {
                    self.stuck(&format!("{what}, not opened: {error}"));
                }
                self.tally.count("processes refused", u64::from(is_refused));
                self.recorder.note(What::Noted(format!("{what}, not opened: {error}")));
                return self.bury(&label);
            }
        };
        if !admitted {
            self.stuck(&format!("{what}, opened a store that was barred"));
        }
        self.recorder.note(What::Noted(what));
        self.tally.count(format!("processes {kind:?}"), 1);
        self.expose(&label);
        for _ in 0..workers {
            process.employ();
        }
        self.processes.push((kind, process));
    }

    /// The networks between a process that lives and the stores.
    pub fn networks(&self, process: &Process) -> &[Network] {
        &self.ways[&process.label].networks
    }

    pub(super) fn keep_cut(&self, label: &str) {
        for (store, network) in self.stores.iter().zip(&self.ways[label].networks) {
            if store.is_down {
                network.cut();
            }
        }
    }

    /// Whether that store can be reached from now on.
    pub(super) fn reaches(&mut self, at: usize, yes: bool) {
        self.stores[at].is_down = !yes;
        for way in self.ways.values() {
            if yes { way.networks[at].heal() } else { way.networks[at].cut() }
        }
    }

    /// It is dead: nothing leaves it any more, and its sessions end when its leases have.
    pub fn bury(&mut self, label: &str) {
        let Some(way) = self.ways.remove(label) else { return };
        way.networks.iter().for_each(Network::cut);
        self.tally.count("faults", way.networks.iter().map(Network::injected).sum());
        let (truth, after) = (self.truth, self.scenario.forgotten_after());
        self.errands.spawn(async move {
            truth.sleep_until(truth.now() + after).await;
            way.sessions.end().await;
        });
    }

    /// It shuts down in order; `gently` it lets its tasks come to their end before that.
    pub fn retire(&mut self, index: usize, gently: bool) {
        let (_, process) = self.processes.remove(index);
        let recorder = process.recorder.clone();
        recorder.note(if gently {
            What::Noted("retires".to_owned())
        } else {
            What::Disturbed("it shuts down")
        });
        let (truth, after) = (self.truth, self.scenario.forgotten_after());
        let (sessions, is_fair) = (self.ways[&process.label].sessions.clone(), self.scenario.fair_weather);
        self.errands.spawn(async move {
            // In bad weather it fails, and leases end what it had.
            if let Err(error) = process.retire(gently).await {
                if is_fair {
                    recorder.note(What::Stuck { waits_for: format!("a shutdown: {error}") });
                }
                truth.sleep_until(truth.now() + after).await;
            }
            sessions.end().await;
        });
    }

    /// It forgets its manager, and lives on.
    pub(super) fn walk_away(&mut self, index: usize) {
        let (_, process) = self.processes.remove(index);
        process.recorder.note(What::Noted("walks away".to_owned()));
        let (truth, after) = (self.truth, self.scenario.forgotten_after());
        let sessions = self.ways[&process.label].sessions.clone();
        drop(process);
        self.errands.spawn(async move {
            truth.sleep_until(truth.now() + after).await;
            sessions.end().await;
        });
    }

    fn heal(&mut self) {
        self.is_stormy = false;
        for at in 0..D::STORES {
            self.reaches(at, true);
        }
        self.ways.values().for_each(|way| way.clock.resume());
        self.processes.iter().for_each(|(_, process)| process.recorder.note(What::Resumed));
        self.recorder.note(What::Healed);
    }

    /// Every task comes to its end, those that wait by being served.
    async fn finish(&mut self) {
        let limit = self.truth.now() + self.scenario.forgotten_after() * 50;
        let Self { processes, errands, truth, .. } = self;
        processes.iter().for_each(|(_, process)| process.calm_down());
        let done = async {
            for (_, process) in processes.iter_mut() {
                process.finished().await;
            }
            while let Some(joined) = errands.join_next().await {
                joined_well(joined);
            }
        };
        tokio::select! {
            biased;
            () = done => return,
            () = truth.sleep_until(limit) => {}
        }
        self.stuck("tasks that should have come to an end");
        self.processes.iter_mut().for_each(|(_, process)| process.workers.abort_all());
    }

    /// Whatever is forgotten now is renewed for ever, and shows.
    async fn rest(&self) {
        self.truth.sleep_until(self.truth.now() + self.scenario.forgotten_after()).await;
        for store in &self.stores {
            self.recorder.note(What::AtRest { left: store.look().await.names });
            if !store.memory().is_empty() {
                self.stuck("entries without an owner");
            }
        }
    }

    /// All processes go, and none is left in a list.
    async fn close(&self) {
        for (_, process) in &self.processes {
            if let Err(error) = process.manager.shutdown().await {
                self.stuck(&format!("the shutdown of {}: {error}", process.label));
            }
        }
        for (at, store) in self.stores.iter().enumerate() {
            let sight = store.look().await;
            if !sight.members.is_empty() || sight.sessions > 0 {
                self.stuck(&format!("sessions and members of store {at}: {sight:?}"));
            }
        }
        let is_gone = |what: &What| matches!(what, What::LostTold { reason: LostReason::RuntimeGone, .. });
        if self.journal.history().events().iter().any(|event| is_gone(&event.what)) {
            self.stuck("guards whose watchdog ended while its runtime lived");
        }
    }

    /// What a visitor opens stores with.
    ///
    /// # Panics
    ///
    /// Outside of a runtime.
    pub fn env(&mut self) -> Env {
        let env = Env::new(self.scenario.timing.clone()).expect("inside the runtime");
        let entropy = SeededEntropy::new(self.scenario.dice.fork());
        env.with_clock(Arc::new(self.truth)).with_entropy(Arc::new(entropy))
    }

    /// Something waits that should not.
    pub fn stuck(&self, waits_for: &str) {
        self.recorder.note(What::Stuck { waits_for: waits_for.to_owned() });
    }
}

/// How much clocks of processes gain on the stores', in millionths: as much as A1 allows.
const DRIFTS: [i32; 7] = [-10_000, -5_000, -100, 0, 100, 5_000, 10_000];

/// Out of a thousand processes, so many have no network between them and the stores; they cannot
/// be silenced, and what dies there lets go.
const PERFECT_NETWORKS: u16 = 150;
