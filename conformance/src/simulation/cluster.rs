//! The store, the processes, and the phases of a run.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use leasehold_core::backend::{LockBackend, StoreConfig};
use leasehold_core::clock::{Clock, TokioClock};
use leasehold_core::memory::{MemoryConfig, MemoryStore};
use leasehold_core::{Env, FenceGate, LostReason};
use parking_lot::Mutex;
use tokio::task::{JoinError, JoinSet};

use super::bid::Bid;
use super::process::{Process, SeededEntropy};
use super::scenario::Scenario;
use super::worker::Stage;
use crate::history::{History, Journal, Recorder, What};
use crate::host::HostClock;
use crate::network::Network;

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
    pub(super) retired: Vec<(Network, HostClock)>,
    pub(super) errands: JoinSet<()>,
    stage: Arc<Stage>,
    networks: Vec<Network>,
}

impl Cluster {
    pub(super) async fn open(mut scenario: Scenario) -> Self {
        let truth = TokioClock::new();
        let journal = Journal::new(Arc::new(truth));
        let store = MemoryConfig::on(MemoryStore::with_clock(Arc::new(truth)));
        let entropy = SeededEntropy(Mutex::new(scenario.dice.fork()));
        let env = Env::new(scenario.timing.clone()).expect("inside the runtime");
        let env = env.with_clock(Arc::new(truth)).with_entropy(Arc::new(entropy));
        let admin = store.open(env).await.expect("the store in memory opens");
        let resources = scenario.names.iter().map(|name| (name.clone(), FenceGate::new())).collect();
        let stage = Stage { resources, ttl: scenario.timing.ttl, pause: scenario.pause, calm: false.into() };
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
        let dice = dice.fork();
        let opened = Process::open(label, &self.scenario, &self.store, clock, &self.journal, dice);
        let mut process = opened.await;
        process.back_to_usual();
        for _ in 0..workers {
            process.employ(&self.stage);
        }
        self.networks.push(process.network.clone());
        self.processes.push(process);
    }

    fn heal(&mut self) {
        for process in &self.processes {
            process.heal();
        }
        for (network, clock) in &self.retired {
            network.heal();
            clock.resume();
        }
        self.stage.calm.store(true, Ordering::Relaxed);
        self.recorder.note(What::Healed);
    }

    /// Every task comes to its end, those that wait by being served.
    async fn finish(&mut self) {
        let limit = self.truth.now() + self.scenario.forgotten_after() * 50;
        let Self { processes, errands, truth, .. } = self;
        let done = async {
            for process in processes {
                while let Some(joined) = process.workers.join_next().await {
                    joined_well(joined);
                }
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
            for name in &self.scenario.names {
                let lock = process.manager.lock(name).expect("the name is valid");
                let mut bid = Bid::ask(&process.recorder, &process.clock, name, true);
                match lock.wait(self.scenario.forgotten_after()).acquire().await {
                    Ok(guard) => {
                        bid.granted(&guard);
                        bid.lets_go();
                        let answer = guard.release().await;
                        bid.released(&answer);
                        if let Err(error) = answer {
                            self.stuck(&format!("the release of {name} by {}: {error}", process.label));
                        }
                    }
                    Err(error) => {
                        self.stuck(&format!("{} for {name}: {error}", process.label));
                        bid.failed(&error);
                    }
                }
            }
        }
    }

    /// Whatever is forgotten now is renewed for ever, and shows.
    async fn rest(&self) {
        self.truth.sleep_until(self.truth.now() + self.scenario.forgotten_after()).await;
        let known = self.admin.list("").await.expect("a store in memory answers");
        let left = known.into_iter().map(|state| state.name).collect();
        self.recorder.note(What::AtRest { left });
        if !self.store.store().is_empty() {
            self.stuck("entries that nobody can see");
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

/// Passes a panic on.
pub(super) fn joined_well(joined: Result<(), JoinError>) {
    if let Err(error) = joined {
        assert!(!error.is_panic(), "a task of the simulation panicked: {error}");
    }
}

/// How much clocks of processes gain on the store's, in millionths: as much as A1 allows.
const DRIFTS: [i32; 7] = [-10_000, -5_000, -100, 0, 100, 5_000, 10_000];
