//! The channels of slots: unless `inbox=broadcast` is set, the server that has a slot sends each message to the waiter's own
//! connection, and to its replicas, not to every server of the cluster.
//!
//! A session subscribes to the channel of a slot, at the server that has it, once a contender waits there. After that its
//! entries in the slot name the channel, first those that wait already, by a refresh; until then they name the inbox of the
//! session, which all servers pass on to each other. `SlotChannels` decides.
//!
//! # Invariants
//! - **redis.inboxes-1** Each subscription is asked for by a task of its own: a server that is away delays no other slot.
//! - **redis.inboxes-2** A message of a slot counts only while the link is up that reads the record of a move and the token base
//!   (redis.shards-3). Once that is up again, all waiters refresh.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use leasehold_core::backend::{Backoff, StoreEvent};
use leasehold_core::{ErrorKind, LockName, Result};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Session, Shards};
use crate::cluster::{HashSlot, Redirect, SlotChannels};
use crate::protocol::ScriptReply;

/// The channels of a session.
#[derive(Debug, Default)]
pub(super) struct SlotInboxes {
    channels: Mutex<SlotChannels>,
    /// A channel is wanted, a subscription has begun or ended, or the servers have changed.
    changed: Notify,
    /// The user may not subscribe, or a server has no such channels, as of the last connection.
    is_denied: AtomicBool,
}

impl Session {
    /// The slot of a lock, if slots have channels.
    fn slot_of(&self, name: &LockName) -> Option<(&SlotInboxes, &Arc<Shards>, HashSlot)> {
        let (slots, shards) = (self.slots.as_ref()?, self.fleet.cluster()?);
        Some((slots, shards, HashSlot::of(self.keys.lock(name))))
    }

    /// The inbox that an entry of `name` is to have.
    pub(super) fn inbox_for(&self, name: &LockName) -> Cow<'_, str> {
        match self.slot_of(name) {
            Some((slots, shards, slot)) if slots.channels.lock().is_heard(slot, connection(shards, slot)) => {
                Cow::Owned(format!("{{{}}}{}", slot.tag(), self.inbox))
            }
            _ => Cow::Borrowed(&self.inbox),
        }
    }

    /// A request about `name` was answered.
    pub(super) fn waits_in_slot(&self, name: &LockName, answer: &ScriptReply) {
        if let (ScriptReply::Waits { .. }, Some((slots, _, slot))) = (answer, self.slot_of(name))
            && slots.channels.lock().want(slot)
        {
            slots.changed.notify_one();
        }
    }

    /// A subscription has begun or ended.
    pub(super) fn slot_is_heard(&self, slot: HashSlot, connection: u64, is_heard: bool) {
        if let Some(slots) = &self.slots {
            let mut channels = slots.channels.lock();
            if is_heard {
                channels.confirmed(slot, connection);
            } else {
                channels.ended(slot, connection);
            }
            slots.changed.notify_one();
        }
    }

    /// Slots may have other servers, or connections.
    pub(super) fn look_for_slots(&self) {
        if let Some(slots) = &self.slots {
            slots.is_denied.store(false, Ordering::Relaxed);
            slots.changed.notify_one();
        }
    }

    /// Subscribes to the channels that are wanted, and refreshes the waiters of those that are heard.
    pub(super) async fn hear_slots(self: Arc<Self>) {
        let (Some(slots), Some(shards)) = (&self.slots, self.fleet.cluster()) else { return };
        let (mut asked, mut asking) = (BTreeSet::new(), FuturesUnordered::new());
        loop {
            let confirmed = slots.channels.lock().take_confirmed();
            if !confirmed.is_empty() {
                let waits_there = |name: &LockName| confirmed.contains(&HashSlot::of(self.keys.lock(name)));
                let waiting =
                    self.life.entries().into_iter().filter(|entry| waits_there(&entry.name)).collect();
                let session = Arc::clone(&self);
                // redis.channels-1
                self.life.spawn(async move { session.refresh_waiting(waiting).await });
            }
            let missing = match slots.is_denied.load(Ordering::Relaxed) {
                true => Vec::new(),
                false => slots.channels.lock().missing(|slot| connection(shards, slot)),
            };
            let missing = missing.into_iter().filter(|slot| asked.insert(*slot));
            asking.extend(missing.map(|slot| self.subscribe(slots, shards, slot)));
            tokio::select! {
                () = slots.changed.notified() => {}
                Some(slot) = asking.next() => {
                    asked.remove(&slot);
                }
            }
        }
    }

    /// Asks until the channel of `slot` is heard, or the server refuses.
    async fn subscribe(&self, slots: &SlotInboxes, shards: &Shards, slot: HashSlot) -> HashSlot {
        let mut pauses = Backoff::of_requests(&self.env);
        loop {
            let subscribed = self.subscribe_once(shards, slot).await;
            if slots.channels.lock().is_heard(slot, connection(shards, slot)) {
                return slot;
            }
            if let Err(error) = subscribed {
                tracing::debug!(error = ?format!("{error:#}"), "retrying the subscription to a slot's channel");
                if *error.kind() == ErrorKind::Denied {
                    if !slots.is_denied.swap(true, Ordering::Relaxed) {
                        self.events.tell(StoreEvent::Warning(format!("{DENIED}: {error}").into()));
                    }
                    return slot;
                }
            }
            pauses.pause(&self.env).await;
        }
    }

    async fn subscribe_once(&self, shards: &Shards, slot: HashSlot) -> Result<()> {
        let give_up_at = self.give_up_at();
        let connected = shards.way(slot, None, give_up_at).await?.connected;
        let channel = self.keys.slot_channels(&slot.tag()) + &self.inbox;
        let subscribed = connected.hear_slot(&channel, &shards.hears, give_up_at).await;
        if let Err(error) = &subscribed
            && let Some(Redirect::Moved(slot, to)) = Redirect::read(error, connected.address())
        {
            shards.moved(slot, &to);
        }
        subscribed
    }
}

/// That to the server of a slot, if it is up.
fn connection(shards: &Shards, slot: HashSlot) -> Option<u64> {
    shards.up(slot).map(|up| up.id())
}

const DENIED: &str = "cannot subscribe to channels of slots, so servers pass every message on to all others: grant &PREFIX:*, \
                      +ssubscribe and +spublish, or set inbox=broadcast";
