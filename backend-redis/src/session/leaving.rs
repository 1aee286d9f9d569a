//! Giving back what a session has at the server: grants, and what acquisitions leave behind.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::{Backoff, Grant};
use leasehold_core::{Effect, Error, LostReason, OwnerId, Result};

use super::{Entry, Session};
use crate::error;
use crate::keys::NameKeys;
use crate::protocol::{Next, Remains, Unanswered, Up};
use crate::scripts::{self, Released};

/// What is to be released of a name.
#[derive(Debug)]
pub(super) struct Left {
    keys: NameKeys,
    owner: OwnerId,
    remains: Remains,
}

impl Session {
    /// Releases a grant of ours.
    ///
    /// # Errors
    ///
    /// `Lost` when the server has it no more; as the server's table otherwise.
    pub(crate) async fn release(self: &Arc<Self>, grant: &Grant) -> Result<()> {
        // redis.session-1: known until it is answered, or the caller gives up.
        let _known = Releasing { session: self, owner: grant.owner };
        let entry = self.entry_of(grant.owner);
        let keys = match &entry {
            Some(entry) => {
                entry.contender.lock().end(LostReason::Released);
                Cow::Borrowed(&entry.keys)
            }
            None => Cow::Owned(self.keys.of(&grant.name)?),
        };
        if self.closed.is_cancelled() {
            return Err(error::closed());
        }
        let (released, connection) = match self.release_owner(&keys, grant.owner).await {
            Ok(answered) => answered,
            Err(error) => {
                let may_go_on = entry.is_some_and(|entry| self.may_arrive(&entry));
                // It goes on in the background then, and may be first there.
                return Err(if may_go_on { error.with_effect(Effect::Unknown) } else { error });
            }
        };
        if let Some(entry) = &entry {
            entry.unanswered.lock().overtaken(connection);
        }
        if released.unswept {
            self.sweep(keys.into_owned());
        }
        if released.held { Ok(()) } else { Err(Error::lost(LostReason::Gone)) }
    }

    /// Hands a free lock on in the background, past however many ended entries.
    pub(crate) fn sweep(self: &Arc<Self>, keys: NameKeys) {
        // An owner that nobody has ever been.
        let owner = self.env.owner_id();
        self.let_go(self.left(keys, owner, self.env.timing().ttl));
    }

    /// Ends what `owner` has of a name; and the connection that has brought the answer.
    async fn release_owner(&self, keys: &NameKeys, owner: OwnerId) -> Result<(Released, u64)> {
        let mut call = scripts::RELEASE.call([keys].into_iter());
        call.arg(&self.channels).arg(owner.to_hex());
        let give_up_at = self.give_up_at();
        let connected = self.connected(give_up_at).await?;
        let value = connected.run(&scripts::RELEASE, &call, give_up_at).await?;
        Ok((scripts::released(&value)?, connected.id()))
    }

    /// Something that no request of ours is on its way to.
    pub(super) fn left(&self, keys: NameKeys, owner: OwnerId, ttl: Duration) -> Left {
        Left { keys, owner, remains: Remains::new(self.env.now(), ttl, Unanswered::default()) }
    }

    /// What `entry` leaves.
    pub(super) fn left_of(&self, entry: &Entry) -> Left {
        let remains = Remains::new(self.env.now(), entry.ttl, entry.unanswered.lock().clone());
        Left { keys: entry.keys.clone(), owner: entry.owner, remains }
    }

    /// Releases in the background until nothing may arrive any more. What the server tells of meanwhile is
    /// released at once.
    pub(super) fn let_go(self: &Arc<Self>, mut left: Left) {
        let session = Arc::clone(self);
        let release = async move {
            let mut pauses = Backoff::of_requests(&session.env);
            while session.settle(&mut left).await {
                tokio::select! {
                    biased;
                    () = session.closing.cancelled() => return,
                    () = pauses.pause(&session.env) => {}
                }
            }
        };
        let closed = self.closed.clone();
        self.env.spawn(self.leaving.track_future(async move {
            closed.run_until_cancelled_owned(release).await;
        }));
    }

    /// Releases until what has arrived is over; whether something may still arrive.
    pub(super) async fn settle(&self, left: &mut Left) -> bool {
        let Left { keys, owner, remains } = left;
        let mut pauses = Backoff::of_requests(&self.env);
        loop {
            let released = self.release_owner(keys, *owner).await;
            let (now, up) = (self.env.now(), self.up());
            let next = match &released {
                Ok((released, connection)) => remains.answered(now, up, *connection, released.unswept),
                Err(_) => remains.unanswered(now, up),
            };
            match next {
                Next::GoOn => {}
                Next::Retry => pauses.pause(&self.env).await,
                Next::Look | Next::Stop => {
                    if let Err(error) = released {
                        tracing::debug!(error = %format_args!("{error:#}"), "an entry was not released; its lease has ended");
                    }
                    return next == Next::Look;
                }
            }
        }
    }

    /// Whether a request to enter `entry` may still arrive.
    fn may_arrive(&self, entry: &Entry) -> bool {
        entry.unanswered.lock().may_arrive(self.env.now(), self.up(), entry.ttl)
    }

    fn up(&self) -> Option<Up> {
        self.link.up().map(|up| Up { id: up.id(), at: up.up_at() })
    }
}

/// A grant is being released.
struct Releasing<'s> {
    session: &'s Arc<Session>,
    owner: OwnerId,
}

impl Drop for Releasing<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.session.entry_of(self.owner) {
            self.session.forget(self.owner);
            // A copy of the request that was granted may still arrive.
            if self.session.may_arrive(&entry) {
                self.session.let_go(self.session.left_of(&entry));
            }
        }
    }
}
