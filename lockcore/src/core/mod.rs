//! What a manager does with its parts: start, events of the watchdog, shutdown, the end of the runtime.
//!
//! | part | what it is |
//! |---|---|
//! | [`acquire`], [`revocation`] | waiting for a lock and asking the store for it; requesting that others release one |
//! | [`holds`] | the callers that have a lock, lead, wait, or still have to release it |
//! | [`names`], [`watchdog`], [`confirm`] | the names and their queues; renewals and losses; a release until it is confirmed |
//! | [`leases`], [`request`] | the leases and the ownerships on them; one request in flight |
//! | [`ownership`] | one grant of the store: held, at risk or lost |
//! | [`queue`], [`lease`], [`deadline`], [`context`], [`metrics`] | pure, or plain data |
//!
//! Each uses only those below it; nothing but this file knows the whole.
//!
//! # Invariants
//! - **core-1** When the runtime ends, every hold ends: without it nothing is renewed.
//! - **core-2** What the store says of a grant that is on its way is kept until the grant arrives.

pub(crate) mod acquire;
mod confirm;
pub(crate) mod context;
mod deadline;
pub(crate) mod holds;
mod lease;
mod leases;
pub(crate) mod metrics;
mod names;
pub(crate) mod ownership;
pub(crate) mod queue;
mod request;
mod revocation;
mod watchdog;

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::backend::env::Env;
use crate::backend::panic::waking;
use crate::backend::{LockBackend, StoreEvent};
use crate::core::acquire::{Acquire, Acquired};
use crate::core::context::Context;
use crate::core::holds::{Hold, Name, NameState, Shared};
use crate::core::watchdog::Event;
use crate::words::error::{Effect, Error, ErrorKind, Result};
use crate::words::loss::LostReason;
use crate::words::name::LockName;
use crate::words::revoke::{Revocation, Revoke};

pub(crate) struct Core {
    shared: Arc<Shared>,
    /// The backend's own tasks run here.
    store_env: Env,
    pub(crate) min_ttl: Duration,
}

impl Core {
    /// Starts a manager: the watchdog runs from here on.
    pub(crate) fn start(
        env: Env,
        store_env: Env,
        backend: Arc<dyn LockBackend>,
        server: Option<String>,
        label: Arc<str>,
        min_ttl: Duration,
    ) -> Arc<Self> {
        let shared = Arc::new(Shared::new(Context::new(env, backend, server, label)));
        let Context { env, backend, closing, .. } = &shared.context;
        let watcher = Watcher { shared: Arc::downgrade(&shared), closing: closing.clone() };
        let (leases, backend) = (Arc::clone(&shared.leases), Arc::clone(backend));
        env.spawn(watchdog::run(leases, backend, env.clone(), move |event| watcher.on(event)));
        Arc::new(Self { shared, store_env, min_ttl })
    }

    pub(crate) fn context(&self) -> &Context {
        &self.shared.context
    }

    pub(crate) fn env(&self) -> &Env {
        &self.shared.context.env
    }

    pub(crate) fn backend(&self) -> &Arc<dyn LockBackend> {
        &self.shared.context.backend
    }

    pub(crate) fn name(&self, name: &LockName) -> Arc<Name> {
        self.shared.names.of(name)
    }

    /// Asks the state of `name`, if this process knows the name.
    pub(crate) fn with_known<R>(&self, name: &LockName, act: impl FnOnce(&mut NameState) -> R) -> Option<R> {
        with_known(&self.shared, name, act)
    }

    pub(crate) fn guards_dropped(&self) -> u64 {
        self.shared.guards_dropped.load(Ordering::Relaxed)
    }

    pub(crate) fn acquire<'a>(
        &'a self,
        wanted: &'a Acquire,
    ) -> impl Future<Output = Result<Hold>> + Send + 'a {
        acquire::acquire(&self.shared, wanted)
    }

    pub(crate) fn try_acquire<'a>(
        &'a self,
        wanted: &'a Acquire,
    ) -> impl Future<Output = Result<Acquired>> + Send + 'a {
        acquire::try_acquire(&self.shared, wanted)
    }

    pub(crate) fn revoke<'a>(
        &'a self,
        name: &'a LockName,
        how: Revoke,
    ) -> impl Future<Output = Result<Revocation>> + Send + 'a {
        revocation::revoke(&self.shared.context, name, how)
    }

    /// Ends everything in order, and the session at last.
    pub(crate) async fn shutdown(&self) -> Result<()> {
        let Shared { context, leases, .. } = &*self.shared;
        refuse_all(&self.shared);
        for ownership in leases.ownerships() {
            self.shared.end(&ownership, LostReason::Shutdown);
        }
        let timing = context.env.timing();
        let released = context.env.drained(timing.ttl).await;
        context.close_session().await.map_err(|error| context.placed(error))?;
        let ended = self.store_env.drained(timing.op_timeout).await;
        if released && ended {
            return Ok(());
        }
        let late = if released {
            "timed out while ending the store's session"
        } else {
            "timed out before every release was confirmed"
        };
        let message = format!("{late}; the locks end with their leases");
        Err(context.placed(Error::new(ErrorKind::Unavailable, Effect::Unknown, message)))
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("context", &self.shared.context).finish_non_exhaustive()
    }
}

/// The watchdog's way to the core. Dropped while the manager is open, it reports the end of the runtime, which
/// is noticed nowhere else.
struct Watcher {
    shared: Weak<Shared>,
    closing: CancellationToken,
}

impl Watcher {
    fn on(&self, event: Event) {
        if let Some(shared) = self.shared.upgrade() {
            on_event(&shared, event);
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if self.closing.is_cancelled() {
            return;
        }
        if let Some(shared) = self.shared.upgrade() {
            runtime_ended(&shared);
        }
    }
}

fn on_event(shared: &Arc<Shared>, event: Event) {
    match event {
        Event::Lost(ownerships, reason) => shared.end_all(Some((ownerships, reason))),
        Event::Due(ownership) => shared.end_in_time(&ownership),
        Event::Store(event) => on_store_event(shared, event),
        Event::Round => {
            shared.names.trim();
            warn_of_self_deadlock(shared);
        }
    }
}

fn on_store_event(shared: &Arc<Shared>, event: StoreEvent) {
    match event {
        StoreEvent::LeaseOpened(lease) => shared.leases.opened(lease, shared.context.env.now()),
        StoreEvent::LeaseLost { lease, reason } => shared.end_all(shared.leases.lose(lease, reason)),
        StoreEvent::GrantLost { name, counter, reason } => grant_lost(shared, &name, counter, reason),
        StoreEvent::GrantAsked { name, counter, within } if within.is_zero() => {
            grant_lost(shared, &name, counter, LostReason::Revoked);
        }
        StoreEvent::GrantAsked { name, counter, within } => {
            revocation_requested(shared, &name, counter, within);
        }
        StoreEvent::Queued { name, holder } => {
            tracing::debug!(lock = %name, holder = holder.label, "waiting at the store");
            with_known(shared, &name, |state| {
                let queued = state.queue.is_acquiring();
                let news = state.news_mut();
                (news.holder, news.refused, news.queued) = (Some(holder), None, queued);
            });
        }
        StoreEvent::Warning(text) => tracing::warn!(reason = ?text, "store warning"),
    }
}

fn grant_lost(shared: &Arc<Shared>, name: &LockName, counter: u64, reason: LostReason) {
    let ownership = with_known(shared, name, |state| {
        if state.queue.is_acquiring() {
            // The grant to come has a larger counter than any before: the largest loss is the one.
            let lost = &mut state.news_mut().lost_early;
            if lost.is_none_or(|(last, _)| last < counter) {
                *lost = Some((counter, reason));
            }
        }
        state.held_by(counter)
    });
    if let Some(ownership) = ownership.flatten() {
        shared.end(&ownership, reason);
    }
}

fn revocation_requested(shared: &Arc<Shared>, name: &LockName, counter: u64, within: Duration) {
    let now = shared.context.env.now();
    let until = now + within;
    let ownership = with_known(shared, name, |state| {
        if state.queue.is_acquiring() {
            // As in `grant_lost`; of several for one grant the earliest end counts.
            let asked = &mut state.news_mut().asked_early;
            if asked.is_none_or(|(last, end)| last < counter || (last == counter && until < end)) {
                *asked = Some((counter, until));
            }
        }
        state.held_by(counter)
    });
    if let Some(ownership) = ownership.flatten().filter(|ownership| ownership.request_revocation(until)) {
        tracing::info!(lock = %name, grant = counter, grace = ?within, "revocation requested");
        shared.leases.end_at(&ownership, now);
    }
}

/// Once a ttl: warns of a waiter that waits longer than that for a name that this process holds. A task that waits
/// for itself waits for ever.
fn warn_of_self_deadlock(shared: &Shared) {
    let round = shared.rounds.fetch_add(1, Ordering::Relaxed) + 1;
    let stuck = shared.names.collect(|name, state| {
        let began_two_rounds_ago = |since: u32| round.wrapping_sub(since) == 2;
        let waits_long = state.queue.waiters().any(|waiter| began_two_rounds_ago(waiter.since_round));
        if state.queue.held().next().is_some() && waits_long { vec![name.clone()] } else { Vec::new() }
    });
    for name in stuck {
        tracing::warn!(
            lock = %name,
            "waiting longer than the ttl for a lock of this process: locks are not re-entrant, check for a \
             task that waits for itself"
        );
    }
}

/// No runtime, no renewals: everything ends now rather than unnoticed later (core-1).
fn runtime_ended(shared: &Arc<Shared>) {
    refuse_all(shared);
    for ownership in shared.leases.ownerships() {
        shared.end(&ownership, LostReason::RuntimeGone);
    }
}

/// From here on new acquisitions and waiters are refused as closed.
fn refuse_all(shared: &Shared) {
    waking(|| shared.context.closing.cancel());
    for waiter in shared.names.collect(|_, state| state.queue.drain().collect()) {
        waiter.dismiss();
    }
    // A shutdown waits for the requests in flight.
    for request in shared.names.collect(|_, state| state.in_flight().into_iter().collect()) {
        request.move_to_task();
    }
}

fn with_known<R>(shared: &Shared, name: &LockName, act: impl FnOnce(&mut NameState) -> R) -> Option<R> {
    Some(shared.names.known(name)?.with(act))
}

#[cfg(test)]
mod tests;
