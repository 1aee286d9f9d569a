//! The work of a manager with its parts: start, events of the watchdog, shutdown, the end of the runtime.
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
//! - **core-2** A report of the store about a grant that is on its way is kept until the grant arrives.

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
pub(crate) mod revocation;
mod watchdog;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::backend::StoreEvent;
use crate::core::context::Context;
use crate::core::holds::Turn;
use crate::core::names::Early;
use crate::core::ownership::Ownership;
use crate::core::watchdog::Event;
use crate::words::error::{Effect, Error, ErrorKind, Result};
use crate::words::loss::LostReason;
use crate::words::name::LockName;

pub(crate) use holds::Core;

/// Starts a manager: the watchdog runs from here on.
pub(crate) fn start(context: Context) -> Arc<Core> {
    let core = Arc::new(Core::new(context));
    let Context { env, backend, closing, .. } = &core.context;
    let watcher = Watcher { core: Arc::downgrade(&core) };
    let (leases, backend, closing) = (Arc::clone(&core.leases), Arc::clone(backend), closing.clone());
    env.spawn(watchdog::run(leases, backend, env.clone(), closing, move |event| watcher.on(event)));
    core
}

/// Ends everything in order, and the session at last. Releases that are put off are waited for, or else left to their leases,
/// and the session with them.
pub(crate) async fn shutdown(core: Arc<Core>) -> Result<()> {
    let context = &core.context;
    end(&core, LostReason::Shutdown);
    core.put_off.close();
    let leaves = tokio::select! {
        biased;
        () = core.put_off.wait() => false,
        () = context.hurries.cancelled() => true,
        () = context.env.gone() => {
            end(&core, LostReason::RuntimeGone);
            false
        }
    };
    // The watchdog renews meanwhile: it is the session that keeps such a lock, where there is one.
    core.at_work.close();
    let over = |core: Arc<Core>| async move {
        tokio::select! {
            biased;
            () = core.at_work.wait() => {}
            () = core.context.env.gone() => {}
        }
        core.context.close();
    };
    if !core.at_work.is_empty() {
        // Also without the caller, which may be the work.
        context.env.drive(over(Arc::clone(&core)));
    }
    over(Arc::clone(&core)).await;
    if leaves {
        context.store_env.spawn(PutOff(Arc::clone(&core)).lapse());
    }
    let timing = context.env.timing();
    let released = context.env.drained(timing.ttl).await;
    // The session's end would end what is put off, too.
    let ended = leaves || {
        context.close_session().await.map_err(|error| context.placed(error))?;
        context.store_env.drained(timing.op_timeout).await
    };
    let late = match (released, ended) {
        (true, true) => return Ok(()),
        (true, false) => "timed out while ending the store's session",
        (false, _) => "timed out before every release was confirmed",
    };
    let message = format!("{late}; the locks end with their leases");
    Err(context.placed(Error::new(ErrorKind::Unavailable, Effect::Unknown, message)))
}

/// The ownerships whose release is put off, after a shutdown that does not wait for them. They keep the manager alive, and end
/// when this is dropped, with the runtime at the latest (core-1).
struct PutOff(Arc<Core>);

impl PutOff {
    /// Lets their leases end, which are not renewed any more, and then ends the session.
    async fn lapse(self) {
        let core = Arc::clone(&self.0);
        let Core { context, leases, .. } = &*core;
        let longest = leases.ownerships().iter().map(|ownership| ownership.grant.lease.ttl).max();
        context.env.sleep(longest.unwrap_or_default()).await;
        drop(self);
        context.env.drained(context.env.timing().ttl).await;
        if let Err(error) = context.close_session().await {
            tracing::warn!(error = ?format!("{error:#}"), "session not closed; it ends with its lease");
        }
    }
}

impl Drop for PutOff {
    fn drop(&mut self) {
        for ownership in self.0.leases.ownerships() {
            self.0.end(&ownership, LostReason::Shutdown);
        }
    }
}

/// Refuses new acquisitions and waiters as closed from here on, and ends every hold.
fn end(core: &Arc<Core>, reason: LostReason) {
    core.context.refuse();
    for waiter in core.names.collect(|_, state| state.queue.drain().collect()) {
        waiter.call(Turn::Refused(Context::closed_error()));
    }
    // A shutdown waits for the requests in flight.
    for request in core.names.collect(|_, state| state.in_flight().into_iter().collect()) {
        request.move_to_task();
    }
    for ownership in core.leases.ownerships() {
        if reason == LostReason::Shutdown {
            core.end_or_put_off(&ownership, reason);
        } else {
            core.end(&ownership, reason);
        }
    }
}

/// The watchdog's way to the core. Dropped while the manager is open, it reports the end of the runtime, which
/// is noticed nowhere else.
struct Watcher {
    core: Weak<Core>,
}

impl Watcher {
    fn on(&self, event: Event) {
        if let Some(core) = self.core.upgrade() {
            on_event(&core, event);
        }
    }
}

impl Drop for Watcher {
    /// No runtime, no renewals: everything ends now rather than unnoticed later (core-1).
    fn drop(&mut self) {
        if let Some(core) = self.core.upgrade().filter(|core| !core.context.closing.is_cancelled()) {
            end(&core, LostReason::RuntimeGone);
            core.context.close();
        }
    }
}

fn on_event(core: &Arc<Core>, event: Event) {
    match event {
        Event::Lost(lost) => core.end_all(Some(lost)),
        Event::Due(ownership) => core.end_in_time(&ownership),
        Event::Store(event) => on_store_event(core, event),
        Event::Round => {
            core.names.trim();
            warn_of_self_deadlock(core);
        }
    }
}

fn on_store_event(core: &Arc<Core>, event: StoreEvent) {
    match event {
        StoreEvent::LeaseOpened(lease) => core.leases.opened(lease, core.context.env.now()),
        StoreEvent::LeaseLost { lease, reason } => core.end_all(core.leases.lose(lease, reason)),
        StoreEvent::GrantLost { name, counter, reason } => grant_lost(core, &name, counter, reason),
        StoreEvent::RevocationRequested { name, counter, within } if within.is_zero() => {
            grant_lost(core, &name, counter, LostReason::Revoked);
        }
        StoreEvent::RevocationRequested { name, counter, within } => {
            revocation_requested(core, &name, counter, within);
        }
        StoreEvent::Queued { name, holder } => {
            tracing::debug!(lock = %name, holder = holder.label, "waiting at the store");
            let Some(known) = core.names.known(&name) else { return };
            known.with(|state| {
                let queued = state.queue.is_acquiring();
                let news = state.news.get_or_insert_default();
                (news.holder, news.refused, news.queued) = (Some(holder), None, queued);
            });
        }
        StoreEvent::Warning(text) => tracing::warn!(reason = ?text, "store warning"),
        // A target of its own, so that a program can leave these to its administrator.
        StoreEvent::Condition(text) => {
            tracing::warn!(target: "leasehold_core::condition", reason = ?text, "store condition");
        }
    }
}

fn grant_lost(core: &Arc<Core>, name: &LockName, counter: u64, reason: LostReason) {
    let note = |early: &mut Early| _ = early.lost.get_or_insert(reason);
    if let Some(ownership) = held(core, name, counter, note) {
        core.end(&ownership, reason);
    }
}

fn revocation_requested(core: &Arc<Core>, name: &LockName, counter: u64, within: Duration) {
    let now = core.context.env.now();
    let until = now + within;
    let note = |early: &mut Early| early.ends_at = early.ends_at.into_iter().chain([until]).min();
    let Some(ownership) = held(core, name, counter, note) else { return };
    if ownership.request_revocation(until) {
        tracing::info!(lock = %name, grant = counter, grace = ?within, "revocation requested");
        core.leases.end_at(&ownership, now);
    } else if ownership.is_put_off() {
        // RACE: read after the request was refused: a release puts nothing off that is to be revoked. There is no work
        // that needs the grace period.
        core.end(&ownership, LostReason::Revoked);
    }
}

/// Returns the ownership of the grant `counter`. If that may be the grant to come, `note` keeps the report (core-2).
fn held(core: &Core, name: &LockName, counter: u64, note: impl FnOnce(&mut Early)) -> Option<Arc<Ownership>> {
    core.names.known(name)?.with(|state| {
        if state.queue.is_acquiring() {
            let early = &mut state.news.get_or_insert_default().early;
            if early.counter < counter {
                *early = Early { counter, ..Early::default() };
            }
            if early.counter == counter {
                note(early);
            }
        }
        let mut held = state.queue.held();
        held.find(|(held, _)| held.grant.counter == counter).map(|(ownership, _)| Arc::clone(ownership))
    })
}

/// Once a ttl: warns of a waiter that waits longer than that for a name that this process holds. A task that waits
/// for itself waits for ever.
fn warn_of_self_deadlock(core: &Core) {
    let round = core.rounds.fetch_add(1, Ordering::Relaxed) + 1;
    let stuck = core.names.collect(|name, state| {
        let waits_long = state.queue.waiters().any(|waiter| round.wrapping_sub(waiter.since_round) == 2);
        // A lock whose release is put off is not held by a task.
        let is_held = state.queue.held().any(|(held, _)| !held.is_put_off());
        if is_held && waits_long { vec![name.clone()] } else { Vec::new() }
    });
    for name in stuck {
        tracing::warn!(
            lock = %name,
            "waiting longer than the ttl for a lock of this process: locks are not re-entrant, check for a \
             task that waits for itself"
        );
    }
}

#[cfg(test)]
mod tests;
