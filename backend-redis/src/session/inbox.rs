//! What the server tells a session without being asked.
//!
//! Nothing depends on it: what goes unheard is found by the next refresh.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lockcore::LostReason;
use lockcore::backend::StoreEvent;
use tokio::sync::mpsc;

use super::leaving::Remains;
use super::{BATCH, Entry, Session};
use crate::link::LinkEvent;
use crate::scripts::{self, Message, News};

impl Session {
    /// Takes in what the link tells, until the session is closed.
    pub(super) async fn listen(self: Arc<Self>, mut heard: mpsc::UnboundedReceiver<LinkEvent>) {
        let mut is_first = true;
        loop {
            let event = tokio::select! {
                biased;
                () = self.closed.cancelled() => return,
                event = heard.recv() => event,
            };
            let Some(event) = event else {
                return;
            };
            self.hear(event, is_first);
            is_first = false;
        }
    }

    fn hear(self: &Arc<Self>, event: LinkEvent, is_first: bool) {
        match event {
            LinkEvent::Message(payload) => {
                if let Some(message) = Message::parse(&payload) {
                    self.hear_message(message);
                }
            }
            LinkEvent::Deaf => {
                if !self.deaf.swap(true, Ordering::Relaxed) {
                    self.tell(StoreEvent::Warning(
                        "the user may not hear its channel: contenders learn of their turn within a third of the ttl"
                            .into(),
                    ));
                }
                self.catch_up(is_first);
            }
            LinkEvent::Up => {
                self.deaf.store(false, Ordering::Relaxed);
                self.catch_up(is_first);
            }
        }
    }

    fn hear_message(self: &Arc<Self>, Message { news, owner, lock }: Message) {
        match news {
            News::Granted { counter } => match self.entry_of(owner) {
                Some(entry) => {
                    entry.contender.lock().told(self.env.now(), counter);
                    entry.heard.notify_one();
                }
                // S1: the grant of an entry that nobody wants any more.
                None => {
                    if let Some(keys) =
                        self.keys.name_of_lock(&lock).and_then(|name| self.keys.of(&name).ok())
                    {
                        let ttl = self.env.timing().ttl;
                        self.let_go(Remains { keys, owner, ttl, unanswered: Vec::new() });
                    }
                }
            },
            News::Revoked => {
                if let Some(entry) = self.entry_of(owner) {
                    self.tell_revoked(&entry);
                }
            }
            News::Due { ask_in } => {
                if let Some(entry) = self.entry_of(owner) {
                    entry.contender.lock().due(self.env.now(), ask_in);
                    entry.heard.notify_one();
                }
            }
            News::Ended => {
                for (_, ended) in self.asked.lock().iter().filter(|(asked, _)| *asked == owner) {
                    ended.notify_one();
                }
            }
        }
    }

    /// Asks the core to let go of what `entry` holds.
    pub(super) fn tell_revoked(&self, entry: &Entry) {
        let held_as = entry.contender.lock().held_as();
        if let Some(counter) = held_as.and_then(|counter| scripts::counter(counter, self.token_base).ok()) {
            let name = entry.name.clone();
            self.tell(StoreEvent::GrantLost { name, counter, reason: LostReason::Revoked });
        }
    }

    /// After a reconnect: what waits may have been granted unheard.
    fn catch_up(self: &Arc<Self>, is_first: bool) {
        if is_first {
            return;
        }
        let session = Arc::clone(self);
        self.env.spawn(async move {
            let waiting: Vec<_> = {
                let entries = session.entries.lock();
                entries
                    .by_lease
                    .values()
                    .filter(|entry| entry.contender.lock().is_waiting())
                    .cloned()
                    .collect()
            };
            for batch in waiting.chunks(BATCH) {
                tokio::select! {
                    biased;
                    () = session.closed.cancelled() => return,
                    refreshed = session.refresh(batch, session.patience()) => match refreshed {
                        Ok(_) => batch.iter().for_each(|entry| session.announce(entry)),
                        Err(error) => {
                            tracing::debug!(%error, "what waits was not refreshed");
                            return;
                        }
                    }
                }
            }
        });
    }

    /// Tells the core until when a waiting entry lives: it gives up leases whose deadlines pass.
    pub(super) fn announce(&self, entry: &Entry) {
        let until = entry.contender.lock().waits_until();
        if let Some(deadline) = until {
            self.tell(StoreEvent::LeaseOpened(entry.lease(deadline)));
        }
    }
}
