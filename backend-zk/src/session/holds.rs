//! Keeps the book of what a session holds, tells what it says, and lets go.

use leasehold_core::backend::{AcquireRequest, Grant, StoreEvent};
use leasehold_core::{Error, LockName, LostReason, OwnerId, Result};
use zookeeper_client::Error as ZkError;

use super::Session;
use crate::connection::Answered;
use crate::error::Unanswered;
use crate::keys;
use crate::protocol::{Failure, Hold, Mine};

impl Session {
    /// Books a node that holds its lock.
    pub(super) fn hold(
        &self,
        request: &AcquireRequest,
        owner: OwnerId,
        mine: Mine,
        watched: bool,
    ) -> Result<Grant> {
        let counter = self.counter(mine.czxid)?;
        let mut holds = self.holds.lock();
        let name = request.name.clone();
        if let Some(within) = holds.granted(owner, name.clone(), mine, watched, self.env.now()) {
            self.events.tell(StoreEvent::GrantAsked { name, counter, within });
        }
        Ok(Grant::new(request.name.clone(), owner, self.lease(), counter))
    }

    /// Lets go of what was granted.
    pub(crate) async fn release(&self, grant: &Grant) -> Result<()> {
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
            return Err(Unanswered::Refused(ZkError::NoNode));
        }
        if let Some(directory) = keys::parent(path) {
            self.barred.add(directory);
        }
        let warning = format!("the server refuses to delete {path}: the session ends, and all its locks");
        self.events.tell(StoreEvent::Warning(warning.into()));
        self.end(LostReason::SessionLost);
        deleted
    }

    fn path_of(&self, hold: &Hold) -> String {
        format!("{}/{}", self.namespace.directory(&hold.name), hold.mine.node.name())
    }

    /// The nodes to be watched from here on.
    pub(super) fn standing(&self) -> Vec<(OwnerId, String)> {
        let mut holds = self.holds.lock();
        let standing = holds.standing(self.timeout() / 10, self.env.now());
        standing.map(|(owner, hold)| (owner, self.path_of(hold))).collect()
    }

    /// The node of a hold is not watched any more.
    pub(super) fn unwatched(&self, owner: OwnerId) {
        self.holds.lock().unwatched(owner);
    }

    /// The node of a hold is gone.
    pub(super) fn lost_its_node(&self, owner: OwnerId) {
        let holds = self.holds.lock();
        let lost = holds.deleted(owner, self.env.now());
        if let Some((name, counter)) = lost.and_then(|hold| self.named(hold)) {
            self.events.tell(StoreEvent::GrantLost { name, counter, reason: LostReason::Gone });
        }
    }

    /// Takes in what the inbox says now.
    pub(crate) fn asked_for(&self, inbox: &[u8]) {
        let mut holds = self.holds.lock();
        for (hold, within) in holds.asked_for(inbox, self.env.now()) {
            if let Some((name, counter)) = self.named(hold) {
                self.events.tell(StoreEvent::GrantAsked { name, counter, within });
            }
        }
    }

    /// A hold as the core knows it.
    fn named(&self, hold: &Hold) -> Option<(LockName, u64)> {
        Some((hold.name.clone(), self.counter(hold.mine.czxid).ok()?))
    }
}
