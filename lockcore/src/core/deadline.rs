//! The state that the holds of one lease share: its deadline, and whether a renewal is overdue.
//!
//! The table of leases writes it under its mutex, from the state of the lease; ownerships read it
//! without. So a renewal costs the same for one hold and for a hundred thousand.
//!
//! # Invariants
//! - **deadline-1** The deadline never moves back (lease-2), and moves only while the lease is not lost (lease-1): an
//!   ownership that has not ended may trust it until it has passed (G2).
//!
//! Checked by the tests of `ownership` and of `leases`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::clock::{Deadline, Moment};

pub(crate) struct LeaseDeadline {
    /// In nanoseconds of the clock; `ENDLESS` without a lease.
    held_before: AtomicU64,
    at_risk: AtomicBool,
}

/// Later than every moment: held while the process lives.
const ENDLESS: u64 = u64::MAX;

impl LeaseDeadline {
    pub(crate) fn new(deadline: Deadline) -> Self {
        Self { held_before: AtomicU64::new(encode(deadline)), at_risk: AtomicBool::new(false) }
    }

    /// The lease was renewed. Its holds read this, and are not notified.
    pub(crate) fn extend(&self, deadline: Deadline) {
        // ORDERING: nothing else is published with it. A reader of an older value takes the lease for
        // shorter than it is, which is the safe side (G2).
        self.held_before.fetch_max(encode(deadline), Ordering::Relaxed);
    }

    pub(crate) fn last(&self) -> Deadline {
        match self.held_before.load(Ordering::Relaxed) {
            ENDLESS => Deadline::Never,
            nanos => Deadline::At(Moment::from_nanos(nanos)),
        }
    }

    pub(crate) fn is_at_risk(&self) -> bool {
        // ORDERING: see `Ownership::follow`, whose mutex orders the changes that matter.
        self.at_risk.load(Ordering::Relaxed)
    }

    pub(crate) fn set_at_risk(&self, at_risk: bool) {
        self.at_risk.store(at_risk, Ordering::Relaxed);
    }
}

/// In nanoseconds, `ENDLESS` for [`Deadline::Never`].
pub(crate) fn encode(deadline: Deadline) -> u64 {
    match deadline {
        Deadline::At(at) => at.as_nanos(),
        Deadline::Never => ENDLESS,
    }
}
