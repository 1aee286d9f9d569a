//! Letting go: to the next waiter of this process, or to the store until it confirms.
//!
//! # Invariants
//! - **R1** Renewal stops before a release is sent.
//! - **R2** A release, once begun, goes on until the store confirms or the lease has ended, whoever
//!   stops waiting for it (G5).
//! - **R3** The next waiter is called only after that (B1).
//!
//! Checked by the conformance cases of `g4` and `g5`.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::acquire::Turn;
use crate::backend::Grant;
use crate::clock::Deadline;
use crate::core::Core;
use crate::env::Env;
use crate::error::{Effect, Error, ErrorKind, Result};
use crate::guard::LockGuard;
use crate::loss::{GuardState, LostReason};
use crate::meters;
use crate::queue::{Release, Sending};
use crate::tenure::Tenure;

/// What became of a hold whose guard ended.
#[derive(Debug)]
pub(crate) enum Ended {
    HandedOn,
    Lost(LostReason),
    /// The store must be told.
    Store,
}

impl Core {
    /// The guard lets go.
    pub(crate) fn end(self: &Arc<Self>, tenure: &Arc<Tenure>, sending: Sending) -> Ended {
        let now = self.env().now();
        let (ended, next, watchers) = self.names.with(&tenure.grant().name, |entry| {
            if let Some(reason) = tenure.lost(now) {
                return (Ended::Lost(reason), None, None);
            }
            match entry.queue.release(now, tenure.is_healthy(now), sending) {
                Release::HandOn(_, token, waiter) => {
                    (Ended::HandedOn, Some((waiter, token)), tenure.take_watchers())
                }
                Release::Store if sending == Sending::Later => (Ended::Store, None, tenure.take_watchers()),
                Release::Store => (Ended::Store, None, None),
                Release::NotHeld => (Ended::Lost(LostReason::Gone), None, None),
            }
        });
        if let Some(watchers) = watchers {
            watchers.send_replace(GuardState::Lost(LostReason::Released));
        }
        if let Some((waiter, token)) = next {
            tracing::debug!(lock = %tenure.grant().name, %token, "handed on");
            waiter.call(Turn::Guard(LockGuard::new(Arc::clone(self), Arc::clone(tenure), token)));
        }
        if !matches!(ended, Ended::Lost(_)) {
            meters::handed_on(matches!(ended, Ended::HandedOn));
        }
        match ended {
            Ended::Lost(reason) => self.lose(tenure, reason),
            Ended::Store if sending == Sending::Now => self.stop_renewing(tenure),
            Ended::Store | Ended::HandedOn => {}
        }
        ended
    }

    /// A guard is dropped: nothing here blocks, panics, or needs a runtime.
    pub(crate) fn drop_guard(self: &Arc<Self>, tenure: &Arc<Tenure>) {
        self.guards_dropped.fetch_add(1, Ordering::Relaxed);
        meters::dropped();
        let in_place = self.is_runtime_free();
        let sending = if in_place { Sending::Now } else { Sending::Later };
        let Ended::Store = self.end(tenure, sending) else {
            return;
        };
        if in_place {
            self.release_in_background(tenure);
            return;
        }
        let (core, tenure) = (Arc::clone(self), Arc::clone(tenure));
        self.env().spawn(async move {
            let grant = tenure.grant();
            let sends = core.names.with(&grant.name, |entry| entry.queue.send(grant.counter));
            if sends {
                core.stop_renewing(&tenure);
                core.confirm_release(&tenure).await.unwrap_or_else(|error| report(&error));
            }
        });
    }

    /// Tells the store with nobody waiting for it: in place if it needs no runtime.
    pub(crate) fn release_in_background(self: &Arc<Self>, tenure: &Arc<Tenure>) {
        let (core, tenure) = (Arc::clone(self), Arc::clone(tenure));
        let release = async move {
            core.confirm_release(&tenure).await.unwrap_or_else(|error| report(&error));
        };
        if self.is_runtime_free() {
            self.env().run_in_place(Box::pin(release));
        } else {
            self.env().spawn(release);
        }
    }

    /// Tells the store; dropped midway it goes on in the background (R2).
    pub(crate) fn carried_release(
        self: &Arc<Self>,
        tenure: &Arc<Tenure>,
    ) -> impl Future<Output = Result<()>> + Send + 'static {
        let (core, tenure) = (Arc::clone(self), Arc::clone(tenure));
        let env = core.env().clone();
        Carried {
            _task: env.as_task(),
            env,
            future: Some(Box::pin(async move { core.confirm_release(&tenure).await })),
        }
    }

    fn stop_renewing(&self, tenure: &Arc<Tenure>) {
        tracing::debug!(lock = %tenure.grant().name, counter = tenure.grant().counter, "releasing");
        tenure.end(LostReason::Released);
        self.watchdog.deregister(tenure);
    }

    /// Tells the store, and calls the next waiter when that is over, however it ended.
    async fn confirm_release(self: &Arc<Self>, tenure: &Tenure) -> Result<()> {
        let grant = tenure.grant();
        let confirmed = self.release_until(tenure.last_deadline(), grant).await;
        self.call_next(&grant.name);
        confirmed.map_err(|error| error.with_context("lock", &grant.name))
    }

    /// Asks the store to release until it confirms or the deadline has passed: that of the session, if
    /// the lock hangs on one. Nothing is sent after it, a first attempt apart: the lease has ended the
    /// lock by then.
    async fn release_until(&self, deadline: Deadline, grant: &Grant) -> Result<()> {
        let (env, timing) = (self.env(), self.env().timing());
        // Without a lease nothing ends the lock but us; a ttl is as long as anybody would wait.
        let unleased = env.now() + timing.ttl;
        // A session is renewed for others, so its deadline moves on.
        let give_up_at = || match self.watchdog.session_deadline(&grant.lease).unwrap_or(deadline) {
            Deadline::At(at) => at,
            Deadline::Never => unleased,
        };
        let mut pause = timing.op_timeout / 32;
        let mut effect = Effect::NotApplied;
        loop {
            let Err(error) = env.bounded(self.backend().release(grant)).await else {
                return Ok(());
            };
            let in_time = env.now() < give_up_at();
            match (error.lost_reason(), effect) {
                // An earlier try of ours must have done it: nothing else could, before the deadline.
                (Some(_), Effect::Unknown) if in_time => return Ok(()),
                (Some(_), _) => return Err(error.with_effect(effect)),
                (None, Effect::NotApplied) => effect = error.effect(),
                (None, Effect::Unknown) => {}
            }
            let unconfirmed = error.with_effect(effect);
            if !in_time || *unconfirmed.kind() == ErrorKind::Closed {
                return Err(unconfirmed);
            }
            env.sleep_until((env.now() + pause).min(give_up_at())).await;
            if give_up_at() <= env.now() {
                return Err(unconfirmed);
            }
            pause = (pause * 2).min(timing.op_timeout);
        }
    }
}

/// A release that outlives the caller who waits for it; a shutdown waits for it as for a task.
struct Carried {
    env: Env,
    _task: TaskTrackerToken,
    future: Option<BoxFuture<'static, Result<()>>>,
}

impl Future for Carried {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let Some(future) = &mut self.future else {
            unreachable!("polled after it was ready");
        };
        let result = std::task::ready!(future.as_mut().poll(cx));
        self.future = None;
        Poll::Ready(result)
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        if let Some(future) = self.future.take() {
            self.env.spawn(async move { future.await.unwrap_or_else(|error| report(&error)) });
        }
    }
}

fn report(error: &Error) {
    if error.lost_reason().is_some() {
        tracing::debug!(%error, "there was nothing left to release");
    } else {
        tracing::warn!(%error, "a release was not confirmed; a lease ends the lock, where there is one");
    }
}
