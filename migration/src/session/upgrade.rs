//! A hold follows the move: the lock that the next phase needs is requested while it is held.

use std::sync::Arc;

use leasehold_core::LockName;
use leasehold_core::backend::stage::Side;
use leasehold_core::backend::{AcquireRequest, Attempt, Backoff, Grant};
use tokio::sync::oneshot;

use super::Session;
use super::book::Book;
use super::claim::{Stage, Upgrade};

impl Session {
    /// Repeats the request until it is granted or cancelled. A cancelled one becomes a pending release (session-1).
    pub(super) async fn upgrade(self: Arc<Self>, mut upgrade: Upgrade) {
        let stopped_or_granted = tokio::select! {
            biased;
            () = self.closing.cancelled() => return,
            cleanup = &mut upgrade.stop => Err(cleanup),
            grant = self.ask_again(upgrade.side, &upgrade.request) => Ok(grant),
        };
        match stopped_or_granted {
            Err(Err(_)) => {}
            Err(Ok(cleanup)) => self.settle(&cleanup, Ok(())),
            Ok(grant) => {
                let Err(grant) = self.with(|book, _| book.upgraded(&upgrade, grant)) else { return };
                // RACE: it was stopped in this instant.
                if let Ok(cleanup) = upgrade.stop.try_recv() {
                    self.settle_grant(&cleanup, &grant).await;
                }
            }
        }
    }

    async fn ask_again(self: &Arc<Self>, side: Side, request: &AcquireRequest) -> Grant {
        let mut backoff = Backoff::of_requests(&self.env);
        loop {
            match self.ask(side, request, true, false).await {
                Ok(Attempt::Granted(grant)) => return grant,
                Ok(Attempt::Held { .. }) => {}
                Err(error) => tracing::debug!(
                    error = ?format!("{error:#}"), lock = %request.name, "retrying acquire of a held lock"
                ),
            }
            backoff.pause(&self.env).await;
        }
    }
}

impl Book {
    /// The hold of `name` requests the lock at `side`.
    pub(super) fn ask_for_hold(&mut self, name: &LockName, side: Side) {
        let label = Arc::clone(&self.label);
        let Some(claim) = self.claim(name) else { return };
        let (stop, stopped) = oneshot::channel();
        let request = claim.request(name, &label);
        let upgrade = Upgrade { claim: claim.id, side, request, stop: stopped };
        if let Stage::Holding { asks, .. } = &mut claim.stage {
            asks[side] = Some(stop);
        }
        self.todo.push(super::book::Todo::Upgrade(upgrade));
    }

    fn upgraded(&mut self, upgrade: &Upgrade, grant: Grant) -> Result<(), Grant> {
        let (name, side) = (&upgrade.request.name, upgrade.side);
        let claim = self.claim(name).filter(|claim| claim.id == upgrade.claim);
        let Some(Stage::Holding { asks, .. }) = claim.map(|claim| &mut claim.stage) else {
            return Err(grant);
        };
        if asks[side].take().is_none() {
            return Err(grant);
        }
        let lease = grant.lease;
        self.granted(name, upgrade.claim, side, grant);
        // It is renewed with the hold from here on.
        let deadline = self.leases.absorb(side, &lease, &self.events);
        if let Some(part) = self.claim(name).and_then(|claim| claim.parts[side].as_mut()) {
            part.lease.deadline = part.lease.deadline.max(deadline);
        }
        self.resign(side);
        self.pass_on_asked(name);
        self.admit(name);
        self.advance(name);
        Ok(())
    }
}
