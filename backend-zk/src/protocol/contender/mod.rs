//! One acquisition in one session, from the first request to the last.
//!
//! At most one request is pending; a create and a list in one flight count as one. A [`Happening`] may come at any moment.
//! An abandoned acquisition goes on until its node is gone.
//!
//! # Invariants
//! - **zk.contender-1** A contender holds by one of four facts. A listing with its node, in which the older contenders
//!   admit it. The end of its barrier, if the barrier excluded all others and such a listing had no other blocker. The
//!   passing of the lock by its barrier. Such a listing is made after the node, so it shows every older contender that is
//!   alive. Older contenders only ever leave, so an admitted contender stays admitted. Or its number is the next one of
//!   the same directory (zk.untouched-2), after that of our last exclusive hold (zk.untouched-1), after a listing during
//!   that hold (zk.untouched-4) or after a listing that admits us. Then no contender was created in between, and no older
//!   one was missed.
//! - **zk.contender-2** A create is not repeated blindly. After a create without an answer the contender writes, lists and
//!   searches its own node. It does so once more after the bound of a request, because the create may still arrive. A node
//!   counts as this contender's only if this session owns it.
//! - **zk.contender-3** Every end but held leaves only nodes that end with the session. So the core may retry at once, with
//!   another owner id.
//! - **zk.contender-4** After a reconnect a contender lists before it waits: a watch may have been lost. The report of a
//!   watch that was set on an earlier connection counts as a reconnect.
//! - **zk.contender-5** A contender waits no longer than until it is overdue without asking the leader whether its barrier
//!   is still there. A barrier that the leader does not know is left out of every later listing.
//! - **zk.contender-6** No contender holds by a listing with a number near the end of the directory's counter, its own
//!   included. Soon numbers repeat, and other libraries read numbers past the end as the smallest.
//! - **zk.contender-7** A contender whose node has stood for a while watches that node, too. Its removal is reported
//!   before the passing or the end of another one.
//!
//! # Barrier
//! The *barrier* is the youngest older contender that alone blocks this one. While it is there, no other contender matters. For
//! an exclusive contender it is the predecessor. For a sharer it is the nearest exclusive one. All sharers that come right
//! after that one are notified together, and hold together. After the end of a sharer a contender lists again, because other
//! sharers may be left.
//!
//! # Passing
//! An exclusive holder that has waited writes its node and deletes it, in one transaction. So its watchers are notified of a
//! change, and take that for the grant. All others only delete, which proves nothing about older contenders; a sharer as well,
//! because older sharers may be left. A change is a pass only if no other client can have written: the barrier's note says so,
//! and the node had never been written when the watch was set. A contender that passes has held, so no older one was left when
//! it began to. The change admits this contender if the ones between admit it.
//!
//! # Trying
//! The node of a try stays in the queue until it is deleted, and refuses other tries until then. Where many clients try
//! often, each would keep the others from a free lock. So a try lists first, and makes a node only if the listing admits
//! one more. The listing predicts the next number: with that one the try holds, and with any other it lists again. The
//! first try after a hold of the same session makes its node at once: the lock is probably free, and that hold predicts the
//! number.
//!
//! # Renewal
//! A directory's numbers begin anew when it is removed, which the server allows while it is empty. From the half of the numbers
//! on now and then, and near their end always, an acquisition that would hold or wait deletes its node instead, tries to remove
//! the directory for a while, and enters again. It does so once. Then it takes the directory as it is: it queues, or near the
//! end it is refused. So a directory that is in use all the time costs time and never the lock. Contenders with smaller numbers
//! hold and wait undisturbed. Only a directory that this store made is removed: another one may have rights or data that no
//! client would restore.
//!
//! A contender that enters meanwhile may find that the directory which it has just made is gone again. It makes the
//! directory again, with pauses after many times: each contender that renews removes a directory at most once.

mod words;

use leasehold_core::Mode;

use crate::keys::{Barrier, Listing, Next, NodePosition};

pub(crate) use words::{Answer, Ask, End, Failure, Happening, Mine, Pause, Said, Step};

/// One acquisition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Contender {
    patience: Patience,
    mode: Mode,
    wanted: bool,
    /// With this number no older contender blocks us.
    next: Option<Next>,
    /// How often the directory was missing when a node was to be made.
    missed: u8,
    /// How often the removal of the directory may still be tried.
    removals: u8,
    /// Contenders that are gone from this directory by the leader's answer, even if other servers show them.
    gone: Vec<String>,
    /// The connection was lost and made again since the last request.
    reconnected: bool,
    state: ContenderState,
}

/// Whether a contender waits behind others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Patience {
    Waits,
    Tries,
}

/// The action of the contender, by its last request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ContenderState {
    /// A try lists before it makes a node.
    Looking,
    Entering,
    /// After a create without an answer, or a listing without our node. For the last time, if `last`.
    Searching {
        last: bool,
    },
    Listing(Mine),
    Arming(Mine, Barrier),
    Waiting(Mine, Barrier),
    /// A request whose answer does not change the watches.
    Asking(Mine, Barrier),
    /// Deletes its node; then this follows.
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
    /// With the number `next` no contender is ahead. A try without one lists first, and takes the number that the
    /// listing predicts.
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
            state: ContenderState::Looking,
        };
        let looks = patience == Patience::Tries && next.is_none();
        let step = if looks { Step::Ask(Ask::List) } else { contender.enter(next) };
        (contender, step)
    }

    /// Removes the node of a grant that no caller takes.
    pub(crate) fn leaving(mine: Mine) -> (Self, Step) {
        let (mut contender, _) = Self::new(Patience::Tries, Mode::EXCLUSIVE, None);
        contender.wanted = false;
        let step = contender.leave(mine, Then::End(End::Left));
        (contender, step)
    }

    /// Whether it ends as soon as it is abandoned.
    pub(crate) fn has_made_nothing(&self) -> bool {
        self.state == ContenderState::Looking
    }

    /// Something happens while a request is pending, or while the contender waits.
    pub(crate) fn happens(&mut self, happening: Happening) -> Step {
        self.wanted &= happening != Happening::Abandoned;
        self.reconnected |= happening == Happening::Reconnected;
        if self.has_made_nothing() && !self.wanted {
            return self.end(End::Left);
        }
        let ContenderState::Waiting(mine, barrier) = &self.state else {
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
                self.ask(ContenderState::Asking(mine, barrier), ask)
            }
            Happening::Stands => {
                let ask = Ask::WatchOwn(mine.node.clone());
                self.ask(ContenderState::Asking(mine, barrier), ask)
            }
            Happening::Abandoned => self.leave(mine, Then::End(End::Left)),
            Happening::Removed => self.none_of_ours(),
        }
    }

    /// The answer to the last request.
    pub(crate) fn answered(&mut self, answer: Answer) -> Step {
        use ContenderState::{Arming, Asking, Entering, Leaving, Listing, Looking, Renewing, Searching};
        match (std::mem::replace(&mut self.state, ContenderState::Over), answer) {
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
            // Without the right to list, only the end of the session removes a node for certain.
            (Searching { .. }, Err(_)) => self.end(End::SessionOver),
            // After a watch: the barrier is gone, and this node may be gone, too.
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
                // A directory of another client is never removed.
                if removed == Err(Failure::Refused) {
                    self.removals = 0;
                }
                // Another directory gives the same names again.
                self.gone.clear();
                self.missed = 0;
                self.ask(Entering, Ask::Enter)
            }
            (state, answer) => unreachable!("unexpected {answer:?} in {state:?}"),
        }
    }

    fn enter(&mut self, next: Option<Next>) -> Step {
        self.next = next;
        self.ask(ContenderState::Entering, next.map_or(Ask::Enter, Ask::Return))
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
            // It was there before.
            (NodePosition::Absent, _) => self.ask(ContenderState::Searching { last: true }, Ask::Search),
            (NodePosition::Behind(_), _) if self.patience == Patience::Tries => {
                self.leave(mine, Then::End(End::Busy(listing.first())))
            }
            _ if renews => self.leave(mine, Then::Renew),
            (_, Some(child)) => self.leave(mine, Then::End(End::WornOut(child))),
            (NodePosition::Admitted, None) => self.end(End::Held(mine)),
            (NodePosition::Behind(barrier), None) => self.arm(mine, barrier),
        }
    }

    fn ended(&mut self, mine: Mine, barrier: &Barrier) -> Step {
        if barrier.end_admits { self.end(End::Held(mine)) } else { self.list(mine) }
    }

    fn none_of_ours(&mut self) -> Step {
        self.end(if self.wanted { End::Lost } else { End::Left })
    }

    /// The directory was removed right after it was made.
    fn missed(&mut self) -> Step {
        let (rests, tries) = (self.missed >= MANY, self.patience == Patience::Tries);
        // A try must end. After so many pauses the contenders that renew now are done.
        if tries && self.missed >= 2 * MANY {
            return self.end(End::Refused);
        }
        self.missed = self.missed.saturating_add(1);
        self.state = ContenderState::Entering;
        if rests { Step::Rest(Pause::Brief, Ask::Enter) } else { Step::Ask(Ask::Enter) }
    }

    fn list(&mut self, mine: Mine) -> Step {
        if !self.wanted {
            return self.leave(mine, Then::End(End::Left));
        }
        self.ask(ContenderState::Listing(mine), Ask::List)
    }

    fn arm(&mut self, mine: Mine, barrier: Barrier) -> Step {
        let ask = Ask::Watch(barrier.name.clone());
        self.ask(ContenderState::Arming(mine, barrier), ask)
    }

    fn wait(&mut self, mine: Mine, barrier: Barrier) -> Step {
        self.state = ContenderState::Waiting(mine, barrier);
        Step::Wait
    }

    fn leave(&mut self, mine: Mine, then: Then) -> Step {
        let ask = match &then {
            Then::End(End::Busy(first)) => Ask::GiveWay(mine.node, first.clone()),
            _ => Ask::Delete(mine.node),
        };
        self.ask(ContenderState::Leaving(then), ask)
    }

    fn ask(&mut self, state: ContenderState, ask: Ask) -> Step {
        self.reconnected = false;
        self.state = state;
        Step::Ask(ask)
    }

    fn removal(&mut self) -> Ask {
        self.removals = self.removals.saturating_sub(1);
        self.state = ContenderState::Renewing;
        Ask::RemoveDirectory
    }

    fn end(&mut self, end: End) -> Step {
        self.state = ContenderState::Over;
        Step::End(end)
    }
}

/// How often a directory is made without a pause that is removed before our node is in it, and how often a contender
/// tries to remove one.
const MANY: u8 = 16;

#[cfg(test)]
mod tests;
