//! What the server tells a session without being asked.
//!
//! Nothing depends on it: what goes unheard is found by the next refresh.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};

use super::{Entry, Session};
use crate::connection::{Hears, LinkEvent};
use crate::scripts::{self, Message, News};
use leasehold_core::backend::StoreEvent;

impl Hears for OnceLock<Weak<Session>> {
    fn hear(&self, event: LinkEvent) {
        if let Some(session) = self.get().and_then(Weak::upgrade) {
            session.hear(event);
        }
    }
}

impl Session {
    /// Takes in what the link tells, where it arrives.
    pub(super) fn hear(self: &Arc<Self>, event: LinkEvent) {
        if self.life.closed.is_cancelled() {
            return;
        }
        match event {
            LinkEvent::Message(payload) => {
                if let Some(message) = Message::parse(&payload) {
                    self.hear_message(message);
                }
            }
            LinkEvent::Stranger(channel) => self.hear_stranger(&channel),
            LinkEvent::Deaf => {
                if !self.deaf.swap(true, Ordering::Relaxed) {
                    self.events.tell(StoreEvent::Warning(LinkEvent::UNHEARD.into()));
                }
                self.missed.notify_one();
            }
            LinkEvent::UpAgain => {
                self.deaf.store(false, Ordering::Relaxed);
                self.missed.notify_one();
            }
        }
    }

    fn hear_message(self: &Arc<Self>, Message { news, owner, lock }: Message) {
        let Some(entry) = self.life.entry_of(owner) else {
            // redis.session-1: the grant of an entry that nobody wants any more.
            let keys = self.keys.name_of_lock(&lock).and_then(|name| self.keys.of(&name).ok());
            if let (News::Granted { .. }, Some(keys)) = (news, keys) {
                self.give_back(keys, owner);
            }
            return;
        };
        // Somebody who keeps locks under other keys has the same prefix.
        if *lock != *self.keys_of(&entry).all()[0] {
            return;
        }
        let now = self.env.now();
        match news {
            News::Granted { counter } => {
                entry.contender.lock().told(now, counter);
                self.listen(&entry);
            }
            News::Due { ask_in } => entry.contender.lock().due(now, ask_in),
            News::Revoked { grace } => {
                entry.contender.lock().asked(now, grace);
                self.tell_asked(&entry);
            }
        }
        entry.heard.notify_one();
    }

    /// Tells the core if somebody wants what `entry` holds.
    pub(super) fn tell_asked(&self, entry: &Entry) {
        let wanted = entry.contender.lock().wanted(self.env.now());
        let Some((counter, within)) = wanted else {
            return;
        };
        if let Ok(counter) = scripts::counter(counter, self.token_base) {
            self.events.tell(StoreEvent::GrantAsked { name: entry.name.clone(), counter, within });
        }
    }
}
