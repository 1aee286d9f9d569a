//! Letting go: to the next waiter of this process, to those who share the hold, or to the store until it confirms.
//!
//! # Invariants
//! - **release-1** Renewal stops before a release is sent.
//! - **release-2** A release, once begun, goes on until the store confirms or the lease has ended, whoever
//!   stops waiting for it (G5).
//! - **release-3** The queue hears of it after that, whoever dies on the way, and calls who waited for it (B1): the
//!   duty is an [`PendingRelease`].
//! - **release-4** Every release ends: confirmed, or with the reason why not, at the latest one ttl and one
//!   request after it began. A session that is kept alive for others would keep the entry with it, so
//!   the session is given up then.
//!
//! Checked by the conformance cases of `g4` and `g5`, the tests below, and `tests/local`.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::backend::{Backoff, Grant, LeaseScope};
use crate::clock::{Deadline, Moment};
use crate::core::Core;
use crate::core::acquire::Turn;
use crate::core::holds::Hold;
use crate::core::metrics;
use crate::core::names::Name;
use crate::core::ownership::Ownership;
use crate::core::queue::Release;
use crate::core::request::Flown;
use crate::words::error::{Effect, Error, ErrorKind, Result};
use crate::words::loss::LostReason;
use crate::words::token::FencingToken;

/// What became of a hold whose guard ended.
#[derive(Debug)]
pub(crate) enum Ended {
    HandedOn,
    /// Others of this process share it.
    Kept,
    Lost(LostReason),
    /// The store must be told.
    Store,
}

impl Core {
    /// The guard lets go.
    pub(crate) fn end(
        self: &Arc<Self>,
        queue: &Arc<Name>,
        ownership: &Arc<Ownership>,
        token: FencingToken,
    ) -> Ended {
        let now = self.env().now();
        let (mut next, mut watchers, guard) = (None, None, token.index());
        let ended = self.change(queue, |state| {
            if let Some(reason) = ownership.lost(now) {
                return Ended::Lost(reason);
            }
            let passes =
                || ownership.pass_on_if_healthy(guard, now).map(|passed| watchers = passed).is_some();
            match state.queue.release(token.counter(), now, passes) {
                Release::Kept => {
                    watchers = ownership.without(guard);
                    Ended::Kept
                }
                Release::HandOn(ownership, token, waiter) => {
                    next = Some((waiter, ownership, token));
                    Ended::HandedOn
                }
                Release::Store => Ended::Store,
                Release::NotHeld => Ended::Lost(LostReason::Gone),
            }
        });
        if let Some(watchers) = watchers {
            watchers.tell();
        }
        if let Some((waiter, ownership, token)) = next {
            tracing::debug!(lock = %ownership.grant().name, %token, "handed on");
            waiter.call(Turn::Held(Hold::new(Arc::clone(self), Arc::clone(queue), ownership, token)));
        }
        match ended {
            Ended::Lost(reason) => self.lose(ownership, reason),
            Ended::Store => {
                metrics::handed_on("store");
                self.stop_renewing(ownership);
            }
            Ended::HandedOn => metrics::handed_on("local"),
            Ended::Kept => {}
        }
        ended
    }

    /// A guard is dropped: nothing here blocks, panics, or needs a runtime.
    pub(crate) fn drop_guard(
        self: &Arc<Self>,
        queue: &Arc<Name>,
        ownership: &Arc<Ownership>,
        token: FencingToken,
    ) {
        self.guards_dropped.fetch_add(1, Ordering::Relaxed);
        metrics::dropped();
        if let Ended::Store = self.end(queue, ownership, token) {
            self.release_in_background(queue, ownership);
        }
    }

    /// Tells the store with nobody waiting for it: in place if it needs no runtime.
    pub(crate) fn release_in_background(self: &Arc<Self>, queue: &Arc<Name>, ownership: &Arc<Ownership>) {
        let release = PendingRelease::new(self, queue, ownership).settled_unheard();
        if self.is_runtime_free() {
            self.env().run_in_place(Box::pin(release));
        } else {
            self.env().spawn(release);
        }
    }

    /// Tells the store; dropped midway it goes on in the background (release-2).
    pub(crate) fn carried_release(
        self: &Arc<Self>,
        queue: &Arc<Name>,
        ownership: &Arc<Ownership>,
    ) -> impl Future<Output = Result<()>> + Send + 'static {
        let (core, queue) = (Arc::clone(self), Arc::clone(queue));
        let release = Box::pin(PendingRelease::new(self, &queue, ownership).settled());
        async move {
            match core.begin(&queue, release, Some(unheard)).await {
                Flown::Ready(confirmed) => confirmed,
                Flown::Pending(request) => request.await,
            }
        }
    }

    fn stop_renewing(&self, ownership: &Arc<Ownership>) {
        tracing::debug!(lock = %ownership.grant().name, counter = ownership.grant().counter, "releasing");
        ownership.end(LostReason::Released);
        self.leases.deregister(ownership);
    }

    /// Tells the store. An entry that stays in a session is left to the session's end, which the backend
    /// hears of (release-4).
    async fn confirm_release(self: &Arc<Self>, ownership: &Ownership) -> Result<()> {
        let grant = ownership.grant();
        let confirmed = self.release_until(ownership.last_deadline(), grant).await;
        let Err(error) = confirmed else {
            return Ok(());
        };
        let error = self.about(&grant.name, error);
        if grant.lease.scope == LeaseScope::Session && error.lost_reason().is_none() {
            tracing::warn!(error = ?format!("{error:#}"), "not released; its session is given up");
            self.end_all(self.leases.lose(grant.lease.id, LostReason::SessionLost));
            // After the guards were told, as it lets others hold.
            let given_up = self.env().answer_to(async {
                self.backend().give_up(grant.lease.id);
                Ok(())
            });
            given_up.await.unwrap_or_else(|error| tracing::warn!(error = ?format!("{error:#}")));
        }
        Err(error)
    }

    /// Asks the store to release until it confirms, or refuses for good, or it is too late. Nothing is
    /// sent after that, a first attempt apart.
    async fn release_until(&self, deadline: Deadline, grant: &Grant) -> Result<()> {
        let (env, began) = (self.env(), self.env().now());
        let in_session = grant.lease.scope == LeaseScope::Session;
        // A session is renewed for others, so its deadline moves on. Without a lease nothing ends the
        // lock but us; a ttl is as long as anybody would wait.
        let lease_ends_at = || match self.leases.session_deadline(&grant.lease).unwrap_or(deadline) {
            Deadline::At(at) => at,
            Deadline::Never => began + env.timing().ttl,
        };
        let give_up_at = || {
            let patience = if in_session { began + grant.lease.ttl } else { Moment::LAST };
            patience.min(lease_ends_at())
        };
        let mut backoff = Backoff::of_requests(env);
        let mut effect = Effect::NotApplied;
        loop {
            let Err(error) = env.bounded(self.backend().release(grant)).await else {
                return Ok(());
            };
            match (error.lost_reason(), effect) {
                // An earlier try of ours must have done it: nothing else could, before the deadline. That a
                // session is over says nothing of the entry.
                (Some(LostReason::Gone), Effect::Unknown) if env.now() < lease_ends_at() => return Ok(()),
                (Some(_), _) => return Err(error.with_effect(effect)),
                (None, Effect::NotApplied) => effect = error.effect(),
                (None, Effect::Unknown) => {}
            }
            let unconfirmed = error.with_effect(effect);
            if ends_release(unconfirmed.kind(), in_session) || give_up_at() <= env.now() {
                return Err(unconfirmed);
            }
            tokio::select! {
                biased;
                () = env.sleep_until((env.now() + backoff.next(env)).min(give_up_at())) => {}
                () = env.gone() => return Err(unconfirmed),
            }
            if give_up_at() <= env.now() {
                return Err(unconfirmed);
            }
        }
    }
}

/// Whether asking again is of no use. An entry with a lease of its own may wait for that to end; one
/// in a session ends with the session, and the sooner the better.
fn ends_release(kind: &ErrorKind, in_session: bool) -> bool {
    use ErrorKind::{Closed, Denied, InvalidName, InvalidOption, Misuse, Unsupported};
    match kind {
        Closed => true,
        Denied | InvalidName | InvalidOption | Misuse | Unsupported => in_session,
        _ => false,
    }
}

/// A release that is owed to the store, and after it word of that to the queue (release-3). A shutdown waits
/// for it as for a task, wherever it is polled.
///
/// Whoever dies with it leaves it to a task. A task that dies has lost its runtime: there is nobody
/// left to tell the store, and the queue hears at once.
struct PendingRelease {
    core: Arc<Core>,
    queue: Arc<Name>,
    /// Whose release it is, until that is over.
    ownership: Option<Arc<Ownership>>,
    is_task: bool,
    _awaited: TaskTrackerToken,
}

impl PendingRelease {
    fn new(core: &Arc<Core>, queue: &Arc<Name>, ownership: &Arc<Ownership>) -> Self {
        Self {
            core: Arc::clone(core),
            queue: Arc::clone(queue),
            ownership: Some(Arc::clone(ownership)),
            is_task: false,
            _awaited: core.env().as_task(),
        }
    }

    /// Tells the store, and then the queue, however that ended.
    async fn settled(mut self) -> Result<()> {
        let Some(ownership) = self.ownership.clone() else {
            return Ok(());
        };
        let confirmed = self.core.confirm_release(&ownership).await;
        self.ownership = None;
        self.core.change(&self.queue, |state| state.released(&ownership));
        confirmed
    }

    /// Tells the store. The queue hears of it only if this dies on the way.
    async fn confirmed(mut self) {
        let Some(ownership) = self.ownership.clone() else {
            return;
        };
        let confirmed = self.core.confirm_release(&ownership).await;
        self.ownership = None;
        unheard(confirmed);
    }

    async fn settled_unheard(self) {
        unheard(self.settled().await);
    }
}

impl Drop for PendingRelease {
    fn drop(&mut self) {
        let Some(ownership) = self.ownership.take() else {
            return;
        };
        if self.is_task {
            self.core.change(&self.queue, |state| state.released(&ownership));
        } else {
            self.core.change(&self.queue, |state| state.give_back(&ownership));
            let mut owed = Self::new(&self.core, &self.queue, &ownership);
            owed.is_task = true;
            self.core.env().spawn(owed.settled_unheard());
        }
    }
}

/// A grant that was over when it arrived. It is owed to the store.
pub(crate) struct Late {
    pub(super) core: Arc<Core>,
    pub(super) queue: Arc<Name>,
    pub(super) ownership: Arc<Ownership>,
    pub(super) reason: LostReason,
}

impl Late {
    pub(crate) fn error(&self) -> Error {
        Error::lost(self.reason)
    }

    /// In the background; the next waiter is called behind it.
    pub(crate) fn give_back(&self) {
        self.core.change(&self.queue, |state| state.give_back(&self.ownership));
        self.core.release_in_background(&self.queue, &self.ownership);
    }

    /// For a drive that goes on behind it. If that ends on the way, the release goes on (release-2), and
    /// calls the next waiter.
    pub(crate) fn given_back(self) -> impl Future<Output = Result<Error>> + Send {
        let owed = PendingRelease::new(&self.core, &self.queue, &self.ownership);
        async move {
            Box::pin(owed.confirmed()).await;
            Ok(self.error())
        }
    }
}

/// Says how a release ended that nobody waits for.
fn unheard(confirmed: Result<()>) {
    let Err(error) = confirmed else {
        return;
    };
    let nothing_left = error.lost_reason().is_some();
    let error = format!("{error:#}");
    if nothing_left {
        tracing::debug!(?error, "there was nothing left to release");
    } else {
        tracing::warn!(?error, "a release was not confirmed; a lease ends the lock, where there is one");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::env::Env;
    use crate::backend::{Mode, StoreConfig};
    use crate::core::acquire::Acquire;
    use crate::core::queue::{HandoffBudget, Wish};
    use crate::memory::{MemoryConfig, MemoryStore};
    use crate::{LockName, Timing};
    use futures_util::FutureExt;
    use std::time::Duration;
    use tokio::runtime::Runtime;

    /// A lock that is let go, and whose release nobody has told the store yet.
    async fn let_go() -> (MemoryStore, PendingRelease) {
        let (env, config) =
            (Env::new(Timing::for_ttl(Timing::DEFAULT_TTL)).unwrap(), MemoryConfig::private());
        let store = config.store().clone();
        let backend = config.open(env.sibling()).await.unwrap();
        let core = Core::start(env.clone(), env.sibling(), backend, None, "here".into(), Duration::ZERO);
        let wanted = Acquire {
            queue: core.queues.of(&LockName::new("a").unwrap()),
            wish: Wish { mode: Mode::EXCLUSIVE, alone: false },
            ttl: Timing::DEFAULT_TTL,
            wait: None,
            budget: HandoffBudget { limit: 0, window: Duration::ZERO },
            metadata: None,
        };
        let guard = core.acquire(&wanted).await.unwrap();
        let held = wanted
            .queue
            .with(|state| state.queue.held().next().map(|(held, token)| (Arc::clone(held), token)));
        let (ownership, token) = held.expect("it was just acquired");
        assert!(matches!(core.end(&wanted.queue, &ownership, token), Ended::Store));
        drop(guard);
        assert!(!store.is_empty(), "nobody has told the store");
        (store, PendingRelease::new(&core, &wanted.queue, &ownership))
    }

    fn is_idle(queue: &Name) -> bool {
        queue.with(|state| state.queue.is_idle())
    }

    async fn settled(queue: &Name) {
        let settled = async {
            while !is_idle(queue) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), settled).await.expect("the next waiter is called");
    }

    /// A pending release that is dropped is made by a task (release-2), which calls the next waiter (release-3).
    #[tokio::test]
    async fn a_dropped_release_is_made_by_a_task() {
        let (store, release) = let_go().await;
        let queue = Arc::clone(&release.queue);
        drop(release);
        settled(&queue).await;
        assert!(store.is_empty());
    }

    #[tokio::test]
    async fn a_release_that_was_never_polled_is_made() {
        let (store, release) = let_go().await;
        let queue = Arc::clone(&release.queue);
        drop(release.settled());
        settled(&queue).await;
        assert!(store.is_empty());
    }

    /// Without its runtime nothing can reach the store; the name is not stopped by that (release-3).
    #[test]
    fn a_release_without_its_runtime_stops_no_name() {
        let runtime = Runtime::new().unwrap();
        let (_, release) = runtime.block_on(let_go());
        drop(runtime);
        let queue = Arc::clone(&release.queue);
        assert!(!is_idle(&queue));
        drop(release);
        assert!(is_idle(&queue));
    }

    #[tokio::test]
    async fn a_confirmed_release_frees_the_name() {
        let (store, release) = let_go().await;
        let queue = Arc::clone(&release.queue);
        release.settled().now_or_never().expect("memory answers").unwrap();
        assert!(store.is_empty() && is_idle(&queue));
    }
}
