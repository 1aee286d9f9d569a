//! One acquisition: drives the contenders of one request, and gives up what they have.
//!
//! # Invariants
//! - **redis.acquisition-1** One that is dropped releases its owner id in the background, whatever is on its
//!   way (G8); one whose grant was taken does not.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold_core::backend::{AcquireRequest, Attempt, Backoff, Grant, Holder, LeaseId, StoreEvent};
use leasehold_core::clock::{Deadline, Moment};
use leasehold_core::{Effect, Error, ErrorKind, LostReason, OwnerId, Result};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Entry, Session};
use crate::connection::too_few_replicas;
use crate::error;
use crate::protocol::{Answer, Contender, Step};
use crate::scripts::{self, Reply, millis};

/// An entry of ours, until its grant is taken.
struct Acquisition<'s> {
    session: &'s Arc<Session>,
    entry: Arc<Entry>,
    /// What `inspect` shows of us.
    info: String,
    /// Whether the core knows the lease.
    announced: bool,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// No request was sent.
    Unsent,
    /// The server may have something of ours.
    Sent,
    /// The server has nothing of ours.
    Settled,
    /// The caller has the grant.
    Taken,
}

impl Session {
    /// Takes the lock, or waits for it. Dropping the future abandons.
    pub(crate) async fn acquire(self: &Arc<Self>, request: &AcquireRequest) -> Result<Grant> {
        let granted = self.closing.run_until_cancelled(self.contend(request)).await;
        granted.unwrap_or_else(|| Err(error::closed()))
    }

    async fn contend(self: &Arc<Self>, request: &AcquireRequest) -> Result<Grant> {
        let mut acquisition = Acquisition::new(self, request, request.owner)?;
        let mut give_up_at = Some(self.give_up_at());
        let mut pauses = Backoff::of_requests(&self.env);
        loop {
            let step = acquisition.step();
            match step {
                Step::Enter => match acquisition.enter_queue(give_up_at).await {
                    Ok(_) => {
                        give_up_at = None;
                        pauses.reset();
                    }
                    Err(error) => {
                        let again = *error.kind() == ErrorKind::Unavailable
                            && match give_up_at {
                                // The answer was lost on the way: the same request again is safe.
                                Some(at) => error.effect() == Effect::Unknown && self.env.now() < at,
                                // It was in the queue before.
                                None => true,
                            };
                        if !again {
                            return Err(acquisition.after_all_attempts(error));
                        }
                        pauses.pause(&self.env).await;
                    }
                },
                Step::Refresh => acquisition.refresh().await,
                Step::Wait(until) => tokio::select! {
                    biased;
                    () = acquisition.entry.heard.notified() => {}
                    () = self.env.sleep_until(until) => {}
                },
                Step::Take { counter, deadline } => {
                    match acquisition.confirmed(deadline).await {
                        Ok(Some(deadline)) => return acquisition.take(counter, deadline),
                        Ok(None) => {}
                        Err(error) => {
                            // The way to the replicas is made again; the turn is ours meanwhile.
                            let again = acquisition.announced
                                && *error.kind() == ErrorKind::Unavailable
                                && !too_few_replicas(&error);
                            if !again {
                                return Err(acquisition.after_all_attempts(error));
                            }
                            pauses.pause(&self.env).await;
                        }
                    }
                }
                Step::Leave(reason) => {
                    acquisition.leave(reason).await;
                    give_up_at = None;
                    // The place is lost; owner ids are never used again.
                    acquisition = Acquisition::new(self, request, self.env.owner_id())?;
                }
            }
        }
    }

    /// Takes the lock if nobody has it or is before us. Dropping the future leaves nothing.
    pub(crate) async fn try_acquire(self: &Arc<Self>, request: &AcquireRequest) -> Result<Attempt> {
        let mut acquisition = Acquisition::new(self, request, request.owner)?;
        let entered = self.closing.run_until_cancelled(acquisition.enter_at_once()).await;
        let holder = entered.unwrap_or_else(|| Err(error::closed()))?;
        match acquisition.step() {
            Step::Take { counter, deadline } => match acquisition.confirmed(deadline).await {
                Ok(Some(deadline)) => acquisition.take(counter, deadline).map(Attempt::Granted),
                Ok(None) => Ok(Attempt::Held { holder: None }),
                Err(error) => Err(acquisition.after_all_attempts(error)),
            },
            // Held, or granted so late that nothing is left of it.
            _ => {
                if holder.is_some() {
                    acquisition.state = State::Settled;
                }
                Ok(Attempt::Held { holder })
            }
        }
    }
}

impl<'s> Acquisition<'s> {
    fn new(session: &'s Arc<Session>, request: &AcquireRequest, owner: OwnerId) -> Result<Self> {
        session.open_or_refuse()?;
        let lease = LeaseId::new(session.leases_opened.fetch_add(1, Ordering::Relaxed) + 1);
        // The server counts whole milliseconds.
        let ttl = Duration::from_millis(millis(request.ttl));
        let entry = Arc::new(Entry {
            name: request.name.clone(),
            keys: session.keys.of(&request.name)?,
            owner,
            lease,
            ttl,
            contender: Mutex::new(Contender::new(ttl, session.env.timing().margin(ttl))),
            heard: Notify::new(),
            unanswered: Mutex::default(),
        });
        let mut entries = session.entries.lock();
        entries.by_lease.insert(lease, Arc::clone(&entry));
        entries.by_owner.insert(owner, lease);
        drop(entries);
        let info = scripts::info(&request.label, request.metadata.as_deref());
        Ok(Self { session, entry, info, announced: false, state: State::Unsent })
    }

    fn step(&self) -> Step {
        self.entry.contender.lock().step(self.session.env.now())
    }

    /// Takes the lock, or enters the queue.
    async fn enter_queue(&mut self, give_up_at: Option<Moment>) -> Result<()> {
        let session = self.session;
        let Reply { answer, holder } = self.enter(true, give_up_at).await?;
        if let (Answer::Waits { .. }, Some(holder)) = (answer, holder) {
            self.announce();
            session.events.tell(StoreEvent::Queued { name: self.entry.name.clone(), holder });
        }
        Ok(())
    }

    /// Takes the lock; whom the server names, if it does not grant.
    async fn enter_at_once(&mut self) -> Result<Option<Holder>> {
        let give_up_at = self.session.give_up_at();
        loop {
            let Reply { answer, holder } = self.enter(false, Some(give_up_at)).await?;
            // Nobody holds it, and somebody may wait behind more ended entries than one call drops.
            let again = matches!(answer, Answer::Waits { ask_in: Some(Duration::ZERO), .. });
            if !again {
                return Ok(holder);
            }
            if give_up_at <= self.session.env.now() {
                let message = "the lock is free, behind more ended entries than could be dropped in time";
                return Err(Error::not_applied(ErrorKind::Unavailable, message));
            }
        }
    }

    /// Sends the request to enter.
    async fn enter(&mut self, queues: bool, give_up_at: Option<Moment>) -> Result<Reply> {
        let session = self.session;
        let Entry { keys, owner, ttl, .. } = &*self.entry;
        let mut call = scripts::ACQUIRE.call([keys].into_iter());
        call.arg(&session.channels).arg(owner.to_hex()).arg(millis(*ttl)).arg(u8::from(queues));
        call.arg(&session.inbox).arg(&self.info);
        let give_up_at = give_up_at.unwrap_or_else(|| session.give_up_at());
        let connected = session.connected(give_up_at).await?;
        let sent_at = session.env.now();
        self.entry.contender.lock().sent(sent_at);
        let before = std::mem::replace(&mut self.state, State::Sent);
        self.entry.unanswered.lock().sent(connected.id());
        let answer = connected.run(&scripts::ACQUIRE, &call, give_up_at).await;
        let refused = answer.as_ref().is_err_and(|error| error.effect() == Effect::NotApplied);
        if refused {
            self.state = before;
            self.entry.contender.lock().refused(sent_at);
        }
        if refused || answer.is_ok() {
            self.entry.unanswered.lock().answered();
        }
        let reply = scripts::reply(&answer?, session.token_base)?;
        // Who does not queue does not wait.
        if queues || !matches!(reply.answer, Answer::Waits { .. }) {
            self.entry.contender.lock().answered(session.env.now(), sent_at, reply.answer);
        }
        Ok(reply)
    }

    /// Asks whether the holder's lease has ended.
    async fn refresh(&mut self) {
        let session = self.session;
        match session.refresh(&[Arc::clone(&self.entry)], session.give_up_at()).await {
            Ok(_) => self.announce(),
            Err(error) => {
                tracing::debug!(lock = %self.entry.name, error = %format_args!("{error:#}"), "a refresh had no answer");
                self.entry.contender.lock().unanswered(session.env.now());
            }
        }
    }

    fn announce(&mut self) {
        self.announced = true;
        self.session.announce(&self.entry);
    }

    /// The grant's deadline, once as many replicas as configured have it; `None` if it is over meanwhile.
    async fn confirmed(&self, deadline: Deadline) -> Result<Option<Deadline>> {
        let session = self.session;
        if session.confirming.is_none() {
            return Ok(Some(deadline));
        }
        session.refresh(&[Arc::clone(&self.entry)], session.give_up_at()).await?;
        Ok(match self.step() {
            Step::Take { deadline, .. } => Some(deadline),
            Step::Enter | Step::Refresh | Step::Wait(_) | Step::Leave(_) => None,
        })
    }

    /// The lock is the caller's.
    fn take(mut self, counter: u64, deadline: Deadline) -> Result<Grant> {
        let counter = scripts::counter(counter, self.session.token_base)?;
        self.state = State::Taken;
        self.session.tell_asked(&self.entry);
        let Entry { name, owner, .. } = &*self.entry;
        Ok(Grant::new(name.clone(), *owner, self.entry.lease(deadline), counter))
    }

    /// Gives the place up and waits until the server has heard, so that the next entry does not wait
    /// behind this one.
    async fn leave(mut self, reason: LostReason) {
        let session = self.session;
        tracing::debug!(lock = %self.entry.name, %reason, "the place in the queue is lost");
        session.forget(self.entry.owner);
        self.tell_end(reason);
        let mut left = session.left_of(&self.entry);
        let may_arrive = session.settle(&mut left).await;
        self.state = State::Settled;
        if may_arrive {
            session.let_go(left);
        }
    }

    /// An attempt that was certainly not applied says nothing of those before it.
    fn after_all_attempts(&self, error: Error) -> Error {
        if self.state == State::Sent { error.with_effect(Effect::Unknown) } else { error }
    }

    fn tell_end(&mut self, reason: LostReason) {
        if std::mem::take(&mut self.announced) {
            self.session.events.tell(StoreEvent::LeaseLost { lease: self.entry.lease, reason });
        }
    }
}

impl Drop for Acquisition<'_> {
    /// redis.acquisition-1
    fn drop(&mut self) {
        let session = self.session;
        if self.state == State::Taken {
            return;
        }
        self.entry.contender.lock().end(LostReason::Released);
        session.forget(self.entry.owner);
        self.tell_end(LostReason::Released);
        if self.state == State::Sent {
            session.let_go(session.left_of(&self.entry));
        }
    }
}
