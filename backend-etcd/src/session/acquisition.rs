//! Drives one acquisition: carries out what [`Contender`] asks for, and tells it what came of it.
//!
//! Requests are never given up midway: an acquisition that is dropped goes on in the background as its
//! own clean-up, from where it stands.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::{AcquireRequest, Attempt, Carried, Holder, Mode, StoreEvent};
use leasehold_core::clock::Moment;
use leasehold_core::{Effect, Env, Error, ErrorKind, Result};
use tokio_util::sync::CancellationToken;

use super::sessions::Sessions;
use super::{NameLock, Session};
use crate::connection::backoff;
use crate::error;
use crate::keys::{LockKeys, Record};
use crate::protocol::{Change, Contender, End, Kind, Patience, Revision, Step};
use crate::watch::{Listener, WatchEvent};

/// Takes the lock, or queues for it.
///
/// # Cancel safety
///
/// Dropped, it goes on as clean-up until nothing of it is left.
pub(crate) async fn acquire(
    sessions: &Arc<Sessions>,
    request: &AcquireRequest,
    patience: Patience,
) -> Result<Attempt> {
    let left = CancellationToken::new();
    let work = acquire_until(left.clone(), Arc::clone(sessions), request.clone(), patience);
    Carried::new(&sessions.env, left, Box::pin(work)).await
}

async fn acquire_until(
    left: CancellationToken,
    sessions: Arc<Sessions>,
    request: AcquireRequest,
    patience: Patience,
) -> Result<Attempt> {
    let Mode::Exclusive = request.mode else {
        return Err(Error::not_applied(ErrorKind::Unsupported, "this store has exclusive locks only"));
    };
    loop {
        let session = sessions.session().await?;
        let mut acquisition = Acquisition::new(&session, &request, patience).await;
        let ended = match acquisition.drive(&left).await {
            // Nothing is awaited between the last look at `left` and here: a grant that nobody wants is
            // given back by the drive.
            Ok(End::Granted(create)) => {
                session.grant(&request.name, create, request.owner).map(Attempt::Granted)
            }
            Ok(End::Refused) => Ok(Attempt::Held { holder: acquisition.holder.take() }),
            Ok(End::Left) => Err(Error::not_applied(ErrorKind::Closed, "the acquisition was abandoned")),
            Ok(End::Lost(reason)) => Err(Error::lost(reason)),
            Err(error) => Err(error),
        };
        let Err(error) = ended else {
            return ended;
        };
        acquisition.clean_up();
        sessions.refuse_if_closed()?;
        // Nobody else tries again.
        if patience == Patience::Waits || error.lost_reason().is_none() || left.is_cancelled() {
            return Err(error);
        }
    }
}

/// One entry on its way into a queue, and out of it.
struct Acquisition {
    session: Arc<Session>,
    request: AcquireRequest,
    patience: Patience,
    keys: LockKeys,
    value: Vec<u8>,
    contender: Contender,
    listener: Option<Listener>,
    /// When to read the queue if it does not move: who waits for one holder wants to know for whom.
    look_at: Moment,
    /// When to read it whatever the watch tells.
    look_by: Moment,
    heard: Option<Revision>,
    holder: Option<Holder>,
    _name_lock: NameLock,
}

impl Acquisition {
    async fn new(session: &Arc<Session>, request: &AcquireRequest, patience: Patience) -> Self {
        let name_lock = session.lock_name(&request.name).await;
        let (keys, now) = (session.keys(&request.name), session.env().now());
        Self {
            request: request.clone(),
            patience,
            value: Record::new(request, session.ttl).to_bytes(),
            contender: Contender::new(patience),
            // A lock that was waited for lately is watched already; it must be listened to before
            // it is asked for.
            listener: session.watches.standing(&keys.queue),
            look_at: now + first_look(session.ttl),
            look_by: now + next_look(session.env(), session.ttl),
            heard: None,
            holder: None,
            _name_lock: name_lock,
            session: Arc::clone(session),
            keys,
        }
    }

    /// Goes on until the end. An error is one of a request for an entry that does not wait yet; the
    /// clean-up is then due.
    async fn drive(&mut self, left: &CancellationToken) -> Result<End> {
        let session = Arc::clone(&self.session);
        let env = session.env();
        // Early enough to say why before nobody listens any more.
        let give_up_at = env.now() + env.timing().op_timeout * 3 / 4;
        let mut pauses = backoff(env);
        let (mut is_fresh, mut last) = (false, None);
        loop {
            if left.is_cancelled() {
                self.contender.abandon();
            }
            if let Err(denied) = self.take_in()
                && !left.is_cancelled()
            {
                return Err(denied);
            }
            self.contender.in_epoch(session.book.lock().epoch());
            let step = self.contender.next(env.now(), session.deadline());
            let failed = match step {
                Step::End(End::Granted(_)) if !is_fresh && session.is_nearly_over() => {
                    // If it fails, the deadline is what it is.
                    session.renew().await;
                    is_fresh = true;
                    Ok(())
                }
                Step::End(end) => return Ok(end),
                Step::Wait => {
                    last = None;
                    self.wait(left).await
                }
                Step::Ask | Step::Delete(_) | Step::Settle | Step::Find | Step::Look(_) => {
                    // The answer has changed nothing: it came from a server that lags behind.
                    if last.replace(step) == Some(step) {
                        pauses.pause(env).await;
                    }
                    tokio::select! {
                        biased;
                        sent = self.send(step) => sent,
                        // Whatever becomes of it ends with the lease.
                        () = session.ended.cancelled() => Ok(()),
                    }
                }
            };
            let Err(error) = failed else {
                continue;
            };
            last = None;
            // etcd.session-1
            if left.is_cancelled() && *error.kind() == ErrorKind::Denied {
                session.deny(&error);
            }
            let is_too_late = self.contender.create().is_none() && give_up_at <= env.now();
            if (is_too_late || !error::may_pass(&error)) && !left.is_cancelled() {
                return Err(error);
            }
            tracing::debug!(lock = %self.request.name, ?step, error = %format_args!("{error:#}"), "tried again");
            tokio::select! {
                biased;
                () = session.ended.cancelled() => {}
                () = pauses.pause(env) => {}
            }
        }
    }

    /// Goes on in the background until nothing is left.
    fn clean_up(mut self) {
        let (env, left) = (self.session.env().clone(), CancellationToken::new());
        left.cancel();
        // It ends without error when it is abandoned.
        env.spawn(async move { drop(self.drive(&left).await) });
    }

    async fn send(&mut self, step: Step) -> Result<()> {
        let session = Arc::clone(&self.session);
        match step {
            Step::Ask => {
                let epoch = session.book.lock().epoch();
                let asked = session.ask(self.patience, &self.keys, &self.value, epoch).await;
                let (answer, holder) = asked.inspect_err(|error| {
                    if error.effect() == Effect::Unknown {
                        let was_answered = error::tells(error, error::NO_SPACE);
                        self.contender.failed((!was_answered).then_some(epoch));
                    }
                })?;
                let since = self.listener.as_ref().and_then(|listener| listener.since);
                self.contender.asked(answer, since);
                self.holder = holder;
                if let Some(create) = self.contender.create() {
                    session.book.lock().enter(
                        &self.request.name,
                        create,
                        self.request.owner,
                        session.env().now(),
                    );
                }
            }
            Step::Delete(create) => {
                session.delete(&self.keys.own, create).await?;
                session.forget(&self.request.name, create);
                self.contender.deleted();
            }
            Step::Settle => {
                session.move_epoch().await.inspect_err(|_error| self.contender.not_settled())?;
            }
            Step::Find => {
                let found = session.find(&self.keys.own).await?;
                self.contender.found(found);
            }
            Step::Look(create) => self.look(create).await?,
            Step::Wait | Step::End(_) => {}
        }
        Ok(())
    }

    async fn look(&mut self, create: Revision) -> Result<()> {
        let snapshot = self.session.look(&self.keys, create).await?;
        self.contender.looked(snapshot.revision, snapshot.present, snapshot.older);
        self.look_by = self.session.env().now() + next_look(self.session.env(), self.session.ttl);
        self.look_at = self.look_by;
        if let Some((holds, holder)) = snapshot.holder
            && holds != create
            && self.heard.replace(holds) != Some(holds)
        {
            self.session.sessions.events.tell(StoreEvent::Queued { name: self.request.name.clone(), holder });
        }
        Ok(())
    }

    /// Takes in what the watch has told so far.
    fn take_in(&mut self) -> Result<()> {
        while let Some(event) = self.listener.as_mut().and_then(|listener| listener.events.try_recv().ok()) {
            self.on_event(event)?;
        }
        Ok(())
    }

    /// Waits for something to happen; an error says that waiting is of no use.
    async fn wait(&mut self, left: &CancellationToken) -> Result<()> {
        let session = Arc::clone(&self.session);
        let Some(listener) = &mut self.listener else {
            let listener = session.watches.listen(&self.keys.queue);
            self.contender.watched(listener.since);
            self.listener = Some(listener);
            return Ok(());
        };
        tokio::select! {
            biased;
            () = left.cancelled() => {}
            () = session.ended.cancelled() => {}
            event = listener.events.recv() => match event {
                Some(event) => self.on_event(event)?,
                // The watch is served no longer: the session ends.
                None => session.ended.cancelled().await,
            },
            () = session.env().sleep_until(self.look_at) => {
                if let Some(create) = self.contender.create() {
                    self.look(create).await?;
                }
            }
        }
        Ok(())
    }

    fn on_event(&mut self, event: WatchEvent) -> Result<()> {
        let since = match event {
            WatchEvent::Stands(since) => Some(since),
            WatchEvent::Broken | WatchEvent::Foreign => None,
            WatchEvent::Refused => return Err(error::not_told()),
            WatchEvent::Changes(changes) => {
                let own = self.contender.create();
                let moves = |change: &Change| matches!(change.kind, Kind::Deleted(created) if created < own);
                if self.look_at < self.look_by && changes.iter().any(moves) {
                    let soon = self.session.env().now() + first_look(self.session.ttl);
                    self.look_at = soon.min(self.look_by);
                }
                self.contender.saw(&changes, &self.keys.own);
                return Ok(());
            }
        };
        if let Some(listener) = &mut self.listener {
            listener.since = since;
        }
        self.contender.watched(since);
        Ok(())
    }
}

/// How soon a queue that does not move is read for the first time.
fn first_look(ttl: Duration) -> Duration {
    (ttl / 10).clamp(Duration::from_millis(100), Duration::from_millis(250))
}

/// How long until the queue is read again, whatever the watch tells: half a ttl, and up to a quarter
/// more, so that those who came together do not ask together.
fn next_look(env: &Env, ttl: Duration) -> Duration {
    ttl / 4 + env.jittered(ttl / 2)
}
