//! What may happen in a world, and what may be broken in it.

use super::world::{Message, What, World, name};

/// What is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Mutant {
    Original,
    /// A confirmation is answered, and writes nothing.
    NoConfirm,
    NoPause,
    /// A server that came up pauses for the leases that the others know of when they are first asked.
    PausesByTheOthers,
    /// The others are asked before the pause of a server is over.
    AsksBeforeThePauseEnds,
    /// A server that was not blank beside one which a clock restored is restored as if it were.
    TellsWhoWasNotBlank,
    MinorityCounts,
    FloorNotCopied,
    DeadlineOfTheFastest,
    /// A renewal votes again where the vote is gone.
    RenewsWhatIsGone,
    /// Giving back an earlier round ends a later one's vote.
    GivesBackLaterRounds,
    /// What others know is enough, and the clock stands for nothing.
    FloorWithoutTheClock,
    /// A number is noted only for its name.
    NotesNothing,
    /// A pause counts from the start of the process.
    PausesByUptime,
    /// A pause counts by the clock of the server that pauses.
    PausesByOneClock,
    /// The data of another server is taken for a server's own.
    TrustsCopies,
    /// A blank server does not pause for a hold by other terms.
    PausesByOnesOwnTerms,
    /// A restored vote is renewed and confirmed while the server pauses.
    ExtendsWhilePausing,
    /// A process has one episode, however often it is emptied.
    RunIsEpisode,
    /// That a server has followed another one is not kept.
    ForgetsDistrust,
    /// A disk is trusted although its original may be away.
    TrustsWhileOneIsAway,
    /// A pause counts by the clocks that are left, however few.
    PausesByClocksThatAreLeft,
    /// A server that was met beside others that are used may be one of a new namespace.
    ForgetsThatItWasMet,
    /// The terms of a server that voted once are only proposed when it comes up again.
    ProposesFirmTerms,
    /// A server learns that others are used only together with the clocks.
    TellsUseWithClocks,
    /// Managers that cannot reach the clocks of a pause begin it anew.
    BeginsPausesAnew,
    /// A clock that was set back shows as much time as one that goes on.
    CountsBackwards,
    /// A manager asks by the reign that it knew before it has connected again.
    KeepsRun,
    VotesByAnyTerms,
    /// The terms of the first manager stay, in each server.
    FirstTermsStay,
    /// A release before the answer to any request for a vote is final if it has ended the vote.
    AnyRequestIsFirst,
    /// A release before the answer to the first request is final also if it has ended no vote.
    EveryReleaseSettles,
}

/// What may happen in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Setting {
    pub(super) servers: usize,
    pub(super) clients: usize,
    /// How far apart clocks may be, in milliseconds.
    pub(super) apart: u64,
    /// Servers may come up again, at most so many of them blank at a time.
    pub(super) blank: usize,
    /// How many servers more than a majority have to agree.
    pub(super) spare: usize,
    /// Every write is on the disk, and trusted.
    pub(super) trusts: bool,
    /// The namespace is unused.
    pub(super) is_fresh: bool,
    /// The last client, and the second looker of each server, belong to a manager with other terms.
    pub(super) is_mixed: bool,
    pub(super) mutant: Mutant,
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Pass(u64),
    Start(usize),
    /// Releases, or stops waiting.
    Leave(usize),
    /// Dies without a release.
    Die(usize),
    Renew(usize),
    /// Its votes are taken from it everywhere.
    Force(usize),
    /// Its vote is taken from it at one server.
    ForceAt(usize, usize),
    Deliver(usize),
    /// Lost, and the sender learns it.
    Lose(usize),
    /// Taken for lost by the sender, and arrives later.
    Delay(usize),
    Save(usize),
    /// Comes up again, with its disk or without.
    Restart(usize, bool),
    /// Another one takes its address, which has been up for long, and knows nothing.
    Replace(usize),
    /// A replica of another one does, with what that one had when it was saved.
    Promote(usize, usize),
    /// It follows another one and is promoted again, with its data and all connections, and a manager looks at it.
    PromoteInPlace(usize),
    /// It loses all keys.
    Empty(usize),
    /// Its clock is set forward: while it is blank, or at any time where one more than a majority has to agree.
    Step(usize),
    /// Its clock is set back.
    SetBack(usize),
    /// One of two lookers looks at one more server for a blank one, or its look arrives late, if at all.
    Look(usize, bool),
    /// It looks at all servers for a blank one, twice, and restores that at once.
    Recover(usize),
    /// Only a quorum of them answers, from one of them on.
    RecoverWith(usize, usize),

    // In schedules by hand.
    /// The client acquires with these servers; everything between it and the others is lost.
    Takes(usize, &'static [usize]),
    /// Everything to and from these servers arrives.
    Arrive(&'static [usize]),
    /// The same without releases.
    ArriveUnreleased(&'static [usize]),
    /// Everything between a client, or [`LOOKER`](super::world::LOOKER), and a server arrives.
    ArriveOf(usize, usize),
    /// Everything to and from the server is lost.
    Miss(usize),
    /// The client knows of that number, of another name.
    Hears(usize, u64),
    /// Its clock is so many milliseconds ahead.
    Ahead(usize, u64),
    /// That manager looks from now on, and the last client is its.
    Manages(usize),
    /// All disks are trusted.
    TrustDisks,
    /// The test fails unless the client holds.
    Holds(usize),
    /// It is wrong if the server is blank.
    Votes(usize),
}

impl World {
    /// Everything that may happen now, apart from time.
    pub(super) fn events(&self, faults: bool) -> Vec<Event> {
        let mut events = Vec::new();
        for (at, client) in self.clients.iter().enumerate() {
            match client {
                None => events.push(Event::Start(at)),
                Some(client) => {
                    events.push(Event::Leave(at));
                    if client.holds.is_some() {
                        events.push(Event::Renew(at));
                        events.extend(faults.then_some(Event::Force(at)));
                        let each = (0..self.size.servers).map(|server| Event::ForceAt(at, server));
                        events.extend(each.filter(|_| faults));
                    }
                    if faults {
                        events.push(Event::Die(at));
                    }
                }
            }
        }
        for at in 0..self.network.len() {
            events.push(Event::Deliver(at));
            if faults {
                events.extend([Event::Lose(at), Event::Delay(at)]);
            }
        }
        let blank = (0..self.size.servers).filter(|at| self.is_blank(*at)).count();
        for at in 0..self.size.servers {
            let is_news = |looker: &usize| self.is_blank(at) || self.has_stale_run(*looker, at);
            for looker in [at, at + self.size.servers].into_iter().filter(is_news) {
                events.extend([Event::Look(looker, true), Event::Recover(looker)]);
                events.extend((0..self.size.servers).map(|first| Event::RecoverWith(looker, first)));
                events.extend(faults.then_some(Event::Look(looker, false)));
            }
            if faults && (blank < self.setting.blank || self.setting.blank > 0 && self.is_blank(at)) {
                events.extend([Event::Restart(at, false), Event::Restart(at, true), Event::Save(at)]);
                // If all may be blank, the namespace looks like a new one.
                if 2 * self.setting.blank < self.size.servers {
                    events.extend([Event::Replace(at), Event::Empty(at)]);
                    let of = (at + 1) % self.size.servers;
                    events.extend([Event::Promote(at, of)].into_iter().filter(|_| !self.is_blank(of)));
                    // With a spare, one clock ends no hold.
                    let may_step = self.is_blank(at) || self.setting.spare > 0;
                    let is_first = self.stepped.is_none_or(|stepped| stepped == at) && may_step;
                    events.extend([Event::Step(at)].into_iter().filter(|_| is_first));
                    events.push(Event::PromoteInPlace(at));
                }
            }
            if faults && self.ahead[at] > 0 {
                events.push(Event::SetBack(at));
            }
        }
        events
    }

    pub(super) fn goes(&mut self, events: &[Event]) {
        events.iter().for_each(|event| self.apply(*event));
    }

    /// That happens to each message that is `wanted`, and to those that are sent meanwhile.
    fn each(&mut self, happens: fn(usize) -> Event, wanted: impl Fn(&Message) -> bool) {
        while let Some(at) = self.network.iter().position(&wanted) {
            self.apply(happens(at));
        }
    }

    /// An event that only schedules by hand have.
    pub(super) fn goes_by_hand(&mut self, event: Event) {
        match event {
            Event::Takes(at, servers) => {
                self.goes(&[Event::Start(at), Event::Arrive(servers)]);
                let others = (0..self.size.servers).filter(|server| !servers.contains(server));
                others.for_each(|server| self.apply(Event::Miss(server)));
            }
            Event::Arrive(servers) => {
                self.each(Event::Deliver, |message| servers.contains(&message.server));
            }
            Event::ArriveUnreleased(servers) => self.each(Event::Deliver, |message| {
                servers.contains(&message.server) && !matches!(message.what, What::Release { .. })
            }),
            Event::ArriveOf(client, server) => {
                self.each(Event::Deliver, |message| message.client == client && message.server == server)
            }
            Event::Miss(server) => self.each(Event::Lose, |message| message.server == server),
            Event::Hears(at, n) => {
                let now = self.moment();
                self.bounds[at].learn_number(now, &name(), n);
            }
            Event::Ahead(at, millis) => self.ahead[at] = millis,
            Event::Manages(manager) => self.manager = manager,
            Event::TrustDisks => self.setting.trusts = true,
            Event::Holds(at) => {
                let is_held = self.clients[at].as_ref().is_some_and(|client| client.holds.is_some());
                assert!(is_held, "client {at} does not hold: {self:#?}");
            }
            Event::Votes(at) if self.is_blank(at) => self.wrong = Some(format!("server {at} is blank")),
            _ => {}
        }
    }
}
