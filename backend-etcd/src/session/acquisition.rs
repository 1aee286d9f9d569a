//! Drives one acquisition: carries out the steps of [`Contender`], and reports their outcome to it.
//!
//! Requests are never cancelled midway: an acquisition that is dropped goes on in the background as its own clean-up.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::{AcquireRequest, Attempt, Background, Holder, StoreEvent};
use leasehold_core::clock::Moment;
use leasehold_core::{Effect, Env, Error, ErrorKind, Result};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Session;
use super::sessions::Sessions;
use crate::connection::backoff;
use crate::error;
use crate::keys::{HolderNote, LockKeys, Range};
use crate::protocol::{Contender, End, Patience, QueuePosition, Repeats, Revision, Step, Target, Told};

/// Acquires the lock, or queues for it.
///
/// # Cancel safety
///
/// Dropped, it goes on as its own clean-up until nothing of it is left.
pub(crate) async fn acquire(
    sessions: &Arc<Sessions>,
    request: &AcquireRequest,
    patience: Patience,
) -> Result<Attempt> {
    let left = CancellationToken::new();
    let work = acquire_until(left.clone(), Arc::clone(sessions), request.clone(), patience);
    Background::new(&sessions.env, left, Box::pin(work)).await
}

async fn acquire_until(
    left: CancellationToken,
    sessions: Arc<Sessions>,
    request: AcquireRequest,
    patience: Patience,
) -> Result<Attempt> {
    loop {
        let session = sessions.session().await?;
        let mut acquisition = Acquisition::new(&session, &request, patience).await;
        let ended = acquisition.run(&left).await.and_then(|end| match end {
            // Nothing is awaited between the last check of `left` and here: a grant that is not wanted is
            // released by `run`.
            End::Granted(create) => session.grant(&request.name, create, request.owner).map(Attempt::Granted),
            End::Refused => Ok(Attempt::Held { holder: acquisition.holder.take() }),
            End::Left => Err(Error::not_applied(ErrorKind::Closed, "the acquisition was cancelled")),
            End::Lost(reason) => Err(Error::lost(reason)),
        });
        let Err(error) = ended else {
            return ended;
        };
        acquisition.clean_up();
        sessions.refuse_if_closed()?;
        // The core does not repeat a try.
        if patience == Patience::Waits || error.lost_reason().is_none() || left.is_cancelled() {
            return Err(error);
        }
    }
}

/// One entry on its way into a queue, and out of it. Its name is reserved meanwhile (etcd.book-2).
struct Acquisition {
    session: Arc<Session>,
    request: AcquireRequest,
    patience: Patience,
    keys: LockKeys,
    value: Vec<u8>,
    contender: Contender,
    /// The reports of the watches on the queue, if there are any.
    told: Option<watch::Receiver<Told>>,
    older: usize,
    /// When to read the entries that block this one, if the queue does not move.
    look_at: Moment,
    /// When to read it in any case.
    look_by: Moment,
    heard: Option<Revision>,
    holder: Option<Holder>,
}

impl Drop for Acquisition {
    fn drop(&mut self) {
        self.session.free(&self.request.name);
    }
}

impl Acquisition {
    async fn new(session: &Arc<Session>, request: &AcquireRequest, patience: Patience) -> Self {
        let slot = session.take(&request.name, request.mode).await;
        let (keys, now) = (session.keys(&request.name, slot), session.env().now());
        Self {
            request: request.clone(),
            patience,
            value: HolderNote::new(request, session.ttl).to_bytes(),
            contender: Contender::new(patience, slot.mode, &keys.own),
            // A lock that was waited for lately is watched already. Listening must begin before the request.
            told: session.watches.listen(&keys.queue),
            older: 0,
            look_at: now + first_look(session.ttl),
            look_by: now + next_look(session.env(), session.ttl),
            heard: None,
            holder: None,
            session: Arc::clone(session),
            keys,
        }
    }

    /// Goes on until the end. After an error, of a try or of a request that is not queued, the clean-up is due.
    async fn run(&mut self, left: &CancellationToken) -> Result<End> {
        let session = Arc::clone(&self.session);
        let env = session.env();
        // Early enough to report the cause before the caller's bound.
        let give_up_at = env.now() + env.timing().op_timeout * 3 / 4;
        let mut pauses = backoff(env);
        let (mut is_fresh, mut repeats) = (false, Repeats::default());
        loop {
            if left.is_cancelled() {
                self.contender.abandon();
            }
            self.contender.in_epoch(session.book.lock().epoch);
            let step = {
                let none = Told::default();
                let heard = self.told.as_mut().map(watch::Receiver::borrow_and_update);
                let told = heard.as_deref().unwrap_or(&none);
                if told.is_refused && !left.is_cancelled() {
                    return Err(error::not_told());
                }
                let step = self.contender.next(env.now(), session.deadline(), told);
                debug_assert!(step != Step::Wait || told.is_bounded(), "etcd.told-3");
                step
            };
            let failed = match step {
                Step::End(End::Granted(_)) if !is_fresh && session.is_nearly_over() => {
                    session.renew().await;
                    is_fresh = true;
                    Ok(())
                }
                Step::End(end) => return Ok(end),
                Step::Wait => {
                    repeats.end();
                    self.wait(left).await
                }
                step => {
                    if repeats.is_in_vain(&step, &self.contender) {
                        pauses.pause(env).await;
                    }
                    // After the session's end an entry ends with the lease.
                    session.ended.run_until_cancelled(self.send(step)).await.unwrap_or(Ok(()))
                }
            };
            let Err(error) = failed else {
                continue;
            };
            repeats.end();
            // etcd.session-1
            if left.is_cancelled() && *error.kind() == ErrorKind::Denied {
                session.deny(&error);
            }
            let waits = self.patience == Patience::Waits && self.contender.place().is_some();
            let is_too_late = !waits && give_up_at <= env.now();
            if (is_too_late || !error::may_pass(&error)) && !left.is_cancelled() {
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
        env.spawn(async move { drop(self.run(&left).await) });
    }

    async fn send(&mut self, step: Step) -> Result<()> {
        let session = Arc::clone(&self.session);
        match step {
            Step::Ask { enter } => {
                let epoch = session.book.lock().epoch;
                let watch = session.watches.asking(&self.keys.queue);
                let asked = session.ask(self.patience, enter, &self.keys, &self.value, epoch, watch).await;
                let (answer, oldest) = asked.inspect_err(|error| {
                    if error.effect() == Effect::Unknown {
                        let was_answered = error::tells(error, error::NO_SPACE);
                        self.contender.failed((!was_answered).then_some(epoch));
                    }
                })?;
                self.hear(|contender, told| contender.asked(answer, told));
                self.holder = oldest.map(|(_, holder)| holder);
                if let Some(place) = self.contender.place() {
                    let (AcquireRequest { name, owner, .. }, now) = (&self.request, session.env().now());
                    session.book.lock().enter(name, self.keys.slot, place.create, *owner, now);
                    if !place.hears_all() {
                        // Behind so many the watch on the queue would report too much.
                        session.watches.close(&Range::all(&self.keys.queue));
                    }
                }
            }
            Step::Delete(create) => {
                session.delete(&self.keys.own, create).await?;
                session.forget(&self.request.name, create);
                self.contender.found(None);
            }
            Step::Settle => {
                session.move_epoch().await.inspect_err(|_error| self.contender.failed(None))?;
            }
            Step::Find => {
                let found = session.find(&self.keys.own).await?;
                self.contender.found(found);
            }
            Step::Look { create, all } => {
                let watch = session.watches.asking(&self.keys.queue);
                let seen = session.look(&self.keys, create, watch, all).await?;
                self.hear(|contender, told| contender.looked(seen, told));
            }
            Step::Open(target) => self.open(target),
            Step::Wait | Step::End(_) => {}
        }
        let watched = self.contender.place().map_or(&[][..], QueuePosition::watched);
        if !watched.is_empty() {
            session.watches.use_keys(&self.keys.queue, watched);
        }
        Ok(())
    }

    /// Passes a reply on, together with the reports of the watches.
    fn hear(&mut self, answer: impl FnOnce(&mut Contender, &Told)) {
        // Without a watch there are no reports to keep.
        let Some(told) = &self.told else {
            return answer(&mut self.contender, &Told::default());
        };
        answer(&mut self.contender, &told.borrow());
        self.session.watches.wait_for(&self.keys.queue, self.contender.awaited());
    }

    fn open(&mut self, target: Target) {
        let (watches, queue) = (&self.session.watches, &self.keys.queue);
        match target {
            Target::Queue => watches.open(Range::all(queue), None),
            Target::Key(key, from) => watches.open(Range::rival(queue, key), from),
        }
        if self.told.is_none() {
            self.told = watches.listen(queue);
        }
    }

    /// Waits for a report, or the next check. An error ends the wait.
    async fn wait(&mut self, left: &CancellationToken) -> Result<()> {
        let session = Arc::clone(&self.session);
        let (Some(told), Some(place)) = (&mut self.told, self.contender.place()) else {
            return Ok(());
        };
        let ahead = place.left(&told.borrow()).len();
        if std::mem::replace(&mut self.older, ahead) != ahead && self.look_at < self.look_by {
            self.look_at = (session.env().now() + first_look(session.ttl)).min(self.look_by);
        }
        // Behind many the first check comes late.
        let look_at = if place.hears_all() { self.look_at } else { self.look_by };
        tokio::select! {
            biased;
            () = left.cancelled() => {}
            () = session.ended.cancelled() => {}
            changed = told.changed() => if changed.is_err() {
                // The watches end with the session.
                session.ended.cancelled().await;
            },
            () = session.env().sleep_until(look_at) => self.check().await?,
        }
        Ok(())
    }

    /// Reads whether the own entry and its blockers exist. If not, a watch has missed a deletion.
    async fn check(&mut self) -> Result<()> {
        let session = Arc::clone(&self.session);
        let (Some(told), Some(place)) = (&self.told, self.contender.place()) else {
            return Ok(());
        };
        let (create, hears_all) = (place.create, place.hears_all());
        let blocking_set = place.blocking_set(&told.borrow());
        let for_whom = hears_all || self.heard.is_none();
        let own = (&*self.keys.own, create);
        let (stand, oldest) = session.check(&self.keys.queue, own, &blocking_set, for_whom).await?;
        if !stand || blocking_set.is_empty() {
            // These watches are opened anew; the others may be complete.
            let (watches, queue) = (&session.watches, &self.keys.queue);
            if hears_all {
                watches.close(&Range::all(queue));
            }
            for rival in place.watched() {
                watches.close(&Range::rival(queue, rival.key.clone()));
            }
            self.contender.doubt();
        }
        self.look_by = session.env().now() + next_look(session.env(), session.ttl);
        self.look_at = self.look_by;
        if let Some((holds, holder)) = oldest
            && holds != create
            && self.heard.replace(holds) != Some(holds)
        {
            session.sessions.events.tell(StoreEvent::Queued { name: self.request.name.clone(), holder });
        }
        Ok(())
    }
}

/// After this time a queue that does not move is read for the first time.
fn first_look(ttl: Duration) -> Duration {
    (ttl / 10).clamp(Duration::from_millis(100), Duration::from_millis(250))
}

/// After this time the queue is read again in any case: half a ttl, and up to a quarter more or less, so that waiters that
/// came at the same time do not ask at the same time.
fn next_look(env: &Env, ttl: Duration) -> Duration {
    ttl / 4 + env.jittered(ttl / 2)
}
