//! Releases unwanted grants until the store confirms it or their lease has ended (hold-3, B2): by the releasing caller, and by
//! a task from when that leaves.

use std::ops::ControlFlow;
use std::sync::Arc;

use futures_util::future::join;
use leasehold_core::backend::stage::Side;
use leasehold_core::backend::{Backoff, Grant, LeaseScope};
use leasehold_core::{Effect, Error, LostReason, Result};

use super::Session;
use super::book::Todo;
use super::pending_cleanup::PendingCleanup;
use crate::protocol::Pair;

/// The requests that a release finds pending at one store.
struct ReleaseStep {
    cleanup: Arc<PendingCleanup>,
    /// Whether the release waits for it.
    waits: bool,
    /// Whether the release settles it.
    settles: bool,
}

impl Session {
    /// Lets go of a hold: of everything that it has, in both stores at once.
    pub(crate) async fn release(self: &Arc<Self>, grant: &Grant) -> Result<()> {
        let id = grant.lease.id;
        let pending = self.with(|book, now| {
            let shuns_old = book.shuns_old(now);
            let Some(slot) = book.slots.get_mut(&grant.name) else { return (None, None) };
            let mut left = Pair::default();
            if slot.claimed_as() == Some(id) {
                left = slot.let_go(&grant.name, &mut book.leases, &book.events);
            }
            let cleanups =
                Pair::each(|side| slot.cleanups[side].clone().filter(|cleanup| cleanup.claim == id));
            // Of two, one may not be waited for, and both begin at once.
            let is_only = cleanups.old.is_some() != cleanups.new.is_some();
            let mut pending = |cleanup: Arc<PendingCleanup>| {
                let waits = cleanup.needed && !(cleanup.side == Side::Old && shuns_old);
                let left = left[cleanup.side].take();
                let settles = is_only && waits && left.is_some();
                book.todo.extend(left.filter(|_| !settles).map(Todo::Settle));
                ReleaseStep { cleanup, waits, settles }
            };
            let new = cleanups.new.map(&mut pending);
            (cleanups.old.map(&mut pending), new)
        });
        match pending {
            (Some(old), Some(new)) => {
                let (old, new) = Box::pin(join(self.released_at_one(old), self.released_at_one(new))).await;
                old.and(new)
            }
            (Some(one), None) | (None, Some(one)) => self.released_at_one(one).await,
            (None, None) => {
                self.refuse_closed()?;
                Err(Error::lost(LostReason::Gone))
            }
        }
    }

    /// The result of a pending release, if the caller waits for that.
    async fn released_at_one(self: &Arc<Self>, pending: ReleaseStep) -> Result<()> {
        match pending {
            ReleaseStep { waits: false, .. } => Ok(()),
            ReleaseStep { cleanup, settles: false, .. } => cleanup.answer().await,
            ReleaseStep { cleanup, .. } => self.settle_here(cleanup).await,
        }
    }

    /// Sends one request, for a caller that bounds it; a task goes on from there.
    async fn settle_here(self: &Arc<Self>, cleanup: Arc<PendingCleanup>) -> Result<()> {
        let Some(grant) = &cleanup.grant else { return Ok(()) };
        let mut begun = Begun { session: self, cleanup: &cleanup, answered: false, over: false };
        let answer = self.ask_to_release(&cleanup, grant).await;
        begun.answered = true;
        match cleanup.heard(grant, answer, &self.env) {
            ControlFlow::Continue(error) => Err(error.with_effect(Effect::Unknown)),
            ControlFlow::Break(over) => {
                begun.over = true;
                self.end_release(&cleanup, grant, over.clone());
                over
            }
        }
    }

    pub(super) async fn clean_up(self: Arc<Self>, cleanup: Arc<PendingCleanup>) {
        if let Some(grant) = &cleanup.grant {
            self.settle_grant(&cleanup, grant).await;
        }
    }

    /// Sends releases of `grant` until the store confirms one, or the lease has ended.
    pub(super) async fn settle_grant(self: &Arc<Self>, cleanup: &Arc<PendingCleanup>, grant: &Grant) {
        let (env, gives_up_at) = (&self.env, cleanup.gives_up_at(grant));
        let mut backoff = Backoff::of_requests(env);
        let over = loop {
            if let Some(error) = cleanup.progress.read(|progress| progress.last.clone()) {
                env.sleep_until((env.now() + backoff.next(env)).min(gives_up_at)).await;
                if gives_up_at <= env.now() {
                    break Err(error);
                }
            }
            let answer = env.bounded(self.ask_to_release(cleanup, grant)).await;
            if let ControlFlow::Break(over) = cleanup.heard(grant, answer, env) {
                break over;
            }
        };
        self.end_release(cleanup, grant, over);
    }

    async fn ask_to_release(&self, cleanup: &PendingCleanup, grant: &Grant) -> Result<()> {
        match self.stores[cleanup.side].open.get() {
            Some(open) => open.backend.release(grant).await,
            None => Ok(()),
        }
    }

    /// No further request is sent. An entry that stays in a session ends with that session, which is ended.
    fn end_release(self: &Arc<Self>, cleanup: &Arc<PendingCleanup>, grant: &Grant, over: Result<()>) {
        if let Err(error) = &over {
            tracing::debug!(error = ?format!("{error:#}"), lock = %grant.name, "lock not released");
            if grant.lease.scope == LeaseScope::Session && error.lost_reason().is_none() {
                self.with(|book, _| book.give_up(cleanup.side, grant.lease.id));
            }
        }
        self.settle(cleanup, over);
    }

    pub(super) fn settle(self: &Arc<Self>, cleanup: &Arc<PendingCleanup>, over: Result<()>) {
        // First the slot: a task that sees the end may send the next request.
        self.with(|book, _| book.settled(cleanup));
        cleanup.ended(over);
    }
}

/// A release whose first request is pending. On drop a task completes it.
struct Begun<'a> {
    session: &'a Arc<Session>,
    cleanup: &'a Arc<PendingCleanup>,
    answered: bool,
    over: bool,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        if !self.answered {
            self.cleanup.progress.change(|progress| progress.unknown = true);
        }
        self.session.env.spawn(Arc::clone(self.session).clean_up(Arc::clone(self.cleanup)));
    }
}
