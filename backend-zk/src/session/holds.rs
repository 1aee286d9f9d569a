//! Keeps the book of what a session holds, tells what it says, and lets go.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use leasehold_core::backend::{AcquireRequest, Grant, StoreEvent};
use leasehold_core::{Error, LockName, LostReason, OwnerId, Result};

use super::Session;
use crate::connection::Answered;
use crate::error::Unanswered;
use crate::keys;
use crate::protocol::{Failure, Happening, Hold, Mine};

impl Session {
    /// Books a node that holds its lock.
    pub(super) fn hold(&self, request: &AcquireRequest, mine: Mine, watched: bool) -> Result<Grant> {
        let counter = self.counter(mine.czxid)?;
        let mut holds = self.holds.lock();
        let (name, owner) = (request.name.clone(), request.owner);
        if let Some(within) = holds.granted(owner, name.clone(), mine, watched, self.site.env.now()) {
            self.site.events.tell(StoreEvent::GrantAsked { name, counter, within });
        }
        Ok(Grant { name: request.name.clone(), owner, lease: self.lease(), counter })
    }

    /// Lets go of what was granted.
    pub(crate) async fn release(&self, grant: &Grant) -> Result<()> {
        if let Some(reason) = self.why_over() {
            return Err(Error::lost(reason));
        }
        let path = self.holds.lock().ending(grant.owner, &grant.name).map(|hold| self.path_of(hold));
        let path = path.ok_or_else(|| Error::lost(LostReason::Gone))?;
        let deleted = self.remove(&path).await;
        let absent = deleted.as_ref().err().is_some_and(Unanswered::is_absent);
        if deleted.is_ok() || absent {
            self.holds.lock().ended(grant.owner);
        }
        match deleted {
            Ok(()) => Ok(()),
            Err(_) if absent => Err(Error::lost(LostReason::Gone)),
            Err(unanswered) => Err(unanswered.into_error("delete the lock's node")),
        }
    }

    /// Deletes a contender's node of ours. Where that is refused, only the end of the session takes the
    /// node away, so that comes now: everybody would wait behind it for as long as we live.
    pub(super) async fn remove(&self, path: &str) -> Answered<()> {
        let deleted = self.connection.delete(path).await;
        if deleted.as_ref().err().is_none_or(|refused| refused.failure() != Failure::Refused) {
            return deleted;
        }
        // The server looks at the rights first, and for a node then. To ask for one takes no right.
        if let Ok(None) = self.connection.stat(path).await {
            return Err(Unanswered::ABSENT);
        }
        if let Some(directory) = keys::parent(path) {
            self.site.barred.lock().add(directory);
        }
        let warning = format!("the server refuses to delete {path}: the session ends, and all its locks");
        self.site.events.tell(StoreEvent::Warning(warning.into()));
        self.end(LostReason::SessionLost);
        deleted
    }

    fn path_of(&self, hold: &Hold) -> String {
        format!("{}/{}", self.site.namespace.directory(&hold.name), hold.mine.node.name())
    }

    /// Watches the nodes of holds that have stood for a while, each once, so that one which somebody
    /// deletes is told. Short holds cost no such request; those that waited have the watch already.
    pub(super) fn watch_what_stands(self: &Arc<Self>) {
        let standing = self.standing();
        if standing.is_empty() {
            return;
        }
        let session = Arc::clone(self);
        self.site.env.spawn(async move {
            for some in standing.chunks(AT_ONCE) {
                join_all(some.iter().map(|(owner, path)| session.watch_hold(*owner, path))).await;
            }
        });
    }

    async fn watch_hold(self: &Arc<Self>, owner: OwnerId, path: &str) {
        match self.connection.watch(path).await {
            Ok((_, watch)) => self.watch_over(owner, watch.fired().boxed()),
            Err(gone) if gone.is_absent() => self.lost_its_node(owner),
            Err(_) => self.unwatched(owner),
        }
    }

    /// Tells of a hold whose node somebody else deletes.
    pub(super) fn watch_over(self: &Arc<Self>, owner: OwnerId, own: BoxFuture<'static, Happening>) {
        let session = Arc::clone(self);
        self.site.env.spawn(async move {
            tokio::select! {
                biased;
                () = session.connection.over() => {}
                happening = own => match happening {
                    Happening::Ended => session.lost_its_node(owner),
                    _ => session.unwatched(owner),
                },
            }
        });
    }

    /// The nodes to be watched from here on.
    fn standing(&self) -> Vec<(OwnerId, String)> {
        let mut holds = self.holds.lock();
        let standing = holds.standing(self.timeout() / 10, self.site.env.now());
        standing.map(|(owner, hold)| (owner, self.path_of(hold))).collect()
    }

    /// The node of a hold is not watched any more.
    fn unwatched(&self, owner: OwnerId) {
        self.holds.lock().unwatched(owner);
    }

    /// The node of a hold is gone.
    fn lost_its_node(&self, owner: OwnerId) {
        let holds = self.holds.lock();
        let lost = holds.deleted(owner, self.site.env.now());
        if let Some((name, counter)) = lost.and_then(|hold| self.named(hold)) {
            self.site.events.tell(StoreEvent::GrantLost { name, counter, reason: LostReason::Gone });
        }
    }

    /// Takes in what the inbox says now.
    pub(crate) fn asked_for(&self, inbox: &[u8]) {
        let mut holds = self.holds.lock();
        for (hold, within) in holds.asked_for(inbox, self.site.env.now()) {
            if let Some((name, counter)) = self.named(hold) {
                self.site.events.tell(StoreEvent::GrantAsked { name, counter, within });
            }
        }
    }

    /// A hold as the core knows it.
    fn named(&self, hold: &Hold) -> Option<(LockName, u64)> {
        Some((hold.name.clone(), self.counter(hold.mine.czxid).ok()?))
    }
}

/// How many nodes are watched in one flight.
const AT_ONCE: usize = 64;
