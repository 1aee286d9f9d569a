//! The grants, requests and pending releases of one name in this process.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::stage::Side;
use leasehold_core::backend::{AcquireRequest, Events, Grant, LeaseId};
use leasehold_core::clock::{Deadline, Moment};
use leasehold_core::{LockName, OwnerId};
use tokio::sync::{Notify, oneshot};

use super::leases::Leases;
use super::pending_cleanup::PendingCleanup;
use crate::protocol::contender::Contender;
use crate::protocol::hold::PairHold;
use crate::protocol::view::View;
use crate::protocol::{Pair, SIDES};

/// All there is of one name (session-1).
#[derive(Default)]
pub(super) struct Slot {
    pub(super) claim: Option<Claim>,
    /// The pending release at each store.
    pub(super) cleanups: Pair<Option<Arc<PendingCleanup>>>,
    /// Wakes the acquisition, which checks again.
    wake: Arc<Notify>,
}

/// One acquisition, and the hold that it becomes.
pub(super) struct Claim {
    /// As which lease the core knows the hold.
    pub(super) id: LeaseId,
    owner: OwnerId,
    ttl_wanted: Duration,
    metadata: Option<Arc<str>>,
    pub(super) stage: Stage,
    /// The grants of the stores.
    pub(super) parts: Pair<Option<Grant>>,
    /// Events about grants that are no parts of a hold yet.
    pub(super) early: Pair<Early>,
    /// Wakes the acquisition, which checks again.
    pub(super) wake: Arc<Notify>,
}

/// Events about a grant with that number of the store.
#[derive(Default)]
pub(super) struct Early {
    pub(super) lost: Option<u64>,
    /// A revocation was requested, until then.
    pub(super) asked: Option<(u64, Moment)>,
}

pub(super) enum Stage {
    Asking {
        contender: Contender,
        /// The process's entry there has lapsed since the contender's last check.
        lapsed: Pair<bool>,
        /// The store has lost the grant there.
        lost: Pair<bool>,
    },
    Holding {
        hold: PairHold,
        /// By which the core knows it.
        counter: u64,
        /// Until when the core trusts it.
        told: Deadline,
        told_over: bool,
        /// The pending requests of the hold, which end with these.
        asks: Pair<Option<oneshot::Sender<Arc<PendingCleanup>>>>,
    },
}

/// The request of a hold to one store.
pub(super) struct Upgrade {
    pub(super) claim: LeaseId,
    pub(super) side: Side,
    pub(super) request: AcquireRequest,
    pub(super) stop: oneshot::Receiver<Arc<PendingCleanup>>,
}

impl Slot {
    /// Is claimed by `request` from now on.
    pub(super) fn claim(&mut self, id: LeaseId, request: &AcquireRequest, view: Option<View>) -> Arc<Notify> {
        let contender = Contender::new(view);
        self.claim = Some(Claim {
            id,
            owner: request.owner,
            ttl_wanted: request.ttl,
            metadata: request.metadata.clone(),
            stage: Stage::Asking { contender, lapsed: Pair::default(), lost: Pair::default() },
            parts: Pair::default(),
            early: Pair::default(),
            wake: Arc::clone(&self.wake),
        });
        Arc::clone(&self.wake)
    }

    /// Ends the claim; the pending releases that it leaves are to be settled.
    pub(super) fn let_go(
        &mut self,
        name: &LockName,
        leases: &mut Leases,
        events: &Events,
    ) -> Pair<Option<Arc<PendingCleanup>>> {
        let mut left = Pair::default();
        let Some(claim) = &mut self.claim else { return left };
        leases.composites.remove(&claim.id);
        match &mut claim.stage {
            Stage::Asking { contender, .. } => contender.unwanted(),
            Stage::Holding { hold, .. } => hold.let_go(),
        }
        for side in SIDES.into_iter().rev() {
            self.stop_asking(name, side, leases.now);
            left[side] = self.begin_release(side, leases, events);
        }
        self.claim = None;
        left
    }

    /// The grant of the claim at `side` becomes a pending release, which is to be settled.
    pub(super) fn begin_release(
        &mut self,
        side: Side,
        leases: &mut Leases,
        events: &Events,
    ) -> Option<Arc<PendingCleanup>> {
        let claim = self.claim.as_mut()?;
        let grant = claim.parts[side].take()?;
        let needed = matches!(&claim.stage, Stage::Holding { hold, .. } if hold.needs(side));
        leases.absorb(side, &grant.lease, events);
        let cleanup = PendingCleanup::of_grant(claim.id, side, needed, grant, leases.now);
        self.cleanups[side] = Some(Arc::clone(&cleanup));
        Some(cleanup)
    }

    /// Cancels the request of a hold at `side`.
    pub(super) fn stop_asking(&mut self, name: &LockName, side: Side, now: Moment) {
        let Some(Claim { id, stage: Stage::Holding { asks, .. }, .. }) = &mut self.claim else { return };
        if let Some(ask) = asks[side].take() {
            let cleanup = PendingCleanup::of_request(*id, side, name.clone(), now);
            // A request behind an earlier pending release has not reached the store yet.
            self.cleanups[side].get_or_insert_with(|| Arc::clone(&cleanup));
            // A task that does not receive it has ended with the session.
            let _over = ask.send(cleanup);
        }
    }

    /// The lease by which the core knows the claim.
    pub(super) fn claimed_as(&self) -> Option<LeaseId> {
        self.claim.as_ref().map(|claim| claim.id)
    }

    /// Whether its hold rests on that store alone.
    pub(super) fn rests_on(&self, side: Side) -> bool {
        let claim = self.claim.as_ref();
        claim.is_some_and(|claim| matches!(&claim.stage, Stage::Holding { hold, .. } if hold.alone(side)))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.claim.is_none() && self.cleanups.old.is_none() && self.cleanups.new.is_none()
    }
}

impl Claim {
    pub(super) fn request(&self, name: &LockName, label: &Arc<str>) -> AcquireRequest {
        let mut request = AcquireRequest::new(name.clone(), self.owner, self.ttl_wanted);
        (request.label, request.metadata) = (Arc::clone(label), self.metadata.clone());
        request
    }

    /// The shortest ttl of the grants.
    pub(super) fn ttl(&self) -> Option<Duration> {
        self.parts.old.iter().chain(&self.parts.new).map(|part| part.lease.ttl).min()
    }

    /// Until when each part can be trusted, if the process's entries are shown until `backed` (session-3).
    pub(super) fn trusted(&self, leases: &Leases, backed: Pair<Deadline>) -> Pair<Option<Deadline>> {
        Pair::each(|side| {
            let part = self.parts[side].as_ref()?;
            Some(leases.deadline(side, &part.lease).min(backed[side]))
        })
    }

    /// Until when a hold can be trusted whose parts can be until then. A grant that is not counted on yet limits it too, so
    /// that it can be; but not after its store has dropped it.
    pub(super) fn trusted_until(&self, parts: Pair<Option<Deadline>>, now: Moment) -> Deadline {
        let Stage::Holding { hold, .. } = &self.stage else { return Deadline::Never };
        let is_kept = |side: Side| {
            let ttl = self.parts[side].as_ref().map(|part| part.lease.ttl);
            parts[side].zip(ttl).is_some_and(|(until, ttl)| ttl / 3 <= until.remaining(now))
        };
        let counts = |side: &Side| hold.needs(*side) || !hold.parts.held(*side) && is_kept(*side);
        SIDES.into_iter().filter(counts).filter_map(|side| parts[side]).min().unwrap_or(Deadline::Never)
    }
}
