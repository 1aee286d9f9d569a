//! The channels of slots: which of them the session hears, and over which connection.
//!
//! A server sends the messages of a slot that it has to the clients that have subscribed there, and ends the subscriptions when
//! the slot leaves. So each slot in which contenders wait is subscribed to at its server, anew whenever that is another one or
//! the connection is.
//!
//! # Invariants
//! - **redis.channels-1** After each confirmation of a subscription the waiters of the slot refresh: whatever was published
//!   before it is lost (G6).
//! - **redis.channels-2** A channel is heard over the connection to the server that has the slot now, from the confirmation until
//!   the server ends it. No entry names it earlier.
//!
//! Checked by the model below.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use super::slots::HashSlot;

/// The channels of one session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct SlotChannels {
    /// The slots in which contenders wait or have waited, and the connection over which each is heard, if it is.
    wanted: BTreeMap<HashSlot, Option<u64>>,
    /// Slots whose waiters are to refresh.
    confirmed: BTreeSet<HashSlot>,
}

impl SlotChannels {
    /// A contender waits in `slot`; whether it is the first one there.
    pub(crate) fn want(&mut self, slot: HashSlot) -> bool {
        let is_new = !self.wanted.contains_key(&slot);
        self.wanted.entry(slot).or_default();
        is_new
    }

    /// Whether messages about `slot` come over that connection to its server.
    pub(crate) fn is_heard(&self, slot: HashSlot, connection: Option<u64>) -> bool {
        connection.is_some() && self.wanted.get(&slot) == Some(&connection)
    }

    /// The slots to subscribe to, where each has the connection to its server.
    pub(crate) fn missing(&self, connection: impl Fn(HashSlot) -> Option<u64>) -> Vec<HashSlot> {
        self.wanted.keys().copied().filter(|slot| !self.is_heard(*slot, connection(*slot))).collect()
    }

    /// A server has confirmed the subscription to `slot` over that connection.
    pub(crate) fn confirmed(&mut self, slot: HashSlot, connection: u64) {
        if let Some(heard) = self.wanted.get_mut(&slot) {
            *heard = Some(connection);
            self.confirmed.insert(slot);
        }
    }

    /// A server has ended the subscription.
    pub(crate) fn ended(&mut self, slot: HashSlot, connection: u64) {
        if let Some(heard) = self.wanted.get_mut(&slot).filter(|heard| **heard == Some(connection)) {
            *heard = None;
        }
    }

    /// The slots whose waiters are to refresh now.
    pub(crate) fn take_confirmed(&mut self) -> BTreeSet<HashSlot> {
        mem::take(&mut self.confirmed)
    }
}

#[cfg(test)]
mod tests {
    use ::model::{Search, assert_caught, explore};

    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    enum Mutant {
        None,
        /// Only the first confirmation refreshes the waiters.
        RefreshesOnce,
        /// A subscription that the server has ended counts.
        IgnoresEnd,
        /// A subscription over a connection that was lost counts.
        TrustsLostConnection,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    enum Push {
        Confirmed,
        Ended,
        Granted,
    }

    /// A connection to one of the servers.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct Connection {
        id: u64,
        is_subscribed: bool,
        /// On their way.
        pushes: Vec<Push>,
    }

    /// A waiter in a slot that moves between two servers, and is granted the lock.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct World {
        mutant: Mutant,
        channels: SlotChannels,
        connections: [Connection; 2],
        /// The server that has the slot, and the one that the session takes for it.
        owner: usize,
        known: usize,
        /// How often the slot still moves, and a connection is lost.
        moves: u8,
        losses: u8,
        waits: bool,
        /// A subscription is on its way to that server.
        asked: Option<usize>,
        /// Its entry names the channel of the slot, and not the inbox of the session.
        names_channel: bool,
        /// A refresh is on its way, which names the channel or not.
        refresh: Option<bool>,
        granted: bool,
        knows: bool,
    }

    impl World {
        fn new(mutant: Mutant) -> Self {
            let connection = |id| Connection { id, is_subscribed: false, pushes: Vec::new() };
            Self {
                mutant,
                channels: SlotChannels::default(),
                connections: [connection(1), connection(2)],
                owner: 0,
                known: 0,
                moves: 2,
                losses: 1,
                waits: false,
                asked: None,
                names_channel: false,
                refresh: None,
                granted: false,
                knows: false,
            }
        }

        fn up(&self) -> Option<u64> {
            Some(self.connections[self.known].id)
        }

        fn is_missing(&self) -> bool {
            let missing = !self.channels.missing(|_| self.up()).is_empty();
            let never = self.channels.missing(|slot| self.channels.wanted[&slot]).is_empty();
            missing && !(self.mutant == Mutant::TrustsLostConnection && never)
        }

        fn then(&self, change: impl FnOnce(&mut Self)) -> Self {
            let mut next = self.clone();
            change(&mut next);
            next
        }

        fn ask(&mut self) {
            self.asked = Some(self.known);
        }

        fn subscribe(&mut self, server: usize) {
            self.asked = None;
            if self.owner == server {
                let connection = &mut self.connections[server];
                connection.is_subscribed = true;
                connection.pushes.push(Push::Confirmed);
            } else {
                // MOVED
                self.known = self.owner;
            }
        }

        fn grant(&mut self) {
            self.granted = true;
            let Connection { is_subscribed, pushes, .. } = &mut self.connections[self.owner];
            match self.names_channel {
                true if *is_subscribed => pushes.push(Push::Granted),
                true => {}
                // By the session's inbox.
                false => self.knows = true,
            }
        }

        fn slot_moves(&mut self) {
            self.moves -= 1;
            let Connection { is_subscribed, pushes, .. } = &mut self.connections[self.owner];
            if mem::take(is_subscribed) {
                pushes.push(Push::Ended);
            }
            self.owner = 1 - self.owner;
        }

        fn lose(&mut self, at: usize) {
            self.losses -= 1;
            self.asked = self.asked.filter(|server| *server != at);
            let id = self.connections[at].id + 2;
            self.connections[at] = Connection { id, is_subscribed: false, pushes: Vec::new() };
        }

        fn hear(&mut self, at: usize) {
            let id = self.connections[at].id;
            match self.connections[at].pushes.remove(0) {
                Push::Confirmed => {
                    self.channels.confirmed(slot(), id);
                    if self.mutant == Mutant::RefreshesOnce && self.names_channel {
                        self.channels.confirmed.clear();
                    }
                }
                Push::Ended if self.mutant == Mutant::IgnoresEnd => {}
                Push::Ended => self.channels.ended(slot(), id),
                Push::Granted => self.knows = true,
            }
        }
    }

    impl ::model::World for World {
        /// Its name, and the server.
        type Step = (&'static str, usize);

        fn steps(&self, found: &mut Vec<(Self::Step, Self)>) {
            if !self.waits {
                let waits = |next: &mut Self| next.waits = next.channels.want(slot());
                found.push((("wait", self.owner), self.then(waits)));
            }
            // One subscription at a time.
            let is_asked =
                self.asked.is_some() || self.connections[self.known].pushes.contains(&Push::Confirmed);
            if self.is_missing() && !is_asked {
                found.push((("ask", self.known), self.then(Self::ask)));
            }
            if let Some(server) = self.asked {
                found.push((("subscribe", server), self.then(|next| next.subscribe(server))));
            }
            for at in [0, 1] {
                if !self.connections[at].pushes.is_empty() {
                    found.push((("hear", at), self.then(|next| next.hear(at))));
                }
                if self.losses > 0 {
                    found.push((("lose", at), self.then(|next| next.lose(at))));
                }
            }
            if self.refresh.is_none() && !self.channels.confirmed.is_empty() {
                let refresh = |next: &mut Self| {
                    next.channels.take_confirmed();
                    next.refresh = Some(next.channels.is_heard(slot(), next.up()));
                };
                found.push((("refresh", self.owner), self.then(refresh)));
            }
            if let Some(names_channel) = self.refresh {
                let refreshed = |next: &mut Self| {
                    next.refresh = None;
                    next.names_channel |= names_channel;
                    next.knows |= next.granted;
                };
                found.push((("refreshed", self.owner), self.then(refreshed)));
            }
            if self.waits && !self.granted {
                found.push((("grant", self.owner), self.then(Self::grant)));
            }
            if self.moves > 0 {
                found.push((("move", self.owner), self.then(Self::slot_moves)));
            }
        }

        fn broken(&self) -> Option<&'static str> {
            None
        }

        fn is_at_rest(&self) -> bool {
            self.knows || !self.granted
        }

        fn goes_by_itself(&self, next: &Self) -> bool {
            (self.granted, self.moves, self.losses) == (next.granted, next.moves, next.losses)
        }
    }

    fn slot() -> HashSlot {
        HashSlot::of("a")
    }

    const SEARCH: Search = Search::ToRest(1_000_000);

    /// However the slot moves, and whichever connection is lost, the waiter learns of its grant without its next renewal.
    #[test]
    fn grant_is_heard_wherever_the_slot_moves() {
        let explored = explore(&World::new(Mutant::None), SEARCH);
        assert!(explored.wrong.is_none() && explored.all, "{explored:?}");
        let mutants = [Mutant::RefreshesOnce, Mutant::IgnoresEnd, Mutant::TrustsLostConnection];
        let worlds = mutants.map(|mutant| (mutant, World::new(mutant), SEARCH, "cannot come to rest"));
        assert_caught("redis channels", worlds);
    }
}
