//! The ownerships that end by themselves, apart from their lease, and when to check each. Pure.
//!
//! An ownership knows when it ends ([ownership-4](crate::core::ownership)); here is the timer for that.
//!
//! # Invariants
//! - **ends-1** An ownership that was [set](Ends::set) has one timer, at its end or before, until it is forgotten.
//! - **ends-2** No timer is longer than `longest_timer`: timers stop while a host is suspended.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::core::ownership::Ownership;

pub(super) struct Ends {
    /// By their addresses, and when each is checked.
    ownerships: BTreeMap<usize, (Moment, Arc<Ownership>)>,
    timers: BTreeSet<(Moment, usize)>,
    longest_timer: Duration,
}

impl Ends {
    pub(super) fn new(longest_timer: Duration) -> Self {
        Self { ownerships: BTreeMap::new(), timers: BTreeSet::new(), longest_timer }
    }

    /// The end of an ownership was set, or has changed.
    pub(super) fn set(&mut self, ownership: &Arc<Ownership>) {
        self.forget(ownership);
        // RACE: a lost ownership is forgotten after that, now or before.
        if let Some(at) = ownership.ends_at() {
            self.insert(ownership, at);
        }
    }

    pub(super) fn forget(&mut self, ownership: &Arc<Ownership>) {
        self.remove(address(ownership));
    }

    /// Returns when to call `due`.
    pub(super) fn look_at(&self, now: Moment) -> Option<Moment> {
        self.timers.first().map(|(at, _)| (*at).min(now + self.longest_timer))
    }

    /// The ownerships whose time has come. If a lease has ended before that, it may be renewed yet: the ownership is due again
    /// later, until it is forgotten.
    pub(super) fn due(&mut self, now: Moment) -> Vec<Arc<Ownership>> {
        let mut due = Vec::new();
        while let Some((timer, address)) = self.timers.first().copied()
            && timer <= now
            && let Some(ownership) = self.remove(address)
        {
            match ownership.ends_at() {
                None => {}
                Some(at) if now < at => self.insert(&ownership, at),
                Some(_) => {
                    self.insert(&ownership, now + self.longest_timer);
                    due.push(ownership);
                }
            }
        }
        due
    }

    fn insert(&mut self, ownership: &Arc<Ownership>, at: Moment) {
        let address = address(ownership);
        self.ownerships.insert(address, (at, Arc::clone(ownership)));
        self.timers.insert((at, address));
    }

    fn remove(&mut self, address: usize) -> Option<Arc<Ownership>> {
        let (at, ownership) = self.ownerships.remove(&address)?;
        self.timers.remove(&(at, address));
        Some(ownership)
    }
}

/// An id that is unique among the ownerships that exist at the same time.
fn address(ownership: &Arc<Ownership>) -> usize {
    Arc::as_ptr(ownership).addr()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Grant, Lease, LeaseId, LeaseScope};
    use crate::clock::Deadline;
    use crate::core::deadline::LeaseDeadline;
    use crate::words::loss::LostReason;
    use crate::words::mode::Mode;
    use crate::{LockName, OwnerId};

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    fn ends() -> Ends {
        Ends::new(Duration::from_secs(3))
    }

    /// An ownership on a lease without a deadline.
    fn ownership() -> Arc<Ownership> {
        let (deadline, ttl) = (Deadline::Never, Duration::from_secs(9));
        let lease = Lease { id: LeaseId::new(1), scope: LeaseScope::Entry, ttl, deadline };
        let (name, owner) = (LockName::new("a").unwrap(), OwnerId::from_random([1; 16]));
        let grant = Grant { name, owner, lease, counter: 1 };
        Arc::new(Ownership::new(grant, Mode::EXCLUSIVE, Arc::new(LeaseDeadline::new(deadline)), 0))
    }

    /// It is due at its end, and again until it is forgotten (ends-1), with no timer that is too long (ends-2).
    #[test]
    fn end_is_due_until_it_is_forgotten() {
        let (mut ends, ownership) = (ends(), ownership());
        ownership.hold_until(at(10));
        ends.set(&ownership);
        assert_eq!(ends.look_at(at(0)), Some(at(3)));
        for (now, due, look_at) in [(3, 0, 6), (6, 0, 9), (9, 0, 10), (10, 1, 13), (13, 1, 16)] {
            assert_eq!((ends.due(at(now)).len(), ends.look_at(at(now))), (due, Some(at(look_at))));
        }
        ends.forget(&ownership);
        assert_eq!((ends.due(at(16)).len(), ends.look_at(at(16))), (0, None));
        assert!(ends.ownerships.is_empty() && ends.timers.is_empty());
    }

    /// An end that moves takes its timer along.
    #[test]
    fn earlier_end_replaces_the_timer() {
        let (mut ends, ownership) = (ends(), ownership());
        ownership.hold_until(at(10));
        ends.set(&ownership);
        ownership.request_revocation(at(2));
        ends.set(&ownership);
        assert_eq!((ends.look_at(at(0)), ends.timers.len()), (Some(at(2)), 1));
        assert_eq!(ends.due(at(2)).len(), 1);
    }

    /// An end that is lifted by a hand-off is not due, and one that is set after the loss has no timer.
    #[test]
    fn lifted_end_is_not_due() {
        let (mut ends, ownership) = (ends(), ownership());
        ownership.hold_until(at(2));
        ends.set(&ownership);
        assert!(ownership.pass_on(0, at(1)).is_some());
        assert!(ends.due(at(2)).is_empty() && ends.ownerships.is_empty());
        ownership.hold_until(at(4));
        ownership.end(LostReason::Released);
        ends.set(&ownership);
        assert!(ends.ownerships.is_empty() && ends.timers.is_empty());
    }
}
