//! Locks that several hold together, against the model of the scripts: clients with a mode each, which die, too.
//!
//! After every script: the first waiter does not fit, by the rule (G7). After every step: the holders at the server fit together and came before all waiters, and
//! the hold of a dead client ends with its lease (G4, G6). And all that is checked of exclusive locks.

use super::*;

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
        let judged = self.foreign.is_none() && self.server.shared.is_none() && self.runs.is_none();
        match waits.filter(|_| judged) {
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
        let holders = self.server.holders().into_iter().filter(|owner| self.server.holds_at(now, *owner));
        let holders: Vec<_> = holders.collect();
        // Also before their clients know of it.
        let held = holders.iter().zip(1..).map(|(owner, place)| hold(*owner, self.mode_of(*owner), place));
        if let Some(rule) = Judge::default().see(held.collect()) {
            return Err(format!("{rule} at the server: {:?}", self.server));
        }
        for owner in holders {
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

pub(super) fn mode() -> impl Strategy<Value = Mode> {
    let permits = |weight, capacity| Mode::permits(weight, capacity).unwrap();
    prop_oneof![
        3 => Just(Mode::SHARED),
        2 => Just(Mode::EXCLUSIVE),
        1 => Just(permits(1, 2)),
        1 => Just(permits(2, 2)),
        1 => Just(permits(1, 3)),
    ]
}

#[test]
fn random_schedules_of_all_modes_keep_the_guarantees() {
    Setting::Shared.search(Depth::of_run().pick(2_000, 3_000, 200_000), Mutant::None).unwrap();
}

#[test]
fn mutants_among_sharers_are_caught() {
    let faults = [
        Fault::Overtakes,
        Fault::LeavesUnsettled,
        Fault::OneExpiry,
        Fault::OwnCapacity,
        Fault::OneByOne,
        Fault::ExpiredStays,
        Fault::ReleasesAll,
        Fault::RenewsAll,
        Fault::RefreshUnsettled,
        Fault::ShortHandOn,
    ];
    Setting::Shared.catches(&faults.map(Mutant::Scripts));
    Setting::Shared.catches(&[Mutant::CountsFromArrival, Mutant::CountsFromAnswer, Mutant::RefreshEnters]);
}
