//! A store that does what ZooKeeper may do, and clients that contend on it through the engine.

mod again;
mod directory;
mod returns;
mod told;
mod wrong;

use std::collections::BTreeMap;

use proptest::prelude::*;

use ::model::{Held, Judge};
use leasehold_core::{Mode, OwnerId};

use super::super::*;
use crate::keys::{Node, Sequence};
use directory::{Directory, Write};
use returns::Seat;
use told::passes;
pub(super) use wrong::Mutant;

/// One client with one contender.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) owner: OwnerId,
    pub(super) mode: Mode,
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
    /// Its node has stood for so long that it is to know of its end.
    pub(super) stood: bool,
    /// It was told of its place although its node had gone then.
    pub(super) deceived: bool,
    pub(super) alive: bool,
    pub(super) left: bool,
    pub(super) released: bool,
    /// Another one asks in its place.
    pub(super) succeeded: bool,
}

pub(super) struct World {
    pub(super) directory: Directory,
    pub(super) clients: Vec<Client>,
    /// What sessions know.
    seats: BTreeMap<i64, Seat>,
    /// Writes of clients that stopped waiting for them.
    pub(super) stray: Vec<(usize, Write)>,
    pub(super) mutant: Option<Mutant>,
    judge: Judge,
    /// In order of being held.
    pub(super) held: Vec<(usize, Sequence)>,
    /// Contenders of others: Curator's, which know nothing of renewal, and some of ours that share and stay.
    pub(super) strangers: Vec<OwnerId>,
    /// Something went wrong that nobody is told of.
    pub(super) silent: bool,
}

impl World {
    /// Of clients that are all exclusive.
    pub(super) fn new(clients: usize, start: i32, mutant: Option<Mutant>) -> Self {
        Self::of(&vec![Mode::EXCLUSIVE; clients], start, mutant)
    }

    pub(super) fn of(modes: &[Mode], start: i32, mutant: Option<Mutant>) -> Self {
        let shift = match mutant {
            Some(Mutant::WrapAssumed | Mutant::EqualIsNotOlder) => start,
            _ => 0,
        };
        let mut world = Self {
            directory: Directory::new(start, shift),
            clients: Vec::new(),
            seats: BTreeMap::new(),
            stray: Vec::new(),
            mutant,
            judge: Judge::default(),
            held: Vec::new(),
            strangers: Vec::new(),
            silent: false,
        };
        for (at, mode) in modes.iter().enumerate() {
            world.comes(owner(at), *mode, i64::try_from(at).unwrap() + 1);
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
            (Some(mutant), Some(mine)) if self.clients[at].mode == Mode::SHARED => {
                names = self.misread(mutant, &mine, names);
            }
            _ => {}
        }
        let (made, changes) = self.directory.counted(self.clients[at].seen, names.len());
        let changes = match self.mutant {
            Some(Mutant::CountsOneMore) => changes.wrapping_add(2),
            // Those that went are taken for some that came.
            Some(Mutant::CountsChanges) => changes.wrapping_mul(2),
            _ => changes,
        };
        Listing::new(names, true).counted(made, changes)
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
                if !matches!(ask, Ask::Confirm(_) | Ask::WatchOwn(_)) {
                    client.watched = None;
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
            let shown = self.directory.version(self.clients[at].seen, &mine.node.name());
            self.clients[at].deceived = self.clients[at].stood && shown.is_none();
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
        let Client { owner, mode, session, .. } = self.clients[at];
        let lost = matches!(fate, Fate::Lost | Fate::Late | Fate::Unheard);
        let newest = |world: &Self| world.directory.history.len() - 1;
        let answer = match ask {
            // Where there is no directory, one is made; somebody may remove it before there is a node in it.
            Ask::Enter if !self.directory.exists => match self.fated(at, fate, Write::MakeDirectory) {
                Ok(_) | Err(Failure::Unknown) => Err(Failure::Absent),
                Err(failure) => Err(failure),
            },
            Ask::Enter => {
                let create = Write::Create(owner, session, mode);
                let made = self.fated(at, fate, create).map(Option::unwrap);
                // One session, one order: what its server shows has its own create.
                if made.is_ok() && self.mutant != Some(Mutant::AnyListingDecides) {
                    self.clients[at].seen = newest(self);
                }
                let listed = (!lost).then(|| self.view(at, lag));
                made.map(|mine| Said::Made(mine, listed))
            }
            Ask::Return(next) => self.returned(at, fate, lag, next),
            Ask::RemoveDirectory if self.mutant == Some(Mutant::NoRenewal) => Err(Failure::Refused),
            Ask::RemoveDirectory => self.fated(at, fate, Write::RemoveDirectory).map(|_| Said::Done),
            Ask::Confirm(_) | Ask::WatchOwn(_) if lost => Err(Failure::Unknown),
            Ask::Confirm(contender) => {
                let contender = self.meant(contender);
                let there = match self.mutant {
                    Some(Mutant::OverdueIsGone) => false,
                    Some(Mutant::OwnServersWordIsEnough) => self.shown_to(at).contains(&contender),
                    _ => self.directory.has(&contender),
                };
                if there { Ok(Said::Done) } else { Err(Failure::Absent) }
            }
            Ask::WatchOwn(node) => {
                let shown = self.shown_to(at).contains(&node.name());
                (self.clients[at].watches_own, self.clients[at].stood) = (shown, shown);
                Ok(if shown { Said::Done } else { Said::Removed })
            }
            // Whoever does not know asks again.
            Ask::Search | Ask::List | Ask::Watch(_) if lost => {
                self.clients[at].asked = Some(ask);
                return;
            }
            Ask::Search => {
                if self.mutant != Some(Mutant::NoBarrier) {
                    self.clients[at].seen = newest(self);
                }
                let listing = self.view(at, lag);
                let found = listing.find(owner, mode);
                let children = self.directory.children();
                let ours = children
                    .iter()
                    .find(|child| child.session == session && Some(self.directory.node(child)) == found);
                Ok(ours.map_or(Said::Done, |child| {
                    Said::Made(Mine { node: self.directory.node(child), czxid: child.czxid }, Some(listing))
                }))
            }
            Ask::List => Ok(Said::Listed(self.view(at, lag))),
            Ask::Watch(ahead) => self.watch(at, ahead, lag),
            Ask::Delete(ref node) | Ask::GiveWay(ref node, _) => {
                let passes = self.mutant == Some(Mutant::LeaverPasses) && passes(owner) && !node.is_shared();
                let name = node.name();
                let delete = if passes { Write::Pass(name) } else { Write::Delete(name) };
                let deleted = self.fated(at, fate, delete).map(|_| Said::Done);
                if deleted.is_ok() && self.mutant == Some(Mutant::CountsWhoeverLeft) {
                    self.has_left(at, node.sequence(), true);
                }
                if deleted == Err(Failure::Unknown) && self.mutant != Some(Mutant::DeleteOnce) {
                    self.clients[at].asked = Some(ask);
                    return;
                }
                if self.mutant == Some(Mutant::DeleteOnce) { Ok(Said::Done) } else { deleted }
            }
        };
        self.answered(at, answer);
    }

    /// A client asks, and is answered at once, until it waits or has come to its end.
    pub(super) fn goes_on(&mut self, at: usize) -> Result<(), TestCaseError> {
        for _ in 0..200 {
            if self.clients[at].asked.is_none() {
                break;
            }
            self.answer(at, Fate::Done, 0);
            self.check()?;
        }
        Ok(())
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

    pub(super) fn stranger_comes(&mut self) {
        self.other_comes(Mode::EXCLUSIVE);
    }

    pub(super) fn other_comes(&mut self, mode: Mode) {
        let stranger = owner(1_000 + self.strangers.len() % 100);
        if self.directory.of(stranger).is_none() {
            let _no_directory = self.directory.carry_out(&Write::MakeDirectory);
            let _made = self.directory.carry_out(&Write::Create(stranger, 0, mode));
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

    fn held(&self) -> Vec<Held> {
        let held = self.clients.iter().enumerate().filter_map(|(actor, client)| match &client.end {
            Some(End::Held(mine)) if !client.released && client.alive => {
                let (counter, is_overruled) = (mine.czxid.unsigned_abs(), self.mine(actor).is_none());
                Some(Held { actor, mode: client.mode, counter, is_overruled })
            }
            _ => None,
        });
        held.collect()
    }

    pub(super) fn holders(&self) -> Vec<usize> {
        self.held().iter().filter(|hold| !hold.is_overruled).map(|hold| hold.actor).collect()
    }

    /// Whether the rule admits a client's node, whoever else is there.
    fn is_admitted(&self, at: usize) -> bool {
        self.directory.of(self.clients[at].owner).is_some_and(|child| self.directory.admits(child))
    }

    /// What must hold at every moment.
    pub(super) fn check(&mut self) -> Result<(), TestCaseError> {
        let holders = self.holders();
        prop_assert!(holders.iter().all(|at| self.is_admitted(*at)), "{holders:?} hold before their turn");
        let held = self.held();
        prop_assert_eq!(self.judge.see(held), None, "{:?}", self.judge);
        for (at, client) in self.clients.iter().enumerate() {
            prop_assert!(!client.deceived, "{at} holds, and its node that it watches was gone before");
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

    /// No more faults, and nobody lets go: when no message is under way any more, nobody waits whom the rule admits.
    fn quiet_down(&mut self) -> Result<(), TestCaseError> {
        let asks = |world: &Self| world.clients.iter().any(|client| client.asked.is_some());
        for _ in 0..200 {
            let asked = asks(self);
            for at in 0..self.clients.len() {
                self.answer(at, Fate::Done, 0);
                self.advance(at);
                self.check()?;
            }
            if !asked && !asks(self) {
                break;
            }
        }
        prop_assert!(!asks(self), "somebody goes on asking");
        for (at, client) in self.clients.iter().enumerate() {
            prop_assert!(client.end.is_some() || !self.is_admitted(at), "{at} waits, and the rule admits it");
        }
        Ok(())
    }

    /// No more faults: everybody gets what they wait for, and nothing is left behind.
    pub(super) fn calm_down(&mut self) -> Result<(), TestCaseError> {
        // What was told to nobody is found in time.
        if !self.silent {
            self.quiet_down()?;
        }
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
