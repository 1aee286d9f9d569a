//! Who lets go and comes again: what its session knows of the directory in between.

use leasehold_core::clock::Moment;
use leasehold_core::{LockName, Mode};

use super::super::super::*;
use super::directory::Write;
use super::{Client, Fate, Mutant, World, owner, passes};
use crate::keys::Sequence;
use crate::protocol::Untouched;

/// What one session knows.
#[derive(Debug, Default)]
pub(super) struct Seat {
    untouched: Untouched<DirectoryWatch>,
    connection: u64,
    /// How often it has lost its watches.
    losses: usize,
    /// The directory that was watched last.
    watched: i64,
}

/// A watch on the directory, set when its server had shown so much, and since when none got lost.
#[derive(Clone, Debug)]
struct DirectoryWatch {
    shown: usize,
    losses: usize,
}

/// Every try comes soon after a release: time only makes fewer numbers count.
const NOW: Moment = Moment::from_nanos(1);

impl Client {
    /// Whether it has let go, given up, or was refused, and nobody has come since.
    fn is_done(&self) -> bool {
        let held = matches!(self.end, Some(End::Held(_))) && self.released;
        (held || matches!(self.end, Some(End::Left | End::Busy(_)))) && !self.succeeded
    }
}

impl World {
    /// The number that makes whoever comes in a session the holder.
    pub(super) fn next_number(&mut self, patience: Patience, session: i64) -> Option<Next> {
        let (now, deaf) = (self.directory.history.len() - 1, self.is_deaf());
        let Seat { untouched, connection, losses, .. } = self.seats.entry(session).or_default();
        let went = |watch: &mut DirectoryWatch| {
            !deaf && watch.losses == *losses && self.directory.went_between(watch.shown, now)
        };
        let Next { number, directory } = untouched.enter(&name(), patience, NOW, *connection, went)?;
        let one_more = self.mutant == Some(Mutant::TakesTheOneAfter);
        let number = if one_more { number.next() } else { Some(number) };
        number.map(|number| Next { number, directory })
    }

    /// Sets a watch on the directory, if there is none; makes the node of a client, and looks what its server has told of
    /// the directory until then.
    pub(super) fn returned(&mut self, at: usize, fate: Fate, lag: usize, next: Next) -> Answer {
        let Client { owner, mode, session, .. } = self.clients[at];
        self.watch_directory(at, lag);
        let made = self.fated(at, fate, Write::Create(owner, session, mode))?;
        let mine = made.expect("it is made");
        let (shown, deaf) = (self.directory.history.len() - 1, self.is_deaf());
        self.clients[at].seen = shown;
        let seat = self.seats.entry(session).or_default();
        let (untouched, losses) = (&mut seat.untouched, seat.losses);
        let any = self.mutant == Some(Mutant::AnyDirectory);
        let directory = if any { seat.watched } else { next.directory };
        let next = Next { directory, ..next };
        let went = |watch: &mut DirectoryWatch| {
            !deaf && watch.losses == losses && self.directory.went_between(watch.shown, shown)
        };
        let back = untouched.is_the_same(&name(), next, mine.node.sequence(), seat.connection, went)
            || self.mutant == Some(Mutant::DirectorySeenBefore);
        if self.mutant == Some(Mutant::TakesAnyNumber) {
            self.clients[at].contender.next = Some(Next { number: mine.node.sequence(), ..next });
        }
        Ok(if back { Said::Back(mine) } else { Said::Made(mine, None) })
    }

    /// A holder lists during its hold.
    pub(in super::super) fn lists_during_hold(&mut self, at: usize, lag: usize) {
        let client = &self.clients[at];
        let Some(End::Held(mine)) = client.end.clone().filter(|_| !client.released && client.alive) else {
            return;
        };
        let mut listing = self.view(at, lag);
        if self.mutant == Some(Mutant::CountsBesideOthers) {
            let (made, changes) = self.directory.counted(self.clients[at].seen, 1);
            listing = Listing::new(vec![mine.node.name()], true).counted(made, changes);
        }
        let seat = self.seats.entry(self.clients[at].session).or_default();
        seat.untouched.listed(&name(), &mine.node, &listing);
    }

    fn watch_directory(&mut self, at: usize, lag: usize) {
        let (before, deaf) = (self.clients[at].seen, self.is_deaf());
        self.view(at, lag);
        let shown = self.clients[at].seen;
        let Seat { untouched, connection, losses, watched } =
            self.seats.entry(self.clients[at].session).or_default();
        let went = |watch: &mut DirectoryWatch| {
            !deaf && watch.losses == *losses && self.directory.went_between(watch.shown, before)
        };
        let made = self.directory.made(shown);
        if let Some(made) = made.filter(|_| untouched.is_to_be_watched(&name(), *connection, went)) {
            *watched = made;
            untouched.watch(&name(), *connection, Some((made, DirectoryWatch { shown, losses: *losses })));
        }
    }

    fn is_deaf(&self) -> bool {
        self.mutant == Some(Mutant::DirectoryNeverWatched)
    }

    /// A client lets go; its server lags behind, and may not tell that it has.
    pub(in super::super) fn releases(&mut self, at: usize, fate: Fate, lag: usize) {
        let Some(End::Held(mine)) = self.clients[at].end.clone().filter(|_| !self.clients[at].released)
        else {
            return;
        };
        self.clients[at].released = true;
        let (name, owner) = (mine.node.name(), self.clients[at].owner);
        // Whoever may pass need not.
        let may_pass = !mine.node.is_shared() || self.mutant == Some(Mutant::SharedPass);
        let passes = may_pass && passes(owner) && !self.directory.history.len().is_multiple_of(4);
        let end = if passes { Write::Pass(name) } else { Write::Delete(name) };
        // The watch goes before, in the same flight.
        self.view(at, lag);
        let shown = self.clients[at].seen;
        let deleted = self.directory.carry_out(&end).is_ok() && self.clients[at].alive;
        if mine.node.is_shared() && self.mutant != Some(Mutant::CountsWhoShared) {
            return;
        }
        self.left(at, mine.node.sequence(), shown, deleted && fate == Fate::Done);
    }

    pub(in super::super) fn release(&mut self, at: usize) {
        self.releases(at, Fate::Done, 0);
    }

    /// The node of a client is gone, which counts if the server has said so.
    pub(super) fn has_left(&mut self, at: usize, number: Sequence, deleted: bool) {
        self.left(at, number, self.clients[at].seen, deleted);
    }

    fn left(&mut self, at: usize, number: Sequence, shown: usize, deleted: bool) {
        let (now, deaf) = (self.directory.history.len() - 1, self.is_deaf());
        let Seat { untouched, connection, losses, watched } =
            self.seats.entry(self.clients[at].session).or_default();
        let went = |watch: &mut DirectoryWatch| {
            !deaf && watch.losses == *losses && self.directory.went_between(watch.shown, now)
        };
        let watches = untouched.leave(&name(), number, *connection, went);
        let made = self.directory.made(shown).filter(|_| watches);
        *watched = made.unwrap_or(*watched);
        let watch = made.map(|made| (made, DirectoryWatch { shown, losses: *losses }));
        if deleted || self.mutant == Some(Mutant::CountsWhatIsGone) {
            untouched.left(&name(), number, watches.then_some((*connection, watch)), NOW);
        }
    }

    /// The connection of a session is made again; its watches may have got lost.
    pub(super) fn connects_again(&mut self, session: i64, watch_is_lost: bool) {
        let seat = self.seats.entry(session).or_default();
        seat.losses += usize::from(watch_is_lost);
        seat.connection += u64::from(self.mutant != Some(Mutant::WatchOutlivesConnection));
    }

    /// A session follows another one, and has none of its watches.
    pub(super) fn goes_on_as(&mut self, from: i64, to: i64) {
        if self.mutant != Some(Mutant::WatchOutlivesSession) {
            return;
        }
        let seat = self.seats.remove(&from).unwrap_or_default();
        self.seats.insert(to, Seat { losses: seat.losses + 1, ..seat });
    }

    /// Whoever has let go asks again, in its session, or the next one.
    pub(in super::super) fn comes_back(&mut self, at: usize, mode: Mode) {
        self.comes_back_with(Patience::Waits, at, mode);
    }

    /// The same, and waits or tries.
    pub(in super::super) fn comes_back_with(&mut self, patience: Patience, at: usize, mode: Mode) {
        if !self.clients[at].is_done() {
            return;
        }
        self.clients[at].succeeded = true;
        let (before, seen, next) = (self.clients[at].session, self.clients[at].seen, self.clients.len());
        let session = if self.clients[at].alive { before } else { i64::try_from(next).unwrap() + 1 };
        if session != before {
            self.goes_on_as(before, session);
        }
        self.comes_with(patience, owner(next), mode, session);
        self.clients[next].seen = seen;
    }

    /// The server removes the directory, if it is empty.
    pub(in super::super) fn reap(&mut self) {
        let _in_use = self.directory.carry_out(&Write::RemoveDirectory);
    }
}

fn name() -> LockName {
    LockName::new("a").expect("a name")
}
