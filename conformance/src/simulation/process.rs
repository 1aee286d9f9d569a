//! One process: a manager on its own clock, and its tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_core::backend::{Revoke, StoreConfig};
use leasehold_core::{Entropy, LockManager, LockName, Mode, Result, Timing};
use parking_lot::Mutex;
use tokio::task::{JoinError, JoinSet};

use super::bid::{Bid, Listeners};
use super::worker::{Stage, Worker};
use crate::dice::Dice;
use crate::entry_rule::entry_rule;
use crate::history::{Recorder, What};
use crate::host::HostClock;

/// A process that lives.
#[derive(Debug)]
pub struct Process {
    /// What it is called.
    pub label: String,
    /// Where what it does is written down.
    pub recorder: Recorder,
    pub(super) manager: LockManager,
    pub(super) workers: JoinSet<()>,
    clock: HostClock,
    listeners: Listeners,
    stage: Arc<Stage>,
    /// Its tasks are to come to an end.
    calm: Arc<AtomicBool>,
    dice: Dice,
}

/// What a process is made of.
pub(super) struct Makings<'a> {
    pub(super) label: String,
    pub(super) clock: HostClock,
    pub(super) timing: &'a Timing,
    pub(super) recorder: Recorder,
    pub(super) stage: Arc<Stage>,
    pub(super) dice: Dice,
}

impl Process {
    /// Opens the manager on `store`.
    pub(super) async fn open(makings: Makings<'_>, store: Box<dyn StoreConfig>) -> Result<Self> {
        let Makings { label, clock, timing, recorder, stage, mut dice } = makings;
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
        let (workers, listeners, calm) = (JoinSet::new(), Listeners::default(), Arc::default());
        Ok(Self { label, recorder, manager, workers, clock, listeners, stage, calm, dice })
    }

    /// Sets a task to work.
    pub(super) fn employ(&mut self) {
        let worker = Worker {
            manager: self.manager.clone(),
            recorder: self.recorder.clone(),
            clock: self.clock.clone(),
            stage: Arc::clone(&self.stage),
            calm: Arc::clone(&self.calm),
            listeners: Arc::clone(&self.listeners),
            dice: self.dice.fork(),
        };
        self.workers.spawn(worker.run());
    }

    /// Has it ask an administrator's question.
    pub(super) fn revokes(&mut self, name: &LockName, how: Revoke) {
        let (manager, name) = (self.manager.clone(), name.clone());
        self.workers.spawn(async move {
            // A network that loses the request loses the wish.
            let _ = manager.revoke(&name, how).await;
        });
    }

    /// From here on its tasks come to their end.
    pub(super) fn calm_down(&self) {
        self.calm.store(true, Ordering::Relaxed);
    }

    /// Waits until its tasks have come to their end; passes a panic on.
    pub(super) async fn finished(&mut self) {
        while let Some(joined) = self.workers.join_next().await {
            joined_well(joined);
        }
    }

    /// Has it take every lock once, each within `patience`; says so if it cannot.
    pub(super) async fn take_everything_once(&self, names: &[LockName], patience: Duration) {
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

    /// Shuts down in order, and waits for its tasks; `gently`, before that. In bad weather the former fails, and leases end
    /// what it had.
    pub(super) async fn retire(mut self, gently: bool) -> Result<()> {
        self.calm_down();
        if gently {
            self.finished().await;
        }
        let shut_down = self.manager.shutdown().await;
        self.finished().await;
        shut_down
    }

    fn stuck(&self, waits_for: &str) {
        self.recorder.note(What::Stuck { waits_for: waits_for.to_owned() });
    }

    /// Its timers stand still, as if it was stopped.
    pub(super) fn stop(&self) {
        self.recorder.note(What::Stopped);
        self.clock.stop();
    }

    pub(super) fn resume(&self) {
        self.clock.resume();
        self.recorder.note(What::Resumed);
    }

    /// Dies, behind networks that are cut: none of its code runs from here on.
    pub(super) fn crash(mut self) {
        self.recorder.crash();
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
