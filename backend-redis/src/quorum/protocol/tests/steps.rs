//! What a story does to a world, and asks of it.

use leasehold_core::LostReason;

use super::events::Event;
use super::world::{Message, What, World, name};

impl World {
    /// That happens, one after the other.
    pub(super) fn goes(&mut self, events: &[Event]) {
        events.iter().for_each(|event| self.apply(*event));
    }

    /// Everything to and from `servers` arrives, what is given back apart unless `releases`.
    pub(super) fn deliver_at(&mut self, servers: &[usize], releases: bool) {
        let wanted = |message: &Message| {
            servers.contains(&message.server) && (releases || !matches!(message.what, What::Release { .. }))
        };
        while let Some(at) = self.network.iter().position(wanted) {
            self.apply(Event::Deliver(at));
        }
    }

    /// Everything that `client` has sent to `server` arrives, and what that answers.
    pub(super) fn deliver_of(&mut self, client: usize, server: usize) {
        let wanted = |message: &Message| message.client == client && message.server == server;
        while let Some(at) = self.network.iter().position(wanted) {
            self.apply(Event::Deliver(at));
        }
    }

    /// Everything to and from `server` is lost.
    pub(super) fn lose_at(&mut self, server: usize) {
        while let Some(at) = self.network.iter().position(|message| message.server == server) {
            self.apply(Event::Lose(at));
        }
    }

    /// Somebody tells a blank server what it may have forgotten, if that can be.
    pub(super) fn recover(&mut self, server: usize) {
        self.apply(Event::Recover(server));
    }

    /// The same while only two of three answer.
    pub(super) fn recover_without(&mut self, away: usize, server: usize) {
        self.apply(Event::RecoverWith(server, away + 1));
    }

    /// The client has heard of that number, of another name.
    pub(super) fn has_heard(&mut self, client: usize, n: u64) {
        let now = self.moment();
        self.horizons[client].heard_number(now, &name(), n);
    }

    pub(super) fn holds(&self, client: usize) -> bool {
        self.clients[client].as_ref().is_some_and(|client| client.holds.is_some())
    }

    /// Everybody has gone.
    pub(super) fn end(&mut self) {
        for client in self.clients.iter_mut().flatten() {
            client.contender.end(LostReason::Released);
        }
    }
}
