//! Where strangers who share a lock by its format say that they have released it.
//!
//! Only who is first behind one of them listens, from when it hears that until it holds, or is over. Whatever is said
//! makes it ask; if nothing is, it asks all the same, later.
//!
//! # Invariants
//! - **redis.strangers-1** Whoever begins to listen asks once more after that: the lock may have been released before
//!   (G6).
//! - **redis.strangers-2** One task listens, and stops to: who is to be heard is looked up for each, so what overtakes
//!   what does not matter, nor on which connection.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold_core::OwnerId;
use leasehold_core::backend::StoreEvent;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Entry, Session};

/// The channels of strangers.
#[derive(Debug, Default)]
pub(super) struct Channels {
    /// Who is told what is said.
    wanted: Mutex<HashMap<String, Arc<Entry>>>,
    /// Who is told has changed, or the connection may have.
    changed: Notify,
    /// It was said that some may not be heard.
    is_denied: AtomicBool,
}

/// What to do next.
enum Tune {
    To(String, Arc<Entry>),
    Away(String),
}

impl Session {
    /// Listens for `entry` as long as it is first behind a stranger.
    pub(super) fn listen(&self, entry: &Arc<Entry>) {
        let channel = self.format.as_ref().and_then(|format| format.channel(self.keys_of(entry).all()[0]));
        let Some(channel) = channel else {
            return;
        };
        let mut wanted = self.strangers.wanted.lock();
        // Looked up while nobody else changes who is heard: what ends it meanwhile comes here after it.
        if entry.contender.lock().is_behind_stranger() {
            wanted.insert(channel, Arc::clone(entry));
        } else if wanted.get(&channel).is_some_and(|heard| heard.owner == entry.owner) {
            wanted.remove(&channel);
        } else {
            return;
        }
        drop(wanted);
        self.strangers.changed.notify_one();
    }

    /// Somebody has said something.
    pub(super) fn hear_stranger(&self, channel: &str) {
        let entry = self.strangers.wanted.lock().get(channel).cloned();
        if let Some(entry) = entry {
            entry.contender.lock().spoken(self.env.now());
            entry.heard.notify_one();
        }
    }

    /// Listens to the channels that are to be heard.
    pub(super) async fn tune(self: Arc<Self>) {
        // By the connection on which each is heard, and for whom.
        let mut heard = HashMap::new();
        loop {
            self.strangers.changed.notified().await;
            self.tune_all(&mut heard).await;
        }
    }

    async fn tune_all(&self, heard: &mut HashMap<String, (u64, OwnerId)>) {
        // Whoever asks again while there is none tries again.
        while let Some(up) = self.link.up() {
            // A connection that was lost hears nothing.
            heard.retain(|_, (connection, _)| *connection == up.id());
            let next = self.next_to_tune(heard);
            let give_up_at = self.give_up_at();
            let done = match next {
                None => return,
                Some(Tune::Away(channel)) => {
                    heard.remove(&channel);
                    up.hear_no_more(&channel, give_up_at).await
                }
                Some(Tune::To(channel, entry)) => {
                    let may = up.hear(&channel, give_up_at).await;
                    may.map(|may| {
                        if may {
                            // redis.strangers-1
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

    fn next_to_tune(&self, heard: &HashMap<String, (u64, OwnerId)>) -> Option<Tune> {
        let wanted = self.strangers.wanted.lock();
        let is_heard = |channel, owner| heard.get(channel).is_some_and(|(_, heard)| *heard == owner);
        let missing = wanted.iter().find(|(channel, entry)| !is_heard(*channel, entry.owner));
        if let Some((channel, entry)) = missing {
            return Some(Tune::To(channel.clone(), Arc::clone(entry)));
        }
        heard.keys().find(|channel| !wanted.contains_key(*channel)).cloned().map(Tune::Away)
    }

    fn say_denied(&self, channel: &str) {
        if !self.strangers.is_denied.swap(true, Ordering::Relaxed) {
            let message = format!(
                "the user may not hear the channel {channel:?}, where other libraries say that they have released a \
                 lock: that is found by asking every `poll`"
            );
            self.events.tell(StoreEvent::Warning(message.into()));
        }
    }
}
