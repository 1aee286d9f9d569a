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
//! - **release-5** A release before the guard's `hold_at_least` has passed leaves grant and queue as they are; the watchdog
//!   ends the ownership then.
//! - **release-6** An ownership that ends under work, such as that of `Lock::run`, is released after all of it is dropped, or
//!   after its lease or a ttl has ended. A shutdown waits for that. When the manager's runtime ends, it is released at once
//!   where the store needs none.
//!
//! Checked by the conformance cases of `g4` and `g5`, the tests below, and `tests/local`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;

use crate::backend::{LeaseScope, Renewal};
use crate::clock::Moment;
use crate::core::confirm::{release_until_confirmed, until_dropped};
use crate::core::context::Context;
use crate::core::holds::{Core, Hold, LocalLock, PendingRelease};
use crate::core::leases::Lost;
use crate::core::metrics::{self, Timer};
use crate::core::ownership::{Ownership, tell_released};
use crate::core::queue::{Claim, Released};
use crate::core::watchdog::renew;
use crate::words::error::{Error, Result};
use crate::words::guarantees::Guarantees;
use crate::words::loss::LostReason;
use crate::words::token::FencingToken;

impl Hold {
    pub(super) fn new(lock: &LocalLock, ownership: Arc<Ownership>, token: FencingToken) -> Self {
        let timer = Timer::begin(&lock.core.context.env);
        Self { lock: lock.clone(), ownership, token, timer, at_least: None, ended: false }
    }

    pub(crate) fn now(&self) -> Moment {
        self.lock.now()
    }

    /// From now on it is lost when it was held for `span`.
    pub(crate) fn hold_at_most(&self, span: Duration) {
        let now = self.now();
        self.ownership.hold_until(now + span);
        self.lock.core.leases.end_at(&self.ownership, now);
    }

    /// From now on its release is put off until it was held for `span`.
    pub(crate) fn hold_at_least(&mut self, span: Duration) {
        let until = self.now() + span;
        self.ownership.hold_at_least_until(until);
        self.at_least = Some(until);
    }

    /// Cleans up behind a loss that a guard has found.
    #[cold]
    pub(crate) fn found_lost(&self, unless_known: LostReason) -> Error {
        self.lock.found_lost(&self.ownership, unless_known)
    }

    pub(crate) async fn release(mut self) -> Result<()> {
        self.ended = true;
        self.timer.record(metrics::HOLD);
        match self.leave() {
            Released::Stays => Ok(()),
            Released::NotHeld => Err(self.found_lost(LostReason::Gone)),
            Released::Store => {
                let LocalLock { core, name } = &self.lock;
                let release = Box::pin(PendingRelease::new(&self.lock, &self.ownership).settled());
                match name.begin(&core.context, release, Some(log_unconfirmed)).await {
                    Ok(confirmed) => confirmed,
                    Err(request) => request.await,
                }
            }
        }
    }

    /// Returns the hold to the process, and whether the store has to release it.
    fn leave(&self) -> Released {
        let Self { lock, ownership, token, .. } = self;
        let LocalLock { core, name } = lock;
        let now = self.now();
        if self.at_least.is_some_and(|until| now < until) && core.put_off(ownership, LostReason::Released) {
            return Released::Stays;
        }
        let (mut next, mut watchers, guard) = (None, None, token.index());
        let released = lock.change(|state| {
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
            tell_released(&watchers);
        }
        if let Some((Claim::Hold(_, token), _)) = next {
            lock.call(next);
            metrics::count(metrics::RELEASES, &[("to", "local")]);
            tracing::debug!(lock = %name.lock_name, %token, "passed to the next local waiter");
        }
        match released {
            Released::Stays => {}
            Released::NotHeld => drop(self.found_lost(LostReason::Gone)),
            Released::Store => {
                metrics::count(metrics::RELEASES, &[("to", "store")]);
                tracing::debug!(lock = %name.lock_name, %token, "releasing");
                ownership.end(LostReason::Released);
                core.leases.deregister(ownership);
            }
        }
        released
    }
}

impl LocalLock {
    /// Renews the lease of an ownership besides the watchdog.
    pub(crate) async fn renew_now(&self, ownership: &Ownership) -> Result<()> {
        let Core { context, leases, .. } = &*self.core;
        let (env, lease) = (&context.env, ownership.grant.lease.id);
        let (_, sent_at, mut answers) = renew(env, &*context.backend, vec![lease]).await;
        let answer = answers.pop().expect("a renewal of one lease has one answer");
        let result = match &answer {
            Renewal::Until(_) => Ok(()),
            Renewal::Gone(reason) => Err(Error::lost(*reason)),
            Renewal::Unknown(error) => Err(error.clone()),
        };
        // If it is not known to have worked, the watchdog's own renewal goes on as planned.
        if !matches!(answer, Renewal::Unknown(_)) {
            self.core.end_all(leases.answered(lease, env.now(), sent_at, &answer));
        }
        result.map_err(|error| context.error_about(&self.name.lock_name, error))
    }
}

impl Drop for Hold {
    /// Nothing here blocks, panics, or needs a runtime.
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        self.timer.record(metrics::HOLD);
        self.lock.core.guards_dropped.fetch_add(1, Ordering::Relaxed);
        metrics::count(metrics::DROPPED, &[]);
        if self.leave() == Released::Store {
            PendingRelease::new(&self.lock, &self.ownership).in_background();
        }
    }
}

impl PendingRelease {
    pub(super) fn new(lock: &LocalLock, ownership: &Arc<Ownership>) -> Self {
        Self {
            lock: lock.clone(),
            ownership: Arc::clone(ownership),
            works: None,
            in_background: false,
            is_sent: false,
            is_over: false,
            _awaited: lock.core.context.env.as_task(),
        }
    }

    /// The same after the works under it (release-6).
    pub(super) fn after_work(mut self) -> Self {
        let works = self.ownership.works();
        self.works = works.map(|works| (works, self.lock.core.at_work.token()));
        self
    }

    /// Continues without a caller: in place if the store needs no runtime. Then the queue calls the next waiter.
    pub(crate) fn in_background(mut self) {
        self.in_background = true;
        let core = Arc::clone(&self.lock.core);
        self.lock.change(|state| state.give_back(&self.ownership));
        let release = async move { log_unconfirmed(self.settled().await) };
        if core.context.backend.guarantees().contains(Guarantees::RUNTIME_FREE) {
            core.context.env.run_in_place(Box::pin(release));
        } else {
            core.context.env.spawn(release);
        }
    }

    /// Releases the grant at the store, and frees the name, however that ended.
    pub(super) async fn settled(mut self) -> Result<()> {
        let (Core { context, leases, .. }, grant) = (&*self.lock.core, &self.ownership.grant);
        if let Some((works, _counted)) = self.works.take() {
            until_dropped(&works, context, &self.ownership).await;
        }
        self.is_sent = true;
        let released = release_until_confirmed(context, leases, &self.ownership).await;
        let released = released.map_err(|error| context.error_about(&grant.name, error));
        if let Err(error) = &released
            && grant.lease.scope == LeaseScope::Session
            && error.lost_reason().is_none()
        {
            tracing::warn!(error = ?format!("{error:#}"), "release not confirmed; ending its session");
            self.end_session(leases.lose(grant.lease.id, LostReason::SessionLost)).await;
        }
        self.is_over = true;
        self.lock.change(|state| state.released(&self.ownership));
        released
    }
}

impl PendingRelease {
    /// Ends the session of the grant: after the guards were notified, as it lets others hold, and after the works under its
    /// other holds (release-6).
    async fn end_session(&self, lost: Option<Lost>) {
        let (core, lease) = (Arc::clone(&self.lock.core), self.ownership.grant.lease.id);
        let others = lost.as_ref().map(|(others, _)| others.clone()).unwrap_or_default();
        core.end_all(lost);
        let works: Vec<_> =
            others.iter().filter_map(|other| Some((other.works()?, Arc::clone(other)))).collect();
        let counted = (!works.is_empty()).then(|| core.at_work.token());
        let (waits, env) = (counted.is_some(), core.context.env.clone());
        let ended = async move {
            let Context { env, backend, .. } = &core.context;
            join_all(works.iter().map(|(works, other)| until_dropped(works, &core.context, other))).await;
            let ended = env.bounded(async {
                backend.end_session(lease);
                Ok(())
            });
            ended.await.unwrap_or_else(|error| tracing::warn!(error = ?format!("{error:#}")));
            drop(counted);
        };
        if waits { env.spawn(ended) } else { ended.await }
    }
}

impl Drop for PendingRelease {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let needs_runtime =
            || !self.lock.core.context.backend.guarantees().contains(Guarantees::RUNTIME_FREE);
        if self.in_background && (self.is_sent || needs_runtime()) {
            self.lock.change(|state| state.released(&self.ownership));
        } else {
            Self::new(&self.lock, &self.ownership).in_background();
        }
    }
}

/// Logs the error of a release without a caller.
pub(super) fn log_unconfirmed(confirmed: Result<()>) {
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
    use crate::core::context::Context;
    use crate::core::holds::{Name, Turn};
    use crate::core::queue::{HandoffBudget, Wish};
    use crate::memory::{MemoryConfig, MemoryStore};
    use crate::{LockName, Timing};
    use futures_util::FutureExt;

    /// A pending release that was not sent yet.
    async fn pending() -> (MemoryStore, PendingRelease) {
        let timing = Timing::for_ttl(Timing::DEFAULT_TTL);
        let (env, config) = (Env::new(timing).unwrap(), MemoryConfig::private());
        let store = config.store().clone();
        let backend = config.open(env.sibling()).await.unwrap();
        let (name, label, owner) = (LockName::new("a").unwrap(), Arc::from("here"), env.owner_id());
        let (mode, ttl, metadata) = (Mode::EXCLUSIVE, Timing::DEFAULT_TTL, None);
        let request = AcquireRequest { name: name.clone(), mode, owner, ttl, label, metadata };
        let grant = backend.acquire(&request).await.unwrap();
        let core =
            Arc::new(Core::new(Context::new(env.clone(), env.sibling(), backend, None, "here".into(), ttl)));
        let (name, wish) = (core.names.of(&name), Wish { mode, alone: false });
        let lock = LocalLock { core, name };
        let Turn::Lead(mut leader) = lock.claim(wish, false).await else {
            unreachable!("the name is free");
        };
        let budget = HandoffBudget { limit: 0, window: Duration::ZERO };
        let Ok(mut hold) = leader.adopt(grant, wish, budget) else {
            unreachable!("it was just granted");
        };
        hold.ended = true;
        assert_eq!(hold.leave(), Released::Store);
        assert!(!store.is_empty(), "the store has been told");
        (store, PendingRelease::new(&lock, &hold.ownership))
    }

    fn is_idle(name: &Name) -> bool {
        name.with(|state| state.queue.is_idle())
    }

    /// Begun or not, a release that is dropped is made in the background (release-2), and frees the name (release-3).
    #[tokio::test]
    async fn dropped_release_is_made() {
        for begun in [false, true] {
            let (store, release) = pending().await;
            let name = Arc::clone(&release.lock.name);
            if begun {
                drop(release.settled())
            } else {
                drop(release)
            }
            assert!(store.is_empty() && is_idle(&name));
        }
    }

    /// A task that is dropped has lost its runtime: the name is free (release-3), and a release that was not sent yet reaches a
    /// store that needs none.
    #[tokio::test]
    async fn release_without_its_runtime_frees_the_name() {
        for is_sent in [false, true] {
            let (store, mut release) = pending().await;
            let name = Arc::clone(&release.lock.name);
            (release.in_background, release.is_sent) = (true, is_sent);
            drop(release);
            assert!(store.is_empty() != is_sent && is_idle(&name));
        }
    }

    #[tokio::test]
    async fn a_confirmed_release_frees_the_name() {
        let (store, release) = pending().await;
        let name = Arc::clone(&release.lock.name);
        release.settled().now_or_never().expect("memory answers").unwrap();
        assert!(store.is_empty() && is_idle(&name));
    }
}
