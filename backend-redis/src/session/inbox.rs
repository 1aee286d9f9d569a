//! What the server tells a session without being asked.
//!
//! Nothing depends on it: what goes unheard is found by the next refresh.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lockcore::backend::{Renewal, StoreEvent};
use tokio::sync::mpsc;

use super::leaving::Remains;
use super::{Entry, Session};
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
                self.missed_if(!is_first);
            }
            LinkEvent::Up => {
                self.deaf.store(false, Ordering::Relaxed);
                self.missed_if(!is_first);
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
            News::Revoked { grace } => {
                if let Some(entry) = self.entry_of(owner) {
                    entry.contender.lock().asked(self.env.now(), grace);
                    self.tell_asked(&entry);
                }
            }
            News::Due { ask_in } => {
                if let Some(entry) = self.entry_of(owner) {
                    entry.contender.lock().due(self.env.now(), ask_in);
                    entry.heard.notify_one();
                }
            }
        }
    }

    /// Tells the core if somebody wants what `entry` holds.
    pub(super) fn tell_asked(&self, entry: &Entry) {
        let wanted = entry.contender.lock().wanted(self.env.now());
        let Some((counter, within)) = wanted else {
            return;
        };
        if let Ok(counter) = scripts::counter(counter, self.token_base) {
            self.tell(StoreEvent::GrantAsked { name: entry.name.clone(), counter, within });
        }
    }

    fn missed_if(&self, reconnected: bool) {
        if reconnected {
            self.missed.notify_one();
        }
    }

    /// Refreshes what waits after every reconnect, until the session is closed.
    pub(super) async fn catch_up(self: Arc<Self>) {
        let catching_up = async {
            loop {
                self.missed.notified().await;
                self.refresh_all_waiting().await;
            }
        };
        tokio::select! {
            biased;
            () = self.closed.cancelled() => {}
            () = catching_up => {}
        }
    }

    /// What waits may have been granted unheard, and its next refresh may be far away: asks until each is
    /// answered, or over.
    async fn refresh_all_waiting(self: &Arc<Self>) {
        let mut pause = self.env.timing().op_timeout / 32;
        let mut waiting: Vec<_> = self.entries.lock().by_lease.values().cloned().collect();
        loop {
            waiting.retain(|entry| entry.contender.lock().is_waiting());
            let leases: Vec<_> = waiting.iter().map(|entry| entry.lease).collect();
            let mut renewals = self.renew(&leases).await.into_iter();
            waiting.retain(|entry| {
                let is_unknown = matches!(renewals.next(), Some(Renewal::Unknown(_)));
                if !is_unknown {
                    self.announce(entry);
                }
                is_unknown
            });
            if waiting.is_empty() {
                return;
            }
            tracing::debug!(entries = waiting.len(), "what waits was not refreshed");
            self.env.sleep(pause).await;
            pause = (pause * 2).min(self.env.timing().op_timeout);
        }
    }

    /// Tells the core until when a waiting entry lives: it gives up leases whose deadlines pass.
    pub(super) fn announce(&self, entry: &Entry) {
        let until = entry.contender.lock().waits_until();
        if let Some(deadline) = until {
            self.tell(StoreEvent::LeaseOpened(entry.lease(deadline)));
        }
    }
}
