//! What a manager and its guards share: the backend, the local queues, the watchdog.
//!
//! The parts of a lock's life are told elsewhere: `acquire` (waiting), `drive` (asking the store), `release`
//! (hand-off, telling the store), `watchdog` (renewal and loss). Here is what joins them: how a
//! grant becomes a guard, and how a hold is lost.
//!
//! # Invariants
//! - **core-1** A grant is inside a [`Held`] from the instant the core has it, so a receiver who
//!   has vanished passes it on by `Drop` (G8).
//! - **core-2** Whoever ends a tenure owes the store its release, and the queue word of that.
//!
//! Mutexes are taken in the order shard → queue → tenure, table → tenure, never queue and table together, a
//! flight's alone, and none is held while a guard or a future is dropped or awaited.

pub(crate) mod acquire;
mod drive;
mod flight;
pub(crate) mod held;
mod lease;
pub(crate) mod metrics;
pub(crate) mod queue;
pub(crate) mod queues;
mod release;
mod revocation;
pub(crate) mod tenure;
mod term;
mod watchdog;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::backend::env::Env;
use crate::backend::panic::waking;
use crate::backend::{Grant, Holder, LeaseScope, LockBackend, Renewal, StoreEvent};
use crate::clock::Moment;
use crate::core::held::Held;
use crate::core::lease::Answer;
use crate::core::queue::{HandoffBudget, Wish};
use crate::core::queues::{Entry, Queue, Queues};
use crate::core::release::Late;
use crate::core::tenure::{Standing, Tenure};
use crate::core::watchdog::Watchdog;
use crate::words::error::{Effect, Error, ErrorKind, Result};
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
    /// Since when and why the last renewal is unconfirmed: what a wait that ends is told.
    pub(crate) unconfirmed: Mutex<Option<(Moment, Error)>>,
    pub(crate) queues: Queues,
    pub(crate) watchdog: Watchdog,
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
            watchdog: Watchdog::new(&env, closing.clone()),
            env,
            store_env,
            backend,
            server,
            label,
            min_ttl,
            unconfirmed: Mutex::default(),
            queues: Queues::new(),
            closing,
            is_closed_down: AtomicBool::new(false),
            guards_dropped: AtomicU64::new(0),
            rounds: AtomicU32::new(0),
            waiters: AtomicU64::new(0),
        });
        core.watchdog.start(&core);
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
        queue: &Arc<Queue>,
        grant: Grant,
        wish: Wish,
        budget: HandoffBudget,
    ) -> Adopted {
        let counter = grant.counter;
        let now = self.env.now();
        let tenure = self.watchdog.register(queue, grant, wish.mode, now);
        let adopted = self.change(queue, |entry| {
            let early = entry.told().map(|news| (news.lost_early.take(), news.asked_early.take()));
            let (lost_early, asked_early) = early.unwrap_or_default();
            if let Some((_, reason)) = lost_early.filter(|(lost, _)| *lost == counter) {
                tenure.end(reason);
            }
            if let Some((_, until)) = asked_early.filter(|(asked, _)| *asked == counter) {
                tenure.ask(until);
            }
            // RACE: registered before `closing` is read, so that a shutdown either finds the tenure in
            // the table or is seen here.
            if self.is_closed() {
                tenure.end(LostReason::Shutdown);
            }
            // RACE: a loss told from here on finds the hold in the queue; one told before has ended
            // the tenure, and is found here.
            match tenure.lost(now) {
                None => {}
                Some(LostReason::Shutdown | LostReason::RuntimeGone) => {
                    entry.give_back(&tenure);
                    return Err(Some(Self::closed_error()));
                }
                Some(_) => return Err(None),
            }
            entry.flight = None;
            entry.forget_news();
            let adopted = entry.queue.adopt(Arc::clone(&tenure), wish, now, budget);
            adopted.map_err(|regressed| Some(went_back(counter, regressed.last)))
        });
        let refused = match adopted {
            Ok(token) => {
                tracing::debug!(lock = %queue.name(), %token, "held");
                if let Some(until) = tenure.asked() {
                    self.end_at(&tenure, tenure.watch_all(), until);
                }
                return Adopted::Held(Held::new(Arc::clone(self), tenure, token));
            }
            Err(refused) => refused,
        };
        let reason = tenure.lost(now).unwrap_or(LostReason::Gone);
        tenure.end(reason);
        self.watchdog.deregister(&tenure);
        match refused {
            None => Adopted::Over(Late { core: Arc::clone(self), tenure, reason }),
            Some(error) => {
                self.release_in_background(&tenure);
                Adopted::Refused(error)
            }
        }
    }

    /// Ends a hold for a reason other than its guard's release, and cleans up behind it.
    pub(crate) fn lose(self: &Arc<Self>, tenure: &Arc<Tenure>, reason: LostReason) {
        if tenure.end(reason) {
            self.has_lost(tenure, reason);
        }
    }

    fn has_lost(self: &Arc<Self>, tenure: &Arc<Tenure>, reason: LostReason) {
        metrics::lost(reason);
        let grant = tenure.grant();
        if reason == LostReason::Shutdown {
            tracing::debug!(lock = %grant.name, counter = grant.counter, "given up by shutdown");
        } else {
            tracing::warn!(lock = %grant.name, counter = grant.counter, %reason, "lost");
        }
        self.watchdog.deregister(tenure);
        let ours = tenure.queue().with(|entry| entry.queue.forfeit(grant.counter));
        if !ours {
            return;
        }
        // A guard's clock may have ended it while a renewal that came in time was taken in.
        let now = self.env.now();
        let lives = self.watchdog.session_deadline(&grant.lease).is_some_and(|until| !until.has_passed(now));
        let session_over =
            grant.lease.scope == LeaseScope::Session && reason == LostReason::Expired && !lives;
        if session_over || reason == LostReason::SessionLost {
            // The backend ends a session that is over as a whole (B3).
            self.change(tenure.queue(), |entry| entry.released(tenure));
        } else {
            self.release_in_background(tenure);
        }
    }

    /// Renews one hold besides the watchdog.
    pub(crate) async fn renew_now(self: &Arc<Self>, tenure: &Arc<Tenure>) -> Result<()> {
        let lease = tenure.grant().lease.id;
        let sent_at = self.env.now();
        let leases = [lease];
        let answers = self.env.bounded(async { Ok(self.backend.renew(&leases).await) }).await?;
        let (answer, result) = match answers.into_iter().next() {
            Some(Renewal::Until(deadline)) => (Answer::Until(deadline), Ok(())),
            Some(Renewal::Gone(reason)) => (Answer::Gone(reason), Err(Error::lost(reason))),
            Some(Renewal::Unknown(error)) => return Err(error),
            None => {
                let message = "the store answered a renewal with nothing";
                return Err(Error::new(ErrorKind::Protocol, Effect::Unknown, message));
            }
        };
        self.watchdog.answered(self, lease, sent_at, answer);
        result
    }

    /// Takes in what the store tells.
    pub(crate) fn told(self: &Arc<Self>, event: StoreEvent) {
        match event {
            StoreEvent::LeaseOpened(lease) => self.watchdog.opened(lease, self.env.now()),
            StoreEvent::LeaseLost { lease, reason } => self.watchdog.lease_lost(self, lease, reason),
            StoreEvent::GrantLost { name, counter, reason } => self.grant_lost(&name, counter, reason),
            StoreEvent::GrantAsked { name, counter, within } if within.is_zero() => {
                self.grant_lost(&name, counter, LostReason::Revoked);
            }
            StoreEvent::GrantAsked { name, counter, within } => self.grant_asked(&name, counter, within),
            StoreEvent::Queued { name, holder } => {
                tracing::debug!(lock = %name, holder = holder.label, "waiting at the store");
                self.with_known(&name, |entry| {
                    let queued = entry.queue.is_acquiring();
                    let news = entry.news();
                    (news.heard, news.refused, news.queued) = (Some(holder), None, queued);
                });
            }
            StoreEvent::Warning(text) => tracing::warn!(reason = ?text, "the store warns"),
        }
    }

    /// Whom this process knows as holder: itself, or whom the store named.
    pub(crate) fn heard_holder(&self, queue: &Queue) -> Option<Holder> {
        queue.with(|entry| {
            let Some((held, token)) = entry.queue.held().next() else {
                return entry.told()?.heard.clone();
            };
            let mut holder = Holder::new(&*self.label);
            (holder.token, holder.mode) = (Some(token), held.mode());
            Some(holder)
        })
    }

    /// Asks the queue of `name`, if this process knows the name.
    pub(crate) fn with_known<R>(&self, name: &LockName, act: impl FnOnce(&mut Entry) -> R) -> Option<R> {
        Some(self.queues.known(name)?.with(act))
    }

    /// Once a ttl: says so when somebody waits longer than that for a name that this process holds. A task
    /// that waits for itself waits for ever.
    pub(crate) fn warn_of_self_deadlock(&self) {
        let round = self.rounds.fetch_add(1, Ordering::Relaxed) + 1;
        let stuck = self.queues.collect(|name, entry| {
            let began_two_rounds_ago = |since: u32| round.wrapping_sub(since) == 2;
            let waits_long = entry.queue.waiters().any(|waiter| began_two_rounds_ago(waiter.since_round));
            if entry.queue.held().next().is_some() && waits_long { vec![name.clone()] } else { Vec::new() }
        });
        for name in stuck {
            tracing::warn!(
                lock = %name,
                "a task waits longer than the ttl for a lock that its own process holds; locks are not re-entrant"
            );
        }
    }

    /// No runtime, no renewals: everything ends now rather than unnoticed later.
    pub(crate) fn runtime_gone(self: &Arc<Self>) {
        self.refuse_everybody();
        for tenure in self.watchdog.tenures() {
            self.lose(&tenure, LostReason::RuntimeGone);
        }
    }

    /// From here on new acquisitions and waiters are refused as closed.
    pub(crate) fn refuse_everybody(&self) {
        waking(|| self.closing.cancel());
        for waiter in self.queues.collect(|_, entry| entry.queue.drain().collect()) {
            waiter.dismiss();
        }
        // Whoever shuts down waits for what is under way.
        for flight in self.queues.collect(|_, entry| entry.under_way().into_iter().collect()) {
            flight.detach();
        }
    }

    pub(crate) fn is_runtime_free(&self) -> bool {
        self.backend.guarantees().contains(Guarantees::RUNTIME_FREE)
    }

    /// Looks at `at` whether a hold ends by tenure-4, unless what it is watched for ends before.
    pub(crate) fn end_at(
        self: &Arc<Self>,
        tenure: &Arc<Tenure>,
        watched: watch::Receiver<Standing>,
        at: Moment,
    ) {
        let (core, tenure, env) = (Arc::downgrade(self), Arc::clone(tenure), self.env.clone());
        let mut ended = Box::pin(tenure::ended(watched));
        self.env.spawn(async move {
            loop {
                // Timers stand still while a host is suspended: none is so long that this is noticed late.
                // After `at` it is over, or its lease was over before; unless that was renewed after all.
                let (now, look_again) = (env.now(), env.timing().ttl / 3);
                let look_at = if now < at { at.min(now + look_again) } else { now + look_again };
                if at <= now
                    && let Some(reason) = tenure.end_in_time(now)
                {
                    if let Some(core) = core.upgrade() {
                        core.has_lost(&tenure, reason);
                    }
                    return;
                }
                tokio::select! {
                    biased;
                    _released_or_lost = &mut ended => return,
                    () = env.sleep_until(look_at) => {}
                }
            }
        });
    }

    fn grant_asked(self: &Arc<Self>, name: &LockName, counter: u64, within: Duration) {
        let until = self.env.now() + within;
        let tenure = self.with_known(name, |entry| {
            if entry.queue.is_acquiring() {
                // As in `grant_lost`; of several for one grant the earliest end counts.
                let asked = &mut entry.news().asked_early;
                if asked.is_none_or(|(last, end)| last < counter || (last == counter && until < end)) {
                    *asked = Some((counter, until));
                }
            }
            entry.held_by(counter)
        });
        if let Some(tenure) = tenure.flatten().filter(|tenure| tenure.ask(until)) {
            tracing::info!(lock = %name, counter, ?within, "asked for by an administrator");
            self.end_at(&tenure, tenure.watch_all(), until);
        }
    }

    fn grant_lost(self: &Arc<Self>, name: &LockName, counter: u64, reason: LostReason) {
        let tenure = self.with_known(name, |entry| {
            if entry.queue.is_acquiring() {
                // The grant to come has a larger counter than any before: the largest loss is the one.
                let lost = &mut entry.news().lost_early;
                if lost.is_none_or(|(last, _)| last < counter) {
                    *lost = Some((counter, reason));
                }
            }
            entry.held_by(counter)
        });
        if let Some(tenure) = tenure.flatten() {
            self.lose(&tenure, reason);
        }
    }
}

/// What became of a grant.
pub(crate) enum Adopted {
    Held(Held),
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
mod tests {
    use super::*;
    use crate::Timing;
    use crate::backend::{Mode, StoreConfig};
    use crate::clock::TokioClock;
    use crate::core::queue::Reply;
    use crate::memory::MemoryConfig;

    /// Queues that nobody needs any more do not stay for as long as the manager.
    #[tokio::test(start_paused = true)]
    async fn idle_names_are_forgotten_once_a_ttl() {
        let env = Env::new(Timing::for_ttl(Timing::DEFAULT_TTL)).unwrap();
        let env = env.with_clock(Arc::new(TokioClock::new()));
        let backend = MemoryConfig::private().open(env.sibling()).await.unwrap();
        let core = Core::start(env.clone(), env.sibling(), backend, None, "here".into(), Duration::ZERO);
        let names: Vec<_> = (0..20_000).map(|n| LockName::new(format!("{n}")).unwrap()).collect();
        for name in &names {
            let wish = Wish { mode: Mode::EXCLUSIVE, alone: false };
            let claim = core.queues.of(name).with(|entry| entry.queue.claim(wish, |_, _| false));
            assert!(matches!(claim, Reply::Drive));
        }
        names.iter().for_each(|name| core.queues.of(name).with(Entry::asked_in_vain));
        let known = || core.queues.collect(|_, _| vec![()]).len();
        assert_eq!(known(), names.len());
        tokio::time::sleep(Timing::DEFAULT_TTL + Duration::from_secs(1)).await;
        assert!(known() < names.len() / 2, "{} names are known", known());
    }
}
