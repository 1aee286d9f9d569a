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
//! - **zk.contender-3** An end other than held leaves nothing behind but what ends with the session.
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

use crate::keys::{Listing, Node, Place};

pub(crate) use words::{Answer, Ask, End, Failure, Happening, Mine, Owned, Pause, Step};

/// One acquisition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Contender {
    owner: OwnerId,
    session: i64,
    patience: Patience,
    wanted: bool,
    /// How often the removal of the directory may still be tried.
    removals: u8,
    /// Who is gone from this directory, as the leader said, whatever other servers say.
    gone: Vec<String>,
    state: State,
}

/// Whether a contender waits behind others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Patience {
    Waits,
    Tries,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    Entering {
        directories_made: u8,
    },
    MakingDirectory {
        made: u8,
    },
    /// Directories that we make are removed again before we are in them.
    Outpaced {
        directories_made: u8,
    },
    /// An answer never came: is there a node of ours?
    Searching {
        last: bool,
        at: Search,
    },
    Listing {
        mine: Mine,
    },
    /// A listing had no node of ours, although there was one.
    Doubting {
        mine: Mine,
        written: bool,
    },
    Arming {
        mine: Mine,
        predecessor: String,
        only: bool,
        stale: bool,
    },
    Waiting {
        mine: Mine,
        predecessor: String,
        only: bool,
    },
    /// Is the predecessor still there?
    Confirming {
        mine: Mine,
        predecessor: String,
        only: bool,
        stale: bool,
    },
    /// The watch could not be set.
    Pausing {
        mine: Mine,
    },
    Leaving {
        mine: Mine,
        then: Then,
        resting: bool,
    },
    /// Without a node, until the directory is gone.
    Renewing {
        resting: bool,
    },
    Over,
}

/// What follows when our node is gone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Then {
    End(End),
    Renew,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Search {
    Resting,
    Writing,
    Listing,
    Looking(Node),
}

impl Contender {
    /// An acquisition by `owner` that waits its turn.
    pub(crate) fn waiting(owner: OwnerId, session: i64) -> (Self, Step) {
        Self::start(owner, session, Patience::Waits)
    }

    /// An attempt by `owner` that waits for nobody.
    pub(crate) fn trying(owner: OwnerId, session: i64) -> (Self, Step) {
        Self::start(owner, session, Patience::Tries)
    }

    /// The end of a hold that nobody wants.
    pub(crate) fn leaving(owner: OwnerId, session: i64, mine: Mine) -> (Self, Step) {
        let (mut contender, _) = Self::start(owner, session, Patience::Tries);
        contender.wanted = false;
        let step = contender.leave(mine, End::Left);
        (contender, step)
    }

    fn start(owner: OwnerId, session: i64, patience: Patience) -> (Self, Step) {
        let state = State::Entering { directories_made: 0 };
        let removals = match patience {
            Patience::Waits => MANY,
            Patience::Tries => 1,
        };
        let contender = Self { owner, session, patience, wanted: true, removals, gone: Vec::new(), state };
        (contender, Step::Ask(Ask::Enter))
    }

    /// Something happens while an answer is out, or is waited for.
    pub(crate) fn happens(&mut self, happening: Happening) -> Step {
        if happening == Happening::Abandoned {
            self.wanted = false;
        }
        match (happening, &mut self.state) {
            (Happening::Removed, State::Waiting { .. }) => self.none_of_ours(),
            (Happening::Reconnected, State::Arming { stale, .. } | State::Confirming { stale, .. }) => {
                *stale = true;
                Step::Wait
            }
            (_, State::Waiting { mine, predecessor, only }) => {
                let (mine, predecessor, only) = (mine.clone(), predecessor.clone(), *only);
                match happening {
                    Happening::Ended => self.predecessor_ended(mine, only),
                    Happening::Changed => self.arm(mine, predecessor, only),
                    Happening::Reconnected => self.list(mine),
                    Happening::Overdue => {
                        let ask = Ask::Confirm(predecessor.clone());
                        self.ask(State::Confirming { mine, predecessor, only, stale: false }, ask)
                    }
                    Happening::Abandoned | Happening::Removed => self.leave(mine, End::Left),
                }
            }
            _ => Step::Wait,
        }
    }

    /// What was asked last is answered.
    pub(crate) fn answered(&mut self, answer: Answer) -> Step {
        if answer.tells_the_end_of_the_session() {
            return self.end(End::SessionOver);
        }
        match (std::mem::replace(&mut self.state, State::Over), answer) {
            (State::Entering { directories_made }, Answer::Entered { made, listed }) => match made {
                Ok(mine) => match listed {
                    Ok(listing) => self.decide(mine, listing),
                    Err(Failure::Refused) => self.leave(mine, End::Refused),
                    Err(_) => self.list(mine),
                },
                Err(failure) => self.not_entered(directories_made, failure),
            },
            (State::MakingDirectory { made }, Answer::Done(done)) => match done {
                _ if !self.wanted => self.end(End::Left),
                Err(Failure::Refused) => self.end(End::Refused),
                // Made or not, or by somebody else: the next attempt tells.
                _ => self.ask(State::Entering { directories_made: made }, Ask::Enter),
            },
            (State::Outpaced { directories_made }, _) => self.make_directory(directories_made),
            (State::Searching { last, at }, answer) => self.searched(last, at, answer),
            (State::Listing { mine }, Answer::Listed(listed)) => match listed {
                Ok(listing) => self.decide(mine, listing),
                Err(Failure::Refused) => self.leave(mine, End::Refused),
                Err(Failure::Absent) => self.doubt(mine),
                Err(_) => self.pause(mine),
            },
            (State::Doubting { mine, written: false }, Answer::Done(Ok(()))) => {
                self.ask(State::Doubting { mine, written: true }, Ask::List)
            }
            (State::Doubting { mine, written: true }, Answer::Listed(Ok(listing))) => {
                match listing.place_of(&mine.node) {
                    Place::Absent => self.none_of_ours(),
                    _ => self.decide(mine, listing),
                }
            }
            (State::Doubting { .. }, Answer::Listed(Err(Failure::Absent))) => self.none_of_ours(),
            (State::Doubting { mine, .. }, _) => self.pause(mine),
            (State::Arming { mine, predecessor, only, stale }, Answer::Watched { ahead, own }) => {
                match (ahead, own) {
                    (_, Err(Failure::Absent)) => self.none_of_ours(),
                    _ if !self.wanted => self.leave(mine, End::Left),
                    (Err(Failure::Refused), _) | (_, Err(Failure::Refused)) => self.leave(mine, End::Refused),
                    (Ok(()), Ok(())) if stale => self.list(mine),
                    (Ok(()), Ok(())) => {
                        self.state = State::Waiting { mine, predecessor, only };
                        Step::Wait
                    }
                    (Err(Failure::Absent), Ok(())) => self.predecessor_ended(mine, only),
                    _ => self.pause(mine),
                }
            }
            (State::Confirming { mine, predecessor, only, stale }, Answer::Done(there)) => match there {
                _ if !self.wanted => self.leave(mine, End::Left),
                Err(Failure::Absent) => {
                    self.gone.push(predecessor);
                    self.list(mine)
                }
                _ if stale => self.list(mine),
                _ => {
                    self.state = State::Waiting { mine, predecessor, only };
                    Step::Wait
                }
            },
            (State::Pausing { mine }, _) => self.list(mine),
            (State::Leaving { mine, then, resting: true }, _) => self.delete(mine, then),
            (State::Leaving { mine, then, resting: false }, Answer::Done(deleted)) => match deleted {
                Ok(()) | Err(Failure::Absent) => match then {
                    Then::End(end) => self.end(end),
                    Then::Renew => self.remove_directory(),
                },
                Err(Failure::Refused) => self.end(End::Refused),
                Err(_) => self.ask(State::Leaving { mine, then, resting: true }, Ask::Rest(Pause::Brief)),
            },
            (State::Renewing { resting: true }, _) => self.remove_directory(),
            (State::Renewing { resting: false }, Answer::Done(removed)) => match removed {
                _ if !self.wanted => self.end(End::Left),
                Err(Failure::Unknown) if self.removals > 0 => {
                    self.ask(State::Renewing { resting: true }, Ask::Rest(Pause::Brief))
                }
                removed => {
                    // If it is not ours to remove, it is taken as it is.
                    if removed == Err(Failure::Refused) {
                        self.removals = 0;
                    }
                    // Another directory gives the same names again.
                    self.gone.clear();
                    self.ask(State::Entering { directories_made: 0 }, Ask::Enter)
                }
            },
            (State::Waiting { .. } | State::Over, _) => unreachable!("nothing was asked"),
            (_, answer) => unreachable!("the answer to another question: {answer:?}"),
        }
    }

    fn not_entered(&mut self, directories_made: u8, failure: Failure) -> Step {
        match failure {
            Failure::Unknown => self.write(false),
            _ if !self.wanted => self.end(End::Left),
            Failure::Absent if directories_made < MANY => self.make_directory(directories_made),
            // A try has an end: after so many rests those who renew now are done.
            Failure::Absent if self.patience == Patience::Waits || directories_made < 2 * MANY => {
                self.ask(State::Outpaced { directories_made }, Ask::Rest(Pause::Brief))
            }
            Failure::Absent | Failure::Refused | Failure::SessionOver => self.end(End::Refused),
        }
    }

    fn make_directory(&mut self, made_before: u8) -> Step {
        let made = made_before.saturating_add(1);
        self.ask(State::MakingDirectory { made }, Ask::MakeDirectory)
    }

    fn searched(&mut self, last: bool, at: Search, answer: Answer) -> Step {
        match (at, answer) {
            (Search::Resting, _) => self.write(last),
            (Search::Writing, Answer::Done(Ok(()))) => {
                self.ask(State::Searching { last, at: Search::Listing }, Ask::List)
            }
            (Search::Listing, Answer::Listed(Ok(listing))) => match listing.find(self.owner) {
                Some(node) => {
                    let at = Search::Looking(node.clone());
                    self.ask(State::Searching { last, at }, Ask::Look(node))
                }
                None => self.not_found(last),
            },
            (Search::Listing, Answer::Listed(Err(Failure::Absent))) => self.not_found(last),
            (Search::Looking(node), Answer::Looked(Ok(owned))) if owned.session == self.session => {
                let mine = Mine { node, czxid: owned.czxid };
                if self.wanted { self.list(mine) } else { self.leave(mine, End::Left) }
            }
            (Search::Looking(_), Answer::Looked(Ok(_) | Err(Failure::Absent))) => self.none_of_ours(),
            // Without a right to look, only the end of the session makes sure.
            (
                _,
                Answer::Done(Err(Failure::Absent | Failure::Refused))
                | Answer::Listed(Err(Failure::Refused))
                | Answer::Looked(Err(Failure::Refused)),
            ) => self.end(End::SessionOver),
            _ => self.ask(State::Searching { last, at: Search::Resting }, Ask::Rest(Pause::Brief)),
        }
    }

    fn not_found(&mut self, last: bool) -> Step {
        if last {
            return self.none_of_ours();
        }
        self.ask(State::Searching { last: true, at: Search::Resting }, Ask::Rest(Pause::Request))
    }

    fn decide(&mut self, mine: Mine, listing: Listing) -> Step {
        let listing = listing.without(&self.gone);
        let number = mine.node.sequence();
        let ours = number.is_near_the_end().then(|| mine.node.name());
        let near_the_end = ours.or_else(|| listing.near_the_end().map(str::to_owned));
        let called_for = near_the_end.is_some() || number.calls_for_renewal();
        let renews = called_for && self.removals > 0 && listing.may_be_of_ours();
        match (listing.place_of(&mine.node), near_the_end) {
            _ if !self.wanted => self.leave(mine, End::Left),
            (Place::Absent, _) => self.doubt(mine),
            (Place::Behind { predecessor, .. }, _) if self.patience == Patience::Tries => {
                let first = listing.contenders().first().map_or(predecessor, |first| (*first).to_owned());
                self.leave(mine, End::Busy(first))
            }
            _ if renews => self.delete(mine, Then::Renew),
            (_, Some(child)) => self.leave(mine, End::WornOut(child)),
            (Place::First, None) => self.end(End::Held(mine)),
            (Place::Behind { predecessor, only }, None) => self.arm(mine, predecessor, only),
        }
    }

    fn predecessor_ended(&mut self, mine: Mine, only: bool) -> Step {
        match only {
            _ if !self.wanted => self.leave(mine, End::Left),
            true => self.end(End::Held(mine)),
            false => self.list(mine),
        }
    }

    fn none_of_ours(&mut self) -> Step {
        self.end(if self.wanted { End::Lost } else { End::Left })
    }

    fn write(&mut self, last: bool) -> Step {
        self.ask(State::Searching { last, at: Search::Writing }, Ask::Barrier)
    }

    fn list(&mut self, mine: Mine) -> Step {
        if !self.wanted {
            return self.leave(mine, End::Left);
        }
        self.ask(State::Listing { mine }, Ask::List)
    }

    fn doubt(&mut self, mine: Mine) -> Step {
        self.ask(State::Doubting { mine, written: false }, Ask::Barrier)
    }

    fn arm(&mut self, mine: Mine, predecessor: String, only: bool) -> Step {
        let ask = Ask::Watch { predecessor: predecessor.clone(), own: only.then(|| mine.node.clone()) };
        self.ask(State::Arming { mine, predecessor, only, stale: false }, ask)
    }

    fn pause(&mut self, mine: Mine) -> Step {
        if !self.wanted {
            return self.leave(mine, End::Left);
        }
        self.ask(State::Pausing { mine }, Ask::Rest(Pause::Brief))
    }

    fn leave(&mut self, mine: Mine, end: End) -> Step {
        self.delete(mine, Then::End(end))
    }

    fn delete(&mut self, mine: Mine, then: Then) -> Step {
        let ask = Ask::Delete(mine.node.clone());
        self.ask(State::Leaving { mine, then, resting: false }, ask)
    }

    fn remove_directory(&mut self) -> Step {
        if !self.wanted {
            return self.end(End::Left);
        }
        self.removals = self.removals.saturating_sub(1);
        self.ask(State::Renewing { resting: false }, Ask::RemoveDirectory)
    }

    fn ask(&mut self, state: State, ask: Ask) -> Step {
        self.state = state;
        Step::Ask(ask)
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
