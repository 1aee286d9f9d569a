//! Locks that several hold together, against the model of the scripts: clients with a mode each, which die, too.
//!
//! After every script: who waits first does not fit, by the rule (G7). After every step: who thinks it holds does, those who
//! hold fit together and came before all who wait, and what a client held that died ends with its lease (G1, G4, G6). Taken counters grow past
//! those that they exclude (G3). And all that is checked of exclusive locks.

use leasehold_core::backend::Load;
use proptest::test_runner::TestRng;

use super::*;
use crate::scripts::model::Fault;

impl World {
    fn mode_of(&self, owner: Owner) -> Mode {
        let arrived = self.arrived.iter().find(|(arrived, _)| *arrived == owner);
        arrived.map_or(Mode::EXCLUSIVE, |(_, client)| self.modes[*client])
    }

    /// It has asked, and had that place before.
    pub(super) fn arrives(&mut self, client: usize, owner: Owner, before: Option<u64>) {
        let place = self.server.place(micros(self.now), owner);
        // Its turn may have come.
        if before.is_none() || place.is_some_and(|place| place > 0 && before != Some(place)) {
            self.arrived.retain(|(arrived, _)| *arrived != owner);
            self.arrived.push((owner, client));
        }
    }

    /// The hold of a client begins.
    pub(super) fn take(&mut self, id: usize, counter: u64) -> Result<(), String> {
        let (any, exclusive) = self.taken;
        let is_exclusive = self.modes[id] == Mode::EXCLUSIVE;
        let last = if is_exclusive { any } else { exclusive };
        if counter <= last {
            return Err(format!("counter {counter} was taken after {last}"));
        }
        self.taken = (any.max(counter), if is_exclusive { counter } else { exclusive });
        Ok(())
    }

    /// The client's process is gone, and what was on its way to it and from it.
    pub(super) fn die(&mut self, id: usize) {
        self.flying.retain(|message| message.client() != id);
        let client = &mut self.clients[id];
        let died = [client.owner].into_iter().chain(std::mem::take(&mut client.leaving));
        self.dead.extend(died.map(|owner| (owner, self.now)));
        self.ask_anew(id, false);
    }

    /// A script has been run.
    pub(super) fn leaves_nobody_out(&self, by: Owner) -> Result<(), String> {
        let waits = self.server.keeps_out(micros(self.now), |owner| self.mode_of(owner));
        match waits.filter(|_| self.stranger.is_none() && self.server.shared.is_none()) {
            Some(owner) => Err(format!("{owner} fits and waits after a script of {by}: {:?}", self.server)),
            None => Ok(()),
        }
    }

    pub(super) fn check_shares(&self) -> Result<(), String> {
        let now = micros(self.now);
        let place = |owner: &Owner| self.arrived.iter().position(|(arrived, _)| arrived == owner);
        let first = self.server.queue.iter().map(|(owner, _)| owner);
        let first =
            first.filter(|owner| self.server.entries[*owner].live_until > now).filter_map(place).min();
        let mut load = Load::NONE;
        for owner in self.server.holders() {
            if !self.server.holds_at(now, owner) {
                continue;
            }
            if !load.admits(self.mode_of(owner)) {
                return Err(format!("{owner} does not fit: {:?}", self.server));
            }
            load = load.and(self.mode_of(owner));
            if let (Some(waits), Some(holds)) = (first, place(&owner))
                && waits < holds
            {
                return Err(format!("{owner} has overtaken: {:?}", self.server));
            }
            if self.dead.get(&owner).is_some_and(|died| died + TTL + TTL / 6 + 1 < self.now) {
                return Err(format!("{owner} is dead, and holds: {:?}", self.server));
            }
        }
        Ok(())
    }
}

type Schedule = (Network, Vec<Mode>, Vec<(u8, u16)>);

fn schedules() -> impl Strategy<Value = Schedule> {
    let network = prop_oneof![Just(Network::Ordered), Just(Network::Any)];
    let permits = |weight, capacity| Mode::permits(weight, capacity).unwrap();
    let mode = prop_oneof![
        3 => Just(Mode::SHARED),
        2 => Just(Mode::EXCLUSIVE),
        1 => Just(permits(1, 2)),
        1 => Just(permits(2, 2)),
        1 => Just(permits(1, 3)),
    ];
    // Strangers have no such locks.
    let event = (0_u8..14, any::<u16>()).prop_map(|(kind, pick)| (if kind == 13 { 14 } else { kind }, pick));
    (network, prop::collection::vec(mode, CLIENTS), prop::collection::vec(event, 0..120))
}

fn run((network, modes, events): &Schedule, mutant: Mutant, fault: Fault) -> Result<(), String> {
    let mut world = World::new(*network, None, mutant);
    world.modes.copy_from_slice(modes);
    if fault != Fault::None {
        world.server.fault = fault;
    }
    play(world, events)
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(5_000) })]

    /// Whatever the network does, and whoever dies.
    #[test]
    fn random_schedules_of_all_modes_keep_the_guarantees(schedule in schedules()) {
        if let Err(violation) = run(&schedule, Mutant::None, Fault::None) {
            return Err(TestCaseError::fail(violation));
        }
    }
}

fn finds(mutant: Mutant, fault: Fault) -> bool {
    let config = Config { failure_persistence: None, max_shrink_iters: 0, ..Config::with_cases(60_000) };
    let rng = TestRng::deterministic_rng(config.rng_algorithm);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let outcome =
        runner.run(&schedules(), |schedule| run(&schedule, mutant, fault).map_err(TestCaseError::fail));
    matches!(outcome, Err(TestError::Fail(..)))
}

/// Each rule of the scripts is needed.
#[test]
fn faults_in_sharing_are_found() {
    for fault in [
        Fault::Overtakes,
        Fault::LeavesUnsettled,
        Fault::OneExpiry,
        Fault::OwnCapacity,
        Fault::OneByOne,
        Fault::ExpiredStays,
        Fault::ReleasesAll,
        Fault::RenewsAll,
        Fault::RefreshUnsettled,
    ] {
        assert!(finds(Mutant::None, fault), "{fault:?} was not found");
        ::model::caught("redis shared", fault, "random schedules");
    }
}

/// And those of the contenders, where locks are shared, too.
#[test]
fn mutants_among_sharers_are_caught() {
    for mutant in
        [Mutant::CountsFromArrival, Mutant::CountsFromAnswer, Mutant::ShortHandOn, Mutant::RefreshEnters]
    {
        assert!(finds(mutant, Fault::None), "{mutant:?} was not caught");
        ::model::caught("redis shared", mutant, "random schedules");
    }
}
