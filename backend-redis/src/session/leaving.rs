//! Giving back what a session has at the server: grants, and what acquisitions leave behind.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use lockcore::backend::{Backoff, Grant};
use lockcore::clock::Moment;
use lockcore::{Effect, Error, LostReason, OwnerId, Result};

use super::{Entry, Session};
use crate::connection::Connected;
use crate::error;
use crate::keys::NameKeys;
use crate::scripts::{self, Released};

/// A request that had no answer: it may still be on its way, through a connection that broke.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unanswered {
    connection: u64,
    /// Since when the server was reached by a newer connection.
    reached_at: Option<Moment>,
}

impl Unanswered {
    pub(super) fn through(connection: &Connected) -> Self {
        Self { connection: connection.id(), reached_at: None }
    }

    /// Whether there may be, now or later, what it makes with a lease of `ttl`; `up` is the connection, if
    /// there is one. A network that was cut may keep a request for as long as the cut lasts: its lease is
    /// counted from when the server was reached again.
    fn may_arrive(&mut self, up: Option<&Connected>, now: Moment, ttl: Duration) -> bool {
        match up {
            // It has arrived, or the connection would be given up.
            Some(up) if up.id() == self.connection => return false,
            Some(up) => _ = self.reached_at.get_or_insert_with(|| up.up_at()),
            None => {}
        }
        self.reached_at.is_none_or(|reached_at| now < reached_at + ttl)
    }
}

/// What is to be released of an entry.
#[derive(Debug)]
pub(super) struct Remains {
    pub(super) keys: NameKeys,
    pub(super) owner: OwnerId,
    pub(super) ttl: Duration,
    pub(super) unanswered: Vec<Unanswered>,
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
                let may_go_on = entry.is_some_and(|entry| {
                    let mut unanswered = entry.unanswered.lock().clone();
                    !self.is_complete(&mut unanswered, entry.ttl)
                });
                // It goes on in the background then, and may be first there.
                return Err(if may_go_on { error.with_effect(Effect::Unknown) } else { error });
            }
        };
        if let Some(entry) = &entry {
            // What was sent before it on the same connection has arrived before it.
            entry.unanswered.lock().retain(|sent| sent.connection != connection);
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
        self.let_go(Remains { keys, owner, ttl: self.env.timing().ttl, unanswered: Vec::new() });
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

    /// Releases in the background until the server confirms; what other connections may still deliver is
    /// looked for at growing intervals, and released at once when the server tells of it.
    pub(super) fn let_go(self: &Arc<Self>, mut remains: Remains) {
        let session = Arc::clone(self);
        let release = async move {
            let mut pauses = Backoff::of_requests(&session.env);
            loop {
                session.confirm_release(&mut remains).await;
                if session.is_complete(&mut remains.unanswered, remains.ttl) {
                    return;
                }
                tokio::select! {
                    biased;
                    () = session.closing.cancelled() => return,
                    () = pauses.pause(&session.env) => {}
                }
            }
        };
        let closed = self.closed.clone();
        self.env.spawn(self.leaving.track_future(async move {
            tokio::select! {
                biased;
                () = closed.cancelled() => {}
                () = release => {}
            }
        }));
    }

    /// Whether nothing may arrive any more; what has arrived, or never will, is forgotten.
    fn is_complete(&self, unanswered: &mut Vec<Unanswered>, ttl: Duration) -> bool {
        let (up, now) = (self.link.up(), self.env.now());
        unanswered.retain_mut(|sent| sent.may_arrive(up.as_ref(), now, ttl));
        unanswered.is_empty()
    }

    pub(super) fn let_go_if_unanswered(self: &Arc<Self>, remains: Remains) {
        if !remains.unanswered.is_empty() {
            self.let_go(remains);
        }
    }

    /// Releases until the server has answered, and there is nobody behind ended entries whom it has not
    /// handed the lock to, or the lease has ended it; whether it has answered. What may still arrive stays in
    /// `remains`.
    pub(super) async fn confirm_release(&self, remains: &mut Remains) -> bool {
        let give_up_at = self.env.now() + remains.ttl;
        let mut pauses = Backoff::of_requests(&self.env);
        loop {
            match self.release_owner(&remains.keys, remains.owner).await {
                Ok((Released { unswept: true, .. }, _)) if self.env.now() < give_up_at => continue,
                Ok((_, connection)) => {
                    // What was sent before it on the same connection has arrived before it.
                    remains.unanswered.retain(|sent| sent.connection != connection);
                    return true;
                }
                Err(error) if give_up_at <= self.env.now() => {
                    tracing::debug!(error = %format_args!("{error:#}"), "an entry was not released; its lease has ended");
                    return false;
                }
                Err(_) => pauses.pause(&self.env).await,
            }
        }
    }
}

impl Entry {
    pub(super) fn remains(&self) -> Remains {
        let unanswered = self.unanswered.lock().clone();
        Remains { keys: self.keys.clone(), owner: self.owner, ttl: self.ttl, unanswered }
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
            self.session.let_go_if_unanswered(entry.remains());
        }
    }
}
