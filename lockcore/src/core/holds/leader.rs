//! The caller that asks the store, for all of this process that wait for a name, and those that wait for its request.
//!
//! # Invariants
//! - **leader-1** A [`Leader`] either adopts a grant or lets the queue call the next waiter, by `Drop` at the
//!   latest: no wake-up is lost (G8).
//! - **leader-2** A request of a leader that has left passes to the next waiter that wants the same; without one
//!   it is cancelled, and the leader, which is part of it, goes last (B1).

use std::fmt;
use std::sync::Arc;

use crate::backend::Grant;
use crate::backend::panic::Panicked;
use crate::core::context::Context;
use crate::core::holds::{Hold, Name, NameState, PendingRelease, Shared, Turn};
use crate::core::queue::{HandoffBudget, Wish};
use crate::core::request::Request;
use crate::words::error::{Error, ErrorKind, Result};
use crate::words::loss::LostReason;

/// The one that asks the store for a name; there is one at a time.
pub(crate) struct Leader {
    shared: Arc<Shared>,
    name: Arc<Name>,
    /// The queue does not wait for it any more.
    is_over: bool,
}

/// A grant that cannot be used.
pub(crate) struct Rejected {
    pub(crate) error: Error,
    /// Another grant may be better.
    pub(crate) again: bool,
    pub(crate) release: PendingRelease,
}

impl Leader {
    pub(super) fn new(shared: &Arc<Shared>, name: &Arc<Name>) -> Self {
        Self { shared: Arc::clone(shared), name: Arc::clone(name), is_over: false }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn name(&self) -> &Arc<Name> {
        &self.name
    }

    /// Makes a hold of the store's grant, unless it is over already, or its counter went back.
    pub(crate) fn adopt(
        &mut self,
        grant: Grant,
        wish: Wish,
        budget: HandoffBudget,
    ) -> Result<Hold, Rejected> {
        let Self { shared, name, is_over } = self;
        let counter = grant.counter;
        let now = shared.context.env.now();
        let ownership = shared.leases.register(grant, wish.mode, now);
        let adopted = shared.change(name, |state| {
            let early = state.news().map(|news| (news.lost_early.take(), news.asked_early.take()));
            let (lost_early, asked_early) = early.unwrap_or_default();
            if let Some((_, reason)) = lost_early.filter(|(lost, _)| *lost == counter) {
                ownership.end(reason);
            }
            if let Some((_, until)) = asked_early.filter(|(asked, _)| *asked == counter) {
                ownership.request_revocation(until);
            }
            // RACE: registered before `closing` is read, so that a shutdown either finds the ownership in
            // the table or is seen here.
            if shared.context.is_closed() {
                ownership.end(LostReason::Shutdown);
            }
            // RACE: a loss reported from here on finds the hold in the queue; one reported before has ended
            // the ownership, and is found here.
            match ownership.lost(now) {
                None => {}
                Some(LostReason::Shutdown | LostReason::RuntimeGone) => {
                    return Err((Context::closed_error(), false));
                }
                Some(reason) => return Err((Error::lost(reason), true)),
            }
            state.granted();
            let adopted = state.queue.adopt(Arc::clone(&ownership), wish, now, budget);
            adopted.map_err(|regressed| (went_back(counter, regressed.last), false))
        });
        // Only now: a panic before this calls the next waiter.
        *is_over = true;
        match adopted {
            Ok(token) => {
                tracing::debug!(lock = %name.lock_name(), %token, "acquired");
                if ownership.asked().is_some() {
                    shared.leases.end_at(&ownership, now);
                }
                Ok(Hold::new(shared, name, ownership, token))
            }
            Err((error, again)) => {
                ownership.end(ownership.lost(now).unwrap_or(LostReason::Gone));
                shared.leases.deregister(&ownership);
                Err(Rejected { error, again, release: PendingRelease::new(shared, name, &ownership) })
            }
        }
    }

    /// Waits for the release of a rejected grant, and asks on. If the caller leaves on the way, the release goes on,
    /// and calls the next waiter.
    pub(crate) async fn resume_after(&mut self, release: PendingRelease) -> Result<()> {
        let released = async {
            Box::pin(release.confirmed()).await;
            Ok(())
        };
        self.shared.context.until_closed(released).await?;
        self.is_over = false;
        Ok(())
    }

    /// Notes what the store said; whether there was a place in its queue by now, as it said or has lost it.
    pub(crate) fn note(&self, error: &Error) -> bool {
        let is_lost = error.lost_reason().is_some();
        self.name.with(|state| {
            if is_lost || concerns_all(error) {
                state.news_mut().refused = Some(error.clone());
            }
            state.news().is_some_and(|news| {
                news.queued |= is_lost;
                news.queued
            })
        })
    }

    /// The store has refused the request: every waiter gets the same error if it is about the store.
    pub(crate) fn refuse_all(mut self, error: Error) -> Error {
        if concerns_all(&error) {
            self.is_over = true;
            let waiters: Vec<_> = self.name.with(|state| {
                state.not_granted();
                state.queue.drain().collect()
            });
            for waiter in waiters {
                waiter.call(Turn::Refused(error.clone()));
            }
        }
        error
    }
}

/// Whether an error says something about the store: that it cannot be reached, speaks nonsense, is
/// closed, or refuses us or what we ask. The rest is about one request: its name, its options, the
/// lease it lost, or a panic on its way.
fn concerns_all(error: &Error) -> bool {
    use ErrorKind::{Closed, Denied, Protocol, Unavailable, Unsupported};
    let panicked = std::error::Error::source(error).is_some_and(|source| source.is::<Panicked>());
    !panicked && matches!(error.kind(), Closed | Denied | Protocol | Unavailable | Unsupported)
}

fn went_back(counter: u64, last: u64) -> Error {
    Error::not_applied(
        ErrorKind::Protocol,
        format!(
            "the store granted counter {counter} after {last}: it lost data or was restored; raise the \
             namespace's `token_base`"
        ),
    )
}

impl Drop for Leader {
    fn drop(&mut self) {
        if !self.is_over {
            self.shared.change(&self.name, NameState::not_granted);
        }
    }
}

impl fmt::Debug for Leader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leader").field("name", self.name.lock_name()).finish_non_exhaustive()
    }
}

/// The wait for the request of a leader. Dropped, the request passes to the next waiter with the same wish; without
/// one it is cancelled.
#[derive(Debug)]
pub(crate) struct Join {
    shared: Arc<Shared>,
    name: Arc<Name>,
    wish: Wish,
    /// Until it is answered.
    request: Option<Request<Result<Hold>>>,
}

impl Join {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        name: &Arc<Name>,
        wish: Wish,
        request: Request<Result<Hold>>,
    ) -> Self {
        Self { shared: Arc::clone(shared), name: Arc::clone(name), wish, request: Some(request) }
    }

    pub(crate) async fn answer(mut self) -> Result<Hold> {
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
        let handle = request.handle();
        let heir = self.name.with(|state| {
            // RACE: one that was answered has left the state under this mutex; what the queue does now
            // is no business of its.
            if state.is_in_flight(&handle) { state.queue.inherit(self.wish) } else { None }
        });
        match heir {
            Some(heir) => heir.call(Turn::Join(Self::new(&self.shared, &self.name, self.wish, request))),
            None => drop(request),
        }
    }
}
