//! A store that does what ZooKeeper may do, and clients that contend on it through the engine.

mod again;
mod directory;

use proptest::prelude::*;

use super::super::*;
use crate::keys::Sequence;
use directory::{Directory, Write};

/// Ways to be wrong; each must be caught by a property below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutant {
    /// A changed predecessor counts as ended.
    ChangedIsEnded,
    /// The end of the predecessor is enough, whoever else is older.
    PredecessorIsEnough,
    /// A listing without our node decides too.
    AnyListingDecides,
    /// What is not found at once was never made.
    SearchOnce,
    /// The search reads without writing before.
    NoBarrier,
    /// Clean-up is asked for once.
    DeleteOnce,
    /// After a reconnect the old watch is believed.
    NoListingAfterReconnect,
    /// The counter is taken to go on at the smallest number after its largest.
    WrapAssumed,
    /// So it is, and nobody with an equal number is in the way.
    EqualIsNotOlder,
    /// A directory is never removed.
    NoRenewal,
    /// Waiting has no bound.
    NeverOverdue,
    /// Whoever is overdue is taken for gone.
    OverdueIsGone,
    /// Whoever is overdue is looked for at our own server.
    OwnServersWordIsEnough,
    /// A grant that is of no use any more is left where it is.
    NotGivenBack,
    /// Whoever asks again does so under the same name.
    SameOwnerAgain,
}

/// One client with one contender.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) owner: OwnerId,
    pub(super) session: i64,
    pub(super) contender: Contender,
    /// Asked, and not yet answered.
    pub(super) asked: Option<Ask>,
    /// Before it is sent.
    pub(super) rests: Option<Pause>,
    pub(super) end: Option<End>,
    /// As much of the history as its server has shown it.
    pub(super) seen: usize,
    pub(super) watched: Option<String>,
    /// A contender that its server has lost the end of.
    pub(super) ghost: Option<String>,
    pub(super) watches_own: bool,
    pub(super) alive: bool,
    pub(super) left: bool,
    pub(super) released: bool,
    /// Another one asks in its place.
    pub(super) succeeded: bool,
}

pub(super) struct World {
    pub(super) directory: Directory,
    pub(super) clients: Vec<Client>,
    /// Writes of clients that stopped waiting for them.
    pub(super) stray: Vec<(usize, Write)>,
    pub(super) mutant: Option<Mutant>,
    /// In order of being held.
    pub(super) held: Vec<(usize, Sequence)>,
    /// Contenders of Curator's, which know nothing of renewal.
    pub(super) strangers: Vec<OwnerId>,
    /// Something went wrong that nobody is told of.
    pub(super) silent: bool,
}

impl World {
    pub(super) fn new(clients: usize, start: i32, mutant: Option<Mutant>) -> Self {
        let shift = match mutant {
            Some(Mutant::WrapAssumed | Mutant::EqualIsNotOlder) => start,
            _ => 0,
        };
        let mut world = Self {
            directory: Directory::new(start, shift),
            clients: Vec::new(),
            stray: Vec::new(),
            mutant,
            held: Vec::new(),
            strangers: Vec::new(),
            silent: false,
        };
        for at in 0..clients {
            world.comes(owner(at), i64::try_from(at).unwrap() + 1);
        }
        world
    }

    /// What the client's server shows: anything between what it has shown and the present.
    pub(super) fn view(&mut self, at: usize, lag: usize) -> Listing {
        let newest = self.directory.history.len() - 1;
        let shown = newest.saturating_sub(lag).max(self.clients[at].seen);
        self.clients[at].seen = shown;
        let mut names = self.shown_to(at);
        let mine = self.mine(at).map(|mine| mine.name());
        match (self.mutant, mine) {
            (Some(Mutant::AnyListingDecides), Some(mine)) => names.push(mine),
            (Some(Mutant::PredecessorIsEnough), Some(mine)) => {
                let place = names.iter().position(|name| *name == mine).unwrap_or(0);
                names.drain(..place.saturating_sub(1));
            }
            (Some(Mutant::EqualIsNotOlder), Some(mine)) => {
                let equal = |name: &String| *name != mine && Sequence::of(name) == Sequence::of(&mine);
                names.retain(|name| !equal(name));
            }
            _ => {}
        }
        Listing::new(names, true)
    }

    fn shown_to(&self, at: usize) -> Vec<String> {
        let client = &self.clients[at];
        let shown = &self.directory.history[client.seen];
        let mut names: Vec<_> = shown.iter().map(|child| self.directory.name(child)).collect();
        if let Some(ghost) = client.ghost.as_ref().filter(|ghost| !names.contains(ghost)) {
            names.push(ghost.clone());
        }
        names
    }

    /// The node of a client as the present has it.
    pub(super) fn mine(&self, at: usize) -> Option<Node> {
        self.directory.of(self.clients[at].owner).map(|child| self.directory.node(child))
    }

    pub(super) fn step(&mut self, at: usize, step: Step) {
        match step {
            Step::Ask(ask) => {
                let client = &mut self.clients[at];
                if !matches!(ask, Ask::Confirm(_)) {
                    (client.watched, client.watches_own) = (None, false);
                }
                client.asked = Some(ask);
            }
            Step::Rest(pause, ask) => {
                self.step(at, Step::Ask(ask));
                self.clients[at].rests = Some(pause);
            }
            Step::Wait => {}
            Step::End(end) => self.ended(at, end),
        }
    }

    pub(super) fn ended(&mut self, at: usize, end: End) {
        if let End::Held(mine) = &end {
            self.held.push((at, mine.node.sequence()));
        }
        let client = &mut self.clients[at];
        (client.watched, client.asked) = (None, None);
        client.end = Some(end);
    }

    pub(super) fn happens(&mut self, at: usize, happening: Happening) {
        if self.clients[at].end.is_some() {
            return;
        }
        let step = self.clients[at].contender.happens(happening);
        self.step(at, step);
    }

    /// Answers what a client asked. `fate` says whether it is done, and whether the answer arrives.
    pub(super) fn answer(&mut self, at: usize, fate: Fate, lag: usize) {
        let rested = self.clients[at].rests.take();
        let Some(ask) = self.clients[at].asked.take() else {
            return;
        };
        if !self.clients[at].alive {
            return self.answered(at, Err(Failure::SessionOver));
        }
        if let Some(pause) = rested {
            self.clients[at].asked = Some(ask);
            return self.rested(at, pause);
        }
        let (owner, session) = (self.clients[at].owner, self.clients[at].session);
        let lost = matches!(fate, Fate::Lost | Fate::Late | Fate::Unheard);
        let newest = |world: &Self| world.directory.history.len() - 1;
        let answer = match ask {
            Ask::Enter => {
                let create = Write::Create(owner, session);
                let made = self.fated(at, fate, create).map(Option::unwrap);
                // One session, one order: what its server shows has its own create.
                if made.is_ok() && self.mutant != Some(Mutant::AnyListingDecides) {
                    self.clients[at].seen = newest(self);
                }
                let listed = (!lost).then(|| self.view(at, lag));
                made.map(|mine| Said::Made(mine, listed))
            }
            Ask::MakeDirectory => self.fated(at, fate, Write::MakeDirectory).map(|_| Said::Done),
            Ask::RemoveDirectory if self.mutant == Some(Mutant::NoRenewal) => Err(Failure::Refused),
            Ask::RemoveDirectory => self.fated(at, fate, Write::RemoveDirectory).map(|_| Said::Done),
            Ask::Confirm(_) if lost => Err(Failure::Unknown),
            Ask::Confirm(contender) => {
                let there = match self.mutant {
                    Some(Mutant::OverdueIsGone) => false,
                    Some(Mutant::OwnServersWordIsEnough) => self.shown_to(at).contains(&contender),
                    _ => self.directory.has(&contender),
                };
                if there { Ok(Said::Done) } else { Err(Failure::Absent) }
            }
            Ask::Barrier if self.mutant == Some(Mutant::NoBarrier) => Ok(Said::Done),
            Ask::Barrier if lost => Err(Failure::Unknown),
            Ask::Barrier => {
                self.clients[at].seen = newest(self);
                Ok(Said::Done)
            }
            Ask::List | Ask::Look(_) | Ask::Watch { .. } if lost => Err(Failure::Unknown),
            Ask::List => Ok(Said::Listed(self.view(at, lag))),
            Ask::Look(node) => {
                let mut children = self.directory.children().iter();
                let there = children.find(|child| self.directory.node(child) == node);
                let owned = there.map(|child| Said::Owned { session: child.session, czxid: child.czxid });
                owned.ok_or(Failure::Absent)
            }
            Ask::Watch { predecessor, own } => self.watch(at, predecessor, own.as_ref(), lag),
            Ask::Delete(node) => {
                let name = node.name();
                let deleted = self.fated(at, fate, Write::Delete(name));
                let once = self.mutant == Some(Mutant::DeleteOnce);
                if once { Ok(Said::Done) } else { deleted.map(|_| Said::Done) }
            }
        };
        self.answered(at, answer);
    }

    fn rested(&mut self, at: usize, pause: Pause) {
        if pause == Pause::Request {
            // Nothing is under way for longer than a request may take.
            self.strays_arrive(at);
            if self.mutant == Some(Mutant::SearchOnce) {
                self.ended(at, End::Lost);
            }
        }
    }

    pub(super) fn answered(&mut self, at: usize, answer: Answer) {
        let step = self.clients[at].contender.answered(answer);
        self.step(at, step);
    }

    pub(super) fn fated(&mut self, at: usize, fate: Fate, write: Write) -> Result<Option<Mine>, Failure> {
        match fate {
            Fate::Done => self.directory.carry_out(&write),
            Fate::Unheard => {
                let _unheard = self.directory.carry_out(&write);
                Err(Failure::Unknown)
            }
            Fate::Late => {
                self.stray.push((at, write));
                Err(Failure::Unknown)
            }
            Fate::Lost => Err(Failure::Unknown),
        }
    }

    pub(super) fn strays_arrive(&mut self, of: usize) {
        let (arriving, rest) = std::mem::take(&mut self.stray).into_iter().partition(|(at, _)| *at == of);
        self.stray = rest;
        let arriving: Vec<(usize, Write)> = arriving;
        for (at, write) in arriving {
            // What a session sent and what it holds end together.
            if self.clients[at].alive {
                let _unheard = self.directory.carry_out(&write);
            }
        }
    }

    pub(super) fn watch(&mut self, at: usize, predecessor: String, own: Option<&Node>, lag: usize) -> Answer {
        self.view(at, lag);
        let shown = self.shown_to(at);
        let has = |name: &str| shown.iter().any(|child| child == name);
        let is_there = has(&predecessor);
        let own_is_gone = own.is_some_and(|own| !has(&own.name()));
        let client = &mut self.clients[at];
        (client.watched, client.watches_own) = (is_there.then_some(predecessor), own.is_some());
        match is_there {
            _ if own_is_gone => Err(Failure::Absent),
            true => Ok(Said::Done),
            false => Ok(Said::NobodyAhead),
        }
    }

    /// The server shows a client more of the history, and tells what it watches; after an answer that is out.
    pub(super) fn advance(&mut self, at: usize) {
        if self.clients[at].watched.is_some() && self.clients[at].asked.is_some() {
            return;
        }
        while self.clients[at].seen + 1 < self.directory.history.len() && self.clients[at].end.is_none() {
            self.clients[at].seen += 1;
            let shown = self.shown_to(at);
            let client = &self.clients[at];
            let own_is_gone = !shown.iter().any(|child| child.starts_with(&crate::keys::stem(client.owner)));
            let Some(watched) = client.watched.clone() else {
                continue;
            };
            if client.watches_own && own_is_gone {
                return self.happens(at, Happening::Removed);
            }
            if !shown.contains(&watched) {
                return self.happens(at, Happening::Ended);
            }
        }
    }

    /// Something is written to a watched node.
    pub(super) fn change(&mut self, at: usize) {
        if self.clients[at].watched.is_some() && self.clients[at].asked.is_none() {
            let ends = self.mutant == Some(Mutant::ChangedIsEnded);
            self.happens(at, if ends { Happening::Ended } else { Happening::Changed });
        }
    }

    /// The connection is made again; a watch may have got lost.
    pub(super) fn reconnect(&mut self, at: usize, watch_is_lost: bool) {
        if watch_is_lost {
            self.clients[at].watched = None;
        }
        if self.mutant != Some(Mutant::NoListingAfterReconnect) {
            self.happens(at, Happening::Reconnected);
        }
    }

    /// Nothing has happened for long.
    pub(super) fn overdue(&mut self, at: usize) {
        if self.clients[at].asked.is_none() && self.mutant != Some(Mutant::NeverOverdue) {
            self.happens(at, Happening::Overdue);
        }
    }

    /// A watch is lost, and the connection is not; or the server loses the end of what is watched for good.
    pub(super) fn goes_wrong(&mut self, at: usize, for_good: bool) {
        self.silent = true;
        let watched = self.clients[at].watched.take();
        if for_good && watched.is_some() {
            self.clients[at].ghost.clone_from(&watched);
            self.clients[at].watched = watched;
        }
    }

    pub(super) fn stranger_comes(&mut self) {
        let stranger = owner(1_000 + self.strangers.len() % 100);
        if self.directory.of(stranger).is_none() {
            let _no_directory = self.directory.carry_out(&Write::MakeDirectory);
            let _made = self.directory.carry_out(&Write::Create(stranger, 0));
            self.strangers.push(stranger);
        }
    }

    /// The stranger that came first leaves.
    pub(super) fn stranger_goes(&mut self) {
        let there = self.strangers.iter().find_map(|stranger| self.directory.of(*stranger));
        if let Some(name) = there.map(|child| self.directory.name(child)) {
            let _deleted = self.directory.carry_out(&Write::Delete(name));
        }
    }

    pub(super) fn expire(&mut self, at: usize) {
        let session = self.clients[at].session;
        self.directory.commit(|children| children.retain(|child| child.session != session));
        for at in 0..self.clients.len() {
            if self.clients[at].session == session {
                self.clients[at].alive = false;
                if self.clients[at].end.is_none() {
                    self.ended(at, End::SessionOver);
                }
            }
        }
    }

    /// An administrator deletes the node of a client.
    pub(super) fn delete_by_hand(&mut self, at: usize) {
        if let Some(mine) = self.mine(at) {
            let _deleted = self.directory.carry_out(&Write::Delete(mine.name()));
        }
    }

    pub(super) fn abandon(&mut self, at: usize) {
        if !self.clients[at].left {
            self.clients[at].left = true;
            self.happens(at, Happening::Abandoned);
        }
    }

    pub(super) fn release(&mut self, at: usize) {
        match self.clients[at].end.clone() {
            Some(End::Held(mine)) if !self.clients[at].released => {
                self.clients[at].released = true;
                let _deleted = self.directory.carry_out(&Write::Delete(mine.node.name()));
            }
            _ => {}
        }
    }

    pub(super) fn holders(&self) -> Vec<usize> {
        let holds = |at: &usize| {
            let client = &self.clients[*at];
            let held = matches!(client.end, Some(End::Held(_))) && !client.released && client.alive;
            held && self.mine(*at).is_some()
        };
        (0..self.clients.len()).filter(holds).collect()
    }

    /// Whether a stranger holds, or would if it looked now: nobody has a smaller number.
    pub(super) fn a_stranger_holds(&self) -> bool {
        let children = self.directory.children();
        let smallest = children.iter().map(|child| child.number).min();
        children.iter().any(|child| self.strangers.contains(&child.owner) && Some(child.number) == smallest)
    }

    /// What must hold at every moment.
    pub(super) fn check(&self) -> Result<(), TestCaseError> {
        let holders = self.holders();
        prop_assert!(holders.len() <= 1, "{holders:?} hold at once");
        prop_assert!(
            holders.is_empty() || !self.a_stranger_holds(),
            "{holders:?} and a stranger hold at once"
        );
        for (at, client) in self.clients.iter().enumerate() {
            if let Some(End::Held(mine)) = &client.end {
                let ours = |child: &directory::Child| {
                    let made = (self.directory.node(child), child.session, child.czxid);
                    made == (mine.node.clone(), client.session, mine.czxid)
                };
                let ours = self.directory.history.iter().flatten().any(ours);
                prop_assert!(ours, "{at} holds what is not its own");
            }
        }
        Ok(())
    }

    /// No more faults: everybody gets what they wait for, and nothing is left behind.
    pub(super) fn calm_down(&mut self) -> Result<(), TestCaseError> {
        let busy = |client: &Client| client.asked.is_some() || client.end.is_none() || client.asks_again();
        for _ in 0..200 {
            if !self.clients.iter().any(busy) && self.holders().is_empty() {
                break;
            }
            for at in 0..self.clients.len() {
                self.ask_again(at);
                self.answer(at, Fate::Done, 0);
                self.advance(at);
                self.check()?;
                if self.clients[at].asked.is_none() && self.clients[at].watched.is_none() {
                    self.release(at);
                }
                // What was told to nobody is found in time; everything else is told.
                if self.silent {
                    self.overdue(at);
                }
            }
            self.stranger_goes();
        }
        for at in 0..self.clients.len() {
            self.strays_arrive(at);
        }
        while self.strangers.iter().any(|stranger| self.directory.of(*stranger).is_some()) {
            self.stranger_goes();
        }
        for (at, client) in self.clients.iter().enumerate() {
            prop_assert!(client.end.is_some(), "{} waits for ever: {:?}", at, client.contender);
        }
        let left: Vec<_> = self.directory.children().iter().map(|child| self.directory.name(child)).collect();
        prop_assert!(left.is_empty(), "left behind: {left:?}");
        Ok(())
    }
}

fn owner(number: usize) -> OwnerId {
    OwnerId::from_random((number as u128 + 1).to_be_bytes())
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Done,
    /// Done, and the answer is lost.
    Unheard,
    /// Done after we have stopped waiting.
    Late,
    Lost,
}
