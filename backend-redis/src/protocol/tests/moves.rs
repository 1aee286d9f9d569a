//! The contenders in a cluster: what `promotions` does, and the slot of the lock moves to another server, with its keys and its
//! origin (redis.slots-1, redis.slots-2, redis.slots-4).
//!
//! A server that has given the slot away refuses it. A primary that was replaced may not: it goes on for the lag. A client that
//! comes to another reign asks the server of the reign before which of both it is, and may hear that later. Messages reach clients
//! whatever server they are connected to.

use super::promotions::LAG;
use super::restarts::{Data, PAUSE};
use super::*;
use crate::scripts::model::{Connection, Origin, Reign};

/// Where the slot was, and what the clients know of that.
#[derive(Debug)]
pub(super) struct Slots {
    /// Of the server that has the slot.
    server: Option<ServerOrigin>,
    /// Of servers that had it before, and to which it may come back. None of those after it has lost the slot's origin since.
    earlier: Vec<ServerOrigin>,
    /// The reign that each promoted server has replaced.
    pub(super) replaced: BTreeMap<u64, u64>,
    /// The reigns of servers that have given the slot away.
    refusing: BTreeSet<u64>,
    served: [Served; CLIENTS],
    /// What servers have told the clients, and when.
    proved: [BTreeMap<u64, (u64, Connection)>; CLIENTS],
    /// Nothing is forgotten, so nothing is lost.
    only_moves: bool,
}

/// Since when the reign of a server is known, in microseconds, and whether the slot was there by then.
#[derive(Clone, Copy, Debug)]
struct ServerOrigin {
    reign: Reign,
    since: u64,
    had_slot: bool,
}

/// What a client knows of the reigns in which its requests were served.
#[derive(Clone, Debug, Default)]
struct Served {
    reign: Option<u64>,
    /// When the client came there.
    entered_at: u64,
    /// Until when a primary before the first reign may go on.
    lag_until: u64,
    /// Until when earlier reigns may go on, whose servers have not refused the slot yet.
    left: BTreeMap<u64, u64>,
}

impl Served {
    fn lag_until(&self) -> u64 {
        self.left.values().copied().fold(self.lag_until, u64::max)
    }
}

impl Slots {
    pub(super) fn new(only_moves: bool) -> Self {
        Self {
            server: None,
            earlier: Vec::new(),
            replaced: BTreeMap::new(),
            refusing: BTreeSet::new(),
            served: Default::default(),
            proved: Default::default(),
            only_moves,
        }
    }

    /// Since when the slot is known whose `origin` is not of that reign.
    pub(super) fn since(
        &mut self,
        reign: Reign,
        (now, origin): (u64, Option<Origin>),
        mutant: Mutant,
    ) -> u64 {
        let known = self.server.filter(|server| server.reign == reign);
        let server = *self.server.insert(known.unwrap_or(ServerOrigin { reign, since: now, had_slot: true }));
        let replaced = self.replaced.get(&reign.replid);
        let was_elsewhere = origin.is_some_and(|origin| replaced != Some(&origin.reign.replid));
        match mutant {
            Mutant::OriginOfServer => server.since,
            _ if server.had_slot && (!was_elsewhere || mutant == Mutant::OriginOfReturn) => server.since,
            _ => now,
        }
    }

    /// Another reign begins, which `has_origin` of the slot or lacks it.
    pub(super) fn comes_up(&mut self, has_origin: bool) {
        if !has_origin {
            self.earlier.clear();
        }
    }

    pub(super) fn prove(&mut self, client: usize, reign: u64, told: (u64, Connection)) {
        self.proved[client].insert(reign, told);
    }

    /// What the server of that reign has told the client lately.
    pub(super) fn proved(&self, client: usize, reign: u64, now: u64) -> Option<Connection> {
        self.proved[client].get(&reign).filter(|(at, _)| now < at + LAG / 2).map(|(_, over)| *over)
    }

    /// A client comes to `reign`, whose lag ends at `lag_until`; until when it takes a primary before to go on.
    pub(super) fn enters(
        &mut self,
        client: usize,
        reign: u64,
        (now, lag_until): (u64, u64),
        mutant: Mutant,
    ) -> u64 {
        let served = &mut self.served[client];
        match served.reign.replace(reign) {
            Some(before) if before == reign => return served.lag_until(),
            None => served.lag_until = lag_until,
            Some(before) => _ = served.left.insert(before, lag_until),
        }
        // It may go back to one that goes on.
        served.left.remove(&reign);
        served.entered_at = now;
        // The server before may answer at once, or later.
        if now.is_multiple_of(2_000) { self.hear(client, mutant) } else { self.served[client].lag_until() }
    }

    /// The servers that the client has left answer it; until when it takes a primary before to go on.
    pub(super) fn hear(&mut self, client: usize, mutant: Mutant) -> u64 {
        let served = &mut self.served[client];
        let refuses = |before: u64| match mutant {
            Mutant::TakesMovesForPromotions => false,
            Mutant::TrustsEveryMove => !self.refusing.is_empty(),
            _ => self.refusing.contains(&before),
        };
        if mutant == Mutant::ForgetsEarlierLag && served.left.keys().any(|before| refuses(*before)) {
            (served.lag_until, served.left) = (0, BTreeMap::new());
        }
        served.left.retain(|before, _| !refuses(*before));
        served.lag_until()
    }
}

impl Runs {
    pub(super) fn in_cluster(only_moves: bool) -> Self {
        let mut runs = Self::new(LAG);
        runs.slots = Some(Slots::new(only_moves));
        runs
    }

    /// The slot moves to a server that has been there for long, or back to an earlier one. Its replica may lack the slot yet.
    fn move_slot(&mut self, data: Data, back: usize) {
        let Some(slots) = &mut self.slots else { return };
        slots.refusing.insert(self.reign.replid);
        self.count += 1;
        let fresh = Reign { run: self.count, replid: self.count };
        let back = (back < slots.earlier.len()).then(|| slots.earlier.remove(back));
        let next = back.unwrap_or(ServerOrigin { reign: fresh, since: 0, had_slot: false });
        let before = slots.server.replace(next).filter(|before| before.reign == self.reign);
        slots.earlier.extend(before);
        self.reign = next.reign;
        slots.refusing.remove(&self.reign.replid);
        let without = Server { fault: data.0.fault, ..Server::default() };
        self.replication.follow_another([(without, None), data]);
    }
}

impl World {
    /// The slot moves, or a manager that has nothing to do with the lock connects to its server. Whether that is all that
    /// happens.
    pub(super) fn move_slot(&mut self, pick: usize) -> bool {
        let Some(runs) = &mut self.runs else { return false };
        let Some(slots) = &mut runs.slots else { return false };
        match pick % 8 {
            6 if pick.is_multiple_of(5) => {
                _ = slots.since(runs.reign, (micros(self.now), runs.origin), self.mutant)
            }
            6 => runs.move_slot((self.server.clone(), runs.origin), (pick / 8) % 3),
            1..=4 => return false,
            _ => return slots.only_moves,
        }
        true
    }

    /// Whether a grant is not believed that was announced in `reign`. A client in a pause asks its server instead. The bus of
    /// the cluster is no slower than a pause.
    pub(super) fn is_outdated(&mut self, id: usize, owner: Owner, reign: u64) -> bool {
        let Some(over) = self.runs.as_ref().map(|runs| runs.connections[id]) else { return false };
        if self.mutant == Mutant::CountsEarlierRuns {
            return false;
        }
        let is_paused = over.paused_until.is_some_and(|until| micros(self.now) < until);
        let client = &mut self.clients[id];
        if is_paused && client.owner == owner && client.wants {
            client.contender.due(at(self.now), Duration::ZERO);
        }
        is_paused || reign < over.reign
    }

    /// Whether a request renews a hold.
    pub(super) fn is_renewal(&self, message: &Message) -> bool {
        let only_moves =
            self.runs.as_ref().and_then(|runs| runs.slots.as_ref()).is_some_and(|slots| slots.only_moves);
        let Message::Request { owner, request: Request::Refresh, .. } = message else { return false };
        let mut server = self.server.clone();
        server.expire(micros(self.now));
        only_moves && server.holds_at(micros(self.now), *owner)
    }

    /// A hold was renewed, wherever its slot has moved.
    pub(super) fn was_renewed(&self) -> Result<(), String> {
        match self.flying.last() {
            Some(Message::Reply { owner, answer: ScriptReply::Gone, .. }) => {
                Err(format!("the hold of {owner} was lost in a move at {}", self.now))
            }
            Some(Message::Reply { client, owner, answer: ScriptReply::HoldsOn, sent_at }) => {
                let slots = self.runs.as_ref().and_then(|runs| runs.slots.as_ref());
                let had_heard =
                    slots.is_some_and(|slots| slots.served[*client].entered_at < micros(*sent_at));
                let said = || format!("the hold of {owner} was not renewed after a move at {}", self.now);
                if had_heard { Err(said()) } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }
}

#[test]
fn moves_and_promotions_keep_the_guarantees() {
    Setting::Cluster.search(Depth::of_run().pick(5_000, 10_000, 500_000), Mutant::None).unwrap();
}

#[test]
fn moves_alone_end_no_hold() {
    Setting::Moves.search(Depth::of_run().pick(2_000, 3_000, 200_000), Mutant::None).unwrap();
    Setting::Moves.catches(&[Mutant::TakesMovesForPromotions]);
}

#[test]
fn without_a_part_of_the_slots_origin_two_hold() {
    Setting::Cluster.catches(&[
        Mutant::NoPause,
        Mutant::OriginOfServer,
        Mutant::OriginOfReturn,
        Mutant::TrustsEveryMove,
        Mutant::CountsEarlierRuns,
        Mutant::Scripts(Fault::RenewsInLag),
    ]);
}

/// A hold is not copied anew to the server that is promoted, while the primary before goes on, with a client that waits there for
/// the end of the lease. The slot moves then, or was moved to another server and back.
#[test]
fn move_does_not_end_the_lag_of_a_promotion() {
    let play = |mutant, moves: [&[usize]; 2]| {
        let mut world = World::new(Network::Any, None, mutant);
        world.runs = Some(Runs::in_cluster(false));
        let acts = |world: &mut World, now, act: fn(&mut World) -> Result<(), String>| {
            world.now = now;
            act(world)?;
            while let Some(message) = world.flying.pop() {
                world.deliver(message)?;
            }
            world.check()
        };
        let began = world.now + PAUSE + LAG;
        world.connection(0);
        moves[0].iter().for_each(|change| world.change_server(0, *change));
        world.connection(1);
        acts(&mut world, began, |world| world.act(0))?;
        acts(&mut world, began + TTL * 3 / 4, |world| {
            // Its server is replaced, and it leaves that one.
            [8, 1].into_iter().for_each(|change| world.change_server(0, change));
            Ok(())
        })?;
        moves[1].iter().for_each(|change| world.change_server(0, *change));
        acts(&mut world, began + TTL * 4 / 5, |world| {
            world.renew(0);
            Ok(())
        })?;
        acts(&mut world, began + TTL + 2, |world| world.act(1))
    };
    // The slot moves, and the client follows.
    let (moves, returns): ([&[usize]; 2], [&[usize]; 2]) = ([&[], &[6]], [&[6, 1, 6, 1], &[]]);
    for (mutant, moves) in [(Mutant::ForgetsEarlierLag, moves), (Mutant::KeepsProof, returns)] {
        play(Mutant::None, moves).unwrap();
        assert!(play(mutant, moves).unwrap_err().contains(::model::OVERLAP));
        ::model::caught("redis Cluster", mutant, "a schedule by hand");
    }
}
