//! The store, the processes, and the phases of a run.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::{LockBackend, StoreConfig};
use leasehold_core::clock::{Clock, TokioClock};
use leasehold_core::memory::{MemoryConfig, MemoryStore};
use leasehold_core::{Env, LostReason};
use tokio::task::JoinSet;

use super::process::{Makings, Process, SeededEntropy, joined_well};
use super::scenario::Scenario;
use super::worker::Stage;
use crate::bugs::Mutation;
use crate::history::{History, Journal, Recorder, What};
use crate::host::HostClock;
use crate::network::Network;
use crate::store_log::store_log;

/// One run.
pub(super) struct Cluster {
    pub(super) scenario: Scenario,
    pub(super) truth: TokioClock,
    journal: Journal,
    pub(super) recorder: Recorder,
    pub(super) store: MemoryConfig,
    /// A session that holds nothing and whose network is perfect.
    pub(super) admin: Arc<dyn LockBackend>,
    /// Those that live.
    pub(super) processes: Vec<Process>,
    /// Those that were shut down, and may not be done with that.
    pub(super) retired: Vec<(Vec<Network>, HostClock)>,
    pub(super) errands: JoinSet<()>,
    stage: Arc<Stage>,
    networks: Vec<Network>,
}

impl Cluster {
    pub(super) async fn open(mut scenario: Scenario) -> Self {
        let truth = TokioClock::new();
        let journal = Journal::new(Arc::new(truth));
        let store = MemoryConfig::on(MemoryStore::with_clock(Arc::new(truth)));
        let entropy = SeededEntropy::new(scenario.dice.fork());
        let env = Env::new(scenario.timing.clone()).expect("inside the runtime");
        let env = env.with_clock(Arc::new(truth)).with_entropy(Arc::new(entropy));
        let admin = store.open(env).await.expect("the store in memory opens");
        let stage = Stage::new(&scenario.names, scenario.timing.ttl, scenario.pause, TURNS)
            .bounding(Mutation::bound(scenario.planted.as_ref()));
        let mut cluster = Self {
            truth,
            recorder: journal.actor("world"),
            journal,
            store,
            admin,
            processes: Vec::new(),
            retired: Vec::new(),
            errands: JoinSet::new(),
            stage: Arc::new(stage),
            networks: Vec::new(),
            scenario,
        };
        for _ in 0..cluster.scenario.processes {
            cluster.start_process().await;
        }
        cluster
    }

    /// Plays all phases; what happened, and how many faults did.
    pub(super) async fn play(mut self) -> (History, u64) {
        if !self.scenario.fair_weather {
            self.recorder.note(What::Disturbed("the storm begins"));
        }
        self.storm().await;
        self.heal();
        self.finish().await;
        self.take_everything_once().await;
        self.rest().await;
        self.close().await;
        let faults = self.networks.iter().map(Network::injected).sum();
        (self.journal.history(), faults)
    }

    pub(super) async fn start_process(&mut self) {
        let label = format!("p{}", self.networks.len() + 1);
        let dice = &mut self.scenario.dice;
        let ppm = *dice.pick(&DRIFTS);
        let clock = HostClock::new(Arc::new(self.truth), ppm);
        let workers = dice.between(1, self.scenario.workers_at_most);
        let mut dice = dice.fork();
        let network = Network::new(Duration::ZERO);
        let store = self.way(&label, &network, !dice.chance(PERFECT_NETWORKS));
        let makings = Makings {
            label,
            clock,
            timing: &self.scenario.timing,
            rates: self.scenario.rates,
            networks: vec![network.clone()],
            journal: &self.journal,
            dice,
        };
        let mut process = Process::open(makings, store).await.expect("the store in memory opens");
        process.back_to_usual();
        for _ in 0..workers {
            process.employ(&self.stage);
        }
        self.networks.push(network);
        self.processes.push(process);
    }

    /// The way of a process to the store, with what is planted in it.
    fn way(&self, label: &str, network: &Network, is_bad: bool) -> Box<dyn StoreConfig> {
        let mut store: Box<dyn StoreConfig> = Box::new(self.store.clone());
        if let Some(Mutation::Store(wrap)) = &self.scenario.planted {
            store = wrap(store);
        }
        store = store_log(self.journal.actor(label))(store);
        if is_bad {
            store = network.wrap()(store);
        }
        match &self.scenario.planted {
            Some(Mutation::Driver(wrap)) => wrap(store),
            _ => store,
        }
    }

    fn heal(&mut self) {
        for process in &self.processes {
            process.heal();
        }
        for (networks, clock) in &self.retired {
            networks.iter().for_each(Network::heal);
            clock.resume();
        }
        self.stage.calm_down();
        self.recorder.note(What::Healed);
    }

    /// Every task comes to its end, those that wait by being served.
    async fn finish(&mut self) {
        let limit = self.truth.now() + self.scenario.forgotten_after() * 50;
        let Self { processes, errands, truth, .. } = self;
        let done = async {
            for process in processes {
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
        for process in &mut self.processes {
            process.workers.abort_all();
        }
    }

    /// Every process that lives can have every lock.
    async fn take_everything_once(&mut self) {
        for process in &self.processes {
            let patience = self.scenario.forgotten_after();
            process.take_everything_once(&self.scenario.names, patience).await;
        }
    }

    /// Whatever is forgotten now is renewed for ever, and shows.
    async fn rest(&self) {
        self.truth.sleep_until(self.truth.now() + self.scenario.forgotten_after()).await;
        let known = self.admin.list("").await.expect("a store in memory answers");
        let left = known.into_iter().map(|state| state.name).collect();
        self.recorder.note(What::AtRest { left });
        if !self.store.store().is_empty() {
            self.stuck("entries without an owner");
        }
    }

    async fn close(&mut self) {
        for process in &self.processes {
            if let Err(error) = process.manager.shutdown().await {
                self.stuck(&format!("the shutdown of {}: {error}", process.label));
            }
        }
        let history = self.journal.history();
        let abandoned = history
            .events()
            .iter()
            .any(|event| matches!(event.what, What::LostTold { reason: LostReason::RuntimeGone, .. }));
        if abandoned {
            self.stuck("guards whose watchdog ended while its runtime lived");
        }
    }

    fn stuck(&self, waits_for: &str) {
        self.recorder.note(What::Stuck { waits_for: waits_for.to_owned() });
    }
}

/// How much clocks of processes gain on the store's, in millionths: as much as A1 allows.
const DRIFTS: [i32; 7] = [-10_000, -5_000, -100, 0, 100, 5_000, 10_000];

/// Out of a thousand processes, so many release without a runtime, as the store allows; they cannot
/// be silenced, and what dies there lets go.
const PERFECT_NETWORKS: u16 = 150;

/// The most acquisitions of one task, which bounds the time that a seed takes.
const TURNS: u32 = 40;
