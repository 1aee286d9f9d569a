//! One acquisition in one session, from the first request to the last.
//!
//! At most one request is out at a time, create and list counting as one: they go out together. What
//! happens besides ([`Happening`]) may come at any moment. An acquisition that nobody wants any more
//! goes on until what it made is gone.
//!
//! # Invariants
//! - **zk.contender-1** A contender holds by one of four facts. A listing with our node, in which the older contenders
//!   admit us. The end of our barrier, if the barrier kept all others out and such a listing had no other blocker. The
//!   passing of the lock by our barrier. Such a listing is made after our node, so it has every older contender that is
//!   alive; older contenders only ever leave, so an admitted contender stays admitted. Or our number is the next one of
//!   the same directory (zk.untouched-2), after that of our last exclusive hold (zk.untouched-1) or after a listing that
//!   admits us: then no contender was created in between, and no older one was missed.
//! - **zk.contender-2** Nothing is made twice blindly. After an answer that never came we write, then list,
//!   and look for our own node; once more after the bound of a request, because the first request may still
//!   be on its way. A node counts as ours only if this session owns it.
//! - **zk.contender-3** An end other than held leaves nothing behind but what ends with the session, so
//!   whoever is lost may ask again at once, as somebody else.
//! - **zk.contender-4** After a reconnect nothing is waited for before a new listing: a watch may have been
//!   lost.
//! - **zk.contender-5** Nothing is waited for longer than until it is overdue without the leader's word
//!   that it is still there. What the leader does not know is left out of every later listing.
//! - **zk.contender-6** Nobody holds by a listing with a number near the end of the directory's counter,
//!   our own included: soon numbers repeat, and other libraries read those past the end as the smallest.
//! - **zk.contender-7** Whoever is told of another's passing or end has its own node still, as soon as that
//!   has stood for a while: then it is watched, too, and its end goes before.
//!
//! # Barrier
//! Our *barrier* is the youngest of those who are older and keep us out alone, as long as they are there: while
//! it is, nothing else needs to be heard of. For whoever is exclusive that is the predecessor. For whoever shares
//! it is the nearest that is exclusive: all who share and come right after it are told at once, and hold together.
//! Of the end of one who shares no more follows than that there is something to look at: others who share may be
//! left.
//!
//! # Passing
//! An exclusive holder that others wait for writes its node and deletes it, in one transaction: so whoever
//! watches it is told of a change, and takes that for the grant. Everybody else who leaves only deletes, which
//! says nothing of those who are older; whoever shares, too: others who do may be older. A change is a pass only
//! where nobody else could have written: the barrier says so of itself, and nobody had written it when it was
//! armed. Whoever passes has held, so nobody older was left when it began to; the change is for whoever is
//! admitted by those between it and us.
//!
//! # Trying
//! A node that tries stands in the queue until it is deleted, and refuses other tries meanwhile: where many try often,
//! each keeps the others from a free lock. So a try lists first and makes a node only if the listing admits one more.
//! The listing says which number comes next: with that one the try holds, and with any other it lists again.
//!
//! # Renewal
//! A directory's numbers begin anew when it is removed, which the server allows while it is empty. From
//! the half of the numbers on, now and then, and near their end always, an acquisition that would hold or
//! wait leaves instead, tries to remove the directory for a while, and enters again; it does so once. What
//! it finds then it takes as it is: it queues, or near the end it is refused. So a directory that others
//! keep in use costs time and never the lock. Whoever has a smaller number holds on undisturbed. Only a
//! directory of ours is removed: what somebody else made may have rights, or data, that nobody would make
//! again.
//!
//! Whoever enters meanwhile may find that a directory it has just made is gone again. It makes it anew,
//! and rests in between once that has happened often: each of those who renew removes one at most.

mod words;

use leasehold_core::Mode;

use crate::keys::{Barrier, Listing, Next, Place};

pub(crate) use words::{Answer, Ask, End, Failure, Happening, Mine, Pause, Said, Step};

/// One acquisition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Contender {
    patience: Patience,
    mode: Mode,
    wanted: bool,
    /// With this number no older contender blocks us.
    next: Option<Next>,
    /// How often there was no directory to enter.
    missed: u8,
    /// How often the removal of the directory may still be tried.
    removals: u8,
    /// Who is gone from this directory, as the leader said, whatever other servers say.
    gone: Vec<String>,
    /// The connection was made again since something was last asked.
    reconnected: bool,
    state: State,
}

/// Whether a contender waits behind others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Patience {
    Waits,
    Tries,
}

/// What was asked last.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    /// A try lists before it makes a node.
    Looking,
    Entering,
    /// An answer never came, or a listing lacks our node: is there one? For the last time, if `last`.
    Searching {
        last: bool,
    },
    Listing(Mine),
    Arming(Mine, Barrier),
    Waiting(Mine, Barrier),
    /// What leaves the waiting as it is.
    Asking(Mine, Barrier),
    /// Our node goes, and this follows.
    Leaving(Then),
    /// Without a node, until the directory is gone.
    Renewing,
    Over,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Then {
    End(End),
    Renew,
}

impl Contender {
    /// With the number `next` no contender is ahead. A try lists first instead, and takes the number that the listing predicts.
    pub(crate) fn new(patience: Patience, mode: Mode, next: Option<Next>) -> (Self, Step) {
        let mut contender = Self {
            patience,
            mode,
            wanted: true,
            next: None,
            missed: 0,
            removals: if patience == Patience::Waits { MANY } else { 1 },
            gone: Vec::new(),
            reconnected: false,
            state: State::Looking,
        };
        let step = if patience == Patience::Tries { Step::Ask(Ask::List) } else { contender.enter(next) };
        (contender, step)
    }

    /// The end of a hold that nobody wants.
    pub(crate) fn leaving(mine: Mine) -> (Self, Step) {
        let (mut contender, _) = Self::new(Patience::Tries, Mode::EXCLUSIVE, None);
        contender.wanted = false;
        let step = contender.leave(mine, Then::End(End::Left));
        (contender, step)
    }

    /// Something happens while an answer is out, or is waited for.
    pub(crate) fn happens(&mut self, happening: Happening) -> Step {
        self.wanted &= happening != Happening::Abandoned;
        self.reconnected |= happening == Happening::Reconnected;
        if self.state == State::Looking && !self.wanted {
            return self.end(End::Left);
        }
        let State::Waiting(mine, barrier) = &self.state else {
            return Step::Wait;
        };
        let (mine, barrier) = (mine.clone(), barrier.clone());
        match happening {
            Happening::Ended => self.ended(mine, &barrier),
            Happening::Changed if barrier.pass_admits => self.end(End::Held(mine)),
            Happening::Changed => self.arm(mine, barrier),
            Happening::Reconnected => self.list(mine),
            Happening::Overdue => {
                let ask = Ask::Confirm(barrier.name.clone());
                self.ask(State::Asking(mine, barrier), ask)
            }
            Happening::Stands => {
                let ask = Ask::WatchOwn(mine.node.clone());
                self.ask(State::Asking(mine, barrier), ask)
            }
            Happening::Abandoned => self.leave(mine, Then::End(End::Left)),
            Happening::Removed => self.none_of_ours(),
        }
    }

    /// What was asked last is answered.
    pub(crate) fn answered(&mut self, answer: Answer) -> Step {
        use State::{Arming, Asking, Entering, Leaving, Listing, Looking, Renewing, Searching};
        match (std::mem::replace(&mut self.state, State::Over), answer) {
            (_, Err(Failure::SessionOver)) => self.end(End::SessionOver),
            (_, Ok(Said::Removed)) => self.none_of_ours(),
            (_, Ok(Said::Made(mine, Some(listing)))) => self.decide(mine, listing),
            (_, Ok(Said::Back(mine))) if self.is_next(&mine) => self.end(End::Held(mine)),
            (_, Ok(Said::Made(mine, None) | Said::Back(mine))) => self.list(mine),
            (Entering, Err(Failure::Unknown)) => self.ask(Searching { last: false }, Ask::Search),
            (Entering | Renewing, _) if !self.wanted => self.end(End::Left),
            (Looking, Ok(Said::Listed(listing))) if !listing.admits(self.mode) => {
                self.end(End::Busy(listing.first()))
            }
            (Looking, Ok(Said::Listed(listing))) => self.enter(listing.next()),
            (Looking, Err(Failure::Absent)) => self.enter(None),
            (Looking, Err(_)) => self.end(End::Refused),
            (Entering, Err(Failure::Absent)) => self.missed(),
            (Entering, Err(Failure::Refused)) => self.end(End::Refused),
            (Searching { last: false }, Ok(Said::Done)) => {
                self.state = Searching { last: true };
                Step::Rest(Pause::Request, Ask::Search)
            }
            (Searching { .. }, Ok(_)) => self.none_of_ours(),
            // Without a right to look, only the end of the session makes sure.
            (Searching { .. }, Err(_)) => self.end(End::SessionOver),
            // Or nobody is in the way any more, and there may be no node of ours either.
            (Listing(mine) | Arming(mine, _), Ok(Said::Listed(listing))) => self.decide(mine, listing),
            (Listing(_), Err(Failure::Absent)) => self.ask(Searching { last: true }, Ask::Search),
            (Arming(mine, _) | Asking(mine, _), _) if !self.wanted => self.leave(mine, Then::End(End::Left)),
            (Listing(mine) | Arming(mine, _), Err(Failure::Refused)) => {
                self.leave(mine, Then::End(End::Refused))
            }
            (Arming(mine, barrier), Err(Failure::Absent)) => self.ended(mine, &barrier),
            (Asking(mine, barrier), Err(Failure::Absent)) => {
                self.gone.push(barrier.name);
                self.list(mine)
            }
            (Arming(mine, _) | Asking(mine, _), _) if self.reconnected => self.list(mine),
            (Arming(mine, mut barrier), Ok(Said::Watched { passes })) => {
                barrier.pass_admits &= passes;
                self.wait(mine, barrier)
            }
            (Asking(mine, barrier), _) => self.wait(mine, barrier),
            (Leaving(Then::End(end)), Ok(_) | Err(Failure::Absent)) => self.end(end),
            (Leaving(Then::Renew), Ok(_) | Err(Failure::Absent)) if self.wanted => Step::Ask(self.removal()),
            (Leaving(_), Ok(_) | Err(Failure::Absent)) => self.end(End::Left),
            (Leaving(_), Err(_)) => self.end(End::Refused),
            (Renewing, Err(Failure::Unknown)) if self.removals > 0 => {
                Step::Rest(Pause::Brief, self.removal())
            }
            (Renewing, removed) => {
                // If it is not ours to remove, it is taken as it is.
                if removed == Err(Failure::Refused) {
                    self.removals = 0;
                }
                // Another directory gives the same names again.
                self.gone.clear();
                self.missed = 0;
                self.ask(Entering, Ask::Enter)
            }
            (state, answer) => unreachable!("{answer:?} is no answer in {state:?}"),
        }
    }

    fn enter(&mut self, next: Option<Next>) -> Step {
        self.next = next;
        self.ask(State::Entering, next.map_or(Ask::Enter, |next| Ask::Return(next.directory)))
    }

    fn is_next(&self, mine: &Mine) -> bool {
        self.wanted && self.next.is_some_and(|next| next.number == mine.node.sequence())
    }

    fn decide(&mut self, mine: Mine, listing: Listing) -> Step {
        let listing = listing.without(&self.gone);
        let number = mine.node.sequence();
        let ours = number.is_near_the_end().then(|| mine.node.name());
        let near_the_end = ours.or_else(|| listing.near_the_end().map(str::to_owned));
        let called_for = near_the_end.is_some() || number.calls_for_renewal();
        let renews = called_for && self.removals > 0 && listing.may_be_ours;
        match (listing.place_of(&mine.node), near_the_end) {
            _ if !self.wanted => self.leave(mine, Then::End(End::Left)),
            // Although there was one.
            (Place::Absent, _) => self.ask(State::Searching { last: true }, Ask::Search),
            (Place::Behind(_), _) if self.patience == Patience::Tries => {
                self.leave(mine, Then::End(End::Busy(listing.first())))
            }
            _ if renews => self.leave(mine, Then::Renew),
            (_, Some(child)) => self.leave(mine, Then::End(End::WornOut(child))),
            (Place::Admitted, None) => self.end(End::Held(mine)),
            (Place::Behind(barrier), None) => self.arm(mine, barrier),
        }
    }

    fn ended(&mut self, mine: Mine, barrier: &Barrier) -> Step {
        if barrier.end_admits { self.end(End::Held(mine)) } else { self.list(mine) }
    }

    fn none_of_ours(&mut self) -> Step {
        self.end(if self.wanted { End::Lost } else { End::Left })
    }

    /// There was no directory, although one was made.
    fn missed(&mut self) -> Step {
        let (rests, tries) = (self.missed >= MANY, self.patience == Patience::Tries);
        // A try has an end: after so many rests those who renew now are done.
        if tries && self.missed >= 2 * MANY {
            return self.end(End::Refused);
        }
        self.missed = self.missed.saturating_add(1);
        self.state = State::Entering;
        if rests { Step::Rest(Pause::Brief, Ask::Enter) } else { Step::Ask(Ask::Enter) }
    }

    fn list(&mut self, mine: Mine) -> Step {
        if !self.wanted {
            return self.leave(mine, Then::End(End::Left));
        }
        self.ask(State::Listing(mine), Ask::List)
    }

    fn arm(&mut self, mine: Mine, barrier: Barrier) -> Step {
        let ask = Ask::Watch(barrier.name.clone());
        self.ask(State::Arming(mine, barrier), ask)
    }

    fn wait(&mut self, mine: Mine, barrier: Barrier) -> Step {
        self.state = State::Waiting(mine, barrier);
        Step::Wait
    }

    fn leave(&mut self, mine: Mine, then: Then) -> Step {
        let ask = match &then {
            Then::End(End::Busy(first)) => Ask::GiveWay(mine.node, first.clone()),
            _ => Ask::Delete(mine.node),
        };
        self.ask(State::Leaving(then), ask)
    }

    fn ask(&mut self, state: State, ask: Ask) -> Step {
        self.reconnected = false;
        self.state = state;
        Step::Ask(ask)
    }

    fn removal(&mut self) -> Ask {
        self.removals = self.removals.saturating_sub(1);
        self.state = State::Renewing;
        Ask::RemoveDirectory
    }

    fn end(&mut self, end: End) -> Step {
        self.state = State::Over;
        Step::End(end)
    }
}

/// How often a directory is made that is removed again before our node is in it, until we rest in between,
/// and how often the removal of one is tried.
const MANY: u8 = 16;

#[cfg(test)]
mod tests;
