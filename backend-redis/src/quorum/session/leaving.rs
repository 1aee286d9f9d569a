//! Giving back what a session has at its servers: holds, and what acquisitions leave behind.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use leasehold_core::backend::{Backoff, Grant};
use leasehold_core::clock::Moment;
use leasehold_core::{Error, LockName, LostReason, Result};
use parking_lot::Mutex;
use redis::Cmd;
use tokio::sync::MutexGuard;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::errand::UnderWay;
use super::{Asking, Entry, Session};
use crate::error;
use crate::protocol::{Next, Orphans, Unanswered, Up};
use crate::quorum::protocol::{Outcome, Releasing, Ticket};
use crate::quorum::scripts::{self, Ballot};

/// What is let go.
struct Left {
    /// What is under way, if anything is.
    asking: Option<Arc<Asking>>,
    ttl: Duration,
    /// The same for all servers.
    call: Cmd,
    releasing: Mutex<Releasing>,
}

/// What is being let go, at one server each: by whoever waits for it, and in the background once nobody does.
struct LettingGo {
    session: Arc<Session>,
    under_way: UnderWay,
    /// Whoever closes waits for it, whoever polls it.
    _awaited: TaskTrackerToken,
}

impl Session {
    /// Releases a grant of ours: at every server, in the background until each has confirmed or its lease is over. A quorum is
    /// waited for.
    ///
    /// # Errors
    ///
    /// `Lost` when the hold was over; unknown when too few servers answer.
    pub(crate) async fn release(self: &Arc<Self>, grant: &Grant) -> Result<()> {
        if self.life.closed.is_cancelled() {
            return Err(error::closed());
        }
        let entry = self.life.forget(grant.owner);
        let servers = 0..self.size.servers;
        let was_ours = entry.as_ref().and_then(|entry| {
            let mut contender = entry.contender.lock();
            let is_over = contender.over(self.env.now()).is_some();
            let was_ours = servers.clone().map(|server| contender.number_at(server).is_some()).collect();
            contender.end(LostReason::Released);
            (!is_over).then_some(was_ours)
        });
        let releasing = Mutex::new(Releasing::new(self.size, was_ours));
        // Whatever one has that is not known any more.
        let whole = Ballot { ticket: Ticket { time: 0, owner: grant.owner }, round: LAST_ROUND };
        let call = self.call_to_let_go(&grant.name, entry.as_ref().map_or(whole, |entry| entry.ballot()));
        let asking = entry.and_then(|entry| entry.asking.lock().clone());
        let left = Arc::new(Left { asking, ttl: grant.lease.ttl, call, releasing });
        let mut letting_go = self.let_go(&left, servers);
        // One that goes on asking has told what it was answered first.
        let decided = poll_fn(|cx| {
            _ = Pin::new(&mut letting_go.under_way).poll(cx);
            let outcome = left.releasing.lock().outcome();
            if outcome == Outcome::Open { Poll::Pending } else { Poll::Ready(outcome) }
        });
        let outcome = tokio::select! {
            biased;
            outcome = decided => outcome,
            () = self.alarm.reached(self.give_up_at()) => left.releasing.lock().given_up(),
        };
        match outcome {
            Outcome::Released => Ok(()),
            Outcome::Lost => Err(Error::lost(LostReason::Gone)),
            Outcome::Unconfirmed | Outcome::Open => {
                Err(error::unanswered("too few servers have confirmed the release"))
            }
        }
    }

    /// Releases in the background what `entry` leaves.
    pub(super) fn leave(self: &Arc<Self>, entry: &Arc<Entry>) {
        let may_be_at = |server: &usize| entry.contender.lock().may_be_at(*server);
        let servers: Vec<_> = (0..self.size.servers).filter(may_be_at).collect();
        if servers.is_empty() {
            return;
        }
        let (ttl, call) = (entry.ttl, self.call_to_let_go(&entry.name, entry.ballot()));
        let releasing = Mutex::new(Releasing::new(self.size, None));
        let left = Arc::new(Left { asking: entry.asking.lock().clone(), ttl, call, releasing });
        drop(self.let_go(&left, servers));
    }

    /// All that an owner has, up to the latest round.
    fn call_to_let_go(&self, name: &LockName, ballot: Ballot) -> Cmd {
        scripts::release(&self.keys.of(name), &self.inboxes, ballot, &self.inbox, None)
    }

    fn let_go(self: &Arc<Self>, left: &Arc<Left>, servers: impl IntoIterator<Item = usize>) -> LettingGo {
        let mut under_way = UnderWay::default();
        for server in servers {
            let (session, left) = (Arc::clone(self), Arc::clone(left));
            under_way.begin(async move { session.settle(server, &left).await });
        }
        LettingGo { session: Arc::clone(self), under_way, _awaited: self.life.leaving.token() }
    }

    /// Releases at one server until nothing may arrive any more.
    async fn settle(&self, server: usize, left: &Left) {
        let turn = self.turn_at(server, left).await;
        let unanswered = left.asking.as_ref().map(|asking| asking.seats[server].unanswered.lock().clone());
        let unanswered: Unanswered = unanswered.unwrap_or_default();
        let mut now = self.env.now();
        let mut remains = Orphans::new(now, left.ttl, unanswered);
        let mut pauses = Backoff::of_requests(&self.env);
        let mut is_told = false;
        loop {
            let released = self.release_at(server, left, now).await;
            if !std::mem::replace(&mut is_told, true) {
                let mut releasing = left.releasing.lock();
                match &released {
                    Ok((had, _)) => releasing.answered(server, *had),
                    Err(_) => releasing.failed(),
                };
            }
            now = self.env.now();
            let up = self.members[server].link.up().map(|up| Up { id: up.id(), at: up.up_at() });
            let next = match &released {
                Ok((_, connection)) => remains.answered(now, up, *connection, false),
                Err(_) => remains.unanswered(now, up),
            };
            match next {
                Next::GoOn => {}
                // Whoever closes waits neither for a server that is away nor for what may still arrive.
                Next::Retry | Next::Look
                    if self.life.closing.run_until_cancelled(pauses.pause(&self.env)).await.is_some() => {}
                Next::Retry | Next::Look | Next::Stop => break,
            }
            now = self.env.now();
        }
        drop(turn);
    }

    /// redis.quorum.session-1. Whoever closes does not wait for a caller whom nobody polls: what it has sent may still arrive.
    async fn turn_at<'l>(&self, server: usize, left: &'l Left) -> Option<MutexGuard<'l, ()>> {
        let turn = &left.asking.as_ref()?.seats[server].turn;
        match turn.try_lock() {
            Ok(turn) => Some(turn),
            Err(_) => self.life.closing.run_until_cancelled(turn.lock()).await,
        }
    }

    /// Ends what an owner has at a server: whether it had the vote, and the connection that has brought the answer.
    async fn release_at(&self, server: usize, left: &Left, now: Moment) -> Result<(bool, u64)> {
        let admitted = self.members[server].ready(self, server).await?;
        let value = admitted.connected.run(&scripts::PROGRAM, &left.call, self.give_up_after(now)).await?;
        Ok((scripts::was_there(&value)?, admitted.connected.id()))
    }
}

impl Drop for LettingGo {
    fn drop(&mut self) {
        if self.under_way.is_empty() {
            return;
        }
        let mut under_way = std::mem::take(&mut self.under_way);
        let life = &self.session.life;
        life.spawn(life.leaving.track_future(async move {
            while !under_way.is_empty() {
                (&mut under_way).await;
            }
        }));
    }
}

/// Later than any round.
const LAST_ROUND: u64 = 1 << 52;
