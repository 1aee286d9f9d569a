//! The contenders against a server that restarts, empty or with what it had once, and pauses then (redis.protocol-9).
//!
//! A connection leads to one run of the server. A request that is in flight when that run ends never arrives; a reply may.
//! After every step, at most one client thinks it holds, and none beside a client that was granted the lock since the
//! restart (G1, G2), and tokens grow (G3). When the faults end, every client gets the lock in turn (G6).

use super::*;
use crate::scripts::model::{Connection, Origin};

/// Milliseconds: as long as the longest lease.
pub(super) const PAUSE: u64 = TTL;

/// The runs of a server, and which of them the clients have reached.
#[derive(Debug, Default)]
pub(super) struct Runs {
    /// How often the server has restarted.
    restarts: u64,
    /// When the current run began, in microseconds.
    came_up_at: u64,
    origin: Option<Origin>,
    /// The data of the server as they were once.
    old: (Server, Option<Origin>),
    connections: [Connection; CLIENTS],
}

impl Runs {
    fn run(&self) -> u64 {
        self.restarts + 1
    }

    /// A connection that is made now.
    fn admit(&mut self, now: u64, mutant: Mutant) -> Connection {
        let run = self.run();
        if let (Mutant::RunUnseen, Some(origin)) = (mutant, &mut self.origin) {
            origin.run = run;
        }
        let since = Origin::admit(&mut self.origin, run, micros(now));
        let pause = match mutant {
            Mutant::NoPause => 0,
            Mutant::ShortPause => PAUSE / 2,
            _ => PAUSE,
        };
        Connection { run, paused_until: Some(since + micros(pause)) }
    }
}

impl World {
    /// The run of the server.
    pub(super) fn run(&self) -> u64 {
        self.runs.as_ref().map_or(0, Runs::run)
    }

    /// The connection of a client, made anew if its server is gone.
    pub(super) fn connection(&mut self, id: usize) -> Connection {
        let Some(runs) = &mut self.runs else { return Connection::default() };
        let before = runs.connections[id];
        if before.run != runs.run() {
            runs.connections[id] = runs.admit(self.now, self.mutant);
            if self.mutant == Mutant::RunUnasked && before.run != 0 {
                runs.connections[id].paused_until = before.paused_until;
            }
        }
        runs.connections[id]
    }

    /// The hold that the server has granted since it restarted.
    pub(super) fn granted_since_restart(&self) -> Option<Held> {
        let runs = self.runs.as_ref()?;
        let granted = self.server.grant.filter(|grant| grant.since >= runs.came_up_at);
        let granted = granted.filter(|grant| self.server.is_held_by(grant.owner))?;
        Some(hold(granted.owner, Mode::EXCLUSIVE, granted.counter))
    }

    /// Whether the client has given up the connection to that run, with what may still be unread from it.
    pub(super) fn is_given_up(&self, client: usize, run: u64) -> bool {
        self.mutant != Mutant::CountsEarlierRuns
            && self.runs.as_ref().is_some_and(|runs| runs.connections[client].run != run)
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
        // That takes a moment, which separates earlier grants from later ones.
        self.now += 1;
        (self.server, runs.origin) = data;
        (runs.restarts, runs.came_up_at) = (runs.restarts + 1, micros(self.now));
    }

    /// An administrator takes the lock by force. Only a lock that is free is of interest: force itself breaks G1.
    pub(super) fn force(&mut self) {
        self.server.expire(micros(self.now));
        let Some(runs) = self.runs.as_mut().filter(|_| self.server.lock.is_none()) else { return };
        let mut over = runs.admit(self.now, self.mutant);
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
        Mutant::RunUnasked,
        Mutant::RunUnseen,
        Mutant::ShortPause,
    ]);
}

/// A run has granted the lock to the first client, and then to the second one, and forgets both. The first message is read
/// when the next run has already answered.
#[test]
fn message_of_an_earlier_run_grants_nothing() {
    let play = |mutant| {
        let mut world = World::new(Network::Any, None, mutant);
        world.runs = Some(Runs::default());
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
