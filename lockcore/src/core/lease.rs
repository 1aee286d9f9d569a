//! The life of one lease, as a pure state machine: live, at risk, lost.
//!
//! The watchdog reports requests, replies and the time to it, and follows it. A lease is renewed at a third of its ttl, tried
//! again with back-off, *at risk* once a renewal is overdue by one request bound, and *lost* at its deadline or when the store
//! reports it.
//!
//! # Invariants
//! - **lease-1** A lost lease stays lost, even if a late answer extends it (G2).
//! - **lease-2** A deadline never moves back, and an answer that comes after it changes nothing (G2).
//! - **lease-3** At most one renewal of a lease is in flight.
//!
//! Checked by the tests below, which include random schedules.

use std::time::Duration;

use crate::backend::{Lease, Renewal};
use crate::clock::{Deadline, Moment};
use crate::words::loss::LostReason;

/// The watchdog's knowledge of one lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LeaseState {
    pub(crate) lease: Lease,
    phase: LeasePhase,
    /// When to renew it, unless a renewal is in flight or there is nothing to renew.
    due: Option<Moment>,
    failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum LeasePhase {
    Live { overdue_at: Moment },
    AtRisk,
    Lost(LostReason),
}

/// The change of a step for the holds of the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Nothing to report: its deadline may have moved, which the holds read themselves.
    Nothing,
    AtRisk,
    /// At risk no more.
    Safe,
    Lost(LostReason),
}

impl LeaseState {
    /// A lease as the store announced or granted it; a renewal of it is overdue after that time, the bound of a request.
    pub(crate) fn new(lease: Lease, now: Moment, overdue_after: Duration) -> Self {
        let mut state = Self { lease, phase: LeasePhase::AtRisk, due: None, failures: 0 };
        state.confirm(now, overdue_after);
        state
    }

    /// Its first renewal is due earlier by that. Whether it is overdue stays as it is.
    pub(crate) fn renew_earlier(&mut self, by: Duration) {
        self.due = self.due.map(|at| at.saturating_sub(by));
    }

    pub(crate) fn is_at_risk(&self) -> bool {
        self.phase == LeasePhase::AtRisk
    }

    pub(crate) fn lost(&self) -> Option<LostReason> {
        match self.phase {
            LeasePhase::Lost(reason) => Some(reason),
            LeasePhase::Live { .. } | LeasePhase::AtRisk => None,
        }
    }

    /// Whether to renew now, or within `window` of now so that renewals are sent together.
    pub(crate) fn is_due(&self, now: Moment, window: Duration) -> bool {
        self.due.is_some_and(|at| at <= now + window) && self.lost().is_none()
    }

    /// A renewal is on its way.
    pub(crate) fn sent(&mut self) {
        debug_assert!(self.due.is_some(), "lease-3");
        self.due = None;
    }

    /// When to check again, if ever.
    pub(crate) fn next_timer(&self) -> Option<Moment> {
        let Deadline::At(deadline) = self.lease.deadline else {
            return None;
        };
        let phase = match self.phase {
            LeasePhase::Live { overdue_at } => overdue_at.min(deadline),
            LeasePhase::AtRisk => deadline,
            LeasePhase::Lost(_) => return None,
        };
        Some(self.due.map_or(phase, |at| at.min(phase)))
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, now: Moment) -> Change {
        match self.phase {
            LeasePhase::Lost(_) => Change::Nothing,
            _ if self.lease.deadline.has_passed(now) => self.lose(LostReason::Expired),
            LeasePhase::Live { overdue_at } if overdue_at <= now => {
                self.phase = LeasePhase::AtRisk;
                Change::AtRisk
            }
            LeasePhase::Live { .. } | LeasePhase::AtRisk => Change::Nothing,
        }
    }

    /// The renewal sent at `sent_at` was answered, or abandoned; the next one is overdue as in [`new`](Self::new).
    pub(crate) fn answered(
        &mut self,
        now: Moment,
        sent_at: Moment,
        answer: &Renewal,
        overdue_after: Duration,
    ) -> Change {
        let was_at_risk = self.is_at_risk();
        let passed = self.tick(now);
        if self.lost().is_some() {
            return passed;
        }
        match answer {
            Renewal::Until(deadline) => {
                self.lease.deadline = self.lease.deadline.max(*deadline);
                self.failures = 0;
                self.confirm(sent_at, overdue_after);
                // After an answer that moves the deadline too little the next renewal is not sent at once.
                self.due = self.due.map(|at| at.max(now + self.lease.ttl / 48));
                if was_at_risk { Change::Safe } else { Change::Nothing }
            }
            Renewal::Gone(reason) => self.lose(*reason),
            Renewal::Unknown(_) => {
                // From a 48th to a twelfth of the ttl, so that several tries fit before the deadline.
                self.due = Some(now + self.lease.ttl / 48 * 2_u32.pow(self.failures.min(2)));
                self.failures += 1;
                passed
            }
        }
    }

    /// The store named this lease again, in a grant or an event; returns whether that extends it. `tick` applies the passage of
    /// time.
    pub(crate) fn named_again(&mut self, now: Moment, deadline: Deadline) -> bool {
        let live = self.lost().is_none() && !self.lease.deadline.has_passed(now);
        let extends = live && deadline > self.lease.deadline;
        if extends {
            self.lease.deadline = deadline;
        }
        extends
    }

    /// Ends the lease.
    pub(crate) fn lose(&mut self, reason: LostReason) -> Change {
        if self.lost().is_some() {
            return Change::Nothing;
        }
        self.phase = LeasePhase::Lost(reason);
        Change::Lost(reason)
    }

    fn confirm(&mut self, since: Moment, overdue_after: Duration) {
        let Deadline::At(deadline) = self.lease.deadline else {
            (self.due, self.phase) = (None, LeasePhase::Live { overdue_at: Moment::LAST });
            return;
        };
        let third = self.lease.ttl / 3;
        // A grant that was long on its way is renewed early rather than late.
        let due = (since + third).min(deadline.saturating_sub(third));
        self.due = Some(due);
        self.phase = LeasePhase::Live { overdue_at: due.max(since) + overdue_after };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{LeaseId, LeaseScope};
    use crate::words::error::{Error, ErrorKind};
    use proptest::prelude::*;

    const TTL: Duration = Duration::from_secs(9);
    const BOUND: Duration = Duration::from_secs(1);

    fn at(millis: u64) -> Moment {
        Moment::from_nanos(millis * 1_000_000)
    }

    fn opened() -> LeaseState {
        let lease = Lease {
            id: LeaseId::new(1),
            scope: LeaseScope::Entry,
            ttl: TTL,
            deadline: Deadline::At(at(9_000)),
        };
        LeaseState::new(lease, at(0), BOUND)
    }

    fn unknown() -> Renewal {
        Renewal::Unknown(Error::not_applied(ErrorKind::Unavailable, "no reply"))
    }

    /// Renewal at a third, at risk one request later, lost at the deadline.
    #[test]
    fn an_unanswered_lease_passes_through_risk_to_loss() {
        let mut lease = opened();
        assert_eq!(lease.next_timer(), Some(at(3_000)));
        assert!(!lease.is_due(at(2_999), Duration::ZERO));
        assert!(lease.is_due(at(3_000), Duration::ZERO));
        lease.sent();
        assert_eq!(lease.tick(at(3_999)), Change::Nothing);
        assert_eq!(lease.tick(at(4_000)), Change::AtRisk);
        assert_eq!(lease.answered(at(4_000), at(3_000), &unknown(), BOUND), Change::Nothing);
        assert!(lease.is_due(at(4_188), Duration::ZERO));
        assert_eq!(lease.tick(at(8_999)), Change::Nothing);
        assert_eq!(lease.tick(at(9_000)), Change::Lost(LostReason::Expired));
        assert_eq!(lease.next_timer(), None);
    }

    /// A renewal that is cancelled when it is overdue reports both.
    #[test]
    fn giving_up_a_renewal_does_not_hide_the_risk() {
        let mut lease = opened();
        lease.sent();
        assert_eq!(lease.answered(at(4_000), at(3_000), &unknown(), BOUND), Change::AtRisk);
        let mut late = opened();
        assert!(!late.named_again(at(9_000), Deadline::At(at(30_000))));
        assert_eq!(late.tick(at(9_000)), Change::Lost(LostReason::Expired));
    }

    /// The next renewal is due a third of the ttl after the last one was sent, not answered.
    #[test]
    fn a_late_answer_counts_from_sending() {
        let mut lease = opened();
        lease.sent();
        let renewed = Renewal::Until(Deadline::At(at(12_000)));
        assert_eq!(lease.answered(at(3_999), at(3_000), &renewed, BOUND), Change::Nothing);
        assert_eq!(lease.lease.deadline, Deadline::At(at(12_000)));
        assert_eq!(lease.next_timer(), Some(at(6_000)));
    }

    /// A renewal is reported to the holds only if its delay was reported.
    #[test]
    fn a_late_answer_ends_the_risk() {
        let renewed = Renewal::Until(Deadline::At(at(12_000)));
        let mut told = opened();
        told.sent();
        assert_eq!(told.tick(at(4_000)), Change::AtRisk);
        assert_eq!(told.answered(at(5_000), at(3_000), &renewed, BOUND), Change::Safe);
        assert!(!told.is_at_risk());
        let mut untold = opened();
        untold.sent();
        assert_eq!(untold.answered(at(5_000), at(3_000), &renewed, BOUND), Change::Nothing);
        assert!(!untold.is_at_risk());
    }

    /// An answer after the deadline does not revive; neither does one after a loss.
    #[test]
    fn a_lost_lease_stays_lost() {
        let renewed = Renewal::Until(Deadline::At(at(30_000)));
        let mut late = opened();
        late.sent();
        assert_eq!(late.answered(at(9_000), at(3_000), &renewed, BOUND), Change::Lost(LostReason::Expired));
        let mut gone = opened();
        gone.lose(LostReason::Gone);
        assert_eq!(gone.answered(at(3_001), at(3_000), &renewed, BOUND), Change::Nothing);
        assert!(!gone.named_again(at(3_002), Deadline::At(at(30_000))));
        assert_eq!(gone.lost(), Some(LostReason::Gone));
    }

    /// Answers to two renewals may come in any order (lease-2).
    #[test]
    fn an_answer_with_an_earlier_deadline_takes_nothing_back() {
        let mut lease = opened();
        lease.sent();
        lease.answered(at(4_000), at(3_000), &Renewal::Until(Deadline::At(at(8_000))), BOUND);
        assert_eq!(lease.lease.deadline, Deadline::At(at(9_000)));
    }

    /// However often a renewal fails, it is tried again within a twelfth of the ttl: several tries fit
    /// before the deadline.
    #[test]
    fn a_renewal_that_fails_is_tried_again_soon() {
        let mut lease = opened();
        let (mut now, mut tries) = (at(3_000), 0);
        while lease.lost().is_none() {
            assert!(lease.is_due(now, Duration::ZERO));
            lease.sent();
            lease.answered(now, now, &unknown(), BOUND);
            let again_at = (0..=TTL.as_millis() as u64 / 12)
                .map(|millis| now + Duration::from_millis(millis))
                .find(|at| lease.is_due(*at, Duration::ZERO));
            now = again_at.expect("within a twelfth of the ttl");
            lease.tick(now);
            tries += 1;
        }
        assert!((6..=20).contains(&tries), "{tries} tries in two thirds of the ttl");
    }

    /// A grant that was long on its way is renewed a third of the ttl before its deadline.
    #[test]
    fn a_grant_that_came_late_is_renewed_early() {
        let late = LeaseState::new(opened().lease, at(5_000), BOUND);
        assert_eq!(late.next_timer(), Some(at(6_000)));
    }

    /// Without a deadline there is nothing to renew and nothing to lose to time.
    #[test]
    fn a_lease_without_deadline_has_no_timer() {
        let lease = Lease { deadline: Deadline::Never, ..opened().lease };
        let mut lease = LeaseState::new(lease, at(0), BOUND);
        assert_eq!(lease.next_timer(), None);
        assert_eq!(lease.tick(at(u64::from(u32::MAX))), Change::Nothing);
    }

    /// An answer that moves the deadline too little is no reason to ask without pause.
    #[test]
    fn a_renewal_that_moves_nothing_is_not_repeated_at_once() {
        let mut lease = opened();
        lease.sent();
        lease.answered(at(7_000), at(6_900), &Renewal::Until(Deadline::At(at(9_000))), BOUND);
        assert!(lease.next_timer() > Some(at(7_000)), "{:?}", lease.next_timer());
    }

    proptest! {
        /// Whatever is answered whenever: deadlines never move back, loss is final, and at or
        /// after its deadline a lease is lost once it is looked at (lease-1, lease-2).
        #[test]
        fn random_schedules_keep_the_invariants(steps in prop::collection::vec((0_u64..4_000, 0_u8..5), 1..60)) {
            let mut lease = opened();
            let mut now = 0;
            for (pause, kind) in steps {
                now += pause;
                let before = lease.clone();
                let sent_at = at(now.saturating_sub(pause));
                match kind {
                    0 => { lease.tick(at(now)); }
                    1 if lease.is_due(at(now), Duration::ZERO) => lease.sent(),
                    2 if lease.due.is_none() => {
                        let granted = Deadline::At(sent_at + TTL);
                        lease.answered(at(now), sent_at, &Renewal::Until(granted), BOUND);
                    }
                    3 if lease.due.is_none() => {
                        lease.answered(at(now), sent_at, &unknown(), BOUND);
                    }
                    4 if now % 7 == 0 => { lease.lose(LostReason::Gone); }
                    _ => {}
                }
                prop_assert!(lease.lease.deadline >= before.lease.deadline);
                if let Some(reason) = before.lost() {
                    prop_assert_eq!(lease.lost(), Some(reason));
                }
                lease.tick(at(now));
                prop_assert!(lease.lost().is_some() || !lease.lease.deadline.has_passed(at(now)));
                if let Some(timer) = lease.next_timer() {
                    prop_assert!(Deadline::At(timer) <= lease.lease.deadline);
                }
            }
        }
    }
}
