//! How a session hears of what befalls it and its entries: by its watches, and by reading after a gap.

use std::sync::Arc;

use leasehold_core::clock::Deadline;
use leasehold_core::{ErrorKind, LostReason};

use super::Session;
use crate::connection::backoff;
use crate::error;
use crate::keys::{Of, Range, grace_of};
use crate::protocol::{Change, Revision};
use crate::watch::WatchEvent;

impl Session {
    pub(super) fn on_event(self: &Arc<Self>, range: &Range, event: WatchEvent<'_>) {
        match (event, range.of) {
            (WatchEvent::Changes(changes), _) => self.on_changes(changes),
            (WatchEvent::Stands(since), Of::Session) => self.has_to_read(0, range, since),
            (WatchEvent::Stands(since), Of::Entry) => self.has_to_read(usize::MAX, range, since),
            (WatchEvent::Refused, Of::Entry | Of::Session) => self.may_not_see(&range.key),
            _ => {}
        }
    }

    /// What is before a watch began is read, in its turn.
    fn has_to_read(&self, turn: usize, range: &Range, since: Revision) {
        let mut unread = self.unread.lock();
        let turn = turn.min(unread.len());
        unread.insert(turn, (range.key.clone(), since));
        self.has_unread.notify_one();
    }

    /// Deletions of our entries, of the session's key, and what is asked of us.
    fn on_changes(self: &Arc<Self>, changes: &[Change]) {
        for change in changes {
            if change.key.as_ref() == self.key {
                if change.value.is_none() && change.revision > self.created {
                    self.lose(LostReason::SessionLost);
                }
            } else if let Some(create) = self.sessions.keys.asked_for(self.lease, &change.key) {
                match &change.value {
                    Some(message) => self.asked_to_let_go(create, grace_of(message)),
                    None => self.book.lock().asked.forget(create),
                }
            } else if change.value.is_none() && change.key.ends_with(&self.suffix) {
                self.entry_deleted(&change.key, change.revision);
            }
        }
    }

    /// There was no right to watch a key of ours, or to read it. Without its watch a session cannot tell that
    /// it is over. As for an entry, the right may come back: it is tried again, once in the length of a lease.
    fn may_not_see(self: &Arc<Self>, key: &[u8]) {
        match self.sessions.keys.name_of(key) {
            Some(name) => self.book.lock().not_watched(&name, self.env().now() + self.ttl),
            None => self.deny(&error::not_told()),
        }
    }

    /// Gives a watch of its own to every key that has been held for a while: somebody may delete it.
    pub(super) fn watch_what_is_held(&self) {
        let names = self.book.lock().begin_watches(self.env().now());
        for name in names {
            let range = Range::entry(&self.keys(&name).own);
            self.watches.open(range.clone(), None);
            // RACE: it was released before its watch was there to be let go of.
            if !self.book.lock().is_watched(&name) {
                self.watches.close(&range);
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
        let (mut pauses, mut at_once) = (backoff(self.env()), KEYS_AT_ONCE);
        loop {
            let mut batch = {
                let mut unread = self.unread.lock();
                let upto = unread.len().min(at_once);
                unread.drain(..upto).collect::<Vec<_>>()
            };
            if batch.is_empty() {
                at_once = KEYS_AT_ONCE;
                if self.ended.run_until_cancelled(self.has_unread.notified()).await.is_none() {
                    return;
                }
                continue;
            }
            let Some(read) = self.ended.run_until_cancelled(self.read_own(&batch)).await else {
                return;
            };
            let Err(error) = read else {
                pauses.reset();
                continue;
            };
            let is_denied = *error.kind() == ErrorKind::Denied;
            if is_denied && let [(key, _)] = batch.as_slice() {
                self.watches.close(&Range::entry(key));
                self.may_not_see(key);
                continue;
            }
            {
                let mut unread = self.unread.lock();
                batch.append(&mut unread);
                *unread = batch;
            }
            if is_denied {
                // One of them may not be read: which?
                at_once = 1;
            } else {
                tracing::debug!(error = %format_args!("{error:#}"), "keys of ours could not be read");
                pauses.pause(self.env()).await;
            }
        }
    }

    /// Ends the session at its deadline, and with its manager.
    pub(super) async fn end_in_time(self: Arc<Self>) {
        while self.lives()
            && let Deadline::At(deadline) = self.deadline()
        {
            if self.ended.run_until_cancelled(self.env().sleep_until(deadline)).await.is_none() {
                // RACE: one that began just now was not seen by whoever closes.
                self.lose(LostReason::Shutdown);
            }
        }
    }
}

/// How many keys are dealt with in one transaction; servers allow 128 by default.
const KEYS_AT_ONCE: usize = 100;
