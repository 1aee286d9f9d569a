//! Releases: of holds, and of votes and queue entries that acquisitions leave.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use leasehold_core::backend::{Backoff, Grant};
use leasehold_core::{Error, LockName, LostReason, Result};
use parking_lot::Mutex;
use tokio::sync::MutexGuard;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::vote_request::{Request, Requests};
use super::{Asking, KeptVotes, Session};
use crate::error;
use crate::protocol::{Next, Orphans, Unanswered, Up};
use crate::quorum::keys::VOTE;
use crate::quorum::protocol::{Outcome, Releasing, Ticket};
use crate::quorum::scripts::{self, Ballot};
use crate::scripts::Call;

/// A release at several servers.
struct Left {
    /// The owner's requests, if any may be pending.
    asking: Option<Arc<Asking>>,
    ttl: Duration,
    /// The same for all servers.
    call: Call,
    releasing: Mutex<Releasing>,
}

/// Pending releases, one for each server: they go on in the background once their caller has left.
struct PendingReleases {
    session: Arc<Session>,
    pending: Requests,
    /// Closing waits for it.
    _awaited: TaskTrackerToken,
}

impl Session {
    /// Releases a grant at every server, in the background until each has confirmed or its lease has expired. Waits for a
    /// quorum.
    ///
    /// # Errors
    ///
    /// `Lost` if the hold was lost before; unknown if too few servers answer.
    pub(crate) async fn release(self: &Arc<Self>, grant: &Grant) -> Result<()> {
        if self.life.is_closed() {
            return Err(error::closed());
        }
        let entry = self.life.forget(grant.lease.id);
        let servers = 0..self.size.servers;
        let was_ours = entry.as_ref().and_then(|entry| {
            let mut contender = entry.contender.lock();
            let is_over = contender.over(self.env.now()).is_some();
            let was_ours = servers.clone().map(|server| contender.number_at(server).is_some()).collect();
            contender.end(LostReason::Released);
            (!is_over).then_some(was_ours)
        });
        let releasing = Mutex::new(Releasing::new(self.size, was_ours));
        // An owner that is no longer known may have any round.
        let whole = Ballot { ticket: Ticket { time: 0, owner: grant.owner }, round: LAST_ROUND };
        let call = self.release_call(&grant.name, entry.as_ref().map_or(whole, |entry| entry.ballot()));
        let asking = entry.as_ref().and_then(|entry| entry.asking.lock().clone());
        let left = Arc::new(Left { asking, ttl: grant.lease.ttl, call, releasing });
        let mut releases = self.begin_release(&left, entry.as_deref(), servers);
        let decided = poll_fn(|cx| {
            _ = releases.pending.poll_all(cx);
            let outcome = left.releasing.lock().outcome(false);
            if outcome == Outcome::Open { Poll::Pending } else { Poll::Ready(outcome) }
        });
        let outcome = tokio::select! {
            biased;
            outcome = decided => outcome,
            () = self.env.sleep_until(self.give_up_at()) => left.releasing.lock().outcome(true),
        };
        match outcome {
            Outcome::Released => Ok(()),
            Outcome::Lost => Err(Error::lost(LostReason::Gone)),
            Outcome::Unconfirmed | Outcome::Open => {
                Err(error::unanswered("too few servers have confirmed the release"))
            }
        }
    }

    /// Releases in the background all that `entry` has.
    pub(super) fn leave(self: &Arc<Self>, entry: &Arc<KeptVotes>) {
        let may_be_at = |server: &usize| entry.contender.lock().may_be_at(*server);
        let servers: Vec<_> = (0..self.size.servers).filter(may_be_at).collect();
        if servers.is_empty() {
            return;
        }
        let (ttl, call) = (entry.ttl(), self.release_call(&entry.name, entry.ballot()));
        let releasing = Mutex::new(Releasing::new(self.size, None));
        let left = Arc::new(Left { asking: entry.asking.lock().clone(), ttl, call, releasing });
        // No release before the answers: an acquisition that leaves has hardly ever a vote that it does not know.
        drop(self.begin_release(&left, None, servers));
    }

    /// The release of all that an owner has, up to that round.
    fn release_call(&self, name: &LockName, ballot: Ballot) -> Call {
        let [vote] = self.keys.each_of(name, [VOTE]);
        scripts::release(&vote, &self.inboxes, ballot, &self.inbox, None)
    }

    fn begin_release(
        self: &Arc<Self>,
        left: &Arc<Left>,
        entry: Option<&KeptVotes>,
        servers: impl IntoIterator<Item = usize>,
    ) -> PendingReleases {
        let mut pending = Requests::default();
        pending.extend(servers.into_iter().map(|server| -> Request {
            let (session, left) = (Arc::clone(self), Arc::clone(left));
            let is_first = entry.is_some_and(|entry| entry.contender.lock().is_first_pending(server));
            Box::pin(async move { session.settle(server, &left, is_first).await })
        }));
        PendingReleases { session: Arc::clone(self), pending, _awaited: self.life.leaving.token() }
    }

    /// Releases at one server until no earlier request can arrive any more.
    async fn settle(&self, server: usize, left: &Left, is_first: bool) {
        // redis.quorum.session-2
        let is_only = |asking: &Arc<Asking>| {
            let member = &asking.members[server];
            member.turn.try_lock().is_err() && member.unanswered.lock().len() <= 1
        };
        if is_first
            && left.asking.as_ref().is_some_and(is_only)
            && let Ok((true, _)) = self.release_at(server, left).await
        {
            return left.releasing.lock().answered(server, Some(true));
        }
        let turn = self.turn_at(server, left).await;
        let unanswered = left.asking.as_ref().map(|asking| asking.members[server].unanswered.lock().clone());
        let unanswered: Unanswered = unanswered.unwrap_or_default();
        let mut remains = Orphans::new(self.env.now(), left.ttl, unanswered);
        let mut pauses = Backoff::of_requests(&self.env);
        let mut is_told = false;
        loop {
            let released = self.release_at(server, left).await;
            if !std::mem::replace(&mut is_told, true) {
                let had = released.as_ref().ok().map(|(had, _)| *had);
                left.releasing.lock().answered(server, had);
            }
            let now = self.env.now();
            let up = self.members[server].link.up().map(|up| Up { id: up.id(), at: up.up_at() });
            let next = match &released {
                Ok((_, connection)) => remains.answered(now, up, *connection, false),
                Err(_) => remains.unanswered(now, up),
            };
            match next {
                Next::GoOn => {}
                // Closing waits neither for an unreachable server nor for late requests.
                Next::Retry | Next::Look
                    if self.life.closing.run_until_cancelled(pauses.pause(&self.env)).await.is_some() => {}
                Next::Retry | Next::Look | Next::Stop => break,
            }
        }
        drop(turn);
    }

    /// redis.quorum.session-1. Closing does not wait for a caller that is not polled, whose requests may still arrive.
    async fn turn_at<'l>(&self, server: usize, left: &'l Left) -> Option<MutexGuard<'l, ()>> {
        let turn = &left.asking.as_ref()?.members[server].turn;
        match turn.try_lock() {
            Ok(turn) => Some(turn),
            Err(_) => self.life.closing.run_until_cancelled(turn.lock()).await,
        }
    }

    /// Releases an owner's vote at a server; returns whether it had the vote, and the connection of the answer.
    async fn release_at(&self, server: usize, left: &Left) -> Result<(bool, u64)> {
        let admitted = self.members[server].ready(self, server).await?;
        let value = admitted.connected.run(&left.call, self.give_up_at()).await?;
        Ok((scripts::was_there(&value)?, admitted.connected.id()))
    }
}

impl Drop for PendingReleases {
    fn drop(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let (life, mut pending) = (&self.session.life, std::mem::take(&mut self.pending));
        life.spawn(life.leaving.track_future(async move { while pending.next().await.is_some() {} }));
    }
}

/// Later than any round.
const LAST_ROUND: u64 = 1 << 52;
