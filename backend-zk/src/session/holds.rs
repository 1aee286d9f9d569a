//! What a session holds, what is known of its nodes, and how it lets go.

use std::collections::HashMap;

use lockcore::backend::{AcquireRequest, Grant, StoreEvent};
use lockcore::clock::Moment;
use lockcore::{Error, LockName, LostReason, OwnerId, Result};
use zookeeper_client::Error as ZkError;

use super::Session;
use crate::connection::Answered;
use crate::error::Unanswered;
use crate::keys;
use crate::protocol::{Failure, Mine, RevokeRequests};

#[derive(Debug, Default)]
pub(super) struct Holds {
    pub(super) held: HashMap<OwnerId, Hold>,
    /// What administrators ask for, as last read.
    requests: RevokeRequests,
}

#[derive(Debug)]
pub(super) struct Hold {
    name: LockName,
    mine: Mine,
    since: Moment,
    /// Its node is watched, or is about to be.
    watched: bool,
    /// We have asked for its end ourselves.
    pub(super) ending: bool,
}

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
        let (name, since) = (request.name.clone(), self.env.now());
        if let Some(until) = holds.requests.until(mine.czxid) {
            let (name, within) = (name.clone(), until.since(since));
            self.events.tell(StoreEvent::GrantAsked { name, counter, within });
        }
        holds.held.insert(owner, Hold { name, mine, since, watched, ending: false });
        Ok(Grant { name: request.name.clone(), owner, lease: self.lease(), counter })
    }

    /// Lets go of what was granted.
    pub(crate) async fn release(&self, grant: &Grant) -> Result<()> {
        let path = {
            let mut holds = self.holds.lock();
            let hold = holds.held.get_mut(&grant.owner).filter(|hold| hold.name == grant.name);
            let Some(hold) = hold else {
                return Err(Error::lost(LostReason::Gone));
            };
            hold.ending = true;
            self.path_of(hold)
        };
        let deleted = self.remove(&path).await;
        let absent = deleted.as_ref().err().is_some_and(Unanswered::is_absent);
        if deleted.is_ok() || absent {
            self.holds.lock().held.remove(&grant.owner);
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

    /// The holds that have stood for a while and are not watched; from here on they count as watched.
    pub(super) fn standing(&self) -> Vec<(OwnerId, String)> {
        let (now, long) = (self.env.now(), self.timeout() / 10);
        let mut holds = self.holds.lock();
        let stands = |hold: &Hold| !hold.watched && !hold.ending && long <= now.since(hold.since);
        let standing = holds.held.iter_mut().filter(|(_, hold)| stands(hold));
        standing
            .map(|(owner, hold)| {
                hold.watched = true;
                (*owner, self.path_of(hold))
            })
            .collect()
    }

    /// The node of a hold is not watched any more.
    pub(super) fn unwatched(&self, owner: OwnerId) {
        if let Some(hold) = self.holds.lock().held.get_mut(&owner) {
            hold.watched = false;
        }
    }

    /// The node of a hold is gone. The core has ended one whose time was over.
    pub(super) fn lost_its_node(&self, owner: OwnerId) {
        let now = self.env.now();
        let holds = self.holds.lock();
        let Some(hold) = holds.held.get(&owner).filter(|hold| !hold.ending) else {
            return;
        };
        let over = holds.requests.until(hold.mine.czxid).is_some_and(|until| until <= now);
        if let Some(counter) = self.counter(hold.mine.czxid).ok().filter(|_| !over) {
            let name = hold.name.clone();
            self.events.tell(StoreEvent::GrantLost { name, counter, reason: LostReason::Gone });
        }
    }

    /// Takes in what the inbox says now.
    pub(crate) fn asked_for(&self, inbox: &[u8]) {
        let holds = &mut *self.holds.lock();
        let news = holds.requests.hear(inbox, self.env.now());
        for hold in holds.held.values() {
            let czxid = hold.mine.czxid;
            if let (Some(within), Ok(counter)) = (news.get(&czxid), self.counter(czxid)) {
                let (name, within) = (hold.name.clone(), *within);
                self.events.tell(StoreEvent::GrantAsked { name, counter, within });
            }
        }
    }
}
