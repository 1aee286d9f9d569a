//! How a session hears of what befalls it and its entries: by its watches, and by reading after a gap.

use std::sync::Arc;

use lockcore::LostReason;
use lockcore::clock::Deadline;

use super::Session;
use super::book::Phase;
use crate::endpoints::Pause;
use crate::error;
use crate::protocol::Revision;
use crate::watch::{Change, Heard, Kind, Listener, Told};

impl Session {
    /// What the watches tell: deletions of our entries, of the session's key, and what is asked of us.
    fn tap(self: &Arc<Self>, changes: &[Change]) {
        for change in changes {
            if change.key.as_ref() == self.key {
                if matches!(change.kind, Kind::Deleted(_)) && change.revision > self.created {
                    self.lose(LostReason::SessionLost);
                }
            } else if let Some(create) = self.sessions.keys.asked_for(self.lease, &change.key) {
                match change.kind {
                    Kind::Put => self.asked_to_let_go(create),
                    Kind::Deleted(_) => drop(self.book.lock().asked.remove(&create)),
                }
            } else if matches!(change.kind, Kind::Deleted(_)) && change.key.ends_with(&self.suffix) {
                self.entry_deleted(&change.key, change.revision);
            }
        }
    }

    pub(super) fn hear(self: &Arc<Self>, heard: &Heard<'_>) {
        match *heard {
            Heard::Changes(changes) => self.tap(changes),
            Heard::Stands(key, since) => {
                self.unread.lock().push((key.into(), since));
                self.has_unread.notify_one();
            }
        }
    }

    /// Gives a watch of its own to every key that has been held for a while: somebody may delete it. A
    /// short hold needs none, and makes none.
    pub(super) fn watch_what_is_held(&self) {
        let now = self.env().now();
        let mut names = Vec::new();
        for (name, entry) in &mut self.book.lock().entries {
            let is_new = !entry.is_watched && entry.phase == Phase::Held;
            if is_new && now.since(entry.since) >= self.ttl / 10 {
                entry.is_watched = true;
                names.push(name.clone());
            }
        }
        for name in names {
            let own = self.keys(&name).own;
            self.watches.pin(&own);
            // RACE: it was released before its watch was there to be let go of.
            if !self.book.lock().entries.contains_key(&name) {
                self.watches.unpin(&own);
            }
        }
    }

    /// Reads keys of ours whose watch has just begun, many at once.
    pub(super) async fn read_what_was_missed(self: Arc<Self>) {
        let mut pause = Pause::new(self.env());
        loop {
            tokio::select! {
                biased;
                () = self.ended.cancelled() => return,
                () = self.has_unread.notified() => {}
            }
            loop {
                let mut batch = std::mem::take(&mut *self.unread.lock());
                let rest = batch.split_off(batch.len().min(READ_AT_ONCE));
                self.unread.lock().extend(rest);
                if batch.is_empty() || self.ended.is_cancelled() {
                    break;
                }
                let Some(read) = self.ended.run_until_cancelled(self.read_own(&batch)).await else {
                    return;
                };
                match read {
                    Ok(()) => pause = Pause::new(self.env()),
                    Err(error) => {
                        tracing::debug!(%error, "keys that are held could not be read");
                        self.unread.lock().extend(batch);
                        pause.wait(self.env()).await;
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
                told = listener.told.recv() => match told {
                    Some(Told::Stands(since)) => {
                        self.ended.run_until_cancelled(self.verify(since)).await;
                    }
                    Some(Told::Changes(changes)) => self.tap(&changes),
                    Some(Told::Broken) => {}
                    // Without its watch a session cannot tell that it is over.
                    Some(Told::Refused) => self.deny(&error::not_told()),
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
        let mut pause = Pause::new(self.env());
        while self.lives() {
            match self.look_after(since).await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => tracing::debug!(%error, "the session's key could not be read"),
            }
            pause.wait(self.env()).await;
        }
    }
}

/// How many keys are read in one transaction; servers allow 128 by default.
const READ_AT_ONCE: usize = 100;
