//! Giving back what a session has at its servers: holds, and what acquisitions leave behind.

use std::sync::Arc;

use leasehold_core::backend::{Backoff, Grant};
use leasehold_core::{Effect, Error, ErrorKind, LostReason, Result};
use tokio::sync::mpsc::{self, UnboundedSender};

use super::{Entry, Session};
use crate::error;
use crate::protocol::{Next, Remains, Unanswered, Up};
use crate::quorum::keys::BallotKeys;
use crate::quorum::protocol::{Outcome, Releasing, Ticket};
use crate::quorum::scripts::{self, Ballot};
use crate::scripts::millis;

/// What is let go at one server.
struct Left {
    entry: Option<Arc<Entry>>,
    keys: BallotKeys,
    ticket: Ticket,
    ttl: std::time::Duration,
}

impl Session {
    /// Releases a grant of ours: at every server, in the background until each has confirmed or its lease is over. A quorum is
    /// waited for.
    ///
    /// # Errors
    ///
    /// `Lost` when the hold was over; unknown when too few servers answer.
    pub(crate) async fn release(self: &Arc<Self>, grant: &Grant) -> Result<()> {
        if self.closed.is_cancelled() {
            return Err(error::closed());
        }
        let entry = self.entries.lock().remove(&self.lease_of(grant.owner));
        let servers = 0..self.size.servers;
        let was_ours = entry.as_ref().and_then(|entry| {
            let mut contender = entry.contender.lock();
            let is_over = contender.over(self.env.now()).is_some();
            let was_ours = servers.clone().map(|server| contender.number_at(server).is_some()).collect();
            contender.end(LostReason::Released);
            (!is_over).then_some(was_ours)
        });
        let mut releasing = Releasing::new(self.size, was_ours);
        let (tell, mut told) = mpsc::unbounded_channel();
        for server in servers {
            let ticket = Ticket { time: 0, owner: grant.owner };
            let left = Left {
                keys: self.keys.of(&grant.name),
                ticket: entry.as_ref().map_or(ticket, |entry| entry.ticket),
                ttl: grant.lease.ttl,
                entry: entry.clone(),
            };
            self.let_go(server, left, Some(tell.clone()));
        }
        drop(tell);
        let give_up_at = self.give_up_at();
        loop {
            let outcome = tokio::select! {
                biased;
                answered = told.recv() => match answered {
                    Some((server, Some(had))) => releasing.answered(server, had),
                    Some((_, None)) => releasing.failed(),
                    None => Outcome::Unconfirmed,
                },
                () = self.env.sleep_until(give_up_at) => releasing.given_up(),
            };
            match outcome {
                Outcome::Open => {}
                Outcome::Released => return Ok(()),
                Outcome::Lost => return Err(Error::lost(LostReason::Gone)),
                Outcome::Unconfirmed => {
                    let message = "too few servers have confirmed the release";
                    return Err(Error::new(ErrorKind::Unavailable, Effect::Unknown, message));
                }
            }
        }
    }

    /// Releases in the background what `entry` leaves.
    pub(super) fn leave(self: &Arc<Self>, entry: &Arc<Entry>) {
        for server in 0..self.size.servers {
            if entry.contender.lock().may_be_at(server) {
                let (keys, ticket, ttl) = (entry.keys.clone(), entry.ticket, entry.ttl);
                self.let_go(server, Left { entry: Some(Arc::clone(entry)), keys, ticket, ttl }, None);
            }
        }
    }

    /// Releases at one server until nothing may arrive any more; the first answer is told.
    fn let_go(
        self: &Arc<Self>,
        server: usize,
        left: Left,
        tell: Option<UnboundedSender<(usize, Option<bool>)>>,
    ) {
        let session = Arc::clone(self);
        self.env.spawn(self.leaving.track_future(async move {
            session.closed.run_until_cancelled(session.settle(server, &left, tell)).await;
        }));
    }

    async fn settle(
        &self,
        server: usize,
        left: &Left,
        mut tell: Option<UnboundedSender<(usize, Option<bool>)>>,
    ) {
        let mut pauses = Backoff::of_requests(&self.env);
        // redis.quorum.session-1
        let turn = match &left.entry {
            Some(entry) => Some(entry.seats[server].turn.lock().await),
            None => None,
        };
        let unanswered = left.entry.as_ref().map(|entry| entry.seats[server].unanswered.lock().clone());
        let unanswered: Unanswered = unanswered.unwrap_or_default();
        let mut remains = Remains::new(self.env.now(), left.ttl, unanswered);
        loop {
            let released = self.release_at(server, left).await;
            if let Some(tell) = tell.take() {
                // Nobody hears it who has gone.
                let _ = tell.send((server, released.as_ref().ok().map(|(had, _)| *had)));
            }
            let link = &self.members[server].link;
            let (now, up) = (self.env.now(), link.up().map(|up| Up { id: up.id(), at: up.up_at() }));
            let next = match &released {
                Ok((_, connection)) => remains.answered(now, up, *connection, false),
                Err(_) => remains.unanswered(now, up),
            };
            match next {
                Next::GoOn => {}
                // Whoever closes waits neither for a server that is away nor for what may still arrive.
                Next::Retry | Next::Look
                    if self.closing.run_until_cancelled(pauses.pause(&self.env)).await.is_some() => {}
                Next::Retry | Next::Look | Next::Stop => break,
            }
        }
        drop(turn);
    }

    /// Ends what an owner has at a server: whether it had the vote, and the connection that has brought the answer.
    async fn release_at(&self, server: usize, left: &Left) -> Result<(bool, u64)> {
        let ballot = Ballot { ticket: left.ticket, round: LAST_ROUND };
        let call = scripts::release(&left.keys, &self.channels, ballot, millis(left.ttl), false, &self.inbox);
        let admitted = self.members[server].ready(self, server).await?;
        let value = admitted.connected.run(&scripts::RELEASE, &call, self.give_up_at()).await?;
        Ok((scripts::was_there(&value)?, admitted.connected.id()))
    }
}

/// Later than any round.
const LAST_ROUND: u64 = 1 << 52;
