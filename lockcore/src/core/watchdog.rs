//! Keeps every lease of a manager alive, and reports changes by time or by the store to its holds.
//!
//! One task per manager, and the only renewal timer there is. It knows leases, not locks: the leases that grants name or the
//! store announces. Due renewals go out in one call; a call that hangs is cancelled after the bound of a request, and never
//! delays a deadline. Which lease is due when is in [`crate::core::leases`], the life of one lease in [`crate::core::lease`].
//! The receiver of an event decides its consequences.
//!
//! # Invariants
//! - **watchdog-1** A loss is reported at its deadline at the latest, before any other contender can hold the
//!   lock (G2), provided clocks drift less than the margin per ttl (A1) and timers fire.
//! - **watchdog-2** A renewal answered late never moves a deadline: the store counts it from sending, and
//!   [`crate::core::lease`] refuses it after the deadline.
//! - **watchdog-3** A released lock is not renewed: it leaves the table before the release is sent. (Only an
//!   announcement that is handled after that costs one renewal, which finds nothing.)
//! - **watchdog-4** However many events the store sends, deadlines and renewals come first, and other tasks get
//!   their turn.
//!
//! Not promised: that the server still lists us. Checked by the conformance cases of `g2` and `g6`, and
//! `tests/local`.

use std::iter;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio_util::sync::CancellationToken;

use crate::backend::env::Env;
use crate::backend::panic::{Panicked, waking};
use crate::backend::{LeaseId, LockBackend, Renewal, StoreEvent};
use crate::clock::Moment;
use crate::core::leases::{Leases, Lost};
use crate::core::ownership::Ownership;
use crate::words::error::{Effect, Error, ErrorKind};

/// The reports of the watchdog.
pub(crate) enum Event {
    /// The lease of these is lost, and they are to be ended.
    Lost(Lost),
    /// It ends by itself about now, unless the end was lifted.
    Due(Arc<Ownership>),
    /// The store has sent this.
    Store(StoreEvent),
    /// One more ttl has passed.
    Round,
}

/// Runs until the manager closes. Dropped before that, `on` is dropped with it, polled or not.
pub(crate) async fn run(
    leases: Arc<Leases>,
    backend: Arc<dyn LockBackend>,
    env: Env,
    closing: CancellationToken,
    mut on: impl FnMut(Event) + Send,
) {
    let mut events = AssertUnwindSafe(backend.events()).catch_unwind().fuse();
    let mut renewals = FuturesUnordered::new();
    let ttl = env.timing().ttl;
    let mut round_at = env.now() + ttl;
    let (mut listeners, mut lateness) = (Vec::new(), Lateness::new(ttl / 6));
    loop {
        listeners.append(&mut leases.listeners.lock());
        let now = env.now();
        lateness.called(now);
        let due = leases.step(now);
        if !due.renew.is_empty() {
            renewals.push(renew(&env, &*backend, due.renew));
        }
        // An ownership whose own end came before that of its lease ends for its own reason.
        due.ends.into_iter().for_each(|ownership| on(Event::Due(ownership)));
        due.changes.into_iter().filter_map(|change| change.lost()).for_each(|lost| on(Event::Lost(lost)));
        if round_at <= now {
            on(Event::Round);
            round_at = now + ttl;
        }
        let wake_at = due.wake_at.map_or(round_at, |at| at.min(round_at));
        lateness.due_at = Some(wake_at);
        tokio::select! {
            biased;
            () = closing.cancelled() => return,
            // Before the events, of which there may always be one more. Renewals end: of each lease one
            // is in flight (lease-3).
            Some((renewed, sent_at, answers)) = renewals.next() => {
                for (lease, answer) in iter::zip(renewed, &answers) {
                    if let Some(lost) = leases.answered(lease, env.now(), sent_at, answer) {
                        on(Event::Lost(lost));
                    }
                }
            }
            Some(event) = events.next() => {
                match event {
                    Ok(event) => on(Event::Store(event)),
                    Err(panic) => tracing::warn!(
                        error = ?Panicked::new(&*panic),
                        "the store's code panicked; no further events from this store"
                    ),
                }
                // A stream that is always ready need not let others have their turn: we do.
                tokio::task::coop::consume_budget().await;
            }
            // Behind the events, which are handled by now.
            () = std::future::ready(()), if !listeners.is_empty() => {
                for listener in listeners.drain(..) {
                    waking(|| drop(listener));
                }
            }
            () = leases.sooner() => {}
            // By a timer of its own: leases must not wait behind the bounds of requests.
            () = env.clock().sleep_until(wake_at) => {}
        }
    }
}

/// How late this task is called: its runtime is blocked then, and renews nothing.
struct Lateness {
    /// When it was to be called.
    due_at: Option<Moment>,
    bound: Duration,
    /// The last warning.
    warned_at: Option<Moment>,
}

impl Lateness {
    fn new(bound: Duration) -> Self {
        Self { due_at: None, bound, warned_at: None }
    }

    fn called(&mut self, now: Moment) {
        let late = self.due_at.map_or(Duration::ZERO, |due_at| now.since(due_at));
        let is_new = self.warned_at.is_none_or(|warned_at| BETWEEN_WARNINGS <= now.since(warned_at));
        if self.bound < late && is_new {
            self.warned_at = Some(now);
            tracing::warn!(
                ?late,
                "the runtime was blocked, or the host suspended: move blocking work to `spawn_blocking`"
            );
        }
    }
}

const BETWEEN_WARNINGS: Duration = Duration::from_secs(60);

/// Leases that were renewed by one call, when it was sent, and an answer for each.
type Renewed = (Vec<LeaseId>, Moment, Vec<Renewal>);

/// Renews `leases` in one call; without a reply within the bound a result is unknown.
pub(crate) async fn renew(env: &Env, backend: &dyn LockBackend, leases: Vec<LeaseId>) -> Renewed {
    let sent_at = env.now();
    let answers = env.bounded(async { Ok(backend.renew(&leases).await) }).await;
    let (mut answers, error) = match answers {
        Ok(answers) => (answers, unanswered()),
        Err(error) => (Vec::new(), error),
    };
    answers.resize_with(leases.len(), || Renewal::Unknown(error.clone()));
    (leases, sent_at, answers)
}

/// The answer to a renewal that the store has left out.
fn unanswered() -> Error {
    Error::new(ErrorKind::Protocol, Effect::Unknown, "the store sent no reply to a renewal")
}
