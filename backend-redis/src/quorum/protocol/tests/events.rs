//! What may happen in a world, and what may be broken in it.

use super::world::World;

/// What is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Mutant {
    None,
    NoConfirm,
    NoPause,
    /// A server that came up pauses for the leases that the others know of when they are first asked.
    PausesByTheOthers,
    /// The others are asked before the pause of a server is over.
    AsksBeforeThePauseEnds,
    /// One that was not blank beside who was told by its clock is told as if it were.
    TellsWhoWasNotBlank,
    MinorityCounts,
    FloorNotCopied,
    DeadlineOfTheFastest,
    RenewsWhatIsGone,
    GivesBackLaterRounds,
    /// What others know is enough, and the clock stands for nothing.
    FloorWithoutTheClock,
    NotesNothing,
    /// A pause counts from the start of the process.
    PausesByUptime,
    /// A pause counts by the clock of the server that pauses.
    PausesByOneClock,
    /// The data of another server is taken for a server's own.
    TrustsCopies,
    /// A blank server does not pause for a hold by other terms.
    PausesByOnesOwnTerms,
    ExtendsWhilePausing,
    RunIsEpisode,
    ForgetsDistrust,
    /// A disk is trusted although its original may be away.
    TrustsWhileOneIsAway,
    /// A pause counts by the clocks that are left, however few.
    PausesByClocksThatAreLeft,
    /// A server that was met beside others that are used may be one of a new namespace.
    ForgetsThatItWasMet,
    ProposesFirmTerms,
    /// A server learns that others are used only together with the clocks.
    TellsUseWithClocks,
    /// Managers that cannot reach the witnesses of a pause begin it anew.
    BeginsPausesAnew,
    /// A clock that was set back shows as much time as one that goes on.
    CountsBackwards,
    /// A manager asks by the reign that it knew before it has connected again.
    KeepsRun,
    /// A server votes by any terms.
    VotesByAnyTerms,
}

/// What may happen in a world.
#[derive(Clone, Copy, Debug)]
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
    /// Nobody has used the namespace yet.
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
    /// Lets go, or gives up.
    Leave(usize),
    /// Dies with what it has.
    Die(usize),
    Renew(usize),
    /// Its votes are taken from it everywhere.
    Force(usize),
    /// Its vote is taken from it at one server.
    ForceAt(usize, usize),
    Deliver(usize),
    /// Lost, and the sender hears so.
    Lose(usize),
    /// The sender hears that it is lost, and it arrives later.
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
    /// Its clock is set forward while it is blank.
    Step(usize),
    /// Its clock is set back.
    SetBack(usize),
    /// One of two lookers looks at one more server for a blank one, or its look arrives late, if at all.
    Look(usize, bool),
    /// It looks at all servers for a blank one, twice, and tells that at once.
    Recover(usize),
    /// Only a quorum of them answers, from one of them on.
    RecoverWith(usize, usize),
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
            if faults && (blank < self.blank || self.blank > 0 && self.is_blank(at)) {
                events.extend([Event::Restart(at, false), Event::Restart(at, true), Event::Save(at)]);
                // Where all may be, nobody can tell that from a new namespace.
                if 2 * self.blank < self.size.servers {
                    events.extend([Event::Replace(at), Event::Empty(at)]);
                    let of = (at + 1) % self.size.servers;
                    events.extend([Event::Promote(at, of)].into_iter().filter(|_| !self.is_blank(of)));
                    let is_first = self.stepped.is_none_or(|stepped| stepped == at) && self.is_blank(at);
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
}
