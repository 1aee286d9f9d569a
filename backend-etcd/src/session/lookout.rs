//! How a session hears of what befalls it and its entries: by its watches, and by reading after a gap.

use std::sync::Arc;

use leasehold_core::clock::Deadline;
use leasehold_core::{ErrorKind, LostReason};

use super::Session;
use crate::connection::backoff;
use crate::error;
use crate::keys::grace_of;
use crate::protocol::Revision;
use crate::watch::{Change, KeyEvent, Kind, Listener, WatchEvent};

impl Session {
    /// What the watches tell: deletions of our entries, of the session's key, and what is asked of us.
    fn on_changes(self: &Arc<Self>, changes: &[Change]) {
        for change in changes {
            if change.key.as_ref() == self.key {
                if matches!(change.kind, Kind::Deleted(_)) && change.revision > self.created {
                    self.lose(LostReason::SessionLost);
                }
            } else if let Some(create) = self.sessions.keys.asked_for(self.lease, &change.key) {
                match &change.kind {
                    Kind::Put(value) => self.asked_to_let_go(create, grace_of(value)),
                    Kind::Deleted(_) => self.book.lock().not_wanted(create),
                }
            } else if matches!(change.kind, Kind::Deleted(_)) && change.key.ends_with(&self.suffix) {
                self.entry_deleted(&change.key, change.revision);
            }
        }
    }

    pub(super) fn on_key_event(self: &Arc<Self>, event: &KeyEvent<'_>) {
        match *event {
            KeyEvent::Changes(changes) => self.on_changes(changes),
            KeyEvent::Stands(key, since) => {
                self.unread.lock().push((key.into(), since));
                self.has_unread.notify_one();
            }
            KeyEvent::GivenUp(key) => self.is_not_watched(key),
        }
    }

    /// There was no right to watch a key of ours, or to read it. The right may come back: it is tried again,
    /// once in the length of a lease.
    fn is_not_watched(&self, key: &[u8]) {
        if let Some(name) = self.sessions.keys.name_of(key) {
            self.book.lock().not_watched(&name, self.env().now() + self.ttl);
        }
    }

    /// Gives a watch of its own to every key that has been held for a while: somebody may delete it.
    pub(super) fn watch_what_is_held(&self) {
        let names = self.book.lock().begin_watches(self.env().now());
        for name in names {
            let own = self.keys(&name).own;
            self.watches.pin(&own);
            // RACE: it was released before its watch was there to be let go of.
            if !self.book.lock().has(&name) {
                self.watches.unpin(&own);
            }
        }
    }

    /// Takes messages about entries that are gone out of the inbox: whoever asks may be late.
    pub(super) fn tidy_the_inbox(self: &Arc<Self>) {
        let mut gone = self.book.lock().wanted_in_vain();
        gone.truncate(KEYS_AT_ONCE);
        if gone.is_empty() {
            return;
        }
        let session = Arc::clone(self);
        self.env().spawn(async move {
            if let Err(error) = session.delete_messages(&gone).await {
                tracing::debug!(%error, "messages stay in the inbox, at the longest until the session ends");
            }
        });
    }

    /// Reads keys of ours whose watch has just begun, many at once.
    pub(super) async fn read_what_was_missed(self: Arc<Self>) {
        let mut pauses = backoff(self.env());
        loop {
            let mut at_once = KEYS_AT_ONCE;
            tokio::select! {
                biased;
                () = self.ended.cancelled() => return,
                () = self.has_unread.notified() => {}
            }
            loop {
                let mut batch = std::mem::take(&mut *self.unread.lock());
                let rest = batch.split_off(batch.len().min(at_once));
                self.unread.lock().extend(rest);
                if batch.is_empty() || self.ended.is_cancelled() {
                    break;
                }
                let Some(read) = self.ended.run_until_cancelled(self.read_own(&batch)).await else {
                    return;
                };
                match read {
                    Ok(()) => pauses.reset(),
                    // One of them may not be read: which?
                    Err(denied) if *denied.kind() == ErrorKind::Denied => {
                        if let [(key, _)] = batch.as_slice() {
                            self.watches.unpin(key);
                            self.is_not_watched(key);
                        } else {
                            at_once = 1;
                            self.unread.lock().extend(batch);
                        }
                    }
                    Err(error) => {
                        tracing::debug!(error = %format_args!("{error:#}"), "keys that are held could not be read");
                        self.unread.lock().extend(batch);
                        pauses.pause(self.env()).await;
                    }
                }
            }
        }
    }

    /// Ends the session at its deadline, and looks after it when its watch had a gap.
    pub(super) async fn guard(self: Arc<Self>, mut listener: Listener) {
        loop {
            let Deadline::At(deadline) = self.deadline() else {
                return;
            };
            tokio::select! {
                biased;
                () = self.ended.cancelled() => return,
                event = listener.events.recv() => match event {
                    Some(WatchEvent::Stands(since)) => {
                        self.ended.run_until_cancelled(self.verify(since)).await;
                    }
                    Some(WatchEvent::Changes(changes)) => self.on_changes(&changes),
                    Some(WatchEvent::Broken) => {}
                    // Without its watch a session cannot tell that it is over.
                    Some(WatchEvent::Refused) => self.deny(&error::not_told()),
                    None => return,
                },
                () = self.env().sleep_until(deadline) => {
                    self.lives();
                }
            }
        }
    }

    /// Reads what the watch may have missed before `since`.
    async fn verify(self: &Arc<Self>, since: Revision) {
        let mut pauses = backoff(self.env());
        while self.lives() {
            match self.look_after(since).await {
                Ok(true) => return,
                Ok(false) => {}
                Err(denied) if *denied.kind() == ErrorKind::Denied => self.deny(&denied),
                Err(error) => {
                    tracing::debug!(error = %format_args!("{error:#}"), "the session's key could not be read")
                }
            }
            pauses.pause(self.env()).await;
        }
    }
}

/// How many keys are dealt with in one transaction; servers allow 128 by default.
const KEYS_AT_ONCE: usize = 100;
