//! A task that uses locks as tasks do: well, carelessly and impatiently.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_core::{
    Error, ErrorKind, FenceGate, Lock, LockGuard, LockManager, LockName, LockOptions, Mode,
};

use super::bid::{Bid, Listeners};
use super::scenario::Scenario;
use crate::dice::Dice;
use crate::history::Recorder;
use crate::host::HostClock;

/// Bounds how long a lock may be held.
pub type Bound = fn(Lock, Duration) -> Lock;

/// What the tasks of all processes share.
#[derive(Debug)]
pub(super) struct Stage {
    /// The resources that the locks protect.
    resources: BTreeMap<LockName, FenceGate>,
    ttl: Duration,
    pause: Duration,
    turns: u32,
    bound: Bound,
}

impl Stage {
    pub(super) fn new(scenario: &Scenario, bound: Bound) -> Self {
        let Scenario { names, timing, pause, turns, .. } = scenario;
        let resources = names.iter().map(|name| (name.clone(), FenceGate::new())).collect();
        Self { resources, ttl: timing.ttl, pause: *pause, turns: *turns, bound }
    }
}

/// One task.
pub(super) struct Worker {
    pub(super) manager: LockManager,
    pub(super) recorder: Recorder,
    pub(super) clock: HostClock,
    pub(super) stage: Arc<Stage>,
    /// Whether it is to come to an end.
    pub(super) calm: Arc<AtomicBool>,
    pub(super) listeners: Listeners,
    pub(super) dice: Dice,
}

/// What one acquisition asks for.
#[derive(Clone, Copy)]
struct Terms {
    mode: Mode,
    /// For how long it is to hold the lock at most.
    bound: Option<Duration>,
}

impl Worker {
    pub(super) async fn run(mut self) {
        for _ in 0..self.stage.turns {
            let pause = self.dice.span(self.stage.pause) + Duration::from_millis(1);
            self.clock.sleep(pause).await;
            if self.is_calm() || self.turn().await.is_break() {
                return;
            }
        }
    }

    fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    /// One acquisition; breaks when the manager is closed.
    async fn turn(&mut self) -> ControlFlow<()> {
        let names: Vec<_> = self.stage.resources.keys().cloned().collect();
        let name = self.dice.pick(&names).clone();
        let Ok(mut lock) = self.manager.lock(&name) else {
            unreachable!("the name is valid");
        };
        let mode = self.mode();
        let options = LockOptions::default().mode(mode);
        lock = lock.options(options);
        if self.dice.chance(200) {
            lock = lock.handoff_limit(0);
        }
        if self.dice.chance(150) {
            lock = lock.ttl(self.stage.ttl * 2);
        }
        let bound = self.dice.chance(200).then(|| self.dice.span(self.stage.ttl) + Duration::from_millis(1));
        if let Some(span) = bound {
            lock = (self.stage.bound)(lock, span);
        }
        let terms = Terms { mode, bound };
        let impatient = self.dice.chance(150);
        let patience = if impatient { self.dice.span(self.stage.ttl / 2) } else { Duration::MAX };
        let clock = self.clock.clone();
        let style = self.dice.below(100);
        let whole = async {
            match style {
                0..15 => self.inside_with(&lock, terms).await,
                15..40 => self.once(&lock, terms).await,
                40..65 => {
                    let wait = self.dice.span(self.stage.ttl);
                    self.by_hand(&lock.wait(wait), terms).await
                }
                _ => self.by_hand(&lock, terms).await,
            }
        };
        if patience == Duration::MAX {
            return whole.await;
        }
        tokio::select! {
            biased;
            flow = whole => flow,
            () = clock.sleep(patience) => ControlFlow::Continue(()),
        }
    }

    /// Half of them are exclusive, where the store promises others.
    fn mode(&mut self) -> Mode {
        let capacity = *self.dice.pick(&[2, 3]);
        let weight = u32::try_from(self.dice.between(1, capacity.into())).expect("it is small");
        let mode = match self.dice.below(4) {
            0 => Mode::SHARED,
            1 => Mode::permits(weight, capacity).expect("it is no more than the capacity"),
            _ => Mode::EXCLUSIVE,
        };
        if self.manager.guarantees().contains(mode.needs()) { mode } else { Mode::EXCLUSIVE }
    }

    async fn inside_with(&mut self, lock: &Lock, terms: Terms) -> ControlFlow<()> {
        let mut bid = self.ask(lock, terms, true);
        let work = async |guard: &LockGuard| {
            bid.granted(guard);
            self.hold(guard, &bid).await;
            bid.lets_go();
        };
        match lock.with(work).await {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => refused(bid, &error),
        }
    }

    async fn once(&mut self, lock: &Lock, terms: Terms) -> ControlFlow<()> {
        let bid = self.ask(lock, terms, false);
        match lock.try_acquire().await {
            Ok(Some(guard)) => self.use_and_end(bid, guard).await,
            Ok(None) => bid.refused("held".to_owned()),
            Err(error) => return refused(bid, &error),
        }
        ControlFlow::Continue(())
    }

    async fn by_hand(&mut self, lock: &Lock, terms: Terms) -> ControlFlow<()> {
        let bid = self.ask(lock, terms, true);
        match lock.acquire().await {
            Ok(guard) => {
                self.use_and_end(bid, guard).await;
                ControlFlow::Continue(())
            }
            Err(error) => refused(bid, &error),
        }
    }

    fn ask(&self, lock: &Lock, Terms { mode, bound }: Terms, waits: bool) -> Bid {
        let bid = Bid::ask(&self.recorder, &self.clock, lock.name(), mode, waits);
        if let Some(span) = bound {
            bid.bounded(span);
        }
        bid
    }

    async fn use_and_end(&mut self, bid: Bid, guard: LockGuard) {
        // The bid goes before the guard, so that letting go is recorded first.
        let (guard, mut bid) = (guard, bid);
        bid.granted(&guard);
        bid.listens(&guard, &self.listeners);
        self.hold(&guard, &bid).await;
        match self.dice.below(4) {
            0 => {
                bid.lets_go();
                drop(guard);
            }
            1 => {
                bid.lets_go();
                let patience = self.dice.span(self.stage.ttl / 20);
                tokio::select! {
                    biased;
                    answer = guard.release() => bid.released(&answer),
                    () = self.clock.sleep(patience) => {}
                }
            }
            _ => {
                bid.lets_go();
                bid.released(&guard.release().await);
            }
        }
    }

    /// Works under the lock, and sometimes on after its loss.
    async fn hold(&mut self, guard: &LockGuard, bid: &Bid) {
        let ttl = self.stage.ttl;
        let longest = match self.dice.below(100) {
            _ if self.is_calm() => ttl / 20,
            0..10 => ttl * 2,
            10..30 => ttl / 2,
            _ => ttl / 20,
        };
        for _ in 0..self.dice.between(1, 4) {
            let step = self.dice.span(longest / 3);
            self.clock.sleep(step).await;
            if !bid.sees(guard) && self.dice.chance(500) {
                return;
            }
            match self.dice.below(8) {
                0 => {
                    // Whether it worked shows in the deadline that is seen next.
                    let _ = guard.renew().await;
                }
                // A shared holder writes nothing: its token fences no other off.
                1..4 if guard.mode() == Mode::EXCLUSIVE => {
                    let written = self.stage.resources[guard.name()].admit(guard.token());
                    bid.wrote(guard, written.is_ok());
                }
                _ => {}
            }
        }
    }
}

/// The lock was not granted, or lost; breaks when the manager is closed.
fn refused(bid: Bid, error: &Error) -> ControlFlow<()> {
    let closed = *error.kind() == ErrorKind::Closed;
    bid.failed(error);
    if closed { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}
