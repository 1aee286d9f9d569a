//! What happens while the storm lasts, the loss of single messages apart.

use std::time::Duration;

use leasehold_conformance::history::What;
use leasehold_conformance::network::{Fault, Operation};
use leasehold_core::backend::Revoke;
use leasehold_core::backend::stage::{Phase, Side};
use leasehold_core::clock::{Clock, Moment};

use crate::fleet::{Fleet, Kind};
use crate::plants::Plant;
use crate::tally::ADMINS_DIED;

/// When something is over, and what.
type Relief = (Moment, Struck);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Struck {
    Process(String),
    Store(Side),
}

impl Fleet {
    /// One after the other, until the storm is over.
    pub(crate) async fn storm(&mut self) {
        let end = self.truth.now() + self.scenario.storm;
        let mut reliefs: Vec<Relief> = Vec::new();
        loop {
            let ttl = self.scenario.timing.ttl;
            let strike_at = self.truth.now() + Duration::from_millis(1) + self.scenario.dice.span(ttl);
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
                continue;
            }
            self.administer().await;
            if self.scenario.fair_weather || self.scenario.dice.chance(400) {
                self.redeploy().await;
            } else {
                reliefs.extend(self.strike().await);
            }
        }
    }

    fn relieve(&mut self, struck: &Struck) {
        match struck {
            Struck::Store(Side::Old) => self.old.is_down = false,
            Struck::Store(Side::New) => self.new.is_down = false,
            Struck::Process(_) => {}
        }
        for index in 0..self.hands.len() {
            let process = &mut self.hands[index].process;
            if *struck == Struck::Process(process.label().to_owned()) || matches!(struck, Struck::Store(_)) {
                process.back_to_usual();
                self.keep_cut(&self.hands[index].process);
            }
        }
        for walker in &self.walkers {
            walker.reaches(Side::Old, !self.old.is_down);
            walker.reaches(Side::New, !self.new.is_down);
        }
    }

    async fn strike(&mut self) -> Option<Relief> {
        if self.hands.is_empty() {
            return None;
        }
        let everybody: Vec<_> = (0..self.hands.len()).collect();
        let victim = *self.scenario.dice.pick(&everybody);
        let until = self.truth.now() + self.scenario.dice.span(self.scenario.timing.ttl * 3);
        let side = *self.scenario.dice.pick(&[Side::Old, Side::New]);
        let process = &self.hands[victim].process;
        let relief = (until, Struck::Process(process.label().to_owned()));
        let network = &process.networks()[usize::from(side == Side::New)];
        match self.scenario.dice.below(100) {
            0..12 => {
                process.recorder().note(What::Disturbed("a store is silent"));
                network.cut();
            }
            12..22 => {
                process.recorder().note(What::Disturbed("both stores are silent"));
                process.networks().iter().for_each(leasehold_conformance::Network::cut);
            }
            22..36 => {
                process.recorder().note(What::Disturbed("a ledger is silent"));
                for operation in [Operation::Sign, Operation::ReadRecord, Operation::Members] {
                    network.always(operation, Fault::LoseRequest);
                }
                // Longer than a whole move in a hurry takes.
                let until = self.truth.now() + self.scenario.dice.span(self.scenario.timing.ttl * 8);
                return Some((until, relief.1));
            }
            36..44 => {
                process.recorder().note(What::Disturbed("leases expire"));
                network.always(Operation::Renew, Fault::LoseRequest);
            }
            44..56 => process.stop(),
            56..64 => {
                self.cut_from_all(side);
                return Some((until, Struck::Store(side)));
            }
            64..74 => {
                self.crash(victim);
                return None;
            }
            74..82 => {
                self.walk_away(victim);
                return None;
            }
            82..90 => {
                self.retire(victim, false);
                return None;
            }
            _ => {
                self.revoke(victim);
                return None;
            }
        }
        Some(relief)
    }

    /// Nobody reaches a store, such as while it is restarted.
    fn cut_from_all(&mut self, side: Side) {
        self.recorder.note(What::Disturbed("a store is silent for all"));
        match side {
            Side::Old => self.old.is_down = true,
            Side::New => self.new.is_down = true,
        }
        for hand in &self.hands {
            self.keep_cut(&hand.process);
        }
        for walker in &self.walkers {
            walker.reaches(side, false);
        }
    }

    fn revoke(&mut self, victim: usize) {
        let name = self.scenario.dice.pick(&self.scenario.names).clone();
        let grace = *self.scenario.dice.pick(&[Duration::ZERO, self.scenario.timing.ttl / 8]);
        self.recorder.on(&name, What::Disturbed("revoked"));
        self.hands[victim].process.revokes(&name, Revoke::Ask { grace });
    }

    /// Processes are replaced by others, as the phase allows; now and then as it does not.
    async fn redeploy(&mut self) {
        let phase = self.phase().await;
        let dice = &mut self.scenario.dice;
        if dice.chance(60) {
            let side = match phase {
                Some(Phase::Old) => Side::New,
                Some(Phase::New) => Side::Old,
                _ => *dice.pick(&[Side::Old, Side::New]),
            };
            if phase.is_some() {
                self.start(Kind::Plain(side)).await;
            }
            return;
        }
        let is_plain = |kind| matches!(kind, Kind::Plain(_));
        let plain: Vec<_> = (0..self.hands.len()).filter(|hand| is_plain(self.hands[*hand].kind)).collect();
        let dice = &mut self.scenario.dice;
        let kind = match phase {
            _ if self.scenario.planted == Some(Plant::IgnoresPhases) && dice.chance(300) => {
                Kind::Blind(*dice.pick(&[Side::Old, Side::New]))
            }
            Some(Phase::Old) if dice.chance(300) => Kind::Plain(Side::Old),
            Some(Phase::New) if dice.chance(500) => Kind::Plain(Side::New),
            _ => Kind::Moving,
        };
        if self.hands.len() as u64 >= self.scenario.processes {
            let all: Vec<_> = (0..self.hands.len()).collect();
            let choice = if kind == Kind::Moving && !plain.is_empty() { &plain } else { &all };
            let leaver = *self.scenario.dice.pick(choice);
            let gently = self.scenario.fair_weather || self.scenario.dice.chance(500);
            self.retire(leaver, gently);
        }
        self.start(kind).await;
    }

    /// Administrators come, walk through the phases, and die.
    async fn administer(&mut self) {
        let died: Vec<_> = {
            let dice = &mut self.scenario.dice;
            self.walkers.extract_if(.., |_| dice.chance(80)).collect()
        };
        for walker in died {
            self.tally.count(ADMINS_DIED, 1);
            self.dismiss(walker);
        }
        if (self.walkers.len() as u64) < self.scenario.admins && self.scenario.dice.chance(400) {
            self.start_walker();
        }
    }
}
