//! A store that does what ZooKeeper may do, and clients that contend on it through the engine.

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
}

/// One client with one contender.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) owner: OwnerId,
    pub(super) session: i64,
    pub(super) contender: Contender,
    /// Asked, and not yet answered.
    pub(super) asked: Option<Ask>,
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
            let session = i64::try_from(at).unwrap() + 1;
            let owner = OwnerId::from_random([u8::try_from(at).unwrap() + 1; 16]);
            let (contender, step) = Contender::waiting(owner, session);
            let client = Client {
                owner,
                session,
                contender,
                asked: None,
                end: None,
                seen: 0,
                watched: None,
                ghost: None,
                watches_own: false,
                alive: true,
                left: false,
                released: false,
            };
            world.clients.push(client);
            world.step(at, step);
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
        Listing::of_ours(names)
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
        let Some(ask) = self.clients[at].asked.take() else {
            return;
        };
        if !self.clients[at].alive {
            return self.answered(at, Answer::Done(Err(Failure::SessionOver)));
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
                let listed = if lost { Err(Failure::Unknown) } else { Ok(self.view(at, lag)) };
                Answer::Entered { made, listed }
            }
            Ask::MakeDirectory => Answer::Done(self.fated(at, fate, Write::MakeDirectory).map(drop)),
            Ask::RemoveDirectory if self.mutant == Some(Mutant::NoRenewal) => {
                Answer::Done(Err(Failure::Refused))
            }
            Ask::RemoveDirectory => Answer::Done(self.fated(at, fate, Write::RemoveDirectory).map(drop)),
            Ask::Confirm(_) if lost => Answer::Done(Err(Failure::Unknown)),
            Ask::Confirm(contender) => {
                let there = match self.mutant {
                    Some(Mutant::OverdueIsGone) => false,
                    Some(Mutant::OwnServersWordIsEnough) => self.shown_to(at).contains(&contender),
                    _ => self.directory.has(&contender),
                };
                Answer::Done(if there { Ok(()) } else { Err(Failure::Absent) })
            }
            Ask::Barrier if self.mutant == Some(Mutant::NoBarrier) => Answer::Done(Ok(())),
            Ask::Barrier if lost => Answer::Done(Err(Failure::Unknown)),
            Ask::Barrier => {
                self.clients[at].seen = newest(self);
                Answer::Done(Ok(()))
            }
            Ask::List if lost => Answer::Listed(Err(Failure::Unknown)),
            Ask::List => Answer::Listed(Ok(self.view(at, lag))),
            Ask::Look(_) if lost => Answer::Looked(Err(Failure::Unknown)),
            Ask::Look(node) => {
                let mut children = self.directory.children().iter();
                let there = children.find(|child| self.directory.node(child) == node);
                let owned = there.map(|child| Owned { session: child.session, czxid: child.czxid });
                Answer::Looked(owned.ok_or(Failure::Absent))
            }
            Ask::Watch { .. } if lost => {
                Answer::Watched { ahead: Err(Failure::Unknown), own: Err(Failure::Unknown) }
            }
            Ask::Watch { predecessor, own } => self.watch(at, predecessor, own.as_ref(), lag),
            Ask::Delete(node) => {
                let name = node.name();
                let deleted = self.fated(at, fate, Write::Delete(name));
                let once = self.mutant == Some(Mutant::DeleteOnce);
                Answer::Done(if once { Ok(()) } else { deleted.map(drop) })
            }
            Ask::Rest(pause) => {
                if pause == Pause::Request {
                    // Nothing is under way for longer than a request may take.
                    self.strays_arrive(at);
                    if self.mutant == Some(Mutant::SearchOnce) {
                        return self.ended(at, End::Lost);
                    }
                }
                Answer::Done(Ok(()))
            }
        };
        self.answered(at, answer);
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
        let ahead = if has(&predecessor) { Ok(()) } else { Err(Failure::Absent) };
        let watches_own = match own {
            Some(own) if !has(&own.name()) => Err(Failure::Absent),
            _ => Ok(()),
        };
        let client = &mut self.clients[at];
        (client.watched, client.watches_own) = (ahead.is_ok().then_some(predecessor), own.is_some());
        Answer::Watched { ahead, own: watches_own }
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
        let number = 100 + u8::try_from(self.strangers.len() % 100).unwrap();
        let stranger = OwnerId::from_random([number; 16]);
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
        self.clients[at].alive = false;
        self.directory.commit(|children| children.retain(|child| child.session != session));
        if self.clients[at].end.is_none() {
            self.ended(at, End::SessionOver);
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
        let busy = |client: &Client| client.asked.is_some() || client.end.is_none();
        for _ in 0..200 {
            if !self.clients.iter().any(busy) && self.holders().is_empty() {
                break;
            }
            for at in 0..self.clients.len() {
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
