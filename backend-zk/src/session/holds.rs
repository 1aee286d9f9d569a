//! Registers the holds of a session, reports their events, and releases them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{FusedFuture, join};
use futures_util::stream::{self, StreamExt};
use leasehold_core::backend::{AcquireRequest, Grant, StoreEvent};
use leasehold_core::{Error, LockName, LostReason, OwnerId, Result};

use super::Session;
use crate::connection::Fired;
use crate::error::{Answered, Explain, Unanswered};
use crate::keys::{self, Next, Sequence};
use crate::protocol::{Failure, Happening, HeldNode, Mine, Patience};

impl Session {
    /// Registers a node that holds its lock, with the watch on it; a terminated one if there is none yet.
    pub(super) fn hold(
        self: &Arc<Self>,
        request: &AcquireRequest,
        mine: &Mine,
        own: Fired,
        passes: bool,
    ) -> Result<Grant> {
        let (owner, name, counter) = (request.owner, request.name.clone(), self.counter(mine.czxid)?);
        let hold = HeldNode { name: name.clone(), counter, mine: mine.clone(), passes, ending: false };
        // RACE: reported under the lock, so that a later message of the inbox is reported later.
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

    /// Releases a grant.
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

    fn path(&self, hold: &HeldNode) -> String {
        hold.mine.node.path(&self.site.namespace.directory(&hold.name))
    }

    /// Deletes a node that holds its lock. If no other client seems to want the lock, the directory is watched before, in
    /// the same flight: while our node is in it, it is the directory of our hold. A sharer may not have been alone, so its
    /// node is only deleted.
    async fn let_go(&self, hold: &HeldNode) -> Answered<()> {
        if hold.mine.node.is_shared() {
            return self.remove(&self.path(hold)).await;
        }
        let (path, name, number) = (self.path(hold), &hold.name, hold.mine.node.sequence());
        let connection = self.changes();
        let watches = self.untouched.lock().leave(name, number, connection, |watch| watch.is_broken());
        let deleted = async { if hold.passes { self.pass(&path).await } else { self.remove(&path).await } };
        let (watch, deleted) = if watches {
            let directory = self.site.namespace.directory(name);
            // Polled in this order, so sent in this order.
            let (watch, deleted) = join(self.connection.watch_directory(&directory), deleted).await;
            (watch.ok().map(|watch| (connection, watch)), deleted)
        } else {
            (None, deleted.await)
        };
        if deleted.is_ok() {
            self.untouched.lock().left(name, number, watch, self.site.env.now());
        }
        deleted
    }

    /// The number by which we hold a lock that no other contender has entered since our release.
    pub(super) fn next_number(&self, name: &LockName, patience: Patience) -> Option<Next> {
        let (connection, env) = (self.changes(), &self.site.env);
        let recent = env.now().saturating_sub(env.timing().op_timeout / 16);
        self.untouched.lock().enter(name, patience, recent, connection, |watch| watch.is_broken())
    }

    /// Lists after a `pause` in a hold, by when tries that came second have left: the first try after the hold counts on the
    /// number that comes next then (zk.untouched-4).
    pub(super) fn list_during_hold(self: &Arc<Self>, owner: OwnerId, pause: Duration) {
        let session = Arc::clone(self);
        self.site.env.spawn(async move {
            session.connection.over.run_until_cancelled(session.site.env.sleep(pause)).await;
            let hold = session.holds.lock().get(owner).filter(|hold| !hold.ending).cloned();
            let Some(HeldNode { name, mine, .. }) = hold.filter(|hold| !hold.mine.node.is_shared()) else {
                return;
            };
            if let Ok(listing) = session.connection.list(&session.site.namespace.directory(&name)).await {
                session.untouched.lock().listed(&name, &mine.node, &listing);
            }
        });
    }

    /// Whether the directory of a lock is to be watched before a node is made there.
    pub(super) fn is_to_be_watched(&self, name: &LockName) -> bool {
        let connection = self.changes();
        self.untouched.lock().is_to_be_watched(name, connection, |watch| watch.is_broken())
    }

    /// Watches the directory of a lock.
    pub(super) async fn watch_directory(&self, name: &LockName) {
        let connection = self.changes();
        let watched = self.connection.watch_directory(&self.site.namespace.directory(name)).await;
        if let Ok(watch) = watched {
            self.untouched.lock().watch(name, connection, watch);
        }
    }

    /// Whether a node that was just made for a lock is in the directory for which `next` was predicted.
    pub(super) fn is_in_same(&self, name: &LockName, next: Next, number: Sequence) -> bool {
        let connection = self.changes();
        self.untouched.lock().is_the_same(name, next, number, connection, |watch| watch.is_broken())
    }

    /// Deletes a node that holds its lock, and passes the lock on. Where the right to write is missing, it only deletes.
    async fn pass(&self, path: &str) -> Answered<()> {
        if self.connection.is_private() {
            let passed = self.connection.pass(path).await;
            if passed.as_ref().err().is_none_or(|refused| refused.failure() != Failure::Refused) {
                return passed;
            }
        }
        self.remove(path).await
    }

    /// Deletes a contender's node of this session. If that is refused, only the end of the session removes the node. So the
    /// session ends now: otherwise all others would wait behind that node while the session lives.
    pub(super) async fn remove(&self, path: &str) -> Answered<()> {
        let deleted = self.connection.delete(path).await;
        if deleted.as_ref().err().is_none_or(|refused| refused.failure() != Failure::Refused) {
            return deleted;
        }
        // The server checks the rights before it searches the node. A stat needs no right.
        if let Ok(None) = self.connection.stat(path).await {
            return Err(Unanswered::ABSENT);
        }
        if let Some(directory) = keys::parent(path) {
            self.site.bar(directory);
        }
        let warning = format!("the server refuses to delete {path}: the session and all its locks end");
        self.site.events.tell(StoreEvent::Warning(warning.into()));
        self.end(LostReason::SessionLost);
        deleted
    }

    /// Watches the nodes of holds that have lasted for a while, each once, so that their removal is reported. Short holds
    /// cost no such request. Holds that waited for long have the watch already.
    pub(super) fn watch_what_stands(self: &Arc<Self>) {
        let standing = self.holds.lock().standing(self.timeout() / 10, self.site.env.now());
        if standing.is_empty() {
            return;
        }
        let session = Arc::clone(self);
        self.site.env.spawn(async move {
            let watch = async |(owner, hold): (OwnerId, HeldNode)| {
                session.watch_hold(owner, &session.path(&hold)).await
            };
            stream::iter(standing).for_each_concurrent(AT_ONCE, watch).await;
        });
    }

    async fn watch_hold(self: &Arc<Self>, owner: OwnerId, path: &str) {
        match self.connection.watch(path).await.if_there() {
            Ok(Some(((data, _), watch))) => {
                if data == keys::REVOKE {
                    self.asked_in_curators_word(owner);
                }
                self.watch_over(owner, watch.fired_in_a_set());
            }
            Ok(None) => self.lost_its_node(owner),
            Err(_) => self.unwatched(owner),
        }
    }

    /// Reports a hold whose node another client deletes.
    fn watch_over(&self, owner: OwnerId, own: Fired) {
        // The receiver is gone when the session has ended.
        let _ = self.watches.send((owner, own));
    }

    /// The watch on the node of a hold has fired.
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
        if let Some(HeldNode { name, counter, .. }) = holds.deleted(owner, self.site.env.now()).cloned() {
            self.site.events.tell(StoreEvent::GrantLost { name, counter, reason: LostReason::Gone });
        }
    }

    /// A client that may write the node of a hold requests its revocation as Curator's `Revoker` does.
    pub(super) fn asked_in_curators_word(&self, owner: OwnerId) {
        if let Some(HeldNode { name, counter, .. }) = self.holds.lock().get(owner).cloned() {
            self.site.events.tell(StoreEvent::RevocationRequested { name, counter, within: Duration::ZERO });
        }
    }

    /// Takes in the inbox.
    pub(crate) fn asked_for(&self, inbox: &[u8]) {
        let mut holds = self.holds.lock();
        for (HeldNode { name, counter, .. }, within) in holds.asked_for(inbox, self.site.env.now()) {
            self.site.events.tell(StoreEvent::RevocationRequested {
                name: name.clone(),
                counter: *counter,
                within,
            });
        }
    }
}

/// The owner of a hold, and the watch on its node.
pub(super) type HoldWatch = (OwnerId, Fired);

/// How many nodes are watched in one flight.
const AT_ONCE: usize = 64;
