//! The channels on which foreign clients publish that they have released a lock.
//!
//! Only the first waiter behind a foreign client is subscribed, from the answer that shows this until it holds, or has ended.
//! Any message makes it refresh; without one it refreshes later.
//!
//! # Invariants
//! - **redis.foreign-1** A waiter refreshes once more after it has subscribed: the lock may have been released before
//!   (G6).
//! - **redis.foreign-2** One task subscribes and unsubscribes: it reads before each request which channels are wanted, so
//!   neither the order of changes nor the connection matters.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold_core::OwnerId;
use leasehold_core::backend::StoreEvent;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Kept, Session};
use crate::config::Format;

/// The channels of foreign clients.
#[derive(Debug, Default)]
pub(super) struct Channels {
    /// The entry that gets the messages of each channel.
    wanted: Mutex<HashMap<String, Arc<Kept>>>,
    /// `wanted` has changed, or the connection may have.
    changed: Notify,
    /// The warning about a channel that is denied was sent.
    is_denied: AtomicBool,
}

impl Session {
    /// Subscribes for `entry` as long as it is the first waiter behind a foreign client.
    pub(super) fn listen(&self, entry: &Arc<Kept>) {
        let channel = self.format.as_ref().and_then(|format| format.channel(&self.keys.lock(&entry.name)));
        let Some(channel) = channel else {
            return;
        };
        let mut wanted = self.foreign.wanted.lock();
        // Read under the mutex: a change that ends it meanwhile comes here after this.
        if entry.contender.lock().is_behind_foreign() {
            wanted.insert(channel, Arc::clone(entry));
        } else if wanted.get(&channel).is_some_and(|heard| heard.owner == entry.owner) {
            wanted.remove(&channel);
        } else {
            return;
        }
        drop(wanted);
        self.foreign.changed.notify_one();
    }

    /// A message of a foreign client came.
    pub(super) fn hear_foreign(&self, channel: &str) {
        let entry = self.foreign.wanted.lock().get(channel).cloned();
        if let Some(entry) = entry {
            entry.contender.lock().spoken(self.env.now());
            entry.heard.notify_one();
        }
    }

    /// Subscribes to the channels that are wanted.
    pub(super) async fn tune(self: Arc<Self>) {
        // The connection and the owner for which each is subscribed.
        let mut heard = HashMap::new();
        loop {
            self.foreign.changed.notified().await;
            self.tune_all(&mut heard).await;
        }
    }

    async fn tune_all(&self, heard: &mut HashMap<String, (u64, OwnerId)>) {
        // The refresh after a reconnect comes here again.
        while let Some(up) = self.fleet.home().up() {
            // A connection that was lost has no subscriptions.
            heard.retain(|_, (connection, _)| *connection == up.id());
            let next = self.next_to_tune(heard);
            let give_up_at = self.give_up_at();
            let done = match next {
                None => return,
                Some((channel, None)) => {
                    heard.remove(&channel);
                    up.hear_no_more(&channel, give_up_at).await
                }
                Some((channel, Some(entry))) => {
                    let may = up.hear(&channel, give_up_at).await;
                    may.map(|may| {
                        if may {
                            // redis.foreign-1
                            entry.contender.lock().spoken(self.env.now());
                            entry.heard.notify_one();
                        } else {
                            self.say_denied(&channel);
                        }
                        heard.insert(channel, (up.id(), entry.owner));
                    })
                }
            };
            if let Err(error) = done {
                tracing::debug!(error = ?format!("{error:#}"), "retrying the subscription to a foreign channel");
                return;
            }
        }
    }

    /// A channel to subscribe to for an entry, or else to leave.
    fn next_to_tune(&self, heard: &HashMap<String, (u64, OwnerId)>) -> Option<(String, Option<Arc<Kept>>)> {
        let wanted = self.foreign.wanted.lock();
        let is_heard = |channel, owner| heard.get(channel).is_some_and(|(_, heard)| *heard == owner);
        let missing = wanted.iter().find(|(channel, entry)| !is_heard(*channel, entry.owner));
        if let Some((channel, entry)) = missing {
            return Some((channel.clone(), Some(Arc::clone(entry))));
        }
        let unwanted = heard.keys().find(|channel| !wanted.contains_key(*channel));
        unwanted.map(|channel| (channel.clone(), None))
    }

    fn say_denied(&self, channel: &str) {
        if !self.foreign.is_denied.swap(true, Ordering::Relaxed) {
            let channels = self.format.as_ref().and_then(Format::channels).unwrap_or_default();
            let message = format!(
                "the user cannot subscribe to the channel {channel:?}, so a foreign client's release is \
                 noticed only every `poll`: grant &{channels}* and +subscribe"
            );
            self.events.tell(StoreEvent::Warning(message.into()));
        }
    }
}
