//! Waiting for a lock, with a bound; asking the store for it, and again, with pauses.
//!
//! The first caller of a name leads: it asks the store, in its own poll for as long as no other caller waits for the
//! name, and from then on in a task. The others wait in the name's queue. A leader that leaves while others wait
//! leaves its request to the next of them: the place in the store's queue belongs to the process.
//!
//! A store reports that a place is lost, and does not queue again by itself: that is done here, for every store in the
//! same way.
//!
//! # Invariants
//! - **acquire-1** A request is dropped, which cancels it, before its queue asks for anything else (B1): the
//!   [`Leader`] is part of it, and goes last. In the same way one has ended, and what it was granted too late is
//!   released, before the store is asked again.
//! - **acquire-2** The final answer to an `acquire`, if it is about the store and not about the request itself, goes to
//!   every caller that is queued behind it then, also when its own caller is not polled: a store that is down is not
//!   asked once for each of them.
//! - **acquire-3** A wait never ends because a place in the store's queue was lost, nor, once it had one,
//!   because the store is down. Of two requests the second begins a growing pause after the first ended
//!   ([`Pauses`]).
//!
//! Checked by the conformance cases of `g6`, `g7` and `g8`, the simulation, and `tests/local`.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::env::Env;
use crate::backend::{AcquireRequest, Attempt, Backoff, Grant, Holder};
use crate::clock::Moment;
use crate::core::context::Context;
use crate::core::holds::{Hold, Join, Leader, Name, Rejected, Shared, Turn};
use crate::core::queue::{HandoffBudget, Wish};
use crate::words::error::{Effect, Error, ErrorKind, Result};

/// A caller's request, with every option resolved.
#[derive(Clone, Debug)]
pub(crate) struct Acquire {
    pub(crate) name: Arc<Name>,
    pub(crate) wish: Wish,
    pub(crate) ttl: Duration,
    pub(crate) wait: Option<Duration>,
    pub(crate) budget: HandoffBudget,
    pub(crate) metadata: Option<Arc<str>>,
}

/// The answer to one attempt.
#[derive(Debug)]
pub(crate) enum Acquired {
    Held(Hold),
    /// Held by another, or another is ahead.
    Busy(Option<Holder>),
}

/// Waits for the lock, for `wanted.wait` at most.
pub(crate) async fn acquire(shared: &Arc<Shared>, wanted: &Acquire) -> Result<Hold> {
    let env = &shared.context.env;
    let Some(wait) = wanted.wait else {
        return wait_for_turn(shared, wanted).await;
    };
    let started = env.now();
    if wait.is_zero() {
        return match try_acquire(shared, wanted).await {
            Ok(Acquired::Held(hold)) => Ok(hold),
            Ok(Acquired::Busy(holder)) => Err(timed_out(shared, wanted, started, holder)),
            Err(error) if error.lost_reason().is_some() => Err(timed_out(shared, wanted, started, None)),
            Err(error) => Err(error),
        };
    }
    tokio::select! {
        biased;
        hold = wait_for_turn(shared, wanted) => hold,
        () = async { env.sleep_until(started + wait).await } => {
            Err(timed_out(shared, wanted, started, known_holder(shared, &wanted.name)))
        }
    }
}

/// Acquires the lock if that needs no waiting for a holder.
pub(crate) async fn try_acquire(shared: &Arc<Shared>, wanted: &Acquire) -> Result<Acquired> {
    let tried = match shared.claim(&wanted.name, wanted.wish, true).await {
        Ok(None) => Ok(Acquired::Busy(known_holder(shared, &wanted.name))),
        Ok(Some(Turn::Hold(hold))) => Ok(Acquired::Held(hold)),
        Ok(Some(Turn::Lead(leader))) => attempt(leader, wanted).await,
        Ok(Some(Turn::Join(_))) => unreachable!("a `try` is called only when the store has nothing of ours"),
        Ok(Some(Turn::Refused(error))) | Err(error) => Err(error),
    };
    tried.map_err(|error| shared.context.error_about(wanted.name.lock_name(), error))
}

async fn wait_for_turn(shared: &Arc<Shared>, wanted: &Acquire) -> Result<Hold> {
    let held = match shared.claim(&wanted.name, wanted.wish, false).await {
        Ok(Some(Turn::Hold(hold))) => Ok(hold),
        Ok(Some(Turn::Lead(leader))) => lead(leader, wanted).await,
        Ok(Some(Turn::Join(join))) => join.answer().await,
        Ok(Some(Turn::Refused(error))) | Err(error) => Err(error),
        Ok(None) => unreachable!("only a `try` is answered that the lock is busy"),
    };
    held.map_err(|error| shared.context.error_about(wanted.name.lock_name(), error))
}

/// Asks the store until it grants or refuses for good, whatever becomes of the places that it gives in its queue.
async fn lead(leader: Leader, wanted: &Acquire) -> Result<Hold> {
    let (shared, name) = (Arc::clone(leader.shared()), &wanted.name);
    let asked = Box::pin(ask_until_final(leader, wanted.clone()));
    match name.begin(&shared.context, asked, None).await {
        Ok(answer) => answer,
        Err(request) => Join::new(&shared, name, wanted.wish, request).answer().await,
    }
}

async fn ask_until_final(mut leader: Leader, wanted: Acquire) -> Result<Hold> {
    let shared = Arc::clone(leader.shared());
    let context = &shared.context;
    let mut pauses = Pauses::new(&context.env);
    loop {
        pauses.begin(&context.env);
        let error = match ask(context, &wanted).await {
            Ok(grant) => match leader.adopt(grant, wanted.wish, wanted.budget) {
                Ok(hold) => return Ok(hold),
                Err(Rejected { error, again: false, release }) => {
                    release.in_background();
                    return Err(error);
                }
                Err(Rejected { error, release, .. }) => {
                    leader.resume_after(release).await?;
                    error
                }
            },
            Err(error) => error,
        };
        if *error.kind() == ErrorKind::Unavailable {
            // That it was queued may have been sent, and not handled yet.
            shared.leases.has_heard(&context.env).await;
        }
        let had_place = leader.note(&error);
        let may_change = match error.kind() {
            ErrorKind::Lost { .. } => true,
            ErrorKind::Unavailable => had_place,
            _ => false,
        };
        if !may_change {
            return Err(leader.refuse_all(error));
        }
        tracing::debug!(lock = %wanted.name.lock_name(), error = ?format!("{error:#}"), "retrying acquire");
        let paused = async {
            pauses.end(&context.env).await;
            Ok(())
        };
        if let Err(closed) = context.until_closed(paused).await {
            return Err(leader.refuse_all(closed));
        }
    }
}

/// One acquisition, with an owner id of its own; over when this has ended (B1).
async fn ask(context: &Context, wanted: &Acquire) -> Result<Grant> {
    if context.is_closed() {
        return Err(Context::closed_error());
    }
    let request = request(context, wanted);
    context.until_closed(context.env.answer_to(context.backend.acquire(&request))).await
}

/// Asks the store once.
async fn attempt(leader: Leader, wanted: &Acquire) -> Result<Acquired> {
    let (shared, name) = (Arc::clone(leader.shared()), &wanted.name);
    let request = request(&shared.context, wanted);
    let asked = Box::pin(ask_once(leader, request, wanted.wish, wanted.budget));
    match name.begin(&shared.context, asked, None).await {
        Ok(answer) => answer,
        Err(request) => request.await,
    }
}

async fn ask_once(
    mut leader: Leader,
    request: AcquireRequest,
    wish: Wish,
    budget: HandoffBudget,
) -> Result<Acquired> {
    let shared = Arc::clone(leader.shared());
    let context = &shared.context;
    let attempt = context.env.bounded(context.backend.try_acquire(&request));
    match context.until_closed(attempt).await {
        Ok(Attempt::Granted(grant)) => match leader.adopt(grant, wish, budget) {
            Ok(hold) => Ok(Acquired::Held(hold)),
            Err(Rejected { error, again, release }) => {
                if again {
                    leader.note(&error);
                }
                release.in_background();
                Err(error)
            }
        },
        Ok(Attempt::Held { holder }) => {
            leader.name().with(|state| {
                if let Some(news) = state.news() {
                    news.refused = None;
                }
            });
            Ok(Acquired::Busy(holder))
        }
        Err(error) => {
            if error.lost_reason().is_some() {
                leader.note(&error);
            }
            Err(error)
        }
    }
}

fn request(context: &Context, wanted: &Acquire) -> AcquireRequest {
    AcquireRequest {
        // Of many copies of a name one is kept.
        name: wanted.name.lock_name().clone(),
        mode: wanted.wish.mode,
        owner: context.env.owner_id(),
        ttl: wanted.ttl,
        label: Arc::clone(&context.label),
        metadata: wanted.metadata.clone(),
    }
}

/// The holder as this process knows it: itself, or the one that the store named.
fn known_holder(shared: &Shared, name: &Name) -> Option<Holder> {
    name.with(|state| {
        let Some((held, token)) = state.queue.held().next() else {
            return state.news()?.holder.clone();
        };
        let mut holder = Holder::new(&*shared.context.label);
        (holder.token, holder.mode) = (Some(token), held.mode());
        Some(holder)
    })
}

fn timed_out(shared: &Shared, wanted: &Acquire, started: Moment, holder: Option<Holder>) -> Error {
    let (context, now) = (&shared.context, shared.context.env.now());
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
    let refused = wanted.name.with(|state| state.news()?.refused.clone());
    // An older failure says nothing of the store as it is now.
    let recent = now.saturating_sub(context.env.timing().ttl);
    let error = match refused.or_else(|| shared.leases.last_failure(recent)) {
        // That nothing is left of it is what this error says.
        Some(refused) => error.with_source(context.placed(refused.with_effect(Effect::NotApplied))),
        None => error,
    };
    context.error_about(wanted.name.lock_name(), error)
}

/// The times between requests of one wait.
///
/// A wait that lasted long is back soon; not at once, as many may have lost their places at the same time, or found the
/// store down.
struct Pauses {
    backoff: Backoff,
    began: Moment,
}

impl Pauses {
    fn new(env: &Env) -> Self {
        Self { backoff: Backoff::of_waits(env), began: env.now() }
    }

    fn begin(&mut self, env: &Env) {
        self.began = env.now();
    }

    async fn end(&mut self, env: &Env) {
        self.backoff.went_on(env.now().since(self.began), env);
        self.backoff.pause(env).await;
    }
}
