//! One acquisition: runs the contender of one request, and releases its votes.
//!
//! # Invariants
//! - **redis.quorum.acquisition-1** An acquisition that ends without its grant, dropped, failed or lost, releases its owner id
//!   at every server in the background (G8); one whose grant was taken does not.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::{AcquireRequest, Attempt, Grant, Holder, Lease, LeaseScope, StoreEvent};
use leasehold_core::clock::Deadline;
use leasehold_core::{Effect, Error, FencingToken, LostReason, Result};
use parking_lot::Mutex;

use super::vote_request::Requests;
use super::{Asking, KeptVotes, Session};
use crate::error;
use crate::quorum::protocol::{Contender, Step, Ticket};
use crate::scripts::millis;

/// An entry, until its grant is returned.
struct Acquisition<'s> {
    session: &'s Arc<Session>,
    entry: Arc<KeptVotes>,
    pending: Requests,
    is_taken: bool,
}

impl Session {
    /// Acquires the lock, or tries to. Dropping the future releases everything.
    pub(crate) async fn contend(self: &Arc<Self>, request: &AcquireRequest, waits: bool) -> Result<Attempt> {
        self.agreed.admits(request.ttl)?;
        Acquisition::new(self, request, waits)?.run().await
    }
}

impl<'s> Acquisition<'s> {
    fn new(session: &'s Arc<Session>, request: &AcquireRequest, waits: bool) -> Result<Self> {
        let now = session.env.now();
        let time = session.bound.lock().time(now).unwrap_or(0);
        let (owner, lease) = (request.owner, session.life.lease_of(request.owner));
        // The servers count whole milliseconds.
        let ttl = Duration::from_millis(millis(request.ttl));
        let ticket = Ticket { time, owner };
        let entry = Arc::new(KeptVotes {
            name: request.name.clone(),
            lease,
            waits,
            label: Arc::clone(&request.label),
            metadata: request.metadata.clone(),
            contender: Mutex::new(Contender::new(session.terms(ttl), ticket, waits)),
            asking: Mutex::default(),
        });
        session.life.enter(lease, &entry)?;
        Ok(Self { session, entry, pending: Requests::default(), is_taken: false })
    }

    async fn run(mut self) -> Result<Attempt> {
        let (session, entry) = (self.session, Arc::clone(&self.entry));
        let asking = entry.asking(session.size.servers);
        let (mut give_up_at, mut is_queued) = (session.give_up_at(), false);
        loop {
            let now = session.env.now();
            self.pending.extend(session.requests_of(&entry, now));
            let (step, has_answers) = {
                let mut contender = entry.contender.lock();
                (contender.step(now), contender.has_quorum_of_answers())
            };
            // A waiter fails once there was no quorum for as long as a request may take.
            if entry.waits && has_answers && step != Step::Unreachable {
                give_up_at = session.give_up_at();
            }
            let is_late = give_up_at <= now;
            let until = match step {
                Step::Take { token, deadline } => return self.take(token, deadline).map(Attempt::Granted),
                Step::Busy => return Ok(Attempt::Held { holder: asking.holder() }),
                // Closing ends all entries first.
                Step::Over(LostReason::Shutdown) => return Err(error::closed()),
                Step::Over(reason) => return Err(Error::lost(reason)),
                Step::Unreachable | Step::Wait(_) if is_late => return Err(self.too_few(&asking)),
                Step::Unreachable => now + session.patience(),
                Step::Wait(until) => until,
            };
            if let (true, false, Some(holder)) = (entry.waits && has_answers, is_queued, asking.holder()) {
                is_queued = true;
                session.events.tell(StoreEvent::Queued { name: entry.name.clone(), holder });
            }
            let until = until.min(give_up_at);
            tokio::select! {
                biased;
                Some(()) = self.pending.next() => {}
                () = asking.received.notified() => {}
                () = session.env.sleep_until(until) => {}
            }
        }
    }

    fn take(&mut self, token: u64, deadline: Deadline) -> Result<Grant> {
        if token > FencingToken::MAX_COUNTER {
            return Err(error::unexpected("a number beyond the largest token"));
        }
        self.is_taken = true;
        if !self.session.revoked.lock().is_empty() {
            self.session.may_be_revoked.notify_one();
        }
        let KeptVotes { name, lease, .. } = &*self.entry;
        let lease = Lease::new(*lease, LeaseScope::Entry, self.entry.ttl(), deadline);
        Ok(Grant::new(name.clone(), self.entry.ticket().owner, lease, token))
    }

    fn too_few(&self, asking: &Asking) -> Error {
        let failed: Vec<_> = asking.members.iter().map(|member| member.failed.lock().clone()).collect();
        let error = self.session.too_few(&failed);
        let contender = self.entry.contender.lock();
        let may_be = (0..self.session.size.servers).any(|server| contender.may_be_at(server));
        if may_be { error.with_effect(Effect::Unknown) } else { error }
    }
}

impl Asking {
    /// The holder that the servers name.
    fn holder(&self) -> Option<Holder> {
        let holders = self.members.iter().filter_map(|member| member.holder.lock().as_deref().cloned());
        holders.max_by_key(|holder| holder.token)
    }
}

impl Drop for Acquisition<'_> {
    /// redis.quorum.acquisition-1
    fn drop(&mut self) {
        self.session.go_on(&self.entry, std::mem::take(&mut self.pending));
        if !self.is_taken {
            self.entry.contender.lock().end(LostReason::Released);
            self.session.life.forget(self.entry.lease);
            self.session.leave(&self.entry);
        }
    }
}
