//! What the server tells a session without being asked.
//!
//! What goes unheard is found by the next refresh. Whoever may publish can make a message up, unless there is a message key: one
//! that grants to a waiting entry is believed, within the bounds of the engine, and every other is looked up or does nothing.

use std::future::pending;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use super::{Entry, Session};
use crate::connection::{Hears, LinkEvent};
use crate::scripts::{self, Message, News};
use leasehold_core::backend::{LeaseId, Renewal, StoreEvent};

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
                if let Some(message) = Message::parse(&payload, self.inboxes.key()) {
                    self.hear_message(message);
                }
            }
            LinkEvent::OtherKey(said) => self.events.tell(StoreEvent::Warning(said.into())),
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
            // redis.session-1: the grant of an entry that is being released.
            if !self.left.lock().contains(&owner) {
                return;
            }
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
            // Of a quorum.
            News::Freed => {}
            News::Revoked => {
                if let Some(look_at) = entry.contender.lock().told_revoked(now) {
                    self.revoked.lock().insert(entry.lease, look_at);
                    self.told_revoked.notify_one();
                }
            }
        }
        entry.heard.notify_one();
    }

    /// Asks the server about the revocations that messages told of (redis.protocol-10), one request at a time however many
    /// come. What is not answered, the next renewal finds.
    pub(super) async fn look_up_revocations(self: Arc<Self>) {
        loop {
            let next = self.revoked.lock().values().min().copied();
            let due = async {
                match next {
                    Some(next) => self.env.sleep_until(next).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = self.told_revoked.notified() => {}
                () = due => {}
            }
            let leases = self.due_to_be_looked_up();
            if leases.is_empty() {
                continue;
            }
            let held = self.life.entries_of(&leases).into_iter().map(|entry| {
                let entry = entry?;
                let counter = entry.contender.lock().held_as()?;
                Some((entry.name.clone(), scripts::counter(counter, *entry.base.get()?).ok()?))
            });
            let held: Vec<_> = held.collect();
            for (held, renewal) in held.into_iter().zip(self.renew(&leases).await) {
                // Taken by force.
                if let (Some((name, counter)), Renewal::Gone(_)) = (held, renewal) {
                    self.events.tell(StoreEvent::RevocationRequested {
                        name,
                        counter,
                        within: Duration::ZERO,
                    });
                }
            }
        }
    }

    fn due_to_be_looked_up(&self) -> Vec<LeaseId> {
        let now = self.env.now();
        let told: Vec<_> =
            self.revoked.lock().extract_if(|_, look_at| *look_at <= now).map(|(lease, _)| lease).collect();
        let entries = self.life.entries_of(&told).into_iter();
        let due = entries.flatten().filter(|entry| entry.contender.lock().looks_up(now));
        due.map(|entry| entry.lease).collect()
    }

    /// Tells the core if somebody wants what `entry` holds.
    pub(super) fn tell_asked(&self, entry: &Entry) {
        let wanted = entry.contender.lock().wanted(self.env.now());
        // Before it is taken, nobody has to let go.
        let (Some((counter, within)), Some(base)) = (wanted, entry.base.get()) else {
            return;
        };
        if let Ok(counter) = scripts::counter(counter, *base) {
            self.events.tell(StoreEvent::RevocationRequested { name: entry.name.clone(), counter, within });
        }
    }
}
