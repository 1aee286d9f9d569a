//! Waiting for a lock, with a bound; asking the store for it, and again, with pauses.
//!
//! The first caller of a name leads: it sends the request to the store, in its own poll for as long as no other caller waits
//! for the name, and from then on in a task. The others wait in the name's queue. A leader that leaves while others wait leaves
//! its request to the next of them: the place in the store's queue belongs to the process.
//!
//! A store reports that a place is lost, and does not queue again by itself: that is done here, for every store in the
//! same way.
//!
//! # Invariants
//! - **acquire-1** A request is dropped, which cancels it, before its queue sends another (B1): the [`Leader`] is part of it,
//!   and goes last. In the same way a request has ended, and a late grant is released, before the next request to the store.
//! - **acquire-2** The final answer to an `acquire`, if it concerns the store and not the request itself, goes to every caller
//!   that is queued behind it then, also when its own caller is not polled: an unavailable store gets no request for each of
//!   them.
//! - **acquire-3** A wait never ends because a place in the store's queue was lost, nor, once it had one,
//!   because the store is down. Of two requests the second begins a growing pause after the first ended.
//!
//! Checked by the conformance cases of `g6`, `g7` and `g8`, the simulation, and `tests/local`.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{AcquireRequest, Attempt, Backoff, Holder};
use crate::clock::Moment;
use crate::core::context::Context;
use crate::core::holds::{Acquired, Hold, Join, Leader, LocalLock, Rejected, Turn};
use crate::core::queue::{HandoffBudget, Wish};
use crate::words::error::{Effect, Error, ErrorKind, Result};

/// A caller's request, with every option resolved.
#[derive(Clone)]
pub(crate) struct Acquire {
    pub(crate) lock: LocalLock,
    pub(crate) wish: Wish,
    pub(crate) ttl: Duration,
    pub(crate) wait: Option<Duration>,
    pub(crate) budget: HandoffBudget,
    pub(crate) metadata: Option<Arc<str>>,
}

/// Waits for the lock, for `wanted.wait` at most.
pub(crate) async fn acquire(wanted: &Acquire) -> Result<Hold> {
    let env = &wanted.lock.core.context.env;
    let started = env.now();
    let is_try = wanted.wait == Some(Duration::ZERO);
    let ended = match wanted.wait {
        Some(wait) if !is_try => tokio::select! {
            biased;
            ended = claim(wanted, false) => Some(ended),
            () = async { env.sleep_until(started + wait).await } => None,
        },
        _ => Some(claim(wanted, is_try).await),
    };
    let holder = match ended {
        Some(Ok(Acquired::Held(hold))) => return Ok(hold),
        Some(Ok(Acquired::Busy(holder))) => holder,
        Some(Err(error)) if is_try && error.lost_reason().is_some() => None,
        Some(Err(error)) => return Err(error),
        None => known_holder(&wanted.lock),
    };
    Err(timed_out(wanted, started, holder))
}

/// Acquires the lock if that needs no waiting for a holder.
pub(crate) async fn try_acquire(wanted: &Acquire) -> Result<Acquired> {
    claim(wanted, true).await
}

async fn claim(wanted: &Acquire, is_try: bool) -> Result<Acquired> {
    let lock = &wanted.lock;
    let acquired = match lock.claim(wanted.wish, is_try).await {
        Turn::Hold(hold) => Ok(Acquired::Held(hold)),
        Turn::Busy => Ok(Acquired::Busy(known_holder(lock))),
        Turn::Lead(leader) => {
            let asked = Box::pin(ask(leader, wanted.clone(), is_try));
            match lock.name.begin(&lock.core.context, asked, None).await {
                Ok(answer) => answer,
                Err(request) if is_try => request.await,
                Err(request) => Join::new(lock, wanted.wish, request).answer().await,
            }
        }
        Turn::Join(join) => join.answer().await,
        Turn::Refused(error) => Err(error),
    };
    acquired.map_err(|error| lock.core.context.error_about(&lock.name.lock_name, error))
}

/// Sends requests to the store: one for a `try`, else until it grants or refuses for good, even if it loses places in its
/// queue.
async fn ask(mut leader: Leader, wanted: Acquire, is_try: bool) -> Result<Acquired> {
    let LocalLock { core, name } = &wanted.lock;
    let (context, env) = (&core.context, &core.context.env);
    let mut pauses = Backoff::of_waits(env);
    loop {
        let began = env.now();
        let error = match attempt(context, &wanted, is_try).await {
            Ok(Attempt::Granted(grant)) => match leader.adopt(grant, wanted.wish, wanted.budget) {
                Ok(hold) => return Ok(Acquired::Held(hold)),
                Err(Rejected { error, again: true, release }) if !is_try => {
                    leader.resume_after(release).await?;
                    error
                }
                Err(Rejected { error, release, .. }) => {
                    leader.note(&error);
                    release.in_background();
                    return Err(error);
                }
            },
            Ok(Attempt::Held { holder }) => {
                leader.found_busy();
                return Ok(Acquired::Busy(holder));
            }
            Err(error) => error,
        };
        if is_try {
            leader.note(&error);
            return Err(error);
        }
        if *error.kind() == ErrorKind::Unavailable {
            // That it was queued may have been sent, and not handled yet.
            core.leases.has_heard(context).await;
        }
        let had_place = leader.note(&error);
        if !had_place || !matches!(error.kind(), ErrorKind::Lost { .. } | ErrorKind::Unavailable) {
            return Err(leader.refuse_all(error));
        }
        tracing::debug!(lock = %name.lock_name, error = ?format!("{error:#}"), "retrying acquire");
        // A wait that lasted long is back soon; not at once, as many may have lost their places at the same time, or
        // found the store down.
        pauses.went_on(env.now().since(began), env);
        let paused = async {
            pauses.pause(env).await;
            Ok(())
        };
        if let Err(closed) = context.until_closed(paused).await {
            return Err(leader.refuse_all(closed));
        }
    }
}

/// One acquisition, with an owner id of its own; it ends with this (B1).
async fn attempt(context: &Context, wanted: &Acquire, is_try: bool) -> Result<Attempt> {
    context.refuse_closed()?;
    let Context { env, backend, .. } = context;
    let request = AcquireRequest {
        // Of many copies of a name one is kept.
        name: wanted.lock.name.lock_name.clone(),
        mode: wanted.wish.mode,
        owner: env.owner_id(),
        ttl: wanted.ttl,
        label: Arc::clone(&context.label),
        metadata: wanted.metadata.clone(),
    };
    if is_try {
        return context.bounded(backend.try_acquire(&request)).await;
    }
    context.until_closed(backend.acquire(&request)).await.map(Attempt::Granted)
}

/// The holder as far as this process knows: itself, or the one that the store named.
fn known_holder(lock: &LocalLock) -> Option<Holder> {
    lock.name.with(|state| {
        let Some((held, token)) = state.queue.held().next() else {
            return state.news.as_ref()?.holder.clone();
        };
        let mut holder = Holder::new(&*lock.core.context.label);
        (holder.token, holder.mode) = (Some(token), held.mode);
        Some(holder)
    })
}

fn timed_out(wanted: &Acquire, started: Moment, holder: Option<Holder>) -> Error {
    let core = &wanted.lock.core;
    let (context, now) = (&core.context, core.context.env.now());
    let held_by = match &holder {
        Some(holder) => format!("held by {:?}", holder.label),
        None => "holder unknown".to_owned(),
    };
    let within = match wanted.wait {
        Some(wait) if !wait.is_zero() => format!("within {wait:?}"),
        _ => "at once".to_owned(),
    };
    let message = format!("not granted {within}; {held_by}");
    let error = Error::not_applied(ErrorKind::Timeout { waited: now.since(started), holder }, message);
    let refused = wanted.lock.name.with(|state| state.news.as_ref()?.refused.clone());
    // An older failure proves nothing about the present state of the store.
    let recent = now.saturating_sub(context.env.timing().ttl);
    let error = match refused.or_else(|| core.leases.last_failure(recent)) {
        // This error states that nothing is left of it.
        Some(refused) => error.with_source(context.placed(refused.with_effect(Effect::NotApplied))),
        None => error,
    };
    context.error_about(&wanted.lock.name.lock_name, error)
}
