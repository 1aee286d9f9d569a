//! What the process has, or asks for, of one name.

use std::sync::Arc;

use leasehold_core::backend::stage::Side;
use leasehold_core::backend::{AcquireRequest, Grant, LeaseId};
use leasehold_core::clock::Deadline;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::SIDES;
use super::debts::Debt;
use crate::protocol::Pair;
use crate::protocol::contender::Contender;
use crate::protocol::hold::Hold;
use crate::protocol::view::View;

/// All there is of one name (session-1).
#[derive(Default)]
pub(super) struct Slot {
    pub(super) claim: Option<Claim>,
    /// What is being released, at each store.
    pub(super) debts: Pair<Option<Arc<Debt>>>,
}

/// One acquisition, and the hold that it becomes.
pub(super) struct Claim {
    /// As which lease the core knows the hold.
    pub(super) id: LeaseId,
    pub(super) request: AcquireRequest,
    pub(super) stage: Stage,
    /// What the stores have granted.
    pub(super) parts: Pair<Option<Grant>>,
    /// Somebody asks, who is to look again.
    pub(super) wake: Arc<Notify>,
}

pub(super) enum Stage {
    Asking {
        contender: Contender,
        /// The process's entry there has lapsed since the contender looked.
        lapsed: Pair<bool>,
        /// The store has lost what was granted there.
        lost: Pair<bool>,
    },
    Holding {
        hold: Hold,
        /// By which the core knows it.
        counter: u64,
        /// Until when the core trusts it.
        told: Deadline,
        told_over: bool,
        /// What is asked for it, ends with these.
        asks: Pair<Option<CancellationToken>>,
    },
}

impl Slot {
    pub(super) fn is_empty(&self) -> bool {
        self.claim.is_none() && self.debts.old.is_none() && self.debts.new.is_none()
    }
}

impl Claim {
    pub(super) fn new(id: LeaseId, request: AcquireRequest, view: Option<View>) -> Self {
        let contender = Contender::new(view);
        let stage = Stage::Asking { contender, lapsed: Pair::default(), lost: Pair::default() };
        Self { id, request, stage, parts: Pair::default(), wake: Arc::default() }
    }

    /// Until when a hold can be trusted, by what it has (session-3); `backed` is the process's entries. What is granted
    /// and not counted on yet holds it back too: so that it can be.
    pub(super) fn trusted_until(&self, backed: Pair<Deadline>) -> Deadline {
        let Stage::Holding { hold, .. } = &self.stage else { return Deadline::Never };
        let counts = |side: &Side| hold.needs(*side) || !hold.parts().held(*side);
        let parts = SIDES.into_iter().filter(counts);
        let until = |side: Side| {
            let part = self.parts[side].as_ref()?;
            Some(part.lease.deadline.min(backed[side]))
        };
        parts.filter_map(until).min().unwrap_or(Deadline::Never)
    }

    /// Counts on what was granted for a hold, once it lasts as long as the guard believes in it.
    pub(super) fn admit(&mut self, backed: Pair<Deadline>) {
        let Stage::Holding { hold, told, .. } = &mut self.stage else { return };
        for side in SIDES {
            let Some(part) = &self.parts[side] else { continue };
            if !hold.parts().held(side) && part.lease.deadline.min(backed[side]) >= *told {
                hold.granted(side, part.counter);
            }
        }
    }
}
