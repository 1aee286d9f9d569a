//! What a manager and its guards share: the backend, the local queues, the watchdog.
//!
//! The parts of a lock's life are told elsewhere: `acquire` (waiting), `drive` (asking the store), `release`
//! (hand-off, telling the store), `watchdog` (renewal and loss). Here is what joins them: how a
//! grant becomes a guard, and how a hold is lost.
//!
//! # Invariants
//! - **core-1** A grant is inside a [`Hold`] from the instant the core has it, so a receiver who
//!   has vanished passes it on by `Drop` (G8).
//! - **core-2** Whoever ends an ownership owes the store its release, and the queue word of that.
//!
//! Mutexes are taken in the order shard → queue → ownership, table → ownership, never queue and table together, a
//! request's alone, and none is held while a guard or a future is dropped or awaited.

pub(crate) mod acquire;
mod deadline;
mod drive;
pub(crate) mod holds;
mod lease;
mod leases;
pub(crate) mod metrics;
pub(crate) mod names;
pub(crate) mod ownership;
pub(crate) mod queue;
mod release;
mod request;
mod revocation;
mod watchdog;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::backend::env::Env;
use crate::backend::panic::waking;
use crate::backend::{Grant, Holder, LeaseScope, LockBackend, Renewal, StoreEvent};
use crate::core::holds::Hold;
use crate::core::leases::{Leases, Lost};
use crate::core::names::{Name, NameState, Names};
use crate::core::ownership::Ownership;
use crate::core::queue::{HandoffBudget, Wish};
use crate::core::release::Late;
use crate::core::watchdog::Event;
use crate::words::error::{Error, ErrorKind, Result};
use crate::words::guarantees::Guarantees;
use crate::words::loss::LostReason;
use crate::words::name::LockName;

pub(crate) struct Core {
    env: Env,
    /// The backend's own tasks run here.
    pub(crate) store_env: Env,
    backend: Arc<dyn LockBackend>,
    /// Where the store is, for errors.
    server: Option<String>,
    pub(crate) label: Arc<str>,
    pub(crate) min_ttl: Duration,
    pub(crate) queues: Names,
    pub(crate) leases: Arc<Leases>,
    pub(crate) closing: CancellationToken,
    /// A shutdown has closed the session.
    pub(crate) is_closed_down: AtomicBool,
    pub(crate) guards_dropped: AtomicU64,
    /// How often it was looked for waits without end.
    pub(crate) rounds: AtomicU32,
    /// How many have waited; the id of the next one.
    pub(crate) waiters: AtomicU64,
}

impl Core {
    /// Opens for business: the watchdog runs from here on.
    pub(crate) fn start(
        env: Env,
        store_env: Env,
        backend: Arc<dyn LockBackend>,
        server: Option<String>,
        label: Arc<str>,
        min_ttl: Duration,
    ) -> Arc<Self> {
        let closing = CancellationToken::new();
        let core = Arc::new(Self {
            leases: Arc::new(Leases::new(env.timing(), closing.clone())),
            env,
            store_env,
            backend,
            server,
            label,
            min_ttl,
            queues: Names::new(),
            closing,
            is_closed_down: AtomicBool::new(false),
            guards_dropped: AtomicU64::new(0),
            rounds: AtomicU32::new(0),
            waiters: AtomicU64::new(0),
        });
        let (leases, backend) = (Arc::clone(&core.leases), Arc::clone(&core.backend));
        let watcher = Watcher { core: Arc::downgrade(&core), closing: core.closing.clone() };
        core.env.spawn(watchdog::run(leases, backend, core.env.clone(), move |event| watcher.on(event)));
        core
    }

    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    pub(crate) fn backend(&self) -> &Arc<dyn LockBackend> {
        &self.backend
    }

    /// An error of the store, which says where that is.
    pub(crate) fn placed(&self, error: Error) -> Error {
        placed(self.server.as_deref(), error)
    }

    /// An error of the store about one lock.
    pub(crate) fn about(&self, name: &LockName, error: Error) -> Error {
        self.placed(error).with_context("lock", name)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closing.is_cancelled()
    }

    pub(crate) fn closed_error() -> Error {
        Error::not_applied(ErrorKind::Closed, "the lock manager was shut down")
    }

    /// Makes a guard of the store's grant, unless it is over already, or its counter went back.
    pub(crate) fn adopt(
        self: &Arc<Self>,
        queue: &Arc<Name>,
        grant: Grant,
        wish: Wish,
        budget: HandoffBudget,
    ) -> Adopted {
        let counter = grant.counter;
        let now = self.env.now();
        let ownership = self.leases.register(grant, wish.mode, now);
        let adopted = self.change(queue, |state| {
            let early = state.told().map(|news| (news.lost_early.take(), news.asked_early.take()));
            let (lost_early, asked_early) = early.unwrap_or_default();
            if let Some((_, reason)) = lost_early.filter(|(lost, _)| *lost == counter) {
                ownership.end(reason);
            }
            if let Some((_, until)) = asked_early.filter(|(asked, _)| *asked == counter) {
                ownership.ask(until);
            }
            // RACE: registered before `closing` is read, so that a shutdown either finds the ownership in
            // the table or is seen here.
            if self.is_closed() {
                ownership.end(LostReason::Shutdown);
            }
            // RACE: a loss told from here on finds the hold in the queue; one told before has ended
            // the ownership, and is found here.
            match ownership.lost(now) {
                None => {}
                Some(LostReason::Shutdown | LostReason::RuntimeGone) => {
                    state.give_back(&ownership);
                    return Err(Some(Self::closed_error()));
                }
                Some(_) => return Err(None),
            }
            state.request = None;
            state.forget_news();
            let adopted = state.queue.adopt(Arc::clone(&ownership), wish, now, budget);
            adopted.map_err(|regressed| Some(went_back(counter, regressed.last)))
        });
        let refused = match adopted {
            Ok(token) => {
                tracing::debug!(lock = %queue.name(), %token, "held");
                if ownership.asked().is_some() {
                    self.leases.end_at(&ownership, now);
                }
                return Adopted::Held(Hold::new(Arc::clone(self), Arc::clone(queue), ownership, token));
            }
            Err(refused) => refused,
        };
        let reason = ownership.lost(now).unwrap_or(LostReason::Gone);
        ownership.end(reason);
        self.leases.deregister(&ownership);
        match refused {
            None => {
                Adopted::Over(Late { core: Arc::clone(self), queue: Arc::clone(queue), ownership, reason })
            }
            Some(error) => {
                self.release_in_background(queue, &ownership);
                Adopted::Refused(error)
            }
        }
    }

    /// Ends a hold for a reason other than its guard's release, and cleans up behind it.
    pub(crate) fn lose(self: &Arc<Self>, ownership: &Arc<Ownership>, reason: LostReason) {
        if ownership.end(reason) {
            self.has_lost(ownership, reason);
        }
    }

    fn has_lost(self: &Arc<Self>, ownership: &Arc<Ownership>, reason: LostReason) {
        metrics::lost(reason);
        let grant = ownership.grant();
        if reason == LostReason::Shutdown {
            tracing::debug!(lock = %grant.name, counter = grant.counter, "given up by shutdown");
        } else {
            tracing::warn!(lock = %grant.name, counter = grant.counter, %reason, "lost");
        }
        self.leases.deregister(ownership);
        let Some(queue) = self.queues.known(&grant.name) else {
            debug_assert!(false, "names-1: a name with a grant is not forgotten");
            return;
        };
        let ours = queue.with(|state| state.queue.lose(grant.counter));
        if !ours {
            return;
        }
        // A guard's clock may have ended it while a renewal that came in time was taken in.
        let now = self.env.now();
        let lives = self.leases.session_deadline(&grant.lease).is_some_and(|until| !until.has_passed(now));
        let session_over =
            grant.lease.scope == LeaseScope::Session && reason == LostReason::Expired && !lives;
        if session_over || reason == LostReason::SessionLost {
            // The backend ends a session that is over as a whole (B3).
            self.change(&queue, |state| state.released(ownership));
        } else {
            self.release_in_background(&queue, ownership);
        }
    }

    /// Renews one hold besides the watchdog.
    pub(crate) async fn renew_now(self: &Arc<Self>, ownership: &Arc<Ownership>) -> Result<()> {
        let lease = ownership.grant().lease.id;
        let sent_at = self.env.now();
        let leases = [lease];
        let answers = self.env.bounded(async { Ok(self.backend.renew(&leases).await) }).await?;
        let answer = answers.into_iter().next().ok_or_else(watchdog::unanswered)?;
        let result = match &answer {
            Renewal::Until(_) => Ok(()),
            Renewal::Gone(reason) => Err(Error::lost(*reason)),
            // The watchdog's own renewal goes on as it was planned.
            Renewal::Unknown(error) => return Err(error.clone()),
        };
        self.end_all(self.leases.answered(lease, self.env.now(), sent_at, answer));
        result
    }

    /// Ends what was lost with its lease.
    pub(crate) fn end_all(self: &Arc<Self>, lost: Option<Lost>) {
        let Some((ownerships, reason)) = lost else {
            return;
        };
        for ownership in ownerships {
            self.lose(&ownership, reason);
        }
    }

    /// Handles what the watchdog reports.
    fn on_event(self: &Arc<Self>, event: Event) {
        match event {
            Event::Lost(ownerships, reason) => self.end_all(Some((ownerships, reason))),
            Event::Due(ownership) => {
                if let Some(reason) = ownership.end_in_time(self.env.now()) {
                    self.has_lost(&ownership, reason);
                }
            }
            Event::Store(event) => self.on_store_event(event),
            Event::Round => {
                self.queues.trim();
                self.warn_of_self_deadlock();
            }
        }
    }

    fn on_store_event(self: &Arc<Self>, event: StoreEvent) {
        match event {
            StoreEvent::LeaseOpened(lease) => self.leases.opened(lease, self.env.now()),
            StoreEvent::LeaseLost { lease, reason } => self.end_all(self.leases.lose(lease, reason)),
            StoreEvent::GrantLost { name, counter, reason } => self.grant_lost(&name, counter, reason),
            StoreEvent::GrantAsked { name, counter, within } if within.is_zero() => {
                self.grant_lost(&name, counter, LostReason::Revoked);
            }
            StoreEvent::GrantAsked { name, counter, within } => self.grant_asked(&name, counter, within),
            StoreEvent::Queued { name, holder } => {
                tracing::debug!(lock = %name, holder = holder.label, "waiting at the store");
                self.with_known(&name, |state| {
                    let queued = state.queue.is_acquiring();
                    let news = state.news();
                    (news.heard, news.refused, news.queued) = (Some(holder), None, queued);
                });
            }
            StoreEvent::Warning(text) => tracing::warn!(reason = ?text, "the store warns"),
        }
    }

    /// Whom this process knows as holder: itself, or whom the store named.
    pub(crate) fn known_holder(&self, queue: &Name) -> Option<Holder> {
        queue.with(|state| {
            let Some((held, token)) = state.queue.held().next() else {
                return state.told()?.heard.clone();
            };
            let mut holder = Holder::new(&*self.label);
            (holder.token, holder.mode) = (Some(token), held.mode());
            Some(holder)
        })
    }

    /// Asks the queue of `name`, if this process knows the name.
    pub(crate) fn with_known<R>(&self, name: &LockName, act: impl FnOnce(&mut NameState) -> R) -> Option<R> {
        Some(self.queues.known(name)?.with(act))
    }

    /// Once a ttl: says so when somebody waits longer than that for a name that this process holds. A task
    /// that waits for itself waits for ever.
    fn warn_of_self_deadlock(&self) {
        let round = self.rounds.fetch_add(1, Ordering::Relaxed) + 1;
        let stuck = self.queues.collect(|name, state| {
            let began_two_rounds_ago = |since: u32| round.wrapping_sub(since) == 2;
            let waits_long = state.queue.waiters().any(|waiter| began_two_rounds_ago(waiter.since_round));
            if state.queue.held().next().is_some() && waits_long { vec![name.clone()] } else { Vec::new() }
        });
        for name in stuck {
            tracing::warn!(
                lock = %name,
                "a task waits longer than the ttl for a lock that its own process holds; locks are not re-entrant"
            );
        }
    }

    /// No runtime, no renewals: everything ends now rather than unnoticed later.
    pub(crate) fn runtime_ended(self: &Arc<Self>) {
        self.refuse_all();
        for ownership in self.leases.ownerships() {
            self.lose(&ownership, LostReason::RuntimeGone);
        }
    }

    /// From here on new acquisitions and waiters are refused as closed.
    pub(crate) fn refuse_all(&self) {
        waking(|| self.closing.cancel());
        for waiter in self.queues.collect(|_, state| state.queue.drain().collect()) {
            waiter.dismiss();
        }
        // Whoever shuts down waits for what is under way.
        for request in self.queues.collect(|_, state| state.under_way().into_iter().collect()) {
            request.move_to_task();
        }
    }

    pub(crate) fn is_runtime_free(&self) -> bool {
        self.backend.guarantees().contains(Guarantees::RUNTIME_FREE)
    }

    fn grant_asked(self: &Arc<Self>, name: &LockName, counter: u64, within: Duration) {
        let until = self.env.now() + within;
        let ownership = self.with_known(name, |state| {
            if state.queue.is_acquiring() {
                // As in `grant_lost`; of several for one grant the earliest end counts.
                let asked = &mut state.news().asked_early;
                if asked.is_none_or(|(last, end)| last < counter || (last == counter && until < end)) {
                    *asked = Some((counter, until));
                }
            }
            state.held_by(counter)
        });
        if let Some(ownership) = ownership.flatten().filter(|ownership| ownership.ask(until)) {
            tracing::info!(lock = %name, counter, ?within, "asked for by an administrator");
            self.leases.end_at(&ownership, self.env.now());
        }
    }

    fn grant_lost(self: &Arc<Self>, name: &LockName, counter: u64, reason: LostReason) {
        let ownership = self.with_known(name, |state| {
            if state.queue.is_acquiring() {
                // The grant to come has a larger counter than any before: the largest loss is the one.
                let lost = &mut state.news().lost_early;
                if lost.is_none_or(|(last, _)| last < counter) {
                    *lost = Some((counter, reason));
                }
            }
            state.held_by(counter)
        });
        if let Some(ownership) = ownership.flatten() {
            self.lose(&ownership, reason);
        }
    }
}

/// The watchdog's way to the core. Dropped while the manager is open, it reports the end of the runtime, which
/// nobody else would notice.
struct Watcher {
    core: Weak<Core>,
    closing: CancellationToken,
}

impl Watcher {
    fn on(&self, event: Event) {
        if let Some(core) = self.core.upgrade() {
            core.on_event(event);
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if self.closing.is_cancelled() {
            return;
        }
        if let Some(core) = self.core.upgrade() {
            core.runtime_ended();
        }
    }
}

/// What became of a grant.
pub(crate) enum Adopted {
    Held(Hold),
    /// It is to be given back, and there may be another.
    Over(Late),
    /// It is given back in the background.
    Refused(Error),
}

impl Drop for Core {
    /// The last handle and the last guard are gone: the watchdog ends, and the session with it.
    fn drop(&mut self) {
        self.closing.cancel();
        // RACE: there may have been a shutdown that nobody has waited for to its end.
        if *self.is_closed_down.get_mut() {
            return;
        }
        let backend = Arc::clone(&self.backend);
        self.env.spawn(async move {
            if let Err(error) = backend.close().await {
                tracing::warn!(error = ?format!("{error:#}"), "the session was not closed; it ends with its lease");
            }
        });
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("backend", &self.backend).finish_non_exhaustive()
    }
}

/// An error of the store, which says where that is: for what the store itself has not said.
pub(crate) fn placed(server: Option<&str>, error: Error) -> Error {
    match server {
        Some(server) => error.with_context("server", server),
        None => error,
    }
}

fn went_back(counter: u64, last: u64) -> Error {
    Error::not_applied(
        ErrorKind::Protocol,
        format!(
            "the store's counter {counter} is not above {last}, the last one seen: it lost data or was \
             restored; raise the namespace's token_base"
        ),
    )
}

#[cfg(test)]
mod tests;
