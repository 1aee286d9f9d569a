//! One acquisition in one session, from the first request to the last.
//!
//! At most one request is out at a time, create and list counting as one: they go out together. What
//! happens besides ([`Happening`]) may come at any moment. An acquisition that nobody wants any more
//! goes on until what it made is gone.
//!
//! # Invariants
//! - **Z1** Held is decided by a listing that has our node, and nobody older; or by the end of our
//!   predecessor, if such a listing had nobody older beside it and our node is watched too. Such a
//!   listing is from after our node was made, so whoever is older and alive is in it.
//! - **Z2** Nothing is made twice blindly. After an answer that never came we write, then list, and
//!   look for our own node; once more after the bound of a request, because the first request may
//!   still be on its way. A node counts as ours only if this session owns it.
//! - **Z3** An end other than held leaves nothing behind but what ends with the session.
//! - **Z4** After a reconnect nothing is waited for before a new listing: a watch may have been lost.

use lockcore::OwnerId;

use crate::keys::{Listing, Node, Place};

/// One acquisition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Claim {
    owner: OwnerId,
    session: i64,
    patience: Patience,
    wanted: bool,
    state: State,
}

/// Whether a claim waits behind others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Patience {
    Waits,
    Tries,
}

/// Our node, as the server made it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Mine {
    pub(crate) node: Node,
    /// The transaction that created it.
    pub(crate) czxid: i64,
}

/// Whose a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Owned {
    pub(crate) session: i64,
    pub(crate) czxid: i64,
}

/// What to ask the server; there is one answer to each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ask {
    /// Make our node and list the directory, in one flight.
    Enter,
    /// Make the directory and what is above it.
    MakeDirectory,
    /// A write that is answered after whatever was sent before it.
    Barrier,
    List,
    /// Whose a node is.
    Look(Node),
    /// Tell of the end of a contender, and of our own node's if its end decides; in this order, so
    /// that ours was there when the other one was seen.
    Watch {
        predecessor: String,
        own: Option<Node>,
    },
    Delete(Node),
    /// No request: let time pass.
    Rest(Pause),
}

/// How long to rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Pause {
    /// Before a request is repeated.
    Brief,
    /// As long as a request may take.
    Request,
}

/// What came of what was asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    Entered {
        made: Result<Mine, Failure>,
        listed: Result<Listing, Failure>,
    },
    Listed(Result<Listing, Failure>),
    Looked(Result<Owned, Failure>),
    /// Own: as if it were watched when that was not asked.
    Watched {
        ahead: Result<(), Failure>,
        own: Result<(), Failure>,
    },
    /// To everything else.
    Done(Result<(), Failure>),
}

/// Why a request did not do what it was to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Failure {
    /// There is no such node, or no such directory.
    Absent,
    /// The server did nothing, and will not.
    Refused,
    /// The session has ended, and with it what it made.
    SessionOver,
    /// It may have been done.
    Unknown,
}

/// What happens besides answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Happening {
    /// The watched contender was deleted.
    Ended,
    /// Something else happened to it, or to our node.
    Changed,
    /// Our own node was deleted, by somebody else.
    Removed,
    /// The connection was lost and made again.
    Reconnected,
    /// Nobody wants the lock any more.
    Abandoned,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    Ask(Ask),
    /// Wait for the answer that is out, or for what happens.
    Wait,
    End(End),
}

/// How an acquisition ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum End {
    Held(Mine),
    /// Somebody else is first: this contender.
    Busy(String),
    /// Abandoned, and nothing is left.
    Left,
    /// The server refused, and nothing is left.
    Refused,
    /// Our node is gone, or was never made; whoever still wants the lock starts again.
    Lost,
    /// The session is over, or can tell nothing certain any more.
    SessionOver,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    Entering {
        directories_made: u8,
    },
    MakingDirectory {
        made: u8,
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
    /// The watch could not be set.
    Pausing {
        mine: Mine,
    },
    Leaving {
        mine: Mine,
        end: End,
        resting: bool,
    },
    Over,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Search {
    Resting,
    Writing,
    Listing,
    Looking(Node),
}

impl Claim {
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
        let (mut claim, _) = Self::start(owner, session, Patience::Tries);
        claim.wanted = false;
        let step = claim.leave(mine, End::Left);
        (claim, step)
    }

    fn start(owner: OwnerId, session: i64, patience: Patience) -> (Self, Step) {
        let state = State::Entering { directories_made: 0 };
        (Self { owner, session, patience, wanted: true, state }, Step::Ask(Ask::Enter))
    }

    /// Something happens while an answer is out, or is waited for.
    pub(crate) fn happens(&mut self, happening: Happening) -> Step {
        if happening == Happening::Abandoned {
            self.wanted = false;
        }
        match (happening, &mut self.state) {
            (Happening::Removed, State::Waiting { .. }) => self.none_of_ours(),
            (Happening::Reconnected, State::Arming { stale, .. }) => {
                *stale = true;
                Step::Wait
            }
            (_, State::Waiting { mine, predecessor, only }) => {
                let (mine, predecessor, only) = (mine.clone(), predecessor.clone(), *only);
                match happening {
                    Happening::Ended => self.predecessor_ended(mine, only),
                    Happening::Changed => self.arm(mine, predecessor, only),
                    Happening::Reconnected => self.list(mine),
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
                    Ok(listing) => self.decide(mine, &listing),
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
            (State::Searching { last, at }, answer) => self.searched(last, at, answer),
            (State::Listing { mine }, Answer::Listed(listed)) => match listed {
                Ok(listing) => self.decide(mine, &listing),
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
                    _ => self.decide(mine, &listing),
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
            (State::Pausing { mine }, _) => self.list(mine),
            (State::Leaving { mine, end, resting: true }, _) => self.leave(mine, end),
            (State::Leaving { mine, end, resting: false }, Answer::Done(deleted)) => match deleted {
                Ok(()) | Err(Failure::Absent) => self.end(end),
                Err(Failure::Refused) => self.end(End::Refused),
                Err(_) => self.ask(State::Leaving { mine, end, resting: true }, Ask::Rest(Pause::Brief)),
            },
            (State::Waiting { .. } | State::Over, _) => unreachable!("nothing was asked"),
            (_, answer) => unreachable!("the answer to another question: {answer:?}"),
        }
    }

    fn not_entered(&mut self, directories_made: u8, failure: Failure) -> Step {
        match failure {
            Failure::Unknown => self.write(false),
            _ if !self.wanted => self.end(End::Left),
            Failure::Absent if directories_made < MANY => {
                self.ask(State::MakingDirectory { made: directories_made + 1 }, Ask::MakeDirectory)
            }
            Failure::Absent | Failure::Refused | Failure::SessionOver => self.end(End::Refused),
        }
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

    fn decide(&mut self, mine: Mine, listing: &Listing) -> Step {
        match listing.place_of(&mine.node) {
            _ if !self.wanted => self.leave(mine, End::Left),
            Place::Absent => self.doubt(mine),
            Place::First => self.end(End::Held(mine)),
            Place::Behind { predecessor, only } => match self.patience {
                Patience::Waits => self.arm(mine, predecessor, only),
                Patience::Tries => {
                    let first = listing.contenders().first().map_or(predecessor, |first| (*first).to_owned());
                    self.leave(mine, End::Busy(first))
                }
            },
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
        let ask = Ask::Delete(mine.node.clone());
        self.ask(State::Leaving { mine, end, resting: false }, ask)
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

impl Answer {
    fn tells_the_end_of_the_session(&self) -> bool {
        let over = Some(Failure::SessionOver);
        match self {
            Self::Entered { made, listed } => {
                made.as_ref().err().copied() == over || listed.as_ref().err().copied() == over
            }
            Self::Listed(listed) => listed.as_ref().err().copied() == over,
            Self::Looked(looked) => looked.err() == over,
            Self::Watched { ahead, own } => ahead.err() == over || own.err() == over,
            Self::Done(done) => done.err() == over,
        }
    }
}

/// How often a directory is made that is removed again before our node is in it.
const MANY: u8 = 16;

#[cfg(test)]
mod tests;
