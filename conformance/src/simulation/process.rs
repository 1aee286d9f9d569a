//! One process: a manager behind its own networks, on its own clock, and its tasks.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::{Revoke, StoreConfig};
use leasehold_core::{Entropy, LockManager, LockName, Mode, Result, Timing};
use parking_lot::Mutex;
use tokio::task::{JoinError, JoinSet};

use super::bid::{Bid, Listeners};
use super::worker::{Stage, Worker};
use crate::dice::Dice;
use crate::entry_rule::entry_rule;
use crate::history::{Journal, Recorder, What};
use crate::host::HostClock;
use crate::network::{Network, Rates};

/// A process that lives.
#[derive(Debug)]
pub struct Process {
    pub(super) label: String,
    pub(super) manager: LockManager,
    pub(super) networks: Vec<Network>,
    pub(super) clock: HostClock,
    pub(super) recorder: Recorder,
    pub(super) workers: JoinSet<()>,
    pub(super) listeners: Listeners,
    rates: Rates,
    dice: Dice,
}

/// What a process is made of.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "tests construct it")]
pub struct Makings<'a> {
    /// What it is called.
    pub label: String,
    /// Its clock.
    pub clock: HostClock,
    /// Its times.
    pub timing: &'a Timing,
    /// How bad its networks usually are.
    pub rates: Rates,
    /// The networks on its way to its stores.
    pub networks: Vec<Network>,
    /// Where what it does is written down.
    pub journal: &'a Journal,
    /// What it decides by.
    pub dice: Dice,
}

impl Process {
    /// Opens the manager on `store`, which is behind the networks; nothing misbehaves yet.
    ///
    /// # Errors
    ///
    /// The store's.
    pub async fn open(makings: Makings<'_>, store: Box<dyn StoreConfig>) -> Result<Self> {
        let Makings { label, clock, timing, rates, networks, journal, mut dice } = makings;
        let recorder = journal.actor(label.as_str());
        let mut builder = LockManager::builder(entry_rule(recorder.clone())(store))
            .ttl(timing.ttl)
            .op_timeout(timing.op_timeout)
            .connect_timeout(timing.connect_timeout)
            .handoff_limit(timing.handoff_limit)
            .handoff_window(timing.handoff_window)
            .owner_label(label.as_str())
            .clock(Arc::new(clock.clone()))
            .entropy(Arc::new(SeededEntropy::new(dice.fork())));
        if let Some(margin) = timing.drift_margin {
            builder = builder.drift_margin(margin);
        }
        let manager = builder.build().await?;
        let (workers, listeners) = (JoinSet::new(), Listeners::default());
        Ok(Self { label, manager, networks, clock, recorder, workers, listeners, rates, dice })
    }

    /// Sets a task to work.
    pub fn employ(&mut self, stage: &Arc<Stage>) {
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

    /// Has it ask an administrator's question.
    pub fn revokes(&mut self, name: &LockName, how: Revoke) {
        let (manager, name) = (self.manager.clone(), name.clone());
        self.workers.spawn(async move {
            // A network that loses the request loses the wish.
            let _ = manager.revoke(&name, how).await;
        });
    }

    /// What it is called.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Its locks.
    pub fn manager(&self) -> &LockManager {
        &self.manager
    }

    /// The networks on its way to its stores.
    pub fn networks(&self) -> &[Network] {
        &self.networks
    }

    /// Its clock.
    pub fn clock(&self) -> &HostClock {
        &self.clock
    }

    /// Where what it does is written down.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Waits until its tasks have come to their end.
    ///
    /// # Panics
    ///
    /// When one of them has.
    pub async fn finished(&mut self) {
        while let Some(joined) = self.workers.join_next().await {
            joined_well(joined);
        }
    }

    /// Has it take every lock once, each within `patience`; says so if it cannot.
    pub async fn take_everything_once(&self, names: &[LockName], patience: Duration) {
        for name in names {
            let lock = self.manager.lock(name).expect("the name is valid");
            let mut bid = Bid::ask(&self.recorder, &self.clock, name, Mode::EXCLUSIVE, true);
            match lock.wait(patience).acquire().await {
                Ok(guard) => {
                    bid.granted(&guard);
                    bid.lets_go();
                    let answer = guard.release().await;
                    bid.released(&answer);
                    if let Err(error) = answer {
                        self.stuck(&format!("the release of {name} by {}: {error}", self.label));
                    }
                }
                Err(error) => {
                    self.stuck(&format!("{} for {name}: {error}", self.label));
                    bid.failed(&error);
                }
            }
        }
    }

    /// Shuts down in order, and waits for its tasks. In bad weather the former fails, and leases end what it had.
    ///
    /// # Errors
    ///
    /// That of the shutdown.
    pub async fn retire(mut self) -> Result<()> {
        let shut_down = self.manager.shutdown().await;
        self.finished().await;
        shut_down
    }

    fn stuck(&self, waits_for: &str) {
        self.recorder.note(What::Stuck { waits_for: waits_for.to_owned() });
    }

    /// The network is as bad as usual, and time runs.
    pub fn back_to_usual(&mut self) {
        for network in &self.networks {
            network.heal();
            network.seeded(self.dice.bits(), self.rates);
        }
        self.resume();
    }

    /// Its timers stand still, as if it was stopped.
    pub fn stop(&self) {
        self.recorder.note(What::Stopped);
        self.clock.stop();
    }

    fn resume(&self) {
        self.clock.resume();
        self.recorder.note(What::Resumed);
    }

    /// Nothing misbehaves any more.
    pub fn heal(&self) {
        self.networks.iter().for_each(Network::heal);
        self.resume();
    }

    /// Dies: no request leaves it from here on, and none of its code runs.
    pub fn crash(mut self) {
        self.recorder.crash();
        self.networks.iter().for_each(Network::cut);
        self.workers.abort_all();
        self.listeners.lock().abort_all();
    }
}

/// Random bits that a seed repeats.
#[derive(Debug)]
pub struct SeededEntropy(Mutex<Dice>);

impl SeededEntropy {
    /// Bits as the dice fall.
    pub fn new(dice: Dice) -> Self {
        Self(Mutex::new(dice))
    }
}

impl Entropy for SeededEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        let mut dice = self.0.lock();
        for chunk in bytes.chunks_mut(8) {
            let bits = dice.bits().to_le_bytes();
            chunk.copy_from_slice(&bits[..chunk.len()]);
        }
    }
}

/// Passes a panic on.
pub(super) fn joined_well(joined: std::result::Result<(), JoinError>) {
    if let Err(error) = joined {
        assert!(!error.is_panic(), "a task of the simulation panicked: {error}");
    }
}
