//! What the process has, or asks for, of one name.

use std::sync::Arc;

use leasehold_core::backend::stage::Side;
use leasehold_core::backend::{AcquireRequest, Grant, LeaseId};
use leasehold_core::clock::Deadline;
use tokio::sync::{Notify, oneshot};

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
        /// What is asked for it ends with these.
        asks: Pair<Option<oneshot::Sender<Arc<Debt>>>>,
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

    /// Until when a hold can be trusted whose parts can be until then. What is granted and not counted on yet holds it back
    /// too: so that it can be.
    pub(super) fn trusted_until(&self, parts: Pair<Option<Deadline>>) -> Deadline {
        let Stage::Holding { hold, .. } = &self.stage else { return Deadline::Never };
        let counts = |side: &Side| hold.needs(*side) || !hold.parts().held(*side);
        SIDES.into_iter().filter(counts).filter_map(|side| parts[side]).min().unwrap_or(Deadline::Never)
    }
}
