//! Keeps the book of what a session holds, tells what it says, and lets go.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{FusedFuture, join};
use futures_util::stream::{self, StreamExt};
use leasehold_core::backend::{AcquireRequest, Grant, StoreEvent};
use leasehold_core::{Error, LockName, LostReason, OwnerId, Result};

use super::Session;
use crate::connection::Fired;
use crate::error::{Answered, Explain, Unanswered};
use crate::keys::{self, Next};
use crate::protocol::{Failure, Happening, Hold, Mine};

impl Session {
    /// Books a node that holds its lock, with its watch; terminated, if there is none yet.
    pub(super) fn hold(
        self: &Arc<Self>,
        request: &AcquireRequest,
        mine: &Mine,
        own: Fired,
        passes: bool,
    ) -> Result<Grant> {
        let (owner, name, counter) = (request.owner, request.name.clone(), self.counter(mine.czxid)?);
        let hold = Hold { name: name.clone(), counter, mine: mine.clone(), passes, ending: false };
        // RACE: told with the book locked, so that what the inbox says later is told later.
        let mut holds = self.holds.lock();
        if let Some(within) = holds.granted(owner, hold, self.site.env.now()) {
            self.site.events.tell(StoreEvent::RevocationRequested { name: name.clone(), counter, within });
        }
        if own.is_terminated() {
            holds.unwatched(owner, self.site.env.now());
        } else {
            self.watch_over(owner, own);
        }
        Ok(Grant::new(name, owner, self.lease(), counter))
    }

    /// Lets go of what was granted.
    pub(crate) async fn release(&self, grant: &Grant) -> Result<()> {
        if let Some(reason) = self.why_over() {
            return Err(Error::lost(reason));
        }
        let hold = self.holds.lock().ending(grant.owner, &grant.name).cloned();
        let hold = hold.ok_or_else(|| Error::lost(LostReason::Gone))?;
        let deleted = self.let_go(&hold).await.if_there().or_not("delete the lock's node")?;
        self.holds.lock().ended(grant.owner);
        deleted.ok_or_else(|| Error::lost(LostReason::Gone))
    }

    fn path(&self, hold: &Hold) -> String {
        format!("{}/{}", self.site.namespace.directory(&hold.name), hold.mine.node.name())
    }

    /// Deletes a node that holds its lock. If nobody else seems to want that, its directory is watched before, in
    /// the same flight: as long as our node is in it, it is the one that we have held in. Who shares has not been
    /// alone, and only goes.
    async fn let_go(&self, hold: &Hold) -> Answered<()> {
        if hold.mine.node.is_shared() {
            return self.remove(&self.path(hold)).await;
        }
        let (path, name, number) = (self.path(hold), &hold.name, hold.mine.node.sequence());
        let connection = self.changes();
        let watches = self.untouched.lock().leave(name, number, connection, |watch| watch.is_broken());
        let watched = async {
            let directory = watches.then(|| self.site.namespace.directory(name))?;
            self.connection.watch_directory(&directory).await
        };
        let deleted = async { if hold.passes { self.pass(&path).await } else { self.remove(&path).await } };
        // Polled in this order, so sent in this order.
        let (watch, deleted) = join(watched, deleted).await;
        if deleted.is_ok() {
            self.untouched.lock().left(name, number, watches.then_some((connection, watch)));
        }
        deleted
    }

    /// The number that makes us the holder of a lock, if we have let go of it and nobody else has come since.
    pub(super) fn next_number(&self, name: &LockName) -> Option<Next> {
        let connection = self.changes();
        self.untouched.lock().enter(name, connection, |watch| watch.is_broken())
    }

    /// Watches the directory of a lock before a node is made there, if nothing does.
    pub(super) async fn watch_directory(&self, name: &LockName) {
        let connection = self.changes();
        if self.untouched.lock().is_to_be_watched(name, connection, |watch| watch.is_broken()) {
            let watched = self.connection.watch_directory(&self.site.namespace.directory(name)).await;
            if let Some((directory, watch)) = watched {
                self.untouched.lock().watch(name, connection, directory, watch);
            }
        }
    }

    /// Whether a node that was just made for a lock is in the directory that the transaction `directory` made.
    pub(super) fn is_in(&self, name: &LockName, directory: i64) -> bool {
        let connection = self.changes();
        self.untouched.lock().is_the_same(name, directory, connection, |watch| watch.is_broken())
    }

    /// Deletes a node that holds its lock, and says so to who waits; a right that is missing for that is no
    /// reason to keep it.
    async fn pass(&self, path: &str) -> Answered<()> {
        if self.connection.is_private() {
            let passed = self.connection.pass(path).await;
            if passed.as_ref().err().is_none_or(|refused| refused.failure() != Failure::Refused) {
                return passed;
            }
        }
        self.remove(path).await
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
            self.site.bar(directory);
        }
        let warning = format!("the server refuses to delete {path}: the session ends, and all its locks");
        self.site.events.tell(StoreEvent::Warning(warning.into()));
        self.end(LostReason::SessionLost);
        deleted
    }

    /// Watches the nodes of holds that have stood for a while, each once, so that one which somebody
    /// deletes is told. Short holds cost no such request; those that waited for long have the watch already.
    pub(super) fn watch_what_stands(self: &Arc<Self>) {
        let standing = self.holds.lock().standing(self.timeout() / 10, self.site.env.now());
        if standing.is_empty() {
            return;
        }
        let session = Arc::clone(self);
        self.site.env.spawn(async move {
            let watch =
                async |(owner, hold): (OwnerId, Hold)| session.watch_hold(owner, &session.path(&hold)).await;
            stream::iter(standing).for_each_concurrent(AT_ONCE, watch).await;
        });
    }

    async fn watch_hold(self: &Arc<Self>, owner: OwnerId, path: &str) {
        match self.connection.watch(path).await.if_there() {
            Ok(Some(((data, _), watch))) => {
                if data == keys::REVOKE {
                    self.asked_in_curators_word(owner);
                }
                self.watch_over(owner, watch.fired());
            }
            Ok(None) => self.lost_its_node(owner),
            Err(_) => self.unwatched(owner),
        }
    }

    /// Tells of a hold whose node somebody else deletes.
    fn watch_over(&self, owner: OwnerId, own: Fired) {
        // Nobody keeps watch any more when the session is over.
        let _ = self.watches.send((owner, own));
    }

    /// Something has become of the node of a hold.
    pub(super) fn heard_of(&self, owner: OwnerId, happening: Happening) {
        match happening {
            Happening::Ended => self.lost_its_node(owner),
            _ => self.unwatched(owner),
        }
    }

    fn unwatched(&self, owner: OwnerId) {
        self.holds.lock().unwatched(owner, self.site.env.now());
    }

    /// The node of a hold is gone.
    fn lost_its_node(&self, owner: OwnerId) {
        let holds = self.holds.lock();
        if let Some(Hold { name, counter, .. }) = holds.deleted(owner, self.site.env.now()).cloned() {
            self.site.events.tell(StoreEvent::GrantLost { name, counter, reason: LostReason::Gone });
        }
    }

    /// Whoever can write the node of a hold asks for it as Curator's `Revoker` does.
    pub(super) fn asked_in_curators_word(&self, owner: OwnerId) {
        if let Some(Hold { name, counter, .. }) = self.holds.lock().get(owner).cloned() {
            self.site.events.tell(StoreEvent::RevocationRequested { name, counter, within: Duration::ZERO });
        }
    }

    /// Takes in what the inbox says now.
    pub(crate) fn asked_for(&self, inbox: &[u8]) {
        let mut holds = self.holds.lock();
        for (Hold { name, counter, .. }, within) in holds.asked_for(inbox, self.site.env.now()) {
            self.site.events.tell(StoreEvent::RevocationRequested {
                name: name.clone(),
                counter: *counter,
                within,
            });
        }
    }
}

/// Whose hold it is, and what becomes of its node.
pub(super) type HoldWatch = (OwnerId, Fired);

/// How many nodes are watched in one flight.
const AT_ONCE: usize = 64;
