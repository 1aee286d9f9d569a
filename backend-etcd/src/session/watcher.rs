//! Reports the changes of a session and of its entries: by its watches, and by reading after a gap.

use std::sync::Arc;

use leasehold_core::clock::Deadline;
use leasehold_core::{ErrorKind, LockName, LostReason};

use tokio::sync::mpsc;

use super::Session;
use crate::connection::backoff;
use crate::error;
use crate::keys::{Of, Range, grace_of};
use crate::protocol::{Change, Key, Revision, Slot};
use crate::watch::WatchEvent;

impl Session {
    pub(super) fn on_event(self: &Arc<Self>, range: &Range, event: WatchEvent<'_>) {
        match (event, range.of) {
            (WatchEvent::Changes(changes), _) => self.on_changes(changes),
            // Earlier changes are read. The reader ends with the session.
            (WatchEvent::Stands(since), Of::Entry | Of::Session) => {
                let _ = self.unread.send((range.key.clone(), since));
            }
            (WatchEvent::Refused, Of::Entry | Of::Session) => self.may_not_see(&range.key),
            _ => {}
        }
    }

    /// Deletions of our entries and of the session's key, and requests to release.
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
            } else if change.value.is_none() {
                self.entry_deleted(&change.key, change.revision);
            }
        }
    }

    /// The right to watch or read an own key is missing. Without its own watch a session cannot notice its end, so it ends. The
    /// watch of an entry is tried again after a ttl, as the right may come back.
    fn may_not_see(self: &Arc<Self>, key: &[u8]) {
        match self.sessions.keys.entry_of(key, self.lease) {
            Some((name, slot)) => self.book.lock().not_watched(&name, slot, self.env().now() + self.ttl),
            None => self.deny(&error::not_told()),
        }
    }

    /// Gives a watch of its own to every key that has been held for a while: an administrator may delete it.
    pub(super) fn watch_what_is_held(&self) {
        let entries = self.book.lock().begin_watches(self.env().now());
        for (name, slot) in entries {
            self.watch_entry(&name, slot);
        }
    }

    fn watch_entry(&self, name: &LockName, slot: Slot) {
        let range = Range::entry(&self.keys(name, slot).own);
        self.watches.open(range.clone(), None);
        // RACE: it was released before its watch was open.
        if !self.book.lock().is_watched(name, slot) {
            self.watches.close(&range);
        }
    }

    /// Deletes messages about entries that do not exist any more: a request may come late.
    pub(super) fn tidy_the_inbox(self: &Arc<Self>) {
        let mut gone = self.book.lock().wanted_in_vain();
        gone.truncate(KEYS_AT_ONCE);
        if gone.is_empty() {
            return;
        }
        let session = Arc::clone(self);
        self.env().spawn(async move {
            if let Err(error) = session.delete_messages(&gone).await {
                let error = format!("{error:#}");
                tracing::debug!(?error, "inbox messages not deleted");
            }
        });
    }

    /// Reads own keys whose watch has just begun, many at once.
    pub(super) async fn read_what_was_missed(
        self: Arc<Self>,
        mut inbox: mpsc::UnboundedReceiver<(Key, Revision)>,
    ) {
        let (mut pauses, mut unread, mut at_once) = (backoff(self.env()), Vec::new(), KEYS_AT_ONCE);
        while inbox.recv_many(&mut unread, KEYS_AT_ONCE).await > 0 {
            while !unread.is_empty() {
                unread.extend(std::iter::from_fn(|| inbox.try_recv().ok()));
                unread.sort_by_key(|(key, _)| **key != *self.key);
                let some = at_once.min(unread.len());
                match self.read_own(&unread[..some]).await {
                    Ok(()) => {
                        unread.drain(..some);
                        pauses.reset();
                    }
                    Err(denied) if *denied.kind() == ErrorKind::Denied && some == 1 => {
                        let (key, _) = unread.remove(0);
                        self.watches.close(&Range::entry(&key));
                        self.may_not_see(&key);
                    }
                    // One of them must not be read; they are read one by one.
                    Err(denied) if *denied.kind() == ErrorKind::Denied => at_once = 1,
                    Err(error) => {
                        let error = format!("{error:#}");
                        tracing::debug!(?error, "cannot read the keys of this session");
                        pauses.pause(self.env()).await;
                    }
                }
            }
            at_once = KEYS_AT_ONCE;
        }
    }

    /// Ends the session at its deadline, and with its manager.
    pub(super) async fn end_in_time(self: Arc<Self>) {
        while self.lives()
            && let Deadline::At(deadline) = self.deadline()
        {
            if self.ended.run_until_cancelled(self.env().sleep_until(deadline)).await.is_none() {
                // RACE: `close` did not see a session that began just now.
                self.lose(LostReason::Shutdown);
            }
        }
    }
}

/// So many keys are in one transaction; servers allow 128 by default.
const KEYS_AT_ONCE: usize = 100;

#[cfg(test)]
mod tests {
    use leasehold_core::backend::Events;
    use leasehold_core::{Env, Mode, Timing};
    use parking_lot::Mutex;
    use tokio::sync::Notify;
    use tokio_util::sync::CancellationToken;

    use super::super::Sessions;
    use super::*;
    use crate::config::EtcdConfig;
    use crate::protocol::Book;
    use crate::watch::Watches;

    /// A session without a server.
    fn session() -> Arc<Session> {
        let env = Env::new(Timing::for_ttl(Timing::DEFAULT_TTL)).unwrap();
        let sessions =
            Sessions::new(&EtcdConfig::new(["127.0.0.1:1"]), env.clone(), Events::new().0).unwrap();
        let ended = CancellationToken::new();
        let watches = Watches::start(&env, &sessions.endpoints, Box::new(|_, _| {}), ended.clone());
        let deadline = Deadline::At(env.now() + Timing::DEFAULT_TTL);
        Arc::new(Session {
            sessions,
            lease: 0x1a,
            ttl: Timing::DEFAULT_TTL,
            cluster: 1,
            key: b"leasehold/%session/1a".to_vec(),
            created: 1,
            token_base: 0,
            book: Mutex::new(Book::new(deadline, 1)),
            freed: Notify::new(),
            unread: mpsc::unbounded_channel().0,
            ended,
            watches,
        })
    }

    /// A hold that ends before its watch is open leaves no watch.
    #[tokio::test]
    async fn watch_of_a_released_hold_is_closed() {
        for is_released in [false, true] {
            let (session, name, slot) =
                (session(), LockName::new("n").unwrap(), Slot::first(Mode::EXCLUSIVE));
            let (now, owner) = (session.env().now(), session.env().owner_id());
            session.book.lock().enter(&name, slot, 5, owner, now);
            session.book.lock().grant(&name, 5, now, now).unwrap();
            assert_eq!(session.book.lock().begin_watches(now), [(name.clone(), slot)]);
            if is_released {
                session.forget(&name, 5);
            }
            session.watch_entry(&name, slot);
            let range = Range::entry(&session.keys(&name, slot).own);
            assert_eq!(session.watches.is_open(&range), !is_released);
        }
    }
}
