//! What is not wanted any more is released by a task, until the store confirms it or its lease is over (hold-3, B2).

use std::sync::Arc;

use leasehold_core::backend::stage::Side;
use leasehold_core::backend::{Backoff, Grant, LeaseId, LeaseScope};
use leasehold_core::clock::{Deadline, Moment};
use leasehold_core::{Effect, Error, ErrorKind, LostReason, Result};
use tokio::sync::watch;

use super::{SIDES, Session};
use crate::protocol::Pair;

/// One grant that a store is to take back.
pub(super) struct Debt {
    /// Whose it was.
    pub(super) claim: LeaseId,
    pub(super) side: Side,
    pub(super) grant: Grant,
    /// Until when its lease could be trusted, which nobody renews any more.
    deadline: Deadline,
    progress: watch::Sender<Progress>,
}

#[derive(Default)]
struct Progress {
    /// Requests that have failed.
    failures: u32,
    last: Option<Error>,
    /// It is over; with the reason if it was not released.
    over: Option<Result<()>>,
}

impl Debt {
    pub(super) fn new(claim: LeaseId, side: Side, grant: Grant, deadline: Deadline) -> Arc<Self> {
        Arc::new(Self { claim, side, grant, deadline, progress: watch::Sender::default() })
    }

    /// Ends when nothing more is done about it, whatever it came to.
    pub(super) async fn is_over(&self) {
        let mut progress = self.progress.subscribe();
        drop(progress.wait_for(|progress| progress.over.is_some()).await);
    }

    /// What it came to, or why the next request fails.
    pub(super) async fn answer(&self) -> Result<()> {
        let mut progress = self.progress.subscribe();
        let before = progress.borrow().failures;
        let progress =
            progress.wait_for(|progress| progress.over.is_some() || progress.failures > before).await;
        let Ok(progress) = progress else { return Ok(()) };
        match (&progress.over, &progress.last) {
            (Some(over), _) => over.clone(),
            (None, Some(error)) => Err(error.clone()),
            (None, None) => Ok(()),
        }
    }

    fn failed(&self, error: Error) {
        self.progress.send_modify(|progress| {
            progress.failures += 1;
            progress.last = Some(error);
        });
    }

    fn ended(&self, over: Result<()>) {
        self.progress.send_modify(|progress| progress.over = Some(over));
    }

    /// When nobody waits for it any more: its lease is over, or, in a session, its ttl, and that session is given up.
    fn gives_up_at(&self, began: Moment) -> Moment {
        let ttl = self.grant.lease.ttl;
        match (self.grant.lease.scope, self.deadline) {
            (LeaseScope::Entry, Deadline::At(at)) => at,
            _ => began + ttl,
        }
    }
}

impl Session {
    /// Lets go of a hold: of everything that it has, in both stores at once.
    pub(crate) async fn release(self: &Arc<Self>, grant: &Grant) -> Result<()> {
        let id = grant.lease.id;
        let owed = self.with(|book, now| {
            let mut needed = Pair { old: true, new: true };
            if book.claim(&grant.name).is_some_and(|claim| claim.id == id) {
                needed = book.let_go(&grant.name);
            }
            let slot = book.slots.get(&grant.name);
            let debt = |side: Side| {
                let debt = slot?.debts[side].clone().filter(|debt| debt.claim == id)?;
                let waits = needed[side] && !(side == Side::Old && book.shuns_old(now));
                Some((debt, waits))
            };
            SIDES.map(debt)
        });
        let mut released = None;
        for (debt, waits) in owed.into_iter().flatten() {
            released.get_or_insert(Ok(()));
            if waits {
                let answer = debt.answer().await;
                released = Some(released.unwrap_or(Ok(())).and(answer));
            }
        }
        released.unwrap_or_else(|| {
            self.refuse_closed()?;
            Err(Error::lost(LostReason::Gone))
        })
    }

    /// Releases until that is over.
    pub(super) async fn settle_debt(self: Arc<Self>, debt: Arc<Debt>) {
        let over = self.released(&debt).await;
        if let Err(error) = &over {
            tracing::debug!(error = %format_args!("{error:#}"), lock = %debt.grant.name, "not released in one store");
            if debt.grant.lease.scope == LeaseScope::Session && error.lost_reason().is_none() {
                self.end_session_of(&debt);
            }
        }
        // First the slot: whoever hears that it is over may ask again.
        self.with(|book, _| book.settled(&debt));
        debt.ended(over);
    }

    /// An entry that stays in a session ends with that.
    fn end_session_of(self: &Arc<Self>, debt: &Debt) {
        let lease = debt.grant.lease.id;
        self.with(|book, _| {
            book.lease_over(debt.side, lease, LostReason::SessionLost);
            book.todo.push(super::Todo::GiveUp(debt.side, lease));
        });
    }

    async fn released(&self, debt: &Debt) -> Result<()> {
        let env = &self.env;
        let Some(open) = self.stores[debt.side].open.get() else { return Ok(()) };
        let give_up_at = debt.gives_up_at(env.now());
        let in_session = debt.grant.lease.scope == LeaseScope::Session;
        let mut backoff = Backoff::of_requests(env);
        let mut effect = Effect::NotApplied;
        loop {
            let Err(error) = env.bounded(open.backend.release(&debt.grant)).await else { return Ok(()) };
            match (error.lost_reason(), effect) {
                // An earlier request has done it.
                (Some(LostReason::Gone), Effect::Unknown) if env.now() < give_up_at => return Ok(()),
                (Some(_), _) => return Err(error),
                (None, Effect::NotApplied) => effect = error.effect(),
                (None, Effect::Unknown) => {}
            }
            let error = error.with_effect(effect);
            if ends_release(error.kind(), in_session) || give_up_at <= env.now() {
                return Err(error);
            }
            debt.failed(error.clone());
            env.sleep_until((env.now() + backoff.next(env)).min(give_up_at)).await;
            if give_up_at <= env.now() {
                return Err(error);
            }
        }
    }
}

/// Whether asking again is of no use, as in the core.
fn ends_release(kind: &ErrorKind, in_session: bool) -> bool {
    use ErrorKind::{Closed, Denied, InvalidName, InvalidOption, Misuse, Unsupported};
    match kind {
        Closed => true,
        Denied | InvalidName | InvalidOption | Misuse | Unsupported => in_session,
        _ => false,
    }
}
