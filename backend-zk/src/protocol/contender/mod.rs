//! One acquisition in one session, from the first request to the last.
//!
//! At most one request is out at a time, create and list counting as one: they go out together. What
//! happens besides ([`Happening`]) may come at any moment. An acquisition that nobody wants any more
//! goes on until what it made is gone.
//!
//! # Invariants
//! - **zk.contender-1** Held is decided by a listing that has our node, and nobody older; or by the end of
//!   our predecessor, if such a listing had nobody older beside it and our node is watched too. Such a
//!   listing is from after our node was made, so whoever is older and alive is in it.
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

use leasehold_core::OwnerId;

use crate::keys::{Ahead, Listing, Node, Place};

pub(crate) use words::{Answer, Ask, End, Failure, Happening, Mine, Pause, Said, Step};

/// One acquisition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Contender {
    owner: OwnerId,
    session: i64,
    patience: Patience,
    wanted: bool,
    /// How often the directory was made.
    made: u8,
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
    Entering,
    MakingDirectory,
    /// An answer never came, or a listing lacks our node: is there one? For the last time, if `last`.
    Searching {
        last: bool,
        at: Search,
    },
    /// There is a node of ours.
    Placed(Mine, Doing),
    /// Without a node, until the directory is gone.
    Renewing,
    Over,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Search {
    Writing,
    Listing,
    Looking(Node),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Doing {
    Listing,
    Arming(Ahead),
    Waiting(Ahead),
    /// Is the one ahead still there?
    Confirming(Ahead),
    /// Our node goes, and this follows.
    Leaving(Then),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Then {
    End(End),
    Renew,
}

impl Contender {
    /// An acquisition by `owner`.
    pub(crate) fn new(owner: OwnerId, session: i64, patience: Patience) -> (Self, Step) {
        let removals = if patience == Patience::Waits { MANY } else { 1 };
        let mut contender = Self {
            owner,
            session,
            patience,
            wanted: true,
            made: 0,
            removals,
            gone: Vec::new(),
            reconnected: false,
            state: State::Over,
        };
        let step = contender.enter();
        (contender, step)
    }

    /// The end of a hold that nobody wants.
    pub(crate) fn leaving(owner: OwnerId, session: i64, mine: Mine) -> (Self, Step) {
        let (mut contender, _) = Self::new(owner, session, Patience::Tries);
        contender.wanted = false;
        let step = contender.leave(mine, End::Left);
        (contender, step)
    }

    /// Something happens while an answer is out, or is waited for.
    pub(crate) fn happens(&mut self, happening: Happening) -> Step {
        self.wanted &= happening != Happening::Abandoned;
        self.reconnected |= happening == Happening::Reconnected;
        let State::Placed(mine, Doing::Waiting(ahead)) = &self.state else {
            return Step::Wait;
        };
        let (mine, ahead) = (mine.clone(), ahead.clone());
        match happening {
            Happening::Ended => self.predecessor_ended(mine, &ahead),
            Happening::Changed => self.arm(mine, ahead),
            Happening::Reconnected => self.list(mine),
            Happening::Overdue => {
                let ask = Ask::Confirm(ahead.name.clone());
                self.place(mine, Doing::Confirming(ahead), ask)
            }
            Happening::Abandoned => self.leave(mine, End::Left),
            Happening::Removed => self.none_of_ours(),
        }
    }

    /// What was asked last is answered.
    pub(crate) fn answered(&mut self, answer: Answer) -> Step {
        match (std::mem::replace(&mut self.state, State::Over), answer) {
            (_, Err(Failure::SessionOver)) => self.end(End::SessionOver),
            (State::Entering, Ok(Said::Made(mine, Some(listing)))) => self.decide(mine, listing),
            (State::Entering, Ok(Said::Made(mine, None))) => self.list(mine),
            (State::Entering, Err(Failure::Unknown)) => Step::Ask(self.search(false)),
            (State::Entering | State::MakingDirectory | State::Renewing, _) if !self.wanted => {
                self.end(End::Left)
            }
            (State::Entering, Err(Failure::Absent)) => self.make_directory(),
            (State::Entering | State::MakingDirectory, Err(Failure::Refused)) => self.end(End::Refused),
            // Made or not, or by somebody else: the next attempt tells.
            (State::MakingDirectory, _) => self.enter(),
            (State::Searching { last, at }, answer) => self.searched(last, at, answer),
            (State::Placed(mine, doing), answer) => self.done(mine, doing, answer),
            (State::Renewing, Err(Failure::Unknown)) if self.removals > 0 => {
                Step::Rest(Pause::Brief, self.removal())
            }
            (State::Renewing, removed) => {
                // If it is not ours to remove, it is taken as it is.
                if removed == Err(Failure::Refused) {
                    self.removals = 0;
                }
                // Another directory gives the same names again.
                self.gone.clear();
                self.made = 0;
                self.enter()
            }
            (state, answer) => unreachable!("{answer:?} is no answer in {state:?}"),
        }
    }

    fn searched(&mut self, last: bool, at: Search, answer: Answer) -> Step {
        match (at, answer) {
            (Search::Writing, Ok(_)) => self.ask(State::Searching { last, at: Search::Listing }, Ask::List),
            (Search::Listing, Ok(Said::Listed(listing))) => match listing.find(self.owner) {
                Some(node) => {
                    let at = Search::Looking(node.clone());
                    self.ask(State::Searching { last, at }, Ask::Look(node))
                }
                None => self.not_found(last),
            },
            (Search::Listing, Err(Failure::Absent)) => self.not_found(last),
            (Search::Looking(node), Ok(Said::Owned { session, czxid })) if session == self.session => {
                self.list(Mine { node, czxid })
            }
            (Search::Looking(_), Ok(_) | Err(Failure::Absent)) => self.none_of_ours(),
            // Without a right to look, only the end of the session makes sure.
            (_, Err(Failure::Absent | Failure::Refused)) => self.end(End::SessionOver),
            _ => Step::Rest(Pause::Brief, self.search(last)),
        }
    }

    /// What was asked for the sake of our node is answered.
    fn done(&mut self, mine: Mine, doing: Doing, answer: Answer) -> Step {
        match (doing, answer) {
            (Doing::Listing, Ok(Said::Listed(listing))) => self.decide(mine, listing),
            (Doing::Listing, Err(Failure::Absent)) => Step::Ask(self.search(true)),
            (Doing::Listing, Err(Failure::Refused)) => self.leave(mine, End::Refused),
            // Our own node is gone.
            (Doing::Arming(_), Err(Failure::Absent)) => self.none_of_ours(),
            (Doing::Arming(_) | Doing::Confirming(_), _) if !self.wanted => self.leave(mine, End::Left),
            (Doing::Arming(ahead), Ok(Said::NobodyAhead)) => self.predecessor_ended(mine, &ahead),
            (Doing::Arming(_), Err(Failure::Refused)) => self.leave(mine, End::Refused),
            (Doing::Confirming(ahead), Err(Failure::Absent)) => {
                self.gone.push(ahead.name);
                self.list(mine)
            }
            (Doing::Arming(_), Ok(_)) | (Doing::Confirming(_), _) if self.reconnected => self.list(mine),
            (Doing::Arming(ahead), Ok(_)) | (Doing::Confirming(ahead), _) => {
                self.state = State::Placed(mine, Doing::Waiting(ahead));
                Step::Wait
            }
            (Doing::Leaving(then), Ok(_) | Err(Failure::Absent)) => match then {
                Then::End(end) => self.end(end),
                Then::Renew if !self.wanted => self.end(End::Left),
                Then::Renew => Step::Ask(self.removal()),
            },
            (Doing::Leaving(_), Err(Failure::Refused)) => self.end(End::Refused),
            (Doing::Leaving(then), Err(_)) => Step::Rest(Pause::Brief, self.deletion(mine, then)),
            // The listing failed, or the watch could not be set.
            (..) if !self.wanted => self.leave(mine, End::Left),
            (..) => {
                self.state = State::Placed(mine, Doing::Listing);
                Step::Rest(Pause::Brief, Ask::List)
            }
        }
    }

    fn decide(&mut self, mine: Mine, listing: Listing) -> Step {
        let listing = listing.without(&self.gone);
        let number = mine.node.sequence();
        let ours = number.is_near_the_end().then(|| mine.node.name());
        let near_the_end = ours.or_else(|| listing.near_the_end().map(str::to_owned));
        let called_for = near_the_end.is_some() || number.calls_for_renewal();
        let renews = called_for && self.removals > 0 && listing.may_be_ours;
        match (listing.place_of(&mine.node), near_the_end) {
            _ if !self.wanted => self.leave(mine, End::Left),
            // Although there was one.
            (Place::Absent, _) => Step::Ask(self.search(true)),
            (Place::Behind(ahead), _) if self.patience == Patience::Tries => {
                let first = listing.contenders().first().map_or(ahead.name, |first| (*first).to_owned());
                self.leave(mine, End::Busy(first))
            }
            _ if renews => Step::Ask(self.deletion(mine, Then::Renew)),
            (_, Some(child)) => self.leave(mine, End::WornOut(child)),
            (Place::First, None) => self.end(End::Held(mine)),
            (Place::Behind(ahead), None) => self.arm(mine, ahead),
        }
    }

    fn predecessor_ended(&mut self, mine: Mine, ahead: &Ahead) -> Step {
        if self.wanted && ahead.only { self.end(End::Held(mine)) } else { self.list(mine) }
    }

    fn none_of_ours(&mut self) -> Step {
        self.end(if self.wanted { End::Lost } else { End::Left })
    }

    fn not_found(&mut self, last: bool) -> Step {
        if last { self.none_of_ours() } else { Step::Rest(Pause::Request, self.search(true)) }
    }

    fn enter(&mut self) -> Step {
        self.ask(State::Entering, Ask::Enter)
    }

    fn make_directory(&mut self) -> Step {
        let (rests, tries) = (self.made >= MANY, self.patience == Patience::Tries);
        // A try has an end: after so many rests those who renew now are done.
        if tries && self.made >= 2 * MANY {
            return self.end(End::Refused);
        }
        self.made = self.made.saturating_add(1);
        self.state = State::MakingDirectory;
        if rests { Step::Rest(Pause::Brief, Ask::MakeDirectory) } else { Step::Ask(Ask::MakeDirectory) }
    }

    fn list(&mut self, mine: Mine) -> Step {
        if !self.wanted {
            return self.leave(mine, End::Left);
        }
        self.place(mine, Doing::Listing, Ask::List)
    }

    fn arm(&mut self, mine: Mine, ahead: Ahead) -> Step {
        let ask = Ask::Watch { predecessor: ahead.name.clone(), own: ahead.only.then(|| mine.node.clone()) };
        self.place(mine, Doing::Arming(ahead), ask)
    }

    fn leave(&mut self, mine: Mine, end: End) -> Step {
        Step::Ask(self.deletion(mine, Then::End(end)))
    }

    fn place(&mut self, mine: Mine, doing: Doing, ask: Ask) -> Step {
        self.ask(State::Placed(mine, doing), ask)
    }

    fn ask(&mut self, state: State, ask: Ask) -> Step {
        self.reconnected = false;
        self.state = state;
        Step::Ask(ask)
    }

    /// Looks for our node once more, from a write on.
    fn search(&mut self, last: bool) -> Ask {
        self.state = State::Searching { last, at: Search::Writing };
        Ask::Barrier
    }

    fn deletion(&mut self, mine: Mine, then: Then) -> Ask {
        let ask = Ask::Delete(mine.node.clone());
        self.state = State::Placed(mine, Doing::Leaving(then));
        ask
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
