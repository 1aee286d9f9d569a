//! The release of a hold: to the next waiter of this process, to the others that share the grant, or to the store until it
//! confirms.
//!
//! # Invariants
//! - **release-1** Renewal stops before a release is sent.
//! - **release-2** A release, once begun, goes on until the store confirms or the lease has ended, also without
//!   its caller (G5).
//! - **release-3** After that the queue is updated and calls the next waiter (B1), by the `Drop` of a
//!   [`PendingRelease`] at the latest.
//! - **release-4** Every release ends (confirm-1). A session that would keep an unconfirmed entry is ended then.
//!
//! Checked by the conformance cases of `g4` and `g5`, the tests below, and `tests/local`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::backend::Renewal;
use crate::clock::Moment;
use crate::core::confirm::{Unconfirmed, release_until_confirmed};
use crate::core::context::Context;
use crate::core::holds::{Name, Shared};
use crate::core::metrics::{self, HoldTimer};
use crate::core::ownership::Ownership;
use crate::core::queue::{Claim, Released};
use crate::core::watchdog::unanswered;
use crate::words::error::{Error, Result};
use crate::words::loss::LostReason;
use crate::words::token::FencingToken;

/// An ownership, for one guard; dropped, it is released in the background.
pub(crate) struct Hold {
    shared: Arc<Shared>,
    name: Arc<Name>,
    ownership: Arc<Ownership>,
    token: FencingToken,
    timer: HoldTimer,
    ended: bool,
}

impl Hold {
    pub(super) fn new(
        shared: &Arc<Shared>,
        name: &Arc<Name>,
        ownership: Arc<Ownership>,
        token: FencingToken,
    ) -> Self {
        let timer = HoldTimer::begin(&shared.context.env);
        Self { shared: Arc::clone(shared), name: Arc::clone(name), ownership, token, timer, ended: false }
    }

    pub(crate) fn ownership(&self) -> &Arc<Ownership> {
        &self.ownership
    }

    pub(crate) fn token(&self) -> FencingToken {
        self.token
    }

    pub(crate) fn now(&self) -> Moment {
        self.shared.context.env.now()
    }

    /// From now on it is lost when it was held for `span`.
    pub(crate) fn hold_at_most(&self, span: Duration) {
        let now = self.now();
        self.ownership.hold_until(now + span);
        self.shared.leases.end_at(&self.ownership, now);
    }

    /// Cleans up behind a loss that a guard has found; why it is lost.
    pub(crate) fn found_lost(&self) -> LostReason {
        let reason = self.ownership.lost(self.now()).unwrap_or(LostReason::Expired);
        self.shared.end(&self.ownership, reason);
        reason
    }

    /// Renews besides the watchdog.
    pub(crate) async fn renew_now(&self) -> Result<()> {
        let Context { env, backend, .. } = &self.shared.context;
        let (lease, sent_at) = (self.ownership.grant().lease.id, env.now());
        let leases = [lease];
        let answers = env.bounded(async { Ok(backend.renew(&leases).await) }).await;
        let answer = answers.and_then(|answers| answers.into_iter().next().ok_or_else(unanswered));
        let result = match &answer {
            Ok(Renewal::Until(_)) => Ok(()),
            Ok(Renewal::Gone(reason)) => Err(Error::lost(*reason)),
            Ok(Renewal::Unknown(error)) | Err(error) => Err(error.clone()),
        };
        // Of one that is not known to have worked the watchdog's own renewal goes on as it was planned.
        if let Ok(answer @ (Renewal::Until(_) | Renewal::Gone(_))) = answer {
            self.shared.end_all(self.shared.leases.answered(lease, env.now(), sent_at, answer));
        }
        result.map_err(|error| self.shared.context.error_about(self.name.lock_name(), error))
    }

    pub(crate) async fn release(mut self) -> Result<()> {
        self.ended = true;
        self.timer.end();
        match self.leave() {
            Released::Stays => Ok(()),
            Released::NotHeld => {
                let reason = self.ownership.lost(self.now()).unwrap_or(LostReason::Gone);
                Err(Error::lost(reason).with_context("lock", self.name.lock_name()))
            }
            Released::Store => {
                let release = PendingRelease::new(&self.shared, &self.name, &self.ownership);
                match self.name.begin(&self.shared.context, Box::pin(release.settled()), Some(unheard)).await
                {
                    Ok(confirmed) => confirmed,
                    Err(request) => request.await,
                }
            }
        }
    }

    /// Returns the hold to the process, and whether the store has to release it.
    fn leave(&self) -> Released {
        let Self { shared, name, ownership, token, .. } = self;
        let now = self.now();
        let (mut next, mut watchers, guard) = (None, None, token.index());
        let released = shared.change(name, |state| {
            if ownership.lost(now).is_some() {
                return Released::NotHeld;
            }
            let passes = || ownership.pass_on(guard, now).map(|passed| watchers = passed).is_some();
            let (released, call) = state.queue.release(token.counter(), now, passes);
            if released == Released::Stays && call.is_none() {
                watchers = ownership.without(guard);
            }
            next = call;
            released
        });
        if let Some(watchers) = watchers {
            watchers.tell();
        }
        if let Some((Claim::Hold(_, token), _)) = next {
            shared.call(name, next);
            metrics::handed_on("local");
            tracing::debug!(lock = %name.lock_name(), %token, "passed to the next local waiter");
        }
        match released {
            Released::Stays => {}
            Released::NotHeld => shared.end(ownership, ownership.lost(now).unwrap_or(LostReason::Gone)),
            Released::Store => {
                metrics::handed_on("store");
                tracing::debug!(lock = %name.lock_name(), %token, "releasing");
                ownership.end(LostReason::Released);
                shared.leases.deregister(ownership);
            }
        }
        released
    }
}

impl Drop for Hold {
    /// Nothing here blocks, panics, or needs a runtime.
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        self.timer.end();
        self.shared.guards_dropped.fetch_add(1, Ordering::Relaxed);
        metrics::dropped();
        if self.leave() == Released::Store {
            PendingRelease::new(&self.shared, &self.name, &self.ownership).in_background();
        }
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").field("token", &self.token).finish_non_exhaustive()
    }
}

/// A release that the store has to be told, and after it word of that to the queue (release-3). A shutdown waits for
/// it as for a task, wherever it is polled.
///
/// Dropped on the way, it goes on as a task. A task that is dropped has lost its runtime: nothing can reach the
/// store any more, and the queue is told at once.
pub(crate) struct PendingRelease {
    shared: Arc<Shared>,
    name: Arc<Name>,
    /// Whose release it is, until that is over.
    ownership: Option<Arc<Ownership>>,
    is_task: bool,
    _awaited: TaskTrackerToken,
}

impl PendingRelease {
    pub(super) fn new(shared: &Arc<Shared>, name: &Arc<Name>, ownership: &Arc<Ownership>) -> Self {
        Self {
            shared: Arc::clone(shared),
            name: Arc::clone(name),
            ownership: Some(Arc::clone(ownership)),
            is_task: false,
            _awaited: shared.context.env.as_task(),
        }
    }

    /// Tells the store without a caller: in place if it needs no runtime. The queue calls the next waiter after that.
    pub(crate) fn in_background(self) {
        if let Some(ownership) = &self.ownership {
            self.shared.change(&self.name, |state| state.give_back(ownership));
        }
        let shared = Arc::clone(&self.shared);
        let release = async move { unheard(self.settled().await) };
        if shared.context.is_runtime_free() {
            shared.context.env.run_in_place(Box::pin(release));
        } else {
            shared.context.env.spawn(release);
        }
    }

    /// Tells the store, and then the queue, however that ended.
    async fn settled(mut self) -> Result<()> {
        let Some(ownership) = self.ownership.clone() else {
            return Ok(());
        };
        let confirmed = self.tell_store(&ownership).await;
        self.ownership = None;
        self.shared.change(&self.name, |state| state.released(&ownership));
        confirmed
    }

    /// Tells the store. The queue is told only if this is dropped on the way.
    pub(super) async fn confirmed(mut self) {
        if let Some(ownership) = self.ownership.clone() {
            let confirmed = self.tell_store(&ownership).await;
            self.ownership = None;
            unheard(confirmed);
        }
    }

    async fn tell_store(&self, ownership: &Ownership) -> Result<()> {
        let Shared { context, leases, .. } = &*self.shared;
        let released = release_until_confirmed(context, leases, ownership).await;
        let Err(Unconfirmed { error, session }) = released else {
            return Ok(());
        };
        if let Some(session) = session {
            tracing::warn!(error = ?format!("{error:#}"), "release not confirmed; ending its session");
            self.shared.end_all(leases.lose(session, LostReason::SessionLost));
            // After the guards were told, as it lets others hold.
            let given_up = context.env.answer_to(async {
                context.backend.give_up(session);
                Ok(())
            });
            given_up.await.unwrap_or_else(|error| tracing::warn!(error = ?format!("{error:#}")));
        }
        Err(error)
    }
}

impl Drop for PendingRelease {
    fn drop(&mut self) {
        let Some(ownership) = self.ownership.take() else {
            return;
        };
        if self.is_task {
            self.shared.change(&self.name, |state| state.released(&ownership));
        } else {
            self.shared.change(&self.name, |state| state.give_back(&ownership));
            let mut release = Self::new(&self.shared, &self.name, &ownership);
            release.is_task = true;
            self.shared.context.env.spawn(async move { unheard(release.settled().await) });
        }
    }
}

/// Logs how a release ended that has no caller.
fn unheard(confirmed: Result<()>) {
    let Err(error) = confirmed else {
        return;
    };
    let nothing_left = error.lost_reason().is_some();
    let error = format!("{error:#}");
    if nothing_left {
        tracing::debug!(?error, "lock was already lost at its release");
    } else {
        tracing::warn!(
            ?error,
            "release not confirmed; the lock stays held until its lease expires, if it has one"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::env::Env;
    use crate::backend::{AcquireRequest, Mode, StoreConfig};
    use crate::core::holds::Turn;
    use crate::core::queue::{HandoffBudget, Wish};
    use crate::memory::{MemoryConfig, MemoryStore};
    use crate::{LockName, Timing};
    use futures_util::FutureExt;
    use tokio::runtime::Runtime;

    /// A pending release of which the store has not been told.
    async fn pending() -> (MemoryStore, PendingRelease) {
        let timing = Timing::for_ttl(Timing::DEFAULT_TTL);
        let (env, config) = (Env::new(timing).unwrap(), MemoryConfig::private());
        let store = config.store().clone();
        let backend = config.open(env.sibling()).await.unwrap();
        let (name, label, owner) = (LockName::new("a").unwrap(), Arc::from("here"), env.owner_id());
        let (mode, ttl, metadata) = (Mode::EXCLUSIVE, Timing::DEFAULT_TTL, None);
        let request = AcquireRequest { name: name.clone(), mode, owner, ttl, label, metadata };
        let grant = backend.acquire(&request).await.unwrap();
        let shared = Arc::new(Shared::new(Context::new(env, backend, None, "here".into())));
        let (name, wish) = (shared.names.of(&name), Wish { mode, alone: false });
        let Ok(Some(Turn::Lead(mut leader))) = shared.claim(&name, wish, false).await else {
            unreachable!("the name is free");
        };
        let budget = HandoffBudget { limit: 0, window: Duration::ZERO };
        let Ok(mut hold) = leader.adopt(grant, wish, budget) else {
            unreachable!("it was just granted");
        };
        hold.ended = true;
        assert_eq!(hold.leave(), Released::Store);
        assert!(!store.is_empty(), "the store has been told");
        (store, PendingRelease::new(&shared, &name, &hold.ownership))
    }

    fn is_idle(name: &Name) -> bool {
        name.with(|state| state.queue.is_idle())
    }

    async fn settled(name: &Name) {
        let settled = async {
            while !is_idle(name) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), settled).await.expect("the next waiter is called");
    }

    /// A pending release that is dropped is made by a task (release-2), which calls the next waiter (release-3).
    #[tokio::test]
    async fn a_dropped_release_is_made_by_a_task() {
        let (store, release) = pending().await;
        let name = Arc::clone(&release.name);
        drop(release);
        settled(&name).await;
        assert!(store.is_empty());
    }

    #[tokio::test]
    async fn a_release_that_was_never_polled_is_made() {
        let (store, release) = pending().await;
        let name = Arc::clone(&release.name);
        drop(release.settled());
        settled(&name).await;
        assert!(store.is_empty());
    }

    /// Without its runtime nothing can reach the store; the name is not stopped by that (release-3).
    #[test]
    fn a_release_without_its_runtime_stops_no_name() {
        let runtime = Runtime::new().unwrap();
        let (_, release) = runtime.block_on(pending());
        drop(runtime);
        let name = Arc::clone(&release.name);
        assert!(!is_idle(&name));
        drop(release);
        assert!(is_idle(&name));
    }

    #[tokio::test]
    async fn a_confirmed_release_frees_the_name() {
        let (store, release) = pending().await;
        let name = Arc::clone(&release.name);
        release.settled().now_or_never().expect("memory answers").unwrap();
        assert!(store.is_empty() && is_idle(&name));
    }
}
