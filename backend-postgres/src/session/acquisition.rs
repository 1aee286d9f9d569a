//! Drives one acquisition: carries out the steps of [`Contender`], and reports their outcome to it.
//!
//! Requests are never cancelled midway: an acquisition that is dropped goes on in the background as its own clean-up.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::{AcquireRequest, Attempt, Background, Backoff, Holder, StoreEvent};
use leasehold_core::clock::Moment;
use leasehold_core::{Effect, Error, ErrorKind, Result};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Session;
use super::sessions::Sessions;
use crate::error;
use crate::protocol::{AcquireEnd, AcquireReply, Contender, Demand, EntryNews, Generation, Step};

/// Acquires the lock, or queues for it.
///
/// # Cancel safety
///
/// Dropped, it goes on as its own clean-up until nothing of it is left.
pub(crate) async fn acquire(
    sessions: &Arc<Sessions>,
    request: &AcquireRequest,
    patience: Demand,
) -> Result<Attempt> {
    let left = CancellationToken::new();
    let work = acquire_until(left.clone(), Arc::clone(sessions), request.clone(), patience);
    Background::new(&sessions.env, left, Box::pin(work)).await
}

async fn acquire_until(
    left: CancellationToken,
    sessions: Arc<Sessions>,
    request: AcquireRequest,
    patience: Demand,
) -> Result<Attempt> {
    loop {
        let session = match sessions.session().await {
            // An attempt that began before this request says nothing of now.
            Err(error) if error::may_pass(&error) => sessions.session().await?,
            opened => opened?,
        };
        let mut acquisition = Acquisition::new(&session, &request, patience);
        let ended = loop {
            break match acquisition.run(&left).await {
                // Nothing is awaited between the last check of `left` and here: a grant that is not wanted is
                // released by `run`.
                Ok(AcquireEnd::Granted(seq)) => {
                    match session.grant(&request.name, seq, request.owner, acquisition.on).transpose() {
                        Some(grant) => grant.map(Attempt::Granted),
                        None => continue,
                    }
                }
                Ok(AcquireEnd::Refused) => Ok(Attempt::Held { holder: acquisition.head.take() }),
                Ok(AcquireEnd::Left) => {
                    Err(Error::not_applied(ErrorKind::Closed, "the acquisition was cancelled"))
                }
                Ok(AcquireEnd::Lost(reason)) => {
                    // A waiter gets the error of the outage that has ended the session.
                    let outage = session.unrenewed.lock().clone().filter(|_| patience == Demand::Waits);
                    Err(outage.unwrap_or_else(|| Error::lost(reason)))
                }
                Err(error) => Err(error),
            };
        };
        let Err(error) = ended else {
            acquisition.sleeps();
            return ended;
        };
        acquisition.clean_up();
        sessions.refuse_if_closed()?;
        // The core does not repeat a try.
        if patience == Demand::Waits || error.lost_reason().is_none() || left.is_cancelled() {
            return Err(error);
        }
    }
}

/// One entry on its way into a queue, and out of it.
struct Acquisition {
    session: Arc<Session>,
    request: AcquireRequest,
    patience: Demand,
    contender: Contender,
    /// The connections of the last step.
    on: Generation,
    wake: Arc<Notify>,
    look_at: Moment,
    /// Pauses between looks without messages.
    polls: Backoff,
    head: Option<Holder>,
}

impl Acquisition {
    fn new(session: &Arc<Session>, request: &AcquireRequest, patience: Demand) -> Self {
        Self {
            request: request.clone(),
            patience,
            contender: Contender::new(patience),
            on: 0,
            wake: Arc::default(),
            look_at: session.env().now(),
            polls: Backoff::new(FIRST_POLL, LONGEST_POLL),
            head: None,
            session: Arc::clone(session),
        }
    }

    /// Goes on until the end. After an error, of a try or of a request that is not queued, the clean-up is due.
    async fn run(&mut self, left: &CancellationToken) -> Result<AcquireEnd> {
        let session = Arc::clone(&self.session);
        let (env, bound) = (session.env(), session.env().timing().op_timeout);
        // Early enough to report the cause before the caller's bound.
        let give_up_at = env.now() + bound * 3 / 4;
        let (mut is_fresh, mut pauses) = (false, Backoff::new(bound / 32, bound / 4));
        loop {
            if left.is_cancelled() {
                self.contender.abandon();
            }
            let began = env.now();
            let step = {
                let book = session.book.lock();
                let told = self.contender.seq().map_or(EntryNews::Nothing, |seq| book.told(seq));
                self.on = book.generation();
                self.contender.next(env.now(), book.deadline(), self.on, told)
            };
            let done = match step {
                Step::AcquireEnd(AcquireEnd::Granted(_)) if !is_fresh && session.is_nearly_over() => {
                    session.renew().await;
                    is_fresh = true;
                    Ok(())
                }
                Step::AcquireEnd(end) => return Ok(end),
                Step::Wait => {
                    self.wait(left).await;
                    Ok(())
                }
                // After the session's end its entries end with it.
                step => session.ended.run_until_cancelled(self.send(step)).await.unwrap_or(Ok(())),
            };
            let Err(error) = done else {
                continue;
            };
            session.hears_of_the_end(&error);
            if left.is_cancelled() && *error.kind() == ErrorKind::Denied {
                // Nothing else removes the entry from its queue.
                session.lose(leasehold_core::LostReason::SessionLost);
            }
            let waits = self.patience == Demand::Waits && self.contender.seq().is_some();
            let may_go_on = error::may_pass(&error) || error.lost_reason().is_some();
            // Another one may take as long: its effect would be unknown at the bound.
            let is_too_late = !waits && give_up_at <= env.now() + env.now().since(began);
            if (is_too_late || !may_go_on) && !left.is_cancelled() {
                return Err(error);
            }
            let (lock, error) = (&self.request.name, format!("{error:#}"));
            tracing::debug!(%lock, ?error, "retrying after an unconfirmed request");
            session.ended.run_until_cancelled(pauses.pause(env)).await;
        }
    }

    fn clean_up(mut self) {
        let (env, left) = (self.session.env().clone(), CancellationToken::new());
        left.cancel();
        // A cancelled `run` ends without error.
        env.spawn(async move {
            let _ = self.run(&left).await;
            self.sleeps();
        });
    }

    async fn send(&mut self, step: Step) -> Result<()> {
        let session = Arc::clone(&self.session);
        match step {
            Step::Ask => self.ask(&session).await?,
            Step::Flush => {
                let (line, _) = session.line().await?;
                session.flush(&line).await?;
                self.contender.flushed(line.generation);
            }
            Step::Release(seq) => {
                let (line, _) = session.line().await?;
                let low = session.book.lock().low(&self.request.name);
                session.release_entry(&line, self.request.name.as_str().as_bytes(), seq, low).await?;
                self.forget(seq);
                self.contender.removed();
            }
            Step::Abandon => {
                let (line, _) = session.line().await?;
                session.abandon(&line, &self.request).await?;
                if let Some(seq) = self.contender.seq() {
                    self.forget(seq);
                }
                self.contender.removed();
            }
            Step::Wait | Step::AcquireEnd(_) => {}
        }
        Ok(())
    }

    async fn ask(&mut self, session: &Arc<Session>) -> Result<()> {
        let (line, epoch) = session.line().await?;
        let asking = Asking::begin(session);
        let answer = session.acquire(&line, epoch, &self.request, self.patience).await;
        let answer = answer.inspect_err(|error| {
            if error.effect() == Effect::Unknown {
                self.contender.failed();
            }
        })?;
        let (before, now) = (self.contender.seq(), session.env().now());
        if let Some(seq) = answer.seq {
            session.wakes.lock().insert(seq, Arc::clone(&self.wake));
            let (name, owner) = (&self.request.name, self.request.owner);
            let counts = session.book.lock().enter(name, seq, owner, line.generation);
            if !counts {
                // An entry that was there before keeps its place, and `mine` finds it in the book.
                if before != Some(seq) {
                    self.forget(seq);
                }
                self.contender.failed();
                return Ok(());
            }
        }
        drop(asking);
        if let Some(gone) = before.filter(|before| Some(*before) != answer.seq) {
            self.forget(gone);
        }
        if let Some(first) = answer.first {
            session.book.lock().learn(&self.request.name, first, line.generation);
        }
        self.contender.asked(AcquireReply { granted: answer.granted, seq: answer.seq, on: line.generation });
        self.look_at = now + self.next_look(answer.look_in);
        if let Some(holder) = answer.head {
            let is_new = self.head.as_ref().is_none_or(|before| before.token != holder.token);
            self.head = Some(holder.clone());
            if is_new && self.patience == Demand::Waits && !answer.granted {
                session.sessions.events.tell(StoreEvent::Queued { name: self.request.name.clone(), holder });
            }
        }
        Ok(())
    }

    /// When the entry is looked at without a message: when the lease before it may have ended, and before half a ttl has passed in
    /// any case, a quarter more or less.
    fn next_look(&mut self, look_in: Option<f64>) -> Duration {
        let env = self.session.env();
        let half = self.session.ttl / 4 + env.jittered(self.session.ttl / 2);
        let due = look_in.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or(half);
        let due = due.min(half);
        if self.session.sessions.server.config.listen { due } else { due.min(self.polls.next(env)) }
    }

    /// Waits for a message, or the next look.
    async fn wait(&mut self, left: &CancellationToken) {
        let session = Arc::clone(&self.session);
        tokio::select! {
            biased;
            () = left.cancelled() => {}
            () = session.ended.cancelled() => {}
            () = self.wake.notified() => {}
            () = session.env().sleep_until(self.look_at) => self.contender.doubt(),
        }
    }

    fn forget(&self, seq: i64) {
        self.session.book.lock().forget(seq);
        self.session.wakes.lock().remove(&seq);
    }

    /// It is not woken any more.
    fn sleeps(&self) {
        if let Some(seq) = self.contender.seq() {
            self.session.wakes.lock().remove(&seq);
        }
    }
}

/// A request that may put an entry is on its way: messages about its number may come before its answer.
struct Asking(Arc<Session>);

impl Asking {
    fn begin(session: &Arc<Session>) -> Self {
        session.book.lock().asks();
        Self(Arc::clone(session))
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.book.lock().asked();
    }
}

/// Pauses between looks of a waiter that hears no messages.
const FIRST_POLL: Duration = Duration::from_millis(25);
const LONGEST_POLL: Duration = Duration::from_secs(1);
