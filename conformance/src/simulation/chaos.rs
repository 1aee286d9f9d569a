//! What goes wrong while the storm lasts, the loss of single messages apart.

use std::time::Duration;

use leasehold_core::backend::Revoke;
use leasehold_core::clock::{Clock, Moment};

use super::Deployment;
use super::cluster::Cluster;
use crate::history::What;
use crate::network::{Fault, Network, Operation};

/// What is healed at some time.
#[derive(Clone)]
enum Struck {
    Process(String),
    Store(usize),
}

impl<D: Deployment> Cluster<D> {
    /// One after the other, until the storm is over.
    pub(super) async fn storm(&mut self) {
        let end = self.truth.now() + self.scenario.storm;
        let mut reliefs: Vec<(Moment, Struck)> = Vec::new();
        loop {
            let pause = Duration::from_millis(1) + self.scenario.dice.span(self.scenario.timing.ttl);
            let strike_at = self.truth.now() + pause;
            let relief_at = reliefs.iter().map(|(at, _)| *at).min().unwrap_or(end);
            self.truth.sleep_until(strike_at.min(relief_at).min(end)).await;
            let now = self.truth.now();
            if end <= now {
                return;
            }
            if relief_at <= now {
                for (_, struck) in reliefs.extract_if(.., |(at, _)| *at <= now).collect::<Vec<_>>() {
                    self.relieve(&struck);
                }
            } else if !D::act(self).await && !self.processes.is_empty() {
                reliefs.extend(self.strike().await);
            }
        }
    }

    fn relieve(&mut self, struck: &Struck) {
        if let Struck::Store(at) = struck {
            self.reaches(*at, true);
        }
        for index in 0..self.processes.len() {
            let process = &self.processes[index].1;
            let label = process.label.clone();
            match struck {
                Struck::Process(of) if *of != label => {}
                Struck::Process(_) => {
                    process.resume();
                    self.expose(&label);
                }
                Struck::Store(_) => self.expose(&label),
            }
        }
    }

    async fn strike(&mut self) -> Option<(Moment, Struck)> {
        let everybody: Vec<_> = (0..self.processes.len()).collect();
        let dice = &mut self.scenario.dice;
        let victim = *dice.pick(&everybody);
        let at = *dice.pick(&[0, D::STORES - 1]);
        let until = self.truth.now() + dice.span(self.scenario.timing.ttl * 2);
        let choice = dice.below(100);
        let process = &self.processes[victim].1;
        let relief = Struck::Process(process.label.clone());
        match choice {
            0..9 => {
                process.recorder.note(What::Disturbed("a store is silent"));
                self.networks(process)[at].cut();
            }
            9..18 => {
                process.recorder.note(What::Disturbed("all stores are silent"));
                self.networks(process).iter().for_each(Network::cut);
            }
            18..28 => {
                process.recorder.note(What::Disturbed("its leases expire"));
                self.networks(process)[at].always(Operation::Renew, Fault::LoseRequest);
            }
            28..38 => process.stop(),
            38..42 => {
                self.recorder.note(What::Disturbed("a store is silent for all"));
                self.reaches(at, false);
                return Some((until, Struck::Store(at)));
            }
            42..50 => {
                let (_, process) = self.processes.remove(victim);
                self.bury(&process.label);
                process.crash();
                return None;
            }
            50..54 => {
                self.walk_away(victim);
                return None;
            }
            54..64 => {
                self.retire(victim, false);
                return None;
            }
            64..73 => {
                self.revoke(victim);
                return None;
            }
            _ => return D::strike(self, victim).await.map(|until| (until, relief)),
        }
        Some((until, relief))
    }

    /// An administrator asks for a lock, with a grace or without.
    fn revoke(&mut self, victim: usize) {
        let name = self.scenario.dice.pick(&self.scenario.names).clone();
        let ttl = self.scenario.timing.ttl;
        let grace = *self.scenario.dice.pick(&[Duration::ZERO, ttl / 8, ttl]);
        self.recorder.on(&name, What::Disturbed("revoked"));
        self.processes[victim].1.revokes(&name, Revoke::Ask { grace });
    }
}
