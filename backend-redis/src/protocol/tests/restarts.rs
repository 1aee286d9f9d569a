//! The contenders against a server that restarts, empty or with what it had once, and pauses then (redis.protocol-9).
//!
//! A connection leads to one reign of the server. A request that is in flight when that reign ends never arrives; a reply may.
//! After every step, the holds that clients believe in fit together, and beside what was granted in this reign (G1, G2), and
//! tokens grow (G3). When the faults end, every client gets the lock in turn (G6).

use super::moves::Slots;
use super::promotions::Replication;
use super::*;
use crate::scripts::model::{Connection, Origin, Reign};

/// Milliseconds: as long as the longest lease.
pub(super) const PAUSE: u64 = TTL;

const FIRST: Reign = Reign { run: 1, replid: 1 };

/// The data of a server, and the reign in which they were written.
pub(super) type Data = (Server, Option<Origin>);

/// The reigns of a server, and which of them the clients have reached.
#[derive(Debug)]
pub(super) struct Runs {
    /// How many processes and promotions there were.
    pub(super) count: u64,
    pub(super) reign: Reign,
    /// When the current reign began, in microseconds.
    came_up_at: u64,
    pub(super) origin: Option<Origin>,
    /// The data of the server as they were once.
    old: Data,
    pub(super) connections: [Connection; CLIENTS],
    /// For how long a primary may go on beside the next one, in milliseconds.
    pub(super) lag: u64,
    pub(super) replication: Replication,
    /// Of a cluster.
    pub(super) slots: Option<Slots>,
}

impl Runs {
    pub(super) fn new(lag: u64) -> Self {
        Self {
            count: 1,
            reign: FIRST,
            came_up_at: 0,
            // The first pause of promoted servers is over soon.
            origin: (lag > 0).then_some(Origin { reign: FIRST, since: 0 }),
            old: Default::default(),
            connections: Default::default(),
            lag,
            replication: Replication::default(),
            slots: None,
        }
    }

    /// Another process of the server, or the process `run`.
    pub(super) fn begin(&mut self, run: Option<u64>, now: u64) {
        self.count += 1;
        self.reign = Reign { run: run.unwrap_or(self.count), replid: self.count };
        self.came_up_at = micros(now);
    }

    /// A connection that is made now, by a client or an administrator.
    fn admit(&mut self, client: Option<usize>, now: u64, mutant: Mutant) -> Connection {
        let mut reign = self.reign;
        match (mutant, &mut self.origin) {
            (Mutant::PauseOnceForever, Some(origin)) => origin.reign = reign,
            (Mutant::RunOnly, _) => reign.replid = 0,
            _ => {}
        }
        let now = micros(now);
        let origin = self.origin;
        let since = self.slots.as_mut().map_or(now, |slots| slots.since(reign, (now, origin), mutant));
        let since = Origin::admit(&mut self.origin, reign, now, since);
        let lag_until = since + micros(self.lag);
        let lag_until = match (&mut self.slots, client) {
            (Some(slots), Some(client)) => slots.enters(client, self.reign.replid, (now, lag_until), mutant),
            _ => lag_until,
        };
        let pause = match mutant {
            Mutant::NoPause => 0,
            Mutant::ShortPause => PAUSE / 2,
            Mutant::NoLag => PAUSE,
            _ => PAUSE + self.lag,
        };
        Connection { reign: self.count, paused_until: Some(since + micros(pause)), lag_until }
    }
}

impl World {
    /// The reign of the server, and of the slot there: a slot that comes back differs from what it was there before.
    pub(super) fn reign(&self) -> u64 {
        self.runs.as_ref().map_or(0, |runs| runs.count)
    }

    /// The connection of a client, made anew if its server is gone.
    pub(super) fn connection(&mut self, id: usize) -> Connection {
        let Some(runs) = &mut self.runs else { return Connection::default() };
        let before = runs.connections[id];
        if before.reign != runs.count && !runs.leads_to_former(before, self.now) {
            let proved = runs.slots.as_ref().and_then(|slots| slots.proved(id, runs.reign.replid, self.now));
            if let Some(proved) = proved.filter(|_| self.mutant == Mutant::KeepsProof) {
                runs.connections[id] = Connection { reign: runs.count, ..proved };
                return runs.connections[id];
            }
            runs.connections[id] = runs.admit(Some(id), self.now, self.mutant);
            if let Some(slots) = &mut runs.slots {
                slots.prove(id, runs.reign.replid, (self.now, runs.connections[id]));
            }
            if self.mutant == Mutant::RunUnasked && before.reign != 0 {
                runs.connections[id].paused_until = before.paused_until;
            }
        } else if let Some(slots) = &mut runs.slots {
            runs.connections[id].lag_until = slots.hear(id, self.mutant);
        }
        runs.connections[id]
    }

    /// The holds that the server has granted in this reign.
    pub(super) fn granted_in_reign(&self) -> Vec<Held> {
        let Some(runs) = &self.runs else { return Vec::new() };
        let grant = |owner: Owner| match self.server.shares.grants.get(&owner) {
            Some(share) => Some((share.mode, share.counter, share.since)),
            None => {
                let grant = self.server.grant.filter(|grant| grant.owner == owner)?;
                Some((Mode::EXCLUSIVE, grant.counter, grant.since))
            }
        };
        let holders = self.server.holders().into_iter();
        let granted = holders.filter(|owner| self.server.holds_at(micros(self.now), *owner));
        let granted = granted.filter_map(|owner| Some((owner, grant(owner)?)));
        let granted = granted.filter(|(_, (_, _, since))| *since >= runs.came_up_at);
        granted.map(|(owner, (mode, counter, _))| hold(owner, mode, counter)).collect()
    }

    /// Whether a grant of that reign is not believed: the client has given up its connection, with what may be unread from it.
    pub(super) fn is_given_up(&mut self, client: usize, owner: Owner, reign: u64) -> bool {
        if self.runs.as_ref().is_some_and(|runs| runs.slots.is_some()) {
            return self.is_outdated(client, owner, reign);
        }
        self.mutant != Mutant::CountsEarlierRuns
            && self.runs.as_ref().is_some_and(|runs| runs.connections[client].reign != reign)
    }

    /// A request has come over that connection.
    pub(super) fn told(&mut self, request: Request, over: Connection) -> Request {
        let is_told = self.mutant != Mutant::ForgetsPause(request);
        let paused_until = over.paused_until.filter(|_| is_told);
        self.server.over = Connection { paused_until, ..over };
        request
    }

    /// The server dies, and comes up empty or with the data that it had once; or they are kept for that.
    pub(super) fn restart(&mut self, pick: usize) {
        let Some(runs) = &mut self.runs else { return };
        let data = match (pick.is_multiple_of(3), pick.is_multiple_of(2)) {
            (true, _) => Default::default(),
            (_, true) => runs.old.clone(),
            _ => return runs.old = (self.server.clone(), runs.origin),
        };
        self.come_up(data, None);
    }

    /// A reign begins with those data: of another process, or of the process `run`.
    pub(super) fn come_up(&mut self, data: Data, run: Option<u64>) {
        let Some(runs) = &mut self.runs else { return };
        // That takes a moment, which separates earlier grants from later ones.
        self.now += 1;
        if let Some(slots) = &mut runs.slots {
            slots.comes_up(data.1 == runs.origin);
        }
        runs.begin(run, self.now);
        (self.server, runs.origin) = data.clone();
        runs.replication.follow(data);
    }

    /// An administrator takes the lock by force. Only a lock that is free is of interest: force itself breaks G1.
    pub(super) fn force(&mut self) {
        self.server.expire(micros(self.now));
        let Some(runs) = self.runs.as_mut().filter(|_| self.server.lock.is_none()) else { return };
        let mut over = runs.admit(None, self.now, self.mutant);
        over.paused_until = over.paused_until.filter(|_| self.mutant != Mutant::ForceForgets);
        self.server.over = over;
        self.server.revoke(micros(self.now), None, &mut self.flying);
    }
}

#[test]
fn restarts_keep_the_guarantees() {
    Setting::Restarts.search(Depth::of_run().pick(5_000, 10_000, 500_000), Mutant::None).unwrap();
}

#[test]
fn without_a_part_of_the_pause_two_hold() {
    Setting::Restarts.catches(&[
        Mutant::NoPause,
        Mutant::ForgetsPause(Request::Acquire),
        Mutant::ForgetsPause(Request::Refresh),
        Mutant::ForgetsPause(Request::Release),
        Mutant::ForceForgets,
        Mutant::Scripts(Fault::SharesInPause),
        Mutant::RunUnasked,
        Mutant::PauseOnceForever,
        Mutant::ShortPause,
    ]);
}

/// A run has granted the lock to the first client, and then to the second one, and forgets both. The first message is read
/// when the next run has already answered.
#[test]
fn message_of_an_earlier_run_grants_nothing() {
    let play = |mutant| {
        let mut world = World::new(Network::Any, None, mutant);
        world.runs = Some(Runs::new(0));
        let asks = |world: &mut World, id, after| {
            world.connection(id);
            world.now += after;
            world.act(id)?;
            let request = world.flying.pop().expect("it asks");
            world.deliver(request)?;
            Ok::<_, String>(std::mem::take(&mut world.flying))
        };
        let _lost = asks(&mut world, 0, TTL / 2)?;
        let granted = asks(&mut world, 1, PAUSE - TTL / 2)?;
        let late = granted.into_iter().find(|sent| matches!(sent, Message::Push { .. })).expect("a grant");
        for answer in asks(&mut world, 1, TTL / 2 + 1)? {
            world.deliver(answer)?;
        }
        world.restart(0);
        for answer in asks(&mut world, 0, 0)? {
            world.deliver(answer)?;
        }
        world.deliver(late)?;
        world.check()
    };
    play(Mutant::None).unwrap();
    assert!(play(Mutant::CountsEarlierRuns).unwrap_err().contains(::model::OVERLAP));
    ::model::caught("redis Restarts", Mutant::CountsEarlierRuns, "a schedule by hand");
}
