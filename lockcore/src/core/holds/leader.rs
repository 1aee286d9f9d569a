//! The caller that sends the request for all waiters of a name in this process, and the ones that wait for its request.
//!
//! # Invariants
//! - **leader-1** A [`Leader`] either adopts a grant or lets the queue call the next waiter, by `Drop` at the
//!   latest: no wake-up is lost (G8).
//! - **leader-2** A request of a leader that has left passes to the next waiter that wants the same; without one
//!   it is cancelled, and the leader, which is part of it, goes last (B1).

use std::sync::Arc;

use crate::backend::Grant;
use crate::backend::panic::Panicked;
use crate::core::context::Context;
use crate::core::holds::release::log_unconfirmed;
use crate::core::holds::{
    Acquired, Hold, Join, Leader, LocalLock, NameState, PendingRelease, Rejected, Turn,
};
use crate::core::queue::{HandoffBudget, Wish};
use crate::core::request::Request;
use crate::words::error::{Error, ErrorKind, Result};
use crate::words::loss::LostReason;

impl Leader {
    pub(super) fn new(lock: &LocalLock) -> Self {
        Self { lock: lock.clone(), is_over: false }
    }

    /// Makes a hold of the store's grant, unless it has ended already, or its counter went back.
    pub(crate) fn adopt(
        &mut self,
        grant: Grant,
        wish: Wish,
        budget: HandoffBudget,
    ) -> Result<Hold, Rejected> {
        let (lock, counter) = (&self.lock, grant.counter);
        let LocalLock { core, name } = lock;
        let now = core.context.env.now();
        let ownership = core.leases.register(grant, wish.mode, now);
        let adopted = lock.change(|state| {
            if let Some(early) = state.news.as_mut().map(|news| std::mem::take(&mut news.early))
                && early.counter == counter
            {
                early.lost.map(|reason| ownership.end(reason));
                early.ends_at.map(|at| ownership.request_revocation(at));
            }
            // RACE: registered before `is_closed` is read, so that a shutdown either finds the ownership in
            // the table or is seen here.
            if core.context.is_closed() {
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
            adopted.map_err(|last| (went_back(counter, last), false))
        });
        // Only now: a panic before this calls the next waiter.
        self.is_over = true;
        match adopted {
            Ok(token) => {
                tracing::debug!(lock = %name.lock_name, %token, "acquired");
                if ownership.revocation_deadline().is_some() {
                    core.leases.end_at(&ownership, now);
                }
                Ok(Hold::new(lock, ownership, token))
            }
            Err((error, again)) => {
                ownership.end(ownership.lost(now).unwrap_or(LostReason::Gone));
                core.leases.deregister(&ownership);
                Err(Rejected { error, again, release: PendingRelease::new(lock, &ownership) })
            }
        }
    }

    /// Waits for the release of a rejected grant, and repeats the request. If the caller leaves on the way, the release goes
    /// on, and calls the next waiter.
    pub(crate) async fn resume_after(&mut self, release: PendingRelease) -> Result<()> {
        let released = async {
            log_unconfirmed(Box::pin(release.settled()).await);
            Ok(())
        };
        self.lock.core.context.until_closed(released).await?;
        self.is_over = false;
        Ok(())
    }

    /// Notes the store's answer; returns whether there was a place in its queue by now, reported or lost.
    pub(crate) fn note(&self, error: &Error) -> bool {
        let is_lost = error.lost_reason().is_some();
        self.lock.name.with(|state| {
            if !is_lost && !concerns_all(error) {
                return state.news.as_ref().is_some_and(|news| news.queued);
            }
            let news = state.news.get_or_insert_default();
            (news.refused, news.queued) = (Some(error.clone()), news.queued || is_lost);
            news.queued
        })
    }

    /// Notes that the store answers again: the lock is held.
    pub(crate) fn found_busy(&self) {
        self.lock.name.with(|state| state.news.as_mut().map(|news| news.refused = None));
    }

    /// The store has refused the request: every waiter gets the same error if it is about the store.
    pub(crate) fn refuse_all(mut self, error: Error) -> Error {
        if concerns_all(&error) {
            self.is_over = true;
            let waiters: Vec<_> = self.lock.name.with(|state| {
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

/// Whether an error concerns the store: it cannot be reached, sends an invalid reply, is closed, or refuses this client or its
/// request. The other errors concern one request: its name, its options, its lost lease, or a panic.
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
            self.lock.change(NameState::not_granted);
        }
    }
}

impl Join {
    pub(crate) fn new(lock: &LocalLock, wish: Wish, request: Request<Result<Acquired>>) -> Self {
        Self { lock: lock.clone(), wish, request: Some(request) }
    }

    pub(crate) async fn answer(mut self) -> Result<Acquired> {
        let answer = self.request.as_mut().expect("it is taken only here and by `drop`").await;
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
        let heir = self.lock.name.with(|state| {
            // RACE: a request that was answered has left the state under this mutex; the queue goes on without it.
            if state.is_in_flight(&handle) { state.queue.inherit(self.wish) } else { None }
        });
        match heir {
            Some(heir) => heir.call(Turn::Join(Self::new(&self.lock, self.wish, request))),
            None => drop(request),
        }
    }
}
