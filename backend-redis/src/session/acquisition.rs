//! One acquisition: runs the contender of one request, and releases its leftovers.
//!
//! # Invariants
//! - **redis.acquisition-1** An acquisition that ends without its grant, dropped, failed or lost, releases its owner id in the
//!   background, whatever request is pending (G8); one whose grant was taken does not.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::{AcquireRequest, Attempt, Backoff, Grant, Holder, Mode, StoreEvent};
use leasehold_core::clock::{Deadline, Moment};
use leasehold_core::{Effect, Error, ErrorKind, LostReason, Result};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Kept, Session, outlives};
use crate::connection::{Copies, had_ended, too_few_copies};
use crate::error;
use crate::protocol::{Contender, ScriptReply, Step, Verdict};
use crate::scripts::{self, Reply, millis};

/// An entry of this session, until its grant is taken.
struct Acquisition<'s> {
    session: &'s Arc<Session>,
    request: &'s AcquireRequest,
    entry: Arc<Kept>,
    /// Whether the core knows the lease.
    announced: bool,
    state: AcquisitionState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AcquisitionState {
    /// The server has nothing of it.
    Clean,
    /// The server may have something of it.
    Sent,
    /// The caller has the grant.
    Taken,
}

impl Session {
    /// Takes the lock, or waits for it. Dropping the future abandons.
    pub(crate) async fn acquire(self: &Arc<Self>, request: &AcquireRequest) -> Result<Grant> {
        let mut acquisition = Acquisition::new(self, request)?;
        let give_up_at = self.give_up_at();
        let mut pauses = Backoff::of_requests(&self.env);
        loop {
            let done = match acquisition.step() {
                Step::Enter => acquisition.enter_queue(give_up_at).await,
                Step::Refresh => {
                    acquisition.refresh().await;
                    Ok(())
                }
                Step::Wait(until) => {
                    acquisition.hear(until).await;
                    Ok(())
                }
                Step::Take { counter, deadline } => match acquisition.confirmed(deadline).await {
                    Ok(Some(deadline)) => return acquisition.take(counter, deadline),
                    unconfirmed => unconfirmed.map(drop),
                },
                Step::Over(reason) => return Err(over(reason)),
            };
            match done {
                Ok(()) => {}
                Err(_) if self.life.is_closing() => return Err(error::closed()),
                Err(error) if acquisition.may_repeat(&error, give_up_at) => pauses.pause(&self.env).await,
                Err(error) => return Err(acquisition.after_all_attempts(error)),
            }
        }
    }

    /// Acquires the lock if it is free and no entry is before this one. Dropping the future leaves nothing.
    pub(crate) async fn try_acquire(self: &Arc<Self>, request: &AcquireRequest) -> Result<Attempt> {
        let mut acquisition = Acquisition::new(self, request)?;
        let holder = acquisition.enter_at_once().await;
        let holder = if self.life.is_closing() { Err(error::closed()) } else { holder }?;
        match acquisition.step() {
            Step::Take { counter, deadline } => match acquisition.confirmed(deadline).await {
                Ok(Some(deadline)) => acquisition.take(counter, deadline).map(Attempt::Granted),
                Ok(None) => Ok(Attempt::Held { holder: None }),
                Err(error) => Err(acquisition.after_all_attempts(error)),
            },
            // Held, or granted so late that nothing is left of it.
            _ => {
                if holder.is_some() {
                    acquisition.state = AcquisitionState::Clean;
                }
                Ok(Attempt::Held { holder })
            }
        }
    }
}

/// Closing ends all entries first.
fn over(reason: LostReason) -> Error {
    if reason == LostReason::Shutdown { error::closed() } else { Error::lost(reason) }
}

impl<'s> Acquisition<'s> {
    fn new(session: &'s Arc<Session>, request: &'s AcquireRequest) -> Result<Self> {
        outlives(session.pause, session.failover.as_ref(), request.ttl)?;
        session.guarantees().require(request.mode.needs())?;
        session.keys.admit(&request.name)?;
        let lease = session.life.lease_of(request.owner);
        // The server counts whole milliseconds.
        let ttl = Duration::from_millis(millis(request.ttl));
        let entry = Arc::new(Kept {
            name: request.name.clone(),
            owner: request.owner,
            lease,
            contender: Mutex::new(Contender::new(ttl, session.env.timing().margin(ttl))),
            heard: Notify::new(),
            base: std::sync::OnceLock::new(),
            unanswered: Mutex::default(),
        });
        session.life.enter(lease, &entry)?;
        Ok(Self { session, request, entry, announced: false, state: AcquisitionState::Clean })
    }

    fn step(&self) -> Step {
        self.entry.contender.lock().step(self.session.env.now())
    }

    /// Takes the lock, or enters the queue.
    async fn enter_queue(&mut self, give_up_at: Moment) -> Result<()> {
        let session = self.session;
        let Reply { answer, holder } = self.enter(true, give_up_at).await?;
        if let (ScriptReply::Waits { .. }, Some(holder)) = (answer, holder) {
            self.announce();
            session.events.tell(StoreEvent::Queued { name: self.entry.name.clone(), holder });
        }
        Ok(())
    }

    /// Takes the lock; returns the holder that the server names, if it does not grant.
    async fn enter_at_once(&mut self) -> Result<Option<Holder>> {
        let give_up_at = self.session.give_up_at();
        loop {
            let Reply { answer, holder } = self.enter(false, give_up_at).await?;
            // More expired entries may be before this one than one call drops.
            let again = matches!(answer, ScriptReply::Waits { ask_in: Some(Duration::ZERO), .. });
            if !again {
                return Ok(holder);
            }
            if give_up_at <= self.session.env.now() {
                let message = "timed out while removing expired queue entries";
                return Err(Error::not_applied(ErrorKind::Unavailable, message));
            }
        }
    }

    /// Sends the request to enter.
    async fn enter(&mut self, queues: bool, give_up_at: Moment) -> Result<Reply> {
        let session = self.session;
        let AcquireRequest { name, mode, owner, label, metadata, .. } = self.request;
        let operation = if *mode == Mode::EXCLUSIVE { "acquire" } else { "share" };
        let mut call = session.operation(operation, &[name])?;
        call.arg_of(&[session.inboxes.told()]).arg_of(&[owner.hex_digits()]).number(millis(self.entry.ttl()));
        call.holder(&session.inbox_for(name), label, metadata.as_deref());
        if *mode != Mode::EXCLUSIVE {
            call.arg(scripts::mode(*mode));
        }
        if !queues {
            call.arg("try");
        }
        let call = session.told(call);
        let mut route = session.fleet.of(&call);
        let (sent_at, answer) = loop {
            let way = route.way(give_up_at).await?;
            let sent_at = session.env.now();
            let before = std::mem::replace(&mut self.state, AcquisitionState::Sent);
            self.entry.unanswered.lock().sent(way.connected.id());
            let answer = way.run(&call, give_up_at).await;
            let refused = answer.as_ref().is_err_and(|error| error.effect() == Effect::NotApplied);
            if refused {
                self.state = before;
            }
            if refused || answer.is_ok() {
                self.entry.unanswered.lock().answered();
            }
            if let Some(answer) = route.answered(&way, answer, give_up_at).await {
                break (sent_at, answer);
            }
        };
        let reply = scripts::reply(&answer?, session.naming())?;
        // A try does not wait.
        if queues || !matches!(reply.answer, ScriptReply::Waits { .. }) {
            self.entry.contender.lock().answered(session.env.now(), sent_at, reply.answer);
            session.listen(&self.entry);
            session.waits_in_slot(name, &reply.answer);
        }
        Ok(reply)
    }

    /// Waits for news of the entry, or that moment.
    async fn hear(&self, until: Moment) {
        tokio::select! {
            biased;
            () = self.entry.heard.notified() => {}
            () = self.session.env.sleep_until(until) => {}
        }
    }

    /// Checks whether the holder's lease has ended.
    async fn refresh(&mut self) {
        let session = self.session;
        match session.refresh(&[Arc::clone(&self.entry)], session.give_up_at()).await {
            Ok(_) => self.announce(),
            Err(error) => {
                tracing::debug!(lock = %self.entry.name, error = ?format!("{error:#}"), "refresh failed");
                self.entry.contender.lock().unanswered(session.env.now());
            }
        }
    }

    fn announce(&mut self) {
        self.announced = true;
        self.session.announce(&self.entry);
    }

    /// The grant's deadline, once it is wherever it has to be; `None` if it has ended meanwhile.
    async fn confirmed(&self, deadline: Deadline) -> Result<Option<Deadline>> {
        let session = self.session;
        if session.fleet.copies() == Copies::NONE {
            return Ok(Some(deadline));
        }
        let verdicts = session.refresh(&[Arc::clone(&self.entry)], session.give_up_at()).await?;
        if verdicts == [Verdict::Unchanged] {
            return Err(error::in_lag());
        }
        let Step::Take { deadline, .. } = self.step() else { return Ok(None) };
        Ok(Some(deadline))
    }

    /// The lock is the caller's.
    fn take(mut self, counter: u64, deadline: Deadline) -> Result<Grant> {
        let counter = scripts::counter(
            counter,
            *self.entry.base.get_or_init(|| self.session.fleet.home().token_base()),
        )?;
        self.state = AcquisitionState::Taken;
        self.session.tell_asked(&self.entry);
        let Kept { name, owner, .. } = &*self.entry;
        Ok(Grant::new(name.clone(), *owner, self.entry.lease(deadline), counter))
    }

    /// Whether the request may be repeated after `error`, which is safe: the request or its answer was lost, or it is this
    /// entry's turn and the connection to the replicas is made again.
    fn may_repeat(&self, error: &Error, give_up_at: Moment) -> bool {
        let was_lost = || error.effect() == Effect::Unknown || had_ended(error);
        let in_time = || was_lost() && self.session.env.now() < give_up_at;
        *error.kind() == ErrorKind::Unavailable && !too_few_copies(error) && (self.announced || in_time())
    }

    /// An attempt that was certainly not applied proves nothing about earlier ones.
    fn after_all_attempts(&self, error: Error) -> Error {
        if self.state == AcquisitionState::Sent { error.with_effect(Effect::Unknown) } else { error }
    }
}

impl Drop for Acquisition<'_> {
    /// redis.acquisition-1
    fn drop(&mut self) {
        let Self { session, entry, .. } = self;
        if self.state == AcquisitionState::Taken {
            return;
        }
        entry.contender.lock().end(LostReason::Released);
        if self.state == AcquisitionState::Sent {
            session.leave(entry);
        }
        session.forget(entry.lease);
        if self.announced {
            session.events.tell(StoreEvent::LeaseLost { lease: entry.lease, reason: LostReason::Released });
        }
    }
}
