//! Servers, contenders and the network between them, moved on one event at a time by a schedule.
//!
//! Requests and answers arrive in any order, late, or never; servers come up empty or with what they once had on their disks;
//! their clocks are apart.

use std::time::Duration;

use leasehold_core::clock::{Deadline, Moment};
use leasehold_core::{LockName, OwnerId};

use super::events::{Event, Mutant, Setting};
use super::model::{Asked, Server};
use super::recovery::{Asks, MANAGERS};
use crate::quorum::protocol::{
    Confirming, Contender, Met, ProposalBound, Recovered, Size, Standing, Step, Terms, Ticket, VoteReply,
    VoteRequest,
};
use crate::quorum::scripts::{Ballot, Renewed};

/// In milliseconds.
pub(super) const TTL: u64 = 24;
const MARGIN: u64 = 2;
const POLL: u64 = 3;
const LEAD: u64 = 2;
/// In microseconds: more than the lead, so that most numbers are below what is noted already, as with servers; and much less
/// than a lease, or nothing would be learnt about what servers forget.
const AHEAD: u64 = 5_000;
/// In the place of a client.
pub(super) const LOOKER: usize = usize::MAX;
/// In milliseconds.
const STEP: u64 = 500;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) size: Size,
    pub(super) setting: Setting,
    pub(super) now: u64,
    pub(super) servers: Vec<Server>,
    /// What each has on its disk.
    disks: Vec<Server>,
    pub(super) up_since: Vec<u64>,
    /// Whose clock was set forward.
    pub(super) stepped: Option<usize>,
    /// Until when a blank server pauses by what the others have said.
    pub(super) told_until: Vec<Option<u64>>,
    pub(super) ahead: Vec<u64>,
    pub(super) clients: Vec<Option<Client>>,
    pub(super) bounds: Vec<ProposalBound>,
    /// Of each looker: of two rows, one for each server.
    pub(super) recoveries: Vec<Vec<Option<Standing>>>,
    /// What the second of two looks writes, when the first has ended.
    pub(super) met: Vec<Vec<Option<Met>>>,
    /// The manager that looks.
    pub(super) manager: usize,
    /// Which managers have found a server that votes by their terms.
    pub(super) may_hold: [bool; 2],
    /// The reign of each server as a manager knows it, and the number of the connections to it so far.
    pub(super) runs: [Vec<u64>; 2],
    connections: Vec<u64>,
    /// Whose data may be another's.
    pub(super) has_followed: Vec<bool>,
    pub(super) ids: u64,
    pub(super) network: Vec<Message>,
    /// Owners, and servers that they have released for good.
    settled: Vec<(OwnerId, usize)>,
    owners: u8,
    last_token: u64,
    last_taken_at: u64,
    pub(super) holds: usize,
    pub(super) wrong: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Client {
    owner: OwnerId,
    ticket: Ticket,
    pub(super) contender: Contender,
    /// Its token.
    pub(super) holds: Option<u64>,
    /// Its votes were taken by force, or some of them.
    forced: bool,
    partly: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Message {
    pub(super) client: usize,
    ticket: Ticket,
    pub(super) server: usize,
    sent_at: u64,
    /// The connection, and the reign by which the sender asks.
    there: (u64, u64),
    /// No sender waits for the answer.
    orphan: bool,
    pub(super) what: What,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum What {
    Vote { round: u64, proposal: u64, again: bool },
    Confirm(Confirming),
    Renew { round: u64, n: u64 },
    Release { round: u64, waits: bool, is_first: bool },
    Reply { round: u64, answer: VoteReply },
    Confirmed { confirming: Confirming, kept: bool },
    Renewed(Renewed),
    Freed,
    Asks(Box<Asks>),
}

impl Message {
    fn sent(&self) -> Moment {
        Moment::from_nanos(self.sent_at * 1_000_000)
    }
}

/// Of the lock that all want.
pub(super) fn name() -> LockName {
    "a".parse().unwrap()
}

impl World {
    /// Servers whose clocks are so far `ahead`.
    pub(super) fn new(setting: Setting, ahead: Vec<u64>) -> Self {
        let Setting { servers, clients, mutant, spare, is_fresh, .. } = setting;
        let minority = usize::from(mutant == Mutant::MinorityCounts);
        let quorum = Size::majority(servers) + spare - minority;
        // No two servers have a run in common.
        let begun: Vec<_> = (1..=servers as u64).map(|run| Server::new(run, AHEAD, mutant)).collect();
        let mut world = Self {
            size: Size { servers, quorum },
            setting,
            now: 1_000,
            disks: begun.clone(),
            servers: begun,
            up_since: vec![0; servers],
            stepped: None,
            told_until: vec![None; servers],
            ahead,
            clients: vec![None; clients],
            bounds: vec![ProposalBound::default(); clients],
            recoveries: vec![Vec::new(); 2 * servers],
            met: vec![Vec::new(); 2 * servers],
            manager: 0,
            may_hold: [!is_fresh, false],
            runs: [1, 1].map(|first| (first..).take(servers).collect()),
            connections: vec![0; servers],
            has_followed: vec![false; servers],
            ids: 0,
            network: Vec::new(),
            settled: Vec::new(),
            owners: 0,
            last_token: 0,
            last_taken_at: 0,
            holds: 0,
            wrong: None,
        };
        for at in (0..servers).filter(|_| !is_fresh) {
            let (manager, has_followed, met) = (0, false, None);
            let episode = OwnerId::from_random([u8::try_from(at).unwrap_or(0); 16]);
            let own = world.carry_out(at, &Asks::Admit { manager, has_followed, episode, met });
            let (own, terms) = (own.expect("it answers"), MANAGERS[0].0);
            let told = Recovered { floor: 0, beside: Vec::new(), is_copy: false };
            world.carry_out(at, &Asks::Install { own, told, terms });
        }
        world.disks.clone_from(&world.servers);
        world
    }

    pub(super) fn moment(&self) -> Moment {
        Moment::from_nanos(self.now * 1_000_000)
    }

    /// The manager of a client.
    fn manager_of(&self, client: usize) -> usize {
        usize::from((self.setting.is_mixed || self.manager > 0) && client == 2)
    }

    fn ttl(&self, client: usize) -> u64 {
        MANAGERS[self.manager_of(client)].1
    }

    fn terms(&self, client: usize) -> Terms {
        let (millis, ttl) = (Duration::from_millis, self.ttl(client));
        Terms { size: self.size, ttl: millis(ttl), margin: millis(MARGIN), poll: millis(POLL) }
    }

    /// The time of a server, in microseconds.
    pub(super) fn clock(&self, server: usize) -> u64 {
        (self.now + self.ahead[server]) * 1_000
    }

    pub(super) fn is_blank(&self, server: usize) -> bool {
        let server = &self.servers[server];
        server.space.as_ref().is_none_or(|space| !space.own.whole || space.run != server.run)
    }

    pub(super) fn apply(&mut self, event: Event) {
        match event {
            Event::Pass(millis) => self.now += millis,
            Event::Start(at) => self.start(at),
            Event::Leave(at) => self.leave(at),
            Event::Die(at) => self.clients[at] = None,
            Event::Renew(at) => self.renew(at),
            Event::Force(at) => {
                (0..self.size.servers).for_each(|server| self.force(at, server));
                self.clients[at].iter_mut().for_each(|client| client.partly = false);
            }
            Event::ForceAt(at, server) => self.force(at, server),
            Event::Deliver(at) => self.deliver(at),
            Event::Lose(at) => {
                let message = self.network.remove(at);
                self.fail(&message);
            }
            Event::Delay(at) => {
                let message = self.network[at].clone();
                self.network[at].orphan = true;
                self.fail(&message);
            }
            Event::Save(at) => self.disks[at] = self.servers[at].clone(),
            Event::Restart(at, with_disk) => {
                let disk = if self.setting.trusts { &self.servers } else { &self.disks };
                let of = with_disk.then(|| disk[at].clone());
                self.comes_up(at, of, false);
                self.up_since[at] = self.now;
            }
            Event::Replace(at) => self.comes_up(at, None, false),
            Event::Promote(at, of) => self.comes_up(at, Some(self.disks[of].clone()), true),
            Event::Empty(at) => {
                self.servers[at] = Server::new(self.servers[at].run, AHEAD, self.setting.mutant);
            }
            Event::Step(at) => {
                self.stepped = Some(at);
                self.ahead[at] += STEP;
                self.up_since[at] = self.up_since[at].saturating_sub(STEP);
            }
            Event::SetBack(at) => self.ahead[at] /= 2,
            Event::PromoteInPlace(at) => {
                self.servers[at].run += self.size.servers as u64;
                self.has_followed[at] = true;
                self.look_at_all(at + self.size.servers, |_| true);
            }
            Event::Look(at, answers) => self.look(at, answers),
            Event::Recover(looker) => self.look_at_all(looker, |_| true),
            Event::RecoverWith(looker, first) => {
                let Size { servers, quorum } = self.size;
                self.look_at_all(looker, |look| (look + servers - first % servers) % servers < quorum);
            }
            event => self.goes_by_hand(event),
        }
        for at in 0..self.clients.len() {
            self.drive(at);
        }
    }

    /// In another run, with that data or none.
    fn comes_up(&mut self, at: usize, data: Option<Server>, has_followed: bool) {
        let run = self.servers[at].run + self.size.servers as u64;
        self.servers[at] = data.unwrap_or_else(|| Server::new(run, AHEAD, self.setting.mutant));
        self.servers[at].run = run;
        self.disks[at] = self.servers[at].clone();
        (self.told_until[at], self.has_followed[at]) = (None, has_followed);
        self.connections[at] += 1;
        if self.setting.mutant != Mutant::KeepsRun {
            self.runs.iter_mut().for_each(|runs| runs[at] = run);
        }
        self.network.retain(|message| message.server != at || !matches!(message.what, What::Asks(_)));
    }

    fn start(&mut self, at: usize) {
        self.owners = self.owners.wrapping_add(1);
        let owner = OwnerId::from_random([self.owners; 16]);
        // The first client is a new process each time, which knows no number.
        if at == 0 {
            self.bounds[at] = ProposalBound::default();
        }
        let time = self.bounds[at].time(self.moment()).unwrap_or(0);
        let ticket = Ticket { time, owner };
        let contender = Contender::new(self.terms(at), ticket, true);
        self.clients[at] =
            Some(Client { owner, ticket, contender, holds: None, forced: false, partly: false });
    }

    fn ticket(&self, at: usize) -> Option<Ticket> {
        self.clients[at].as_ref().map(|client| client.ticket)
    }

    fn leave(&mut self, at: usize) {
        let ticket = self.ticket(at);
        if let (Some(ticket), Some(client)) = (ticket, self.clients[at].take()) {
            let (round, any) = (client.contender.round, self.setting.mutant == Mutant::AnyRequestIsFirst);
            for server in 0..self.size.servers {
                let is_first = any || client.contender.is_first_pending(server);
                self.send(at, ticket, server, What::Release { round, waits: false, is_first });
                self.network.last_mut().unwrap().orphan = true;
            }
        }
    }

    fn renew(&mut self, at: usize) {
        let ticket = self.ticket(at);
        let (Some(ticket), Some(client)) = (ticket, &self.clients[at]) else { return };
        let round = client.contender.round;
        let voters = (0..self.size.servers).filter_map(|at| Some((at, client.contender.number_at(at)?)));
        for (server, n) in voters.collect::<Vec<_>>() {
            self.send(at, ticket, server, What::Renew { round, n });
        }
    }

    fn force(&mut self, at: usize, server: usize) {
        let Some(client) = &mut self.clients[at] else { return };
        let vote = &mut self.servers[server].vote;
        if vote.take_if(|(by, _)| by.ticket.owner == client.owner).is_some() {
            (client.forced, client.partly) = (true, true);
        }
    }

    /// What a looker asks, and does not wait for.
    pub(super) fn send_late(&mut self, server: usize, asks: Asks) {
        let ticket = Ticket { time: 0, owner: OwnerId::from_random([0; 16]) };
        let (client, sent_at, orphan) = (LOOKER, self.now, true);
        let (there, what) = (Default::default(), What::Asks(asks.into()));
        self.network.push(Message { client, ticket, server, sent_at, there, orphan, what });
    }

    fn send(&mut self, client: usize, ticket: Ticket, server: usize, what: What) {
        let there =
            (self.connections[server], self.runs[usize::from(self.setting.is_mixed && client == 2)][server]);
        self.network.push(Message { client, ticket, server, sent_at: self.now, there, orphan: false, what });
    }

    /// Does what a client's contender wants, and looks whether a hold is right.
    fn drive(&mut self, at: usize) {
        let now = self.moment();
        let Some(client) = &mut self.clients[at] else { return };
        let requests = client.contender.requests(now);
        let (ticket, step) = (client.ticket, client.contender.step(now));
        for (server, request) in requests {
            let proposal = self.bounds[at].proposal(now, &name(), Duration::from_millis(LEAD));
            let what = match request {
                VoteRequest::Vote { round, again } => What::Vote { round, proposal, again },
                VoteRequest::Confirm(confirming) => What::Confirm(confirming),
                VoteRequest::Return { round } => What::Release { round, waits: true, is_first: false },
            };
            self.send(at, ticket, server, what);
        }
        match step {
            Step::Take { token, .. }
                if self.clients[at].as_ref().is_some_and(|client| client.holds.is_none()) =>
            {
                self.take(at, token);
            }
            // A renewal after a later hold brings back the earlier one.
            Step::Take { token, deadline: Deadline::At(until) }
                if token < self.last_token
                    && self.last_lease_until() < until
                    && !self.is_forced_partly(at) =>
            {
                self.wrong = Some(format!("token {token} was renewed after {}", self.last_token));
            }
            Step::Over(_) => self.leave(at),
            _ => {}
        }
    }

    /// A client that has lost some votes by force may find others, and hold beside the next holder.
    fn is_forced_partly(&self, at: usize) -> bool {
        self.clients[at].as_ref().is_some_and(|client| client.partly)
    }

    /// The deadline of a lease that was renewed when the last hold began.
    fn last_lease_until(&self) -> Moment {
        Moment::from_nanos((self.last_taken_at + TTL - MARGIN) * 1_000_000)
    }

    fn take(&mut self, at: usize, token: u64) {
        let now = self.moment();
        let others = self.clients.iter_mut().enumerate().filter(|(other, _)| *other != at);
        let held = others.filter_map(|(other, client)| {
            let client = client.as_mut().filter(|client| client.holds.is_some() && !client.forced)?;
            client.contender.over(now).is_none().then_some(other)
        });
        if let Some(other) = held.last() {
            self.wrong = Some(format!("{at} and {other} hold at once"));
        }
        if token <= self.last_token {
            self.wrong = Some(format!("token {token} after {}", self.last_token));
        }
        (self.last_token, self.last_taken_at) = (self.last_token.max(token), self.now);
        self.holds += 1;
        if let Some(client) = &mut self.clients[at] {
            client.holds = Some(token);
        }
    }

    pub(super) fn deliver(&mut self, at: usize) {
        let message = self.network.remove(at);
        let Message { client, ticket, server, sent_at, there: (connection, run), orphan, .. } = message;
        match &message.what {
            What::Asks(asks) => {
                self.carry_out(server, asks);
                return;
            }
            What::Vote { .. } | What::Confirm(_) | What::Renew { .. } | What::Release { .. } => {}
            _ => return self.hear(&message),
        }
        if connection != self.connections[server] {
            return self.fail(&message);
        }
        let (manager, now, ttl) = (self.manager_of(client), self.clock(server), self.ttl(client));
        let there = &mut self.servers[server];
        // The server compares the reign by which it is asked.
        let own_run = std::mem::replace(&mut there.run, run);
        let reply = match message.what {
            What::Vote { round, proposal, again } => {
                let ballot = Ballot { ticket, round };
                let (terms, _) = MANAGERS[manager];
                let asked = Asked { ballot, ttl, proposal, since: now, waits: true, again, terms };
                let answer = there.vote(now, asked);
                self.may_hold[manager] |= matches!(answer, Some(VoteReply::Voted { .. }));
                let is_refused = matches!(answer, None | Some(VoteReply::Abstains { .. }));
                if !is_refused && self.settled.contains(&(ticket.owner, server)) {
                    self.wrong = Some(format!("server {server} was released by {ticket:?}"));
                }
                let pause = VoteReply::Abstains { ask_in: Duration::from_millis(POLL) };
                Some(What::Reply { round, answer: answer.unwrap_or(pause) })
            }
            What::Confirm(confirming) => {
                let Confirming { round, n, token } = confirming;
                let kept = there.confirm(now, Ballot { ticket, round }, ttl, (n, token));
                Some(What::Confirmed { confirming, kept })
            }
            What::Renew { round, n } => {
                Some(What::Renewed(there.renew(now, Ballot { ticket, round }, ttl, n)))
            }
            What::Release { round, waits, is_first } => {
                let alive =
                    |other: Ticket| self.clients.iter().flatten().any(|client| client.ticket == other);
                let (had, told) = there.release(now, Ballot { ticket, round }, ttl, waits && !orphan, alive);
                if is_first && (had || self.setting.mutant == Mutant::EveryReleaseSettles) {
                    self.settled.push((ticket.owner, server));
                }
                if let Some(told) = told {
                    let client = (0..self.clients.len()).find(|at| self.ticket(*at) == Some(told));
                    self.send(client.unwrap(), told, server, What::Freed);
                }
                None
            }
            _ => None,
        };
        self.servers[server].run = own_run;
        if let Some(what) = reply.filter(|_| !orphan) {
            // An answer that takes longer comes after its request has timed out.
            if self.now <= sent_at + TTL / 3 {
                let moment = self.moment();
                self.bounds[client].learn_time(server, moment, message.sent(), now);
            }
            self.network.push(Message { what, ..message });
        }
    }

    /// The sender of a message, or of the request that it answers.
    fn client_of(&mut self, message: &Message) -> Option<&mut Client> {
        let client = self.clients.get_mut(message.client)?.as_mut();
        client.filter(|client| client.owner == message.ticket.owner)
    }

    fn hear(&mut self, message: &Message) {
        let (fastest, servers) = (self.setting.mutant == Mutant::DeadlineOfTheFastest, self.size.servers);
        let (now, sent, server) = (self.moment(), message.sent(), message.server);
        let Some(Client { contender, .. }) = self.client_of(message) else { return };
        match message.what {
            What::Reply { round, answer } => contender.answered(now, server, (round, sent), answer),
            What::Confirmed { confirming, kept } => {
                contender.confirmed(now, server, (confirming, sent), Some(kept));
            }
            What::Renewed(Renewed::Kept) if fastest => {
                (0..servers).for_each(|server| contender.renewed(now, server, sent, true));
            }
            What::Renewed(Renewed::Pauses) => {}
            What::Renewed(renewed) => contender.renewed(now, server, sent, renewed != Renewed::Gone),
            What::Freed => contender.freed(now, server),
            _ => {}
        }
    }

    /// There will be no answer.
    fn fail(&mut self, message: &Message) {
        let (now, sent, server) = (self.moment(), message.sent(), message.server);
        let client = self.client_of(message).filter(|_| !message.orphan);
        let Some(Client { contender, .. }) = client else { return };
        match message.what {
            What::Vote { .. } | What::Reply { .. } => contender.failed(now, server),
            What::Confirm(confirming) | What::Confirmed { confirming, .. } => {
                contender.confirmed(now, server, (confirming, sent), None);
            }
            _ => {}
        }
    }
}
