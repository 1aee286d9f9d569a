//! What goes wrong while the storm lasts, the loss of single messages apart.

use std::time::Duration;

use leasehold_core::backend::{AcquireRequest, LeaseId, Revoke, StoreEvent};
use leasehold_core::clock::{Clock, Moment};
use leasehold_core::{LockName, LostReason, OwnerId};

use super::cluster::Cluster;
use crate::history::What;
use crate::network::{Fault, Network, Operation};

/// When a process is let off, and which.
type Relief = (Moment, String);

impl Cluster {
    /// Harms one after the other, until the storm is over.
    pub(super) async fn storm(&mut self) {
        let end = self.truth.now() + self.scenario.storm;
        let mut reliefs: Vec<Relief> = Vec::new();
        loop {
            let ttl = self.scenario.timing.ttl;
            let pause = Duration::from_millis(1) + self.scenario.dice.span(ttl);
            let strike_at = self.truth.now() + pause;
            let relief_at = reliefs.iter().map(|(at, _)| *at).min().unwrap_or(end);
            self.truth.sleep_until(strike_at.min(relief_at).min(end)).await;
            let now = self.truth.now();
            if end <= now {
                return;
            }
            if self.scenario.fair_weather {
                continue;
            }
            if relief_at <= now {
                let due: Vec<_> = reliefs.extract_if(.., |(at, _)| *at <= now).collect();
                for process in &mut self.processes {
                    if due.iter().any(|(_, label)| *label == process.label) {
                        process.back_to_usual();
                    }
                }
                continue;
            }
            reliefs.extend(self.strike().await);
        }
    }

    async fn strike(&mut self) -> Option<Relief> {
        let everybody: Vec<_> = (0..self.processes.len()).collect();
        let victim = *self.scenario.dice.pick(&everybody);
        let until = self.truth.now() + self.scenario.dice.span(self.scenario.timing.ttl * 2);
        let process = &self.processes[victim];
        let relief = (until, process.label.clone());
        match self.scenario.dice.below(100) {
            0..18 => {
                process.recorder.note(What::Disturbed("its store is silent"));
                process.networks.iter().for_each(Network::cut);
                return Some(relief);
            }
            18..28 => {
                process.recorder.note(What::Disturbed("its leases expire"));
                for network in &process.networks {
                    network.always(Operation::Renew, Fault::LoseRequest);
                }
                return Some(relief);
            }
            28..38 => {
                process.stop();
                return Some(relief);
            }
            38..46 => self.crash(victim).await,
            46..58 => self.retire(victim).await,
            58..67 => self.revoke(victim),
            67..77 => self.lie(victim).await,
            _ if self.scenario.breaks_a2 => self.break_a2().await,
            _ => {}
        }
        None
    }

    /// A process dies; another one may take its place.
    async fn crash(&mut self, victim: usize) {
        if self.processes.len() > 1 {
            self.processes.remove(victim).crash();
            if self.scenario.dice.chance(500) {
                self.start_process().await;
            }
        }
    }

    /// A process shuts down in order; another one takes its place.
    async fn retire(&mut self, victim: usize) {
        let process = self.processes.remove(victim);
        process.recorder.note(What::Disturbed("it shuts down"));
        self.retired.push((process.networks.clone(), process.clock.clone()));
        self.errands.spawn(async move {
            // In bad weather it fails.
            let _ = process.retire().await;
        });
        self.start_process().await;
    }

    /// An administrator asks for a lock, with a grace or without.
    fn revoke(&mut self, victim: usize) {
        let name = self.scenario.dice.pick(&self.scenario.names).clone();
        let ttl = self.scenario.timing.ttl;
        let grace = *self.scenario.dice.pick(&[Duration::ZERO, ttl / 8, ttl]);
        self.recorder.on(&name, What::Disturbed("revoked"));
        self.processes[victim].revokes(&name, Revoke::Ask { grace });
    }

    /// A process hears of a loss that there was not.
    async fn lie(&mut self, victim: usize) {
        let networks = self.processes[victim].networks.clone();
        let tell = |event: &StoreEvent| networks.iter().for_each(|network| network.emit(event));
        let name = self.scenario.dice.pick(&self.scenario.names).clone();
        if self.scenario.dice.chance(300) {
            let lease = LeaseId::new(1 + self.scenario.dice.below(200));
            tell(&StoreEvent::LeaseLost { lease, reason: LostReason::Expired });
        } else if let Some(counter) = self.holder(&name).await {
            self.recorder.on(&name, What::Overruled { counter });
            tell(&StoreEvent::GrantLost { name, counter, reason: LostReason::Gone });
        }
    }

    /// The store does what a store must not do.
    async fn break_a2(&mut self) {
        let name = self.scenario.dice.pick(&self.scenario.names).clone();
        let Some(counter) = self.holder(&name).await else {
            return;
        };
        match self.scenario.dice.below(4) {
            0 => {
                for counter in self.holders(&name).await {
                    self.recorder.on(&name, What::Overruled { counter });
                }
                let forced = self.admin.revoke(&name, Revoke::Force).await;
                forced.expect("a store in memory answers");
            }
            1 => self.wipe().await,
            told => {
                self.recorder.on(&name, What::Overruled { counter });
                self.store.store().evict(&name, &self.truth, told == 2);
            }
        }
    }

    /// The store loses everything but its counter, which is what a `token_base` is for.
    async fn wipe(&mut self) {
        for name in self.scenario.names.clone() {
            for counter in self.holders(&name).await {
                self.recorder.on(&name, What::Overruled { counter });
            }
        }
        let name = LockName::new("counter").expect("a word is a name");
        let owner = OwnerId::from_random([0xff; 16]);
        let request = AcquireRequest::new(name, owner, self.scenario.timing.ttl);
        let grant = self.admin.acquire(&request).await.expect("the only attempt for it");
        self.store.store().forget(&self.truth);
        self.store.store().raise_counter(grant.counter);
    }

    async fn holder(&self, name: &LockName) -> Option<u64> {
        self.holders(name).await.first().copied()
    }

    async fn holders(&self, name: &LockName) -> Vec<u64> {
        let state = self.admin.inspect(name).await.expect("a store in memory answers");
        state.holders.iter().filter_map(|holder| Some(holder.token?.counter())).collect()
    }
}
