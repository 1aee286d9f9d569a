//! Drives one acquisition: carries out what [`Contender`] asks for, and tells it what came of it.
//!
//! Requests are never given up midway: an acquisition that is dropped goes on in the background as its
//! own clean-up, from where it stands.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use leasehold_core::backend::{AcquireRequest, Attempt, Holder, Mode, StoreEvent};
use leasehold_core::clock::Moment;
use leasehold_core::{Env, Error, ErrorKind, LockName, OwnerId, Result};
use tokio_util::sync::CancellationToken;

use super::sessions::Sessions;
use super::{NameLock, Session};
use crate::connection::backoff;
use crate::error;
use crate::keys::{LockKeys, Record};
use crate::protocol::{Contender, Delete, End, Failure, Patience, Revision, Step};
use crate::watch::{Change, Kind, Listener, Range, WatchEvent};

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
    let work = Box::pin(acquire_until(left.clone(), Arc::clone(sessions), request.clone(), patience));
    Carried { env: sessions.env.clone(), left, work: Some(work) }.outcome().await
}

/// Work that goes on in the background when its caller has gone, and is told so.
struct Carried<T: Send + 'static> {
    env: Env,
    left: CancellationToken,
    /// Until it is done.
    work: Option<BoxFuture<'static, T>>,
}

impl<T: Send + 'static> Carried<T> {
    async fn outcome(mut self) -> T {
        let Some(work) = &mut self.work else {
            unreachable!("it is taken below and by `drop`");
        };
        let outcome = work.await;
        self.work = None;
        outcome
    }
}

impl<T: Send + 'static> Drop for Carried<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.left.cancel();
            self.env.spawn(async move { drop(work.await) });
        }
    }
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

fn failure(error: &Error) -> Failure {
    Failure::of(error.effect(), error::tells(error, error::NO_SPACE))
}

/// One entry on its way into a queue, and out of it.
struct Acquisition {
    session: Arc<Session>,
    name: LockName,
    keys: LockKeys,
    range: Range,
    owner: OwnerId,
    patience: Patience,
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
        let keys = session.keys(&request.name);
        let range = Range::queue(&keys.queue);
        let now = session.env().now();
        Self {
            name: request.name.clone(),
            owner: request.owner,
            patience,
            value: Record::new(request, session.ttl).to_bytes(),
            contender: Contender::new(patience),
            // A lock that was waited for lately is watched already; it must be listened to before
            // it is asked for.
            listener: session.watches.standing(&range),
            look_at: now + first_look(session.ttl),
            look_by: now + next_look(session.env(), session.ttl),
            heard: None,
            holder: None,
            _name_lock: name_lock,
            session: Arc::clone(session),
            keys,
            range,
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
            tracing::debug!(lock = %self.name, ?step, error = %format_args!("{error:#}"), "tried again");
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
                let (answer, holder) =
                    asked.inspect_err(|error| self.contender.failed(failure(error), epoch))?;
                let since = self.listener.as_ref().and_then(|listener| listener.since);
                self.contender.asked(answer, since);
                self.holder = holder;
                if let Some(create) = self.contender.create() {
                    session.book.lock().enter(&self.name, create, self.owner, session.env().now());
                }
            }
            Step::Delete(create) => {
                session.delete(&self.keys.own, create).await?;
                session.forget(&self.name, create);
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
            self.session.sessions.events.tell(StoreEvent::Queued { name: self.name.clone(), holder });
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
            let listener = session.watches.listen(&self.range);
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
                if let Some(create) = self.contender.create()
                    && let Err(error) = self.look(create).await
                {
                    if *error.kind() == ErrorKind::Denied {
                        return Err(error);
                    }
                    tracing::debug!(lock = %self.name, error = %format_args!("{error:#}"), "the queue could not be read");
                    self.look_at = session.env().now() + first_look(session.ttl);
                }
            }
        }
        Ok(())
    }

    fn on_event(&mut self, event: WatchEvent) -> Result<()> {
        match event {
            WatchEvent::Stands(since) => self.stands(Some(since)),
            WatchEvent::Broken | WatchEvent::Foreign => self.stands(None),
            WatchEvent::Refused => return Err(error::not_told()),
            WatchEvent::Changes(changes) => {
                let delete = |change: &Change| match change.kind {
                    Kind::Put(_) => None,
                    Kind::Deleted(created) => Some(Delete {
                        revision: change.revision,
                        mine: change.key.as_ref() == self.keys.own,
                        key: change.key.clone(),
                        created,
                    }),
                };
                let deletes: Vec<_> = changes.iter().filter_map(delete).collect();
                let moves = |delete: &Delete| delete.created < self.contender.create();
                if self.look_at < self.look_by && deletes.iter().any(moves) {
                    let soon = self.session.env().now() + first_look(self.session.ttl);
                    self.look_at = soon.min(self.look_by);
                }
                self.contender.saw(&deletes);
            }
        }
        Ok(())
    }

    fn stands(&mut self, since: Option<Revision>) {
        if let Some(listener) = &mut self.listener {
            listener.since = since;
        }
        self.contender.watched(since);
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
