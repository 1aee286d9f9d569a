//! Releasing a session's entries at the server: grants, and the leftovers of acquisitions.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::{Backoff, Grant};
use leasehold_core::{Effect, Error, LockName, LostReason, OwnerId, Result};

use super::{Kept, Session};
use crate::error;
use crate::protocol::{Next, Orphans, Unanswered};
use crate::scripts::{self, Call, Released};

impl Session {
    /// Releases a grant of this session.
    ///
    /// # Errors
    ///
    /// `Lost` when the server has it no more; as the server's table otherwise.
    pub(crate) async fn release(self: &Arc<Self>, grant: &Grant) -> Result<()> {
        // redis.session-1: known until it is answered, or the caller leaves.
        let releasing = Releasing { session: self, entry: self.life.entry_of(grant.lease.id) };
        if self.life.is_closed() {
            return Err(error::closed());
        }
        let entry = releasing.entry.as_deref();
        if let Some(entry) = entry {
            entry.contender.lock().end(LostReason::Released);
        }
        let released = self.run_release(&self.release_of(&grant.name, grant.owner)?).await;
        if let (Ok((_, connection)), Some(entry)) = (&released, entry) {
            entry.unanswered.lock().overtaken(*connection);
        }
        let (released, _) = released.map_err(|error| match entry {
            // The release in the background may arrive first.
            Some(entry) if entry.may_arrive() => error.with_effect(Effect::Unknown),
            _ => error,
        })?;
        if released.unswept {
            self.sweep(&grant.name);
        }
        if released.held { Ok(()) } else { Err(Error::lost(LostReason::Gone)) }
    }

    /// Passes a free lock on in the background, past any number of ended entries.
    pub(crate) fn sweep(self: &Arc<Self>, name: &LockName) {
        // A new owner id, which has no entry.
        self.give_back(name, self.env.owner_id());
    }

    /// Releases in the background, without a pending request.
    pub(super) fn give_back(self: &Arc<Self>, name: &LockName, owner: OwnerId) {
        self.release_in_background(name, owner, self.env.timing().ttl, Unanswered::default(), false);
    }

    /// Releases the leftovers of `entry` in the background.
    pub(super) fn leave(self: &Arc<Self>, entry: &Kept) {
        let is_first = self.left.lock().insert(entry.owner);
        let unanswered = entry.unanswered.lock().clone();
        self.release_in_background(&entry.name, entry.owner, entry.ttl(), unanswered, is_first);
    }

    /// Releases until no request may arrive any more. A grant to an owner that is in `left` meanwhile is released at once.
    fn release_in_background(
        self: &Arc<Self>,
        name: &LockName,
        owner: OwnerId,
        ttl: Duration,
        unanswered: Unanswered,
        is_in_left: bool,
    ) {
        let (session, name) = (Arc::clone(self), name.clone());
        let orphans = Orphans::new(self.env.now(), ttl, unanswered);
        self.life.spawn(self.life.leaving.track_future(async move {
            session.settle(&name, owner, orphans).await;
            if is_in_left {
                session.left.lock().remove(&owner);
            }
        }));
    }

    async fn settle(&self, name: &LockName, owner: OwnerId, mut orphans: Orphans) {
        let mut pauses = Backoff::of_requests(&self.env);
        loop {
            // The name was admitted before the first request.
            let Ok(call) = self.release_of(name, owner) else { return };
            let released = self.run_release(&call).await;
            let now = self.env.now();
            let up = self.fleet.up(&call, now);
            let next = match &released {
                Ok((released, connection)) => orphans.answered(now, up, *connection, released.unswept),
                Err(_) => orphans.unanswered(now, up),
            };
            if let (Next::Look | Next::Stop, Err(error)) = (next, released) {
                tracing::debug!(error = ?format!("{error:#}"), "entry not released; its lease has ended");
            }
            match next {
                Next::GoOn => {}
                Next::Retry => pauses.pause(&self.env).await,
                // Closing does not wait for requests that may still arrive.
                Next::Look
                    if self.life.closing.run_until_cancelled(pauses.pause(&self.env)).await.is_some() => {}
                Next::Look | Next::Stop => return,
            }
        }
    }

    /// The call that releases the grant or entry of `owner`.
    fn release_of(&self, name: &LockName, owner: OwnerId) -> Result<Call> {
        let mut call = self.operation("release", &[name])?;
        call.arg_of(&[self.inboxes.told()]).arg_of(&[owner.hex_digits()]);
        Ok(self.told(call))
    }

    /// Runs a release; returns the connection of the reply, too.
    async fn run_release(&self, call: &Call) -> Result<(Released, u64)> {
        let give_up_at = self.give_up_at();
        let mut route = self.fleet.of(call);
        loop {
            let way = route.way(give_up_at).await?;
            let answer = way.run(call, give_up_at).await;
            if let Some(answer) = route.answered(&way, answer, give_up_at).await {
                return Ok((scripts::released(&answer?)?, way.connected.id()));
            }
        }
    }
}

/// A grant is being released.
struct Releasing<'s> {
    session: &'s Arc<Session>,
    entry: Option<Arc<Kept>>,
}

impl Drop for Releasing<'_> {
    fn drop(&mut self) {
        if let Some(entry) = &self.entry {
            // A copy of the request that was granted may still arrive.
            if entry.may_arrive() {
                self.session.leave(entry);
            }
            self.session.forget(entry.lease);
        }
    }
}
