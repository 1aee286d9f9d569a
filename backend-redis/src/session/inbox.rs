//! The messages that a session receives.
//!
//! The next refresh replaces a lost message. A user that may publish can forge a message, unless there is a message key: a
//! grant to a waiting entry counts, within the bounds of the engine; every other message is checked at the server or does
//! nothing.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use super::{Kept, Session};
use crate::connection::{ConnectionState, Hears, LinkEvent};
use crate::protocol::Contender;
use crate::scripts::{self, Message, News};
use leasehold_core::backend::{Renewal, StoreEvent};
use leasehold_core::clock::Moment;

impl Hears for OnceLock<Weak<Session>> {
    fn hear(&self, event: LinkEvent) {
        if let Some(session) = self.get().and_then(Weak::upgrade) {
            session.hear(event);
        }
    }
}

impl Session {
    /// Handles an event of the link, in the task that reads it.
    pub(super) fn hear(self: &Arc<Self>, event: LinkEvent) {
        if self.life.is_closed() {
            return;
        }
        match event {
            LinkEvent::Message(payload, over) => self.hear_payload(&payload, &over),
            LinkEvent::SlotMessage(payload, over) => {
                // redis.inboxes-2
                if self.fleet.home().up().is_some() {
                    self.hear_payload(&payload, &over);
                }
            }
            LinkEvent::Slot { slot, connection, is_heard } => self.slot_is_heard(slot, connection, is_heard),
            LinkEvent::OtherKey(said) => self.events.tell(StoreEvent::Warning(said.into())),
            LinkEvent::Foreign(channel) => self.hear_foreign(&channel),
            LinkEvent::Deaf => {
                if !self.deaf.swap(true, Ordering::Relaxed) {
                    self.events.tell(StoreEvent::Warning(LinkEvent::UNHEARD.into()));
                }
                self.missed.notify_one();
                self.look_for_slots();
            }
            LinkEvent::UpAgain => {
                self.deaf.store(false, Ordering::Relaxed);
                self.missed.notify_one();
                self.look_for_slots();
            }
        }
    }

    fn hear_payload(self: &Arc<Self>, payload: &[u8], over: &ConnectionState) {
        if let Some(message) = Message::parse(payload, self.inboxes.key()) {
            self.hear_message(message, over);
        }
    }

    fn hear_message(self: &Arc<Self>, Message { news, owner, lock }: Message, over: &ConnectionState) {
        let Some(entry) = self.life.entry_of(self.life.lease_of(owner)) else {
            // redis.session-1: the grant of an entry that is being released.
            if !self.left.lock().contains(&owner) {
                return;
            }
            if let (News::Granted { .. }, Some(name)) = (news, self.keys.name_of_lock(&lock)) {
                self.give_back(&name, owner);
            }
            return;
        };
        // Another manager keeps locks under other keys with the same prefix.
        if *lock != *self.keys.lock(&entry.name) {
            return;
        }
        let now = self.env.now();
        match news {
            News::Granted { counter } => {
                if self.fleet.is_paused(|| self.keys.lock(&entry.name)) {
                    entry.contender.lock().due(now, Duration::ZERO);
                } else {
                    granted(&mut entry.contender.lock(), over, now, counter);
                    self.listen(&entry);
                }
            }
            News::Due { ask_in } => entry.contender.lock().due(now, ask_in),
            // Of a quorum.
            News::Freed => {}
            News::Revoked => {
                let check_at = entry.contender.lock().told_revoked(now);
                if let Some(check_at) = check_at {
                    self.life.spawn(Arc::clone(self).check_revocation(Arc::clone(&entry), check_at));
                }
            }
        }
        entry.heard.notify_one();
    }

    /// Checks a revocation message at the server (redis.protocol-10), one request at a time, however many messages come.
    /// Without a reply, the next renewal finds the revocation.
    async fn check_revocation(self: Arc<Self>, entry: Arc<Kept>, check_at: Moment) {
        self.env.sleep_until(check_at).await;
        let _other_checks = self.checking.lock().await;
        let held = entry.contender.lock().checks_revocation(self.env.now());
        let renewal = self.renew(&[entry.lease]).await.pop();
        // Taken by force.
        if let (Some(counter), Some(Renewal::Gone(_)), Some(base)) = (held, renewal, entry.base.get())
            && let Ok(counter) = scripts::counter(counter, *base)
        {
            let name = entry.name.clone();
            self.events.tell(StoreEvent::RevocationRequested { name, counter, within: Duration::ZERO });
        }
    }

    /// Reports to the core if the lock of `entry` was revoked.
    pub(super) fn tell_asked(&self, entry: &Kept) {
        let wanted = entry.contender.lock().wanted(self.env.now());
        // A grant that the caller has not got yet is not revoked.
        let (Some((counter, within)), Some(base)) = (wanted, entry.base.get()) else {
            return;
        };
        if let Ok(counter) = scripts::counter(counter, *base) {
            self.events.tell(StoreEvent::RevocationRequested { name: entry.name.clone(), counter, within });
        }
    }
}

/// A message over that connection announces a grant to an entry; called under the mutex that the replies of the next connection
/// take, too (redis.protocol-9).
fn granted(contender: &mut Contender, over: &ConnectionState, now: Moment, counter: u64) {
    if !over.is_over() {
        contender.told(now, counter);
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::{Env, Timing};

    use super::*;
    use crate::protocol::ScriptReply;

    /// A message that is read from a replaced connection grants nothing.
    #[tokio::test]
    async fn message_of_a_given_up_connection_grants_nothing() {
        for is_given_up in [false, true] {
            let env = Env::new(Timing::for_ttl(Timing::DEFAULT_TTL)).unwrap();
            let over = ConnectionState::default();
            if is_given_up {
                over.end();
            }
            let mut contender = Contender::new(Timing::DEFAULT_TTL, Duration::ZERO);
            let waits = ScriptReply::Waits { seen: 5, ask_in: None, behind_foreign: false };
            contender.answered(env.now(), env.now(), waits);
            granted(&mut contender, &over, env.now(), 6);
            assert_eq!(contender.is_waiting(), is_given_up);
        }
    }
}
