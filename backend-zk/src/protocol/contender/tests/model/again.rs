//! Who comes, and comes again: whoever has lost its place asks anew, as the core does.

use leasehold_core::{Mode, OwnerId};

use super::super::super::*;
use super::{Client, Mutant, World, owner};

impl Client {
    /// Whether it has lost its place, is still wanted, and nobody asks in its stead.
    pub(super) fn asks_again(&self) -> bool {
        let lost = matches!(self.end, Some(End::Lost | End::SessionOver));
        lost && !self.left && !self.succeeded
    }
}

impl World {
    pub(super) fn comes(&mut self, owner: OwnerId, mode: Mode, session: i64) {
        self.comes_with(Patience::Waits, owner, mode, session);
    }

    pub(super) fn comes_with(&mut self, patience: Patience, owner: OwnerId, mode: Mode, session: i64) {
        let next = self.next_number(patience, session).filter(|_| mode == Mode::EXCLUSIVE);
        let (contender, step) = Contender::new(patience, mode, next);
        self.clients.push(Client {
            owner,
            mode,
            session,
            contender,
            asked: None,
            rests: None,
            end: None,
            seen: 0,
            watched: None,
            ghost: None,
            watches_own: false,
            stood: false,
            deceived: false,
            alive: true,
            left: false,
            released: false,
            succeeded: false,
        });
        self.step(self.clients.len() - 1, step);
    }

    /// One more client comes, in a session of its own; as whom.
    pub(in super::super) fn comes_as(&mut self, mode: Mode) -> usize {
        let next = self.clients.len();
        self.comes(owner(next), mode, i64::try_from(next).unwrap() + 1);
        next
    }

    /// Another one asks in the session of a client that has not got the lock yet; as whom.
    pub(in super::super) fn comes_beside(&mut self, at: usize) -> usize {
        if self.clients[at].end.is_some() {
            return at;
        }
        let (next, before) = (self.clients.len(), &self.clients[at]);
        let (mode, session, seen) = (before.mode, before.session, before.seen);
        self.comes(owner(next), mode, session);
        self.clients[next].seen = seen;
        next
    }

    /// Whoever has lost its place asks again, as somebody else; in another session, if that is over.
    pub(in super::super) fn ask_again(&mut self, at: usize) {
        if self.clients[at].asks_again() {
            self.succeed(at);
        }
    }

    /// A grant comes when its session has too little left: it is given back, while its client asks again.
    pub(in super::super) fn comes_too_late(&mut self, at: usize) {
        let client = &self.clients[at];
        let Some(End::Held(mine)) = client.end.clone() else {
            return;
        };
        if client.released || !client.alive {
            return;
        }
        self.succeed(at);
        if self.mutant == Some(Mutant::NotGivenBack) {
            self.clients[at].released = true;
            return;
        }
        let (contender, step) = Contender::leaving(mine);
        (self.clients[at].contender, self.clients[at].end) = (contender, None);
        self.step(at, step);
    }

    fn succeed(&mut self, at: usize) {
        self.clients[at].succeeded = true;
        let next = self.clients.len();
        let same = self.mutant == Some(Mutant::SameOwnerAgain);
        let owner = if same { self.clients[at].owner } else { owner(next) };
        // A session that can tell nothing certain is over, too.
        let over = self.clients[at].end == Some(End::SessionOver);
        if over && self.clients[at].alive {
            self.expire(at);
        }
        let before = self.clients[at].session;
        let session = if over { i64::try_from(next).unwrap() + 1 } else { self.clients[at].session };
        let seen = self.clients[at].seen;
        if session != before {
            self.goes_on_as(before, session);
        }
        self.comes(owner, self.clients[at].mode, session);
        self.clients[next].seen = seen;
    }
}
