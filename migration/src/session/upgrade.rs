//! A hold goes along with the move: what the next phase needs is asked for while it is held.

use std::sync::Arc;

use leasehold_core::LockName;
use leasehold_core::backend::stage::Side;
use leasehold_core::backend::{AcquireRequest, Backoff, LeaseId};
use tokio_util::sync::CancellationToken;

use super::Session;
use super::acquire::Asked;
use super::claim::{Claim, Stage};

/// What a hold asks of one store.
pub(super) struct Upgrade {
    name: LockName,
    claim: LeaseId,
    side: Side,
    request: AcquireRequest,
    over: CancellationToken,
}

impl Upgrade {
    /// What the hold of `claim` asks at `side`, until that is cancelled.
    pub(super) fn of(claim: &mut Claim, side: Side) -> Self {
        let over = CancellationToken::new();
        if let Stage::Holding { asks, .. } = &mut claim.stage {
            asks[side] = Some(over.clone());
        }
        Self { name: claim.request.name.clone(), claim: claim.id, side, request: claim.request.clone(), over }
    }
}

impl Session {
    /// Asks until it is granted or not wanted any more.
    pub(super) async fn upgrade(self: Arc<Self>, upgrade: Upgrade) {
        let mut backoff = Backoff::of_requests(&self.env);
        tokio::select! {
            biased;
            () = self.closing.cancelled() => {}
            () = upgrade.over.cancelled() => {}
            () = async {
                loop {
                    match self.ask(upgrade.side, &upgrade.request, true).await {
                        Ok(asked) => break self.upgraded(&upgrade, asked),
                        Err(error) => tracing::debug!(
                            error = %format_args!("{error:#}"), lock = %upgrade.name, "a held lock is asked for again"
                        ),
                    }
                    backoff.pause(&self.env).await;
                }
            } => {}
        }
    }

    fn upgraded(self: &Arc<Self>, upgrade: &Upgrade, asked: Asked) {
        let Asked::Granted(grant) = asked else { return };
        let side = upgrade.side;
        self.with(|book, _| {
            let wanted = !upgrade.over.is_cancelled();
            book.granted(&upgrade.name, side, grant);
            let backed = super::SIDES.map(|side| book.backed_until(side));
            let backed = crate::protocol::Pair { old: backed[0], new: backed[1] };
            debug_assert!(wanted && book.claim(&upgrade.name).is_some_and(|claim| claim.id == upgrade.claim));
            if let Some(claim) = book.claim(&upgrade.name) {
                if let Some(part) = &mut claim.parts[side] {
                    part.lease.deadline = part.lease.deadline.max(part.lease.deadline);
                }
                claim.admit(backed);
            }
            book.advance(&upgrade.name);
        });
    }
}
