//! The contenders against a model of the scripts, with a network that delays, loses, repeats and
//! reorders, and clients that leave at any time.
//!
//! After every step: a client that thinks it holds is the holder at the server (G1, G2, G4), holders fit together, and their
//! tokens grow (G1, G3). When the faults end: every client that still wants the lock gets it in turn (G6,
//! G7, G8), and nothing is left at the server: at once if each connection kept its order, and after a
//! ttl whatever arrived late (G5). A client that loses its entry acquires again at once, as the core does, while that is
//! still being released. Planted mutants must be caught, or the properties prove nothing.

use std::collections::{BTreeMap, BTreeSet};

use ::model::{Held, Judge};
use leasehold_core::backend::Mode;
use proptest::prelude::*;
use proptest::test_runner::TestError;
use testbed::Depth;

use super::*;
use crate::scripts::model::{Asker, Fault, Message, Owner, Request, Server, Shared};
use looks::Looks;
use mutant::{Mutant, Network};
use restarts::Runs;
use schedules::{Setting, walk};

mod delays;
mod foreign;
mod looks;
mod moves;
mod mutant;
mod orphans;
mod promotions;
mod restarts;
mod rules;
mod schedules;
mod sharing;

const TTL: u64 = 900;
const MARGIN: u64 = 10;
const CLIENTS: usize = 3;
/// A foreign client.
const FOREIGN_OWNER: Owner = 99_999_999;
/// A counter that was never granted.
const FORGED: u64 = u64::MAX / 2;
/// How far apart a client's looks are when nothing goes wrong.
const ROUND: u64 = TTL / 90;

#[derive(Debug)]
struct Client {
    contender: Contender,
    owner: Owner,
    wants: bool,
    /// Owner ids whose release was not confirmed.
    leaving: BTreeSet<Owner>,
    renewed_at: u64,
    held: bool,
    looks: Looks,
}

#[derive(Debug)]
struct World {
    now: u64,
    server: Server,
    clients: Vec<Client>,
    flying: Vec<Message>,
    owners: Owner,
    judge: Judge,
    /// The earliest deadline of the revocations of a holder.
    asked: BTreeMap<Owner, u64>,
    network: Network,
    mutant: Mutant,
    /// Until when a foreign client holds.
    foreign: Option<u64>,
    /// How each client wants it.
    modes: [Mode; CLIENTS],
    /// In the order of arrival at the server.
    arrived: Vec<(Owner, usize)>,
    /// The dead owners, and when they died.
    dead: BTreeMap<Owner, u64>,
    /// Of a server that restarts.
    runs: Option<Runs>,
}

fn at(millis: u64) -> Moment {
    Moment::from_nanos(millis * 1_000_000)
}

/// The server's clock.
fn micros(millis: u64) -> u64 {
    millis * 1000
}

fn hold(owner: Owner, mode: Mode, counter: u64) -> Held {
    let actor = usize::try_from(owner).expect("few own an entry");
    Held { actor, mode, counter, is_overruled: false }
}

fn contender() -> Contender {
    Contender::new(Duration::from_millis(TTL), Duration::from_millis(MARGIN))
}

impl World {
    fn new(network: Network, shared: Option<Shared>, mutant: Mutant) -> Self {
        let client = |owner| Client {
            contender: contender(),
            owner,
            wants: true,
            leaving: BTreeSet::new(),
            renewed_at: 0,
            held: false,
            looks: Looks::default(),
        };
        let fault = if let Mutant::Scripts(fault) = mutant { fault } else { Fault::None };
        Self {
            now: 1_000,
            server: Server { fault, shared, ..Server::default() },
            clients: (1..=CLIENTS as u64).map(client).collect(),
            flying: Vec::new(),
            owners: CLIENTS as u64,
            judge: Judge::default(),
            asked: BTreeMap::new(),
            network,
            mutant,
            foreign: None,
            modes: [Mode::EXCLUSIVE; CLIENTS],
            arrived: Vec::new(),
            dead: BTreeMap::new(),
            runs: None,
        }
    }

    fn send(&mut self, client: usize, owner: Owner, request: Request) {
        let over = self.connection(client);
        self.flying.push(Message::Request { client, owner, request, sent_at: self.now, over });
    }

    /// The client does what its contender asks for.
    fn act(&mut self, id: usize) -> Result<(), String> {
        let now = at(self.now);
        if !self.clients[id].wants {
            return Ok(());
        }
        self.look_up(id)?;
        match self.clients[id].contender.step(now) {
            Step::Enter => {
                self.send(id, self.clients[id].owner, Request::Acquire);
            }
            Step::Refresh => {
                self.send(id, self.clients[id].owner, Request::Refresh);
                self.clients[id].contender.unanswered(now);
            }
            Step::Wait(_) => {}
            Step::Take { .. } => self.clients[id].held = true,
            Step::Over(_) if self.mutant == Mutant::QueuesAgain => {
                (self.clients[id].contender, self.clients[id].held) = (contender(), false);
            }
            Step::Over(_) if self.mutant == Mutant::OwesNothing => _ = self.ask_anew(id, true),
            Step::Over(_) => self.leave(id, true),
        }
        Ok(())
    }

    /// The acquisition of a client ends, and what it has is given up; another one begins if the lock is still
    /// wanted.
    fn leave(&mut self, id: usize, wants: bool) {
        let left = self.ask_anew(id, wants);
        self.clients[id].leaving.insert(left);
        self.send(id, left, Request::Release);
        if self.mutant == Mutant::ReleasesOnce {
            self.clients[id].leaving.clear();
        }
    }

    /// An acquisition by a fresh owner id, if the lock is wanted; the id of the one before.
    fn ask_anew(&mut self, id: usize, wants: bool) -> Owner {
        self.owners += 1;
        let client = &mut self.clients[id];
        (client.contender, client.wants, client.held) = (contender(), wants, false);
        client.looks = Looks::default();
        std::mem::replace(&mut client.owner, self.owners)
    }

    /// The watchdog's round, and the releases that were not confirmed.
    fn renew(&mut self, id: usize) {
        for owner in self.clients[id].leaving.clone() {
            self.send(id, owner, Request::Release);
        }
        let client = &mut self.clients[id];
        client.renewed_at = self.now;
        let Client { owner, wants: true, .. } = *client else {
            return;
        };
        if client.contender.is_waiting() || client.contender.held_as().is_some() {
            if self.mutant == Mutant::CountsUnanswered && client.contender.is_waiting() {
                let answer = ScriptReply::Waits { seen: 0, ask_in: None, behind_foreign: false };
                client.contender.answered(at(self.now), at(self.now), answer);
            }
            self.send(id, owner, Request::Refresh);
        }
    }

    fn serve(&mut self, message: Message) -> Result<(), String> {
        let mut sent = Vec::new();
        let now = self.now;
        let modes = self.modes;
        let asker = |client: usize, owner| Asker { mode: modes[client], ..Asker::new(owner, client, TTL) };
        match message {
            Message::Request { client, owner, request, sent_at, over } => match self.told(request, over) {
                Request::Release => {
                    self.server.release(micros(now), owner, &mut sent);
                    self.leaves_nobody_out(owner)?;
                    sent.push(Message::Released { client, owner });
                }
                Request::Acquire => {
                    let place = self.server.place(micros(now), owner);
                    let answer = self.server.acquire(micros(now), asker(client, owner), true, &mut sent);
                    self.arrives(client, owner, place);
                    self.leaves_nobody_out(owner)?;
                    sent.push(Message::Reply { client, owner, answer, sent_at });
                }
                Request::Refresh => {
                    let had = self.server.has(owner);
                    let mut answer = self.server.refresh(micros(now), asker(client, owner), &mut sent);
                    if answer == ScriptReply::Gone && self.mutant == Mutant::RefreshEnters {
                        answer = self.server.acquire(micros(now), asker(client, owner), true, &mut sent);
                    }
                    if !had && self.server.has(owner) && self.server.released.contains(&owner) {
                        return Err(format!("a refresh revived {owner}"));
                    }
                    self.leaves_nobody_out(owner)?;
                    sent.push(Message::Reply { client, owner, answer, sent_at });
                }
            },
            Message::Reply { client, owner, answer, sent_at } => {
                let client = &mut self.clients[client];
                let is_extended = answer != ScriptReply::HoldsOn || self.mutant != Mutant::CountsUnextended;
                let answer = if is_extended { answer } else { ScriptReply::Holds { counter: 0 } };
                if client.owner == owner && client.wants {
                    let late = self.mutant == Mutant::CountsFromAnswer;
                    let sent_at = at(if late { now } else { sent_at });
                    client.contender.answered(at(now), sent_at, answer);
                }
            }
            Message::Released { client, owner } => {
                self.clients[client].leaving.remove(&owner);
            }
            Message::Push { client, owner, reign, .. } if self.is_given_up(client, owner, reign) => {}
            Message::Push { client, owner, counter, .. } => self.push(client, owner, counter),
            Message::Signal => {
                for client in &mut self.clients {
                    client.contender.spoken(at(now));
                }
            }
            Message::Due { client, owner, ask_in } => {
                let client = &mut self.clients[client];
                if client.owner == owner {
                    client.contender.due(at(now), Duration::from_millis(ask_in));
                }
            }
            Message::Revoked { client, owner, grace } => self.told_revoked(client, owner, grace),
        }
        self.flying.extend(sent);
        Ok(())
    }

    fn push(&mut self, id: usize, owner: Owner, counter: u64) {
        let now = at(self.now);
        let client = &mut self.clients[id];
        if client.owner != owner || !client.wants {
            if self.mutant != Mutant::KeepsUnwanted {
                client.leaving.insert(owner);
                self.send(id, owner, Request::Release);
            }
            return;
        }
        match self.mutant {
            Mutant::CountsFromArrival => {
                client.contender.answered(now, now, ScriptReply::Holds { counter });
            }
            Mutant::BelievesOldNews if counter != FORGED => {
                if let Waiting { sent_at, .. } = client.contender.phase {
                    client.contender.answered(now, sent_at, ScriptReply::Holds { counter });
                }
            }
            Mutant::BelievesLeaps if counter == FORGED => {
                if let Waiting { sent_at, .. } = client.contender.phase {
                    client.contender.answered(now, sent_at, ScriptReply::Holds { counter });
                }
            }
            _ => client.contender.told(now, counter),
        }
    }

    /// A user that may only read and publish makes a message up.
    fn forge(&mut self, client: usize, pick: usize) {
        let owner = self.clients[client].owner;
        self.flying.push(match pick.is_multiple_of(3) {
            true => Message::Push { client, owner, counter: FORGED, reign: self.reign() },
            false => Message::Revoked { client, owner, grace: 0 },
        });
    }

    /// The holds that clients believe in.
    fn held(&mut self) -> Vec<Held> {
        let now = at(self.now);
        let believed = self.clients.iter_mut().zip(self.modes).filter_map(|(client, mode)| {
            match client.contender.step(now) {
                Step::Take { counter, .. } if client.wants => Some(hold(client.owner, mode, counter)),
                _ => None,
            }
        });
        believed.collect()
    }

    /// A client that thinks it holds does, foreign ones included.
    fn check(&mut self) -> Result<(), String> {
        self.server.expire(micros(self.now));
        let mut held = self.held();
        let broken = self.judge.see(held.clone());
        // A grant counts before its client knows of it.
        let believed: BTreeSet<_> = held.iter().map(|hold| hold.actor).collect();
        let granted = self.granted_in_reign().into_iter();
        held.extend(granted.filter(|granted| !believed.contains(&granted.actor)));
        if let Some(rule) = broken.or_else(|| Judge::default().see(held)) {
            return Err(format!("{rule} at {}: {:?}", self.now, self.judge));
        }
        if self.runs.is_some() {
            self.remember();
            return Ok(());
        }
        self.foreign = self.foreign.filter(|until| self.now <= *until);
        if self.foreign.is_some() && !self.server.is_held_by(FOREIGN_OWNER) {
            return Err(format!("a foreign client's lock was taken at {}: {:?}", self.now, self.server));
        }
        for client in &mut self.clients {
            let holds = matches!(client.contender.step(at(self.now)), Step::Take { .. }) && client.wants;
            if holds && !self.server.holds_at(micros(self.now), client.owner) {
                return Err(format!(
                    "{} holds at {}, says {client:?}; not {:?}",
                    client.owner, self.now, self.server
                ));
            }
            let wanted = client.contender.wanted(at(self.now)).map(|(_, within)| at(self.now) + within);
            if wanted.is_some_and(|end| self.asked.get(&client.owner).is_none_or(|first| end < at(*first))) {
                return Err(format!("{} was not asked so, and says {client:?}", client.owner));
            }
        }
        // redis.protocol-4: where nothing is delivered late, all there is was asked for or is being released.
        let is_known = |owner: &Owner| {
            self.clients.iter().any(|client| client.owner == *owner || client.leaving.contains(owner))
        };
        match self.server.owners().find(|owner| !is_known(owner) && *owner != FOREIGN_OWNER) {
            Some(stray) if self.network == Network::Ordered && !self.dead.contains_key(&stray) => {
                Err(format!("nobody releases {stray}: {:?}", self.server))
            }
            _ => self.check_shares(),
        }
    }

    /// An administrator revokes the lock.
    fn ask(&mut self, grace: u64) {
        self.server.expire(micros(self.now));
        for holder in self.server.holders() {
            let ends_at = self.now + grace;
            self.asked.entry(holder).and_modify(|first| *first = ends_at.min(*first)).or_insert(ends_at);
        }
        self.server.revoke(micros(self.now), Some(grace), &mut self.flying);
    }

    /// One random event.
    fn event(&mut self, kind: u8, pick: usize) -> Result<(), String> {
        let client = pick % CLIENTS;
        let message = match self.network {
            Network::Any => (!self.flying.is_empty()).then(|| pick % self.flying.len().max(1)),
            Network::Ordered => self.flying.iter().position(|message| {
                message.client() == client && message.is_request() == pick.is_multiple_of(2)
            }),
        };
        match (kind, message) {
            (0, _) => self.now += pick as u64 % (TTL / 2),
            (6, _) if self.runs.is_some() => self.change_server(client, pick),
            (7, _) if self.runs.is_some() => self.force(),
            (1 | 2, _) => self.act(client)?,
            (3, _) => self.renew(client),
            (4, _) if pick.is_multiple_of(5) => self.leave(client, pick.is_multiple_of(2)),
            (4, _) if self.clients[client].held => self.leave(client, true),
            (12, _) if pick.is_multiple_of(4) => self.ask(pick as u64 % (2 * TTL)),
            (12, _) if pick % 4 == 1 => self.forge(client, pick),
            (13, _) => self.foreign(pick),
            (14, _) => self.die(client),
            (5, Some(_)) if self.network == Network::Ordered => {
                self.flying.retain(|message| message.client() != client);
            }
            (5, Some(message)) => {
                // The message does not arrive.
                self.server.handed_on &= !matches!(self.flying.remove(message), Message::Push { .. });
            }
            (6, Some(message)) if matches!(self.flying[message], Message::Push { .. }) => {
                self.flying.push(self.flying[message]);
            }
            (7..=11, Some(message)) => {
                let message = self.flying.remove(message);
                self.deliver(message)?;
            }
            _ => {}
        }
        self.check()
    }

    /// Faults end; every client that wants the lock gets it, in turn, and in the end nothing is left.
    fn settle(&mut self) -> Result<(), String> {
        if self.foreign.is_some() {
            self.foreign(1);
        }
        let mut missing: BTreeSet<_> = (0..CLIENTS).filter(|id| self.clients[*id].wants).collect();
        let began = self.now;
        // Everybody before may take a ttl to be passed over, and a third of one to be noticed.
        self.end_former();
        let bound = (CLIENTS as u64 + 1) * 2 * TTL + restarts::PAUSE + promotions::LAG;
        while !missing.is_empty() {
            self.round()?;
            for id in missing.clone() {
                if self.clients[id].held {
                    missing.remove(&id);
                    self.leave(id, false);
                }
            }
            if self.now > began + bound {
                return Err(format!("{missing:?} never got the lock: {self:?}"));
            }
        }
        if self.runs.is_some() {
            return Ok(());
        }
        // The next round of clean-up.
        let died = self.dead.values().max().map_or(0, |died| died + TTL + TTL / 6);
        let ended = self.now.max(died);
        while self.now <= ended + TTL / 2 {
            self.round()?;
        }
        let now = self.now;
        let is_empty = |server: &Server| {
            server.queue.is_empty()
                && !server.holders().iter().any(|owner| server.holds_at(micros(now), *owner))
        };
        self.server.expire(micros(self.now));
        let was_told = self.server.lock.is_some() && self.server.handed_on;
        if was_told || self.network == Network::Ordered && !is_empty(&self.server) {
            return Err(format!("something is left: {self:?}"));
        }
        // What was on its way arrived within the first round.
        self.server.expire(micros(ended + ROUND + TTL + 1));
        if is_empty(&self.server) { Ok(()) } else { Err(format!("something stays: {self:?}")) }
    }

    fn round(&mut self) -> Result<(), String> {
        self.now += ROUND;
        for id in 0..CLIENTS {
            self.act(id)?;
            if self.now >= self.clients[id].renewed_at + TTL / 3 {
                self.renew(id);
            }
        }
        while !self.flying.is_empty() {
            let message = self.flying.remove(0);
            self.deliver(message)?;
            self.check()?;
        }
        (0..CLIENTS).try_for_each(|id| self.act(id))
    }
}

#[test]
fn random_schedules_keep_the_guarantees() {
    Setting::Exclusive.search(Depth::of_run().pick(2_000, 3_000, 200_000), Mutant::None).unwrap();
}

#[test]
fn planted_mutants_are_caught() {
    Setting::Exclusive.catches(&[
        Mutant::CountsFromArrival,
        Mutant::CountsFromAnswer,
        Mutant::CountsUnanswered,
        Mutant::BelievesOldNews,
        Mutant::QueuesAgain,
        Mutant::OwesNothing,
        Mutant::Scripts(Fault::ShortHandOn),
        Mutant::ReleasesOnce,
        Mutant::KeepsUnwanted,
        Mutant::RefreshEnters,
        Mutant::BelievesAsks,
        Mutant::LooksUpEach,
        Mutant::LooksUpOnce,
        Mutant::BelievesLeaps,
        Mutant::Scripts(Fault::TakesOver),
        Mutant::Scripts(Fault::ReleasesAnybodys),
    ]);
}
