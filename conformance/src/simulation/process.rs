//! One process: a manager behind its own network, on its own clock, and its tasks.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::StoreConfig;
use leasehold_core::memory::MemoryConfig;
use leasehold_core::{Entropy, LockManager};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::bid::Listeners;
use super::scenario::Scenario;
use super::worker::{Stage, Worker};
use crate::bugs::Mutation;
use crate::dice::Dice;
use crate::entry_rule::entry_rule;
use crate::history::{Journal, Recorder, What};
use crate::host::HostClock;
use crate::network::{Network, Rates};
use crate::store_log::store_log;

/// A process that lives.
pub(super) struct Process {
    pub(super) label: String,
    pub(super) manager: LockManager,
    pub(super) network: Network,
    pub(super) clock: HostClock,
    pub(super) recorder: Recorder,
    pub(super) workers: JoinSet<()>,
    pub(super) listeners: Listeners,
    rates: Rates,
    dice: Dice,
}

impl Process {
    /// Opens the manager; nothing misbehaves yet.
    pub(super) async fn open(
        label: String,
        scenario: &Scenario,
        store: &MemoryConfig,
        clock: HostClock,
        journal: &Journal,
        mut dice: Dice,
    ) -> Self {
        let recorder = journal.actor(label.as_str());
        let network = Network::new(Duration::ZERO);
        let mut store: Box<dyn StoreConfig> = Box::new(store.clone());
        if let Some(Mutation::Store(wrap)) = &scenario.planted {
            store = wrap(store);
        }
        store = store_log(journal.actor(label.as_str()))(store);
        if !dice.chance(PERFECT_NETWORKS) {
            store = network.wrap()(store);
        }
        if let Some(Mutation::Driver(wrap)) = &scenario.planted {
            store = wrap(store);
        }
        let timing = &scenario.timing;
        let mut builder = LockManager::builder(entry_rule(recorder.clone())(store))
            .ttl(timing.ttl)
            .op_timeout(timing.op_timeout)
            .handoff_limit(timing.handoff_limit)
            .handoff_window(timing.handoff_window)
            .owner_label(label.as_str())
            .clock(Arc::new(clock.clone()))
            .entropy(Arc::new(SeededEntropy(Mutex::new(dice.fork()))));
        if let Some(margin) = timing.drift_margin {
            builder = builder.drift_margin(margin);
        }
        let manager = builder.build().await.expect("the store in memory opens");
        Self {
            label,
            manager,
            network,
            clock,
            recorder,
            workers: JoinSet::new(),
            listeners: Listeners::default(),
            rates: scenario.rates,
            dice,
        }
    }

    /// Sets a task to work.
    pub(super) fn employ(&mut self, stage: &Arc<Stage>) {
        let worker = Worker {
            manager: self.manager.clone(),
            recorder: self.recorder.clone(),
            clock: self.clock.clone(),
            stage: Arc::clone(stage),
            listeners: Arc::clone(&self.listeners),
            dice: self.dice.fork(),
        };
        self.workers.spawn(worker.run());
    }

    /// The network is as bad as usual, and time runs.
    pub(super) fn back_to_usual(&mut self) {
        self.network.heal();
        self.network.seeded(self.dice.bits(), self.rates);
        self.resume();
    }

    /// Its timers stand still, as if it was stopped.
    pub(super) fn stop(&self) {
        self.recorder.note(What::Stopped);
        self.clock.stop();
    }

    fn resume(&self) {
        self.clock.resume();
        self.recorder.note(What::Resumed);
    }

    /// Nothing misbehaves any more.
    pub(super) fn heal(&self) {
        self.network.heal();
        self.resume();
    }

    /// Dies: no request leaves it from here on, and none of its code runs.
    pub(super) fn crash(mut self) {
        self.recorder.crash();
        self.network.cut();
        self.workers.abort_all();
        self.listeners.lock().abort_all();
    }
}

#[derive(Debug)]
pub(super) struct SeededEntropy(pub(super) Mutex<Dice>);

impl Entropy for SeededEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        let mut dice = self.0.lock();
        for chunk in bytes.chunks_mut(8) {
            let bits = dice.bits().to_le_bytes();
            chunk.copy_from_slice(&bits[..chunk.len()]);
        }
    }
}

/// Out of a thousand processes, so many release without a runtime, as the store allows; they cannot
/// be silenced, and what dies there lets go.
const PERFECT_NETWORKS: u16 = 150;
