//! Asking the store for a lock, on behalf of everybody in this process who waits for it.
//!
//! Whoever has the [`Leader`] asks, in its own poll for as long as nobody else waits for the name, and from
//! then on in a task. A caller that leaves while others wait leaves its request to the next of them: the
//! place in the store's queue belongs to the process.
//!
//! A store says when a place is lost, and does not queue again by itself: that is done here, for every store
//! in the same way.
//!
//! # Invariants
//! - **acquire-1** A [`Leader`] either adopts a grant or lets the queue call the next waiter, by `Drop` at the
//!   latest: no wake-up is lost (G8).
//! - **acquire-2** A request is dropped, which abandons it, before its queue asks for anything else (B1): the
//!   drive is part of it, and goes last. In the same way one has ended, and what it was granted too late is
//!   released, before the store is asked again.
//! - **acquire-3** What an `acquire` hears in the end about the store, and not about its own request, everybody
//!   hears who is queued behind it then, whether or not its caller looks: a store that is down is not asked
//!   once for each of them.
//! - **acquire-4** A wait never ends because a place in the store's queue was lost, nor, once it had one,
//!   because the store is down. Of two requests the second begins a growing pause after the first did
//!   ([`Pauses`]).
//!
//! Checked by the conformance cases of `g6`, `g7` and `g8`, the simulation, and `tests/local`.

use std::sync::Arc;

use crate::backend::env::Env;
use crate::backend::panic::Panicked;
use crate::backend::{AcquireRequest, Attempt, Backoff};
use crate::clock::Moment;
use crate::core::acquire::{Acquire, Tried, Turn};
use crate::core::holds::Hold;
use crate::core::names::{Name, NameState};
use crate::core::queue::Wish;
use crate::core::request::{Flown, Request};
use crate::core::{Adopted, Core};
use crate::words::error::{Error, ErrorKind, Result};

/// The duty to ask the store for one name; there is one per queue at a time.
pub(crate) struct Leader {
    core: Arc<Core>,
    queue: Arc<Name>,
    over: bool,
}

impl Leader {
    pub(crate) fn new(core: &Arc<Core>, queue: &Arc<Name>) -> Self {
        Self { core: Arc::clone(core), queue: Arc::clone(queue), over: false }
    }

    /// Waits for the lock, whatever becomes of the places that it has in the store's queue.
    pub(crate) async fn run(self, wanted: &Acquire) -> Result<Hold> {
        let (core, queue, wish) = (Arc::clone(&self.core), Arc::clone(&self.queue), wanted.wish);
        let asked = Box::pin(self.asked_until_final(wanted.clone()));
        match core.begin(&queue, asked, None).await {
            Flown::Ready(answer) => answer,
            Flown::Pending(request) => Join { core, queue, wish, request: Some(request) }.ready().await,
        }
    }

    async fn asked_until_final(mut self, wanted: Acquire) -> Result<Hold> {
        let core = Arc::clone(&self.core);
        let mut pauses = Pauses::new(core.env());
        loop {
            pauses.begin(core.env());
            let error = match self.asked(&wanted).await {
                Ok(Adopted::Held(held)) => {
                    self.over = true;
                    return Ok(held);
                }
                Ok(Adopted::Over(late)) => {
                    // Should this end on the way, the release goes on without it, and calls the next waiter.
                    self.over = true;
                    let error = core.until_closed(late.given_back()).await?;
                    self.over = false;
                    error
                }
                Ok(Adopted::Refused(error)) => {
                    self.over = true;
                    return Err(error);
                }
                Err(error) => error,
            };
            if *error.kind() == ErrorKind::Unavailable {
                // That it was queued may have been told, and not taken in.
                core.leases.has_heard(core.env()).await;
            }
            let had_place = self.was_refused(&error);
            let may_change = match error.kind() {
                ErrorKind::Lost { .. } => true,
                ErrorKind::Unavailable => had_place,
                _ => false,
            };
            if !may_change {
                return Err(self.refused(error));
            }
            tracing::debug!(lock = %self.queue.name(), error = ?format!("{error:#}"), "asks again");
            let paused = async {
                pauses.end(core.env()).await;
                Ok(())
            };
            if let Err(closed) = core.until_closed(paused).await {
                return Err(self.refused(closed));
            }
        }
    }

    /// One acquisition, with an owner id of its own; over when this has ended (B1).
    async fn asked(&self, wanted: &Acquire) -> Result<Adopted> {
        let core = &self.core;
        if core.is_closed() {
            return Err(Core::closed_error());
        }
        let request = core.request(&self.queue, wanted);
        let granted = core.env().answer_to(core.backend().acquire(&request));
        Ok(core.adopt(&self.queue, core.until_closed(granted).await?, wanted.wish, wanted.budget))
    }

    /// Notes what the store said; whether there was a place in its queue by now, as it said or has lost it.
    fn was_refused(&self, error: &Error) -> bool {
        let is_lost = error.lost_reason().is_some();
        self.queue.with(|state| {
            if is_lost || concerns_everybody(error) {
                state.news().refused = Some(error.clone());
            }
            state.told().is_some_and(|news| {
                news.queued |= is_lost;
                news.queued
            })
        })
    }

    /// The store refused: whom that concerns hears the same (acquire-3).
    fn refused(mut self, error: Error) -> Error {
        if concerns_everybody(&error) {
            self.over = true;
            let waiters: Vec<_> = self.queue.with(|state| {
                state.not_granted();
                state.queue.drain().collect()
            });
            for waiter in waiters {
                waiter.call(Turn::Refused(error.clone()));
            }
        }
        error
    }

    /// Asks the store once.
    pub(crate) async fn attempt(mut self, wanted: &Acquire) -> Result<Tried> {
        let (core, queue) = (Arc::clone(&self.core), Arc::clone(&self.queue));
        let (request, wish, budget) = (core.request(&queue, wanted), wanted.wish, wanted.budget);
        let asked = Box::pin(async move {
            let core = Arc::clone(&self.core);
            let attempt = core.env().bounded(core.backend().try_acquire(&request));
            match core.until_closed(attempt).await {
                Ok(Attempt::Granted(grant)) => self.took(core.adopt(&self.queue, grant, wish, budget)),
                Ok(Attempt::Held { holder }) => {
                    self.queue.with(|state| {
                        if let Some(news) = state.told() {
                            news.refused = None
                        }
                    });
                    Ok(Tried::Held(holder))
                }
                Err(error) => {
                    if error.lost_reason().is_some() {
                        self.was_refused(&error);
                    }
                    Err(error)
                }
            }
        });
        match core.begin(&queue, asked, None).await {
            Flown::Ready(answer) => answer,
            Flown::Pending(request) => request.await,
        }
    }

    /// A grant that comes too late is given back with nobody waiting for that but those who come now.
    fn took(&mut self, adopted: Adopted) -> Result<Tried> {
        self.over = true;
        match adopted {
            Adopted::Held(held) => Ok(Tried::Granted(held)),
            Adopted::Refused(error) => Err(error),
            Adopted::Over(late) => {
                let error = late.error();
                self.was_refused(&error);
                late.give_back();
                Err(error)
            }
        }
    }
}

/// The times between requests of one wait.
///
/// Counted from when the last one began, so that whoever has waited for long is back soon; not at once, as
/// many may have lost their places together, or found the store down.
struct Pauses {
    backoff: Backoff,
    began: Moment,
}

impl Pauses {
    fn new(env: &Env) -> Self {
        Self { backoff: Backoff::of_requests(env), began: env.now() }
    }

    fn begin(&mut self, env: &Env) {
        self.began = env.now();
    }

    async fn end(&mut self, env: &Env) {
        let now = env.now();
        if self.began + env.timing().op_timeout <= now {
            self.backoff.reset();
        }
        let soonest = now + Backoff::of_requests(env).next(env);
        env.sleep_until(soonest.max(self.began + self.backoff.next(env))).await;
    }
}

/// Whether an error says something about the store: that it cannot be reached, speaks nonsense, is
/// closed, or refuses us or what we ask. The rest is about one request: its name, its options, the
/// lease it lost, or a panic on its way.
fn concerns_everybody(error: &Error) -> bool {
    use ErrorKind::{Closed, Denied, Protocol, Unavailable, Unsupported};
    let panicked = std::error::Error::source(error).is_some_and(|source| source.is::<Panicked>());
    !panicked && matches!(error.kind(), Closed | Denied | Protocol | Unavailable | Unsupported)
}

impl Drop for Leader {
    fn drop(&mut self) {
        if !self.over {
            self.core.change(&self.queue, NameState::not_granted);
        }
    }
}

impl std::fmt::Debug for Leader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leader").field("name", self.queue.name()).finish_non_exhaustive()
    }
}

/// The wait for a request that is under way. Who leaves it leaves it to the next waiter if that wants the same;
/// otherwise the request is given up.
#[derive(Debug)]
pub(crate) struct Join {
    core: Arc<Core>,
    queue: Arc<Name>,
    wish: Wish,
    /// Until it is ready.
    request: Option<Request<Result<Hold>>>,
}

impl Join {
    pub(crate) async fn ready(mut self) -> Result<Hold> {
        let Some(request) = &mut self.request else {
            unreachable!("it is taken only here and by `drop`");
        };
        let answer = request.await;
        self.request = None;
        answer
    }
}

impl Drop for Join {
    fn drop(&mut self) {
        let Some(request) = self.request.take() else {
            return;
        };
        let heir = self.queue.with(|state| {
            // RACE: one that was answered has left the entry under this mutex; what the queue does now
            // is no business of its.
            let undecided = state.request.as_ref().is_some_and(|under_way| request.is(under_way));
            if undecided { state.queue.inherit(self.wish) } else { None }
        });
        match heir {
            Some(heir) => {
                let (core, queue, wish) = (Arc::clone(&self.core), Arc::clone(&self.queue), self.wish);
                heir.call(Turn::Join(Self { core, queue, wish, request: Some(request) }));
            }
            None => drop(request),
        }
    }
}

impl Core {
    /// Gives `request` up when the manager is shut down.
    async fn until_closed<T>(&self, request: impl Future<Output = Result<T>> + Send) -> Result<T> {
        tokio::select! {
            biased;
            answer = request => answer,
            () = self.closing.cancelled() => Err(Self::closed_error()),
        }
    }

    fn request(&self, queue: &Name, wanted: &Acquire) -> AcquireRequest {
        AcquireRequest {
            // Of many copies of a name one is kept.
            name: queue.name().clone(),
            mode: wanted.wish.mode,
            owner: self.env().owner_id(),
            ttl: wanted.ttl,
            label: Arc::clone(&self.label),
            metadata: wanted.metadata.clone(),
        }
    }
}
