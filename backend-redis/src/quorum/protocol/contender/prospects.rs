//! Which votes a contender may still get, and when it acts again.

use std::time::Duration;

use leasehold_core::clock::Moment;

use super::{Contender, Phase};
use crate::quorum::protocol::Terms;
use crate::quorum::protocol::seat::{Seat, Seen};

impl Contender {
    pub(super) fn votes(&self) -> usize {
        self.seats.iter().filter(|seat| seat.vote.is_some()).count()
    }

    /// redis.quorum-6: how many may still vote for us that were asked a moment ago.
    pub(super) fn hopes(&self, now: Moment) -> usize {
        let hopes =
            |seat: &&Seat| seat.vote.is_none() && seat.asked_at.is_some_and(|at| now < at + self.terms.poll);
        self.seats.iter().filter(hopes).count()
    }

    /// Whether another contender has a quorum.
    pub(super) fn is_held(&self) -> bool {
        let others = || {
            self.seats.iter().filter_map(|seat| match seat.seen {
                Seen::Held(by) if seat.vote.is_none() => Some(by),
                _ => None,
            })
        };
        others().any(|by| others().filter(|other| *other == by).count() >= self.terms.size.quorum)
    }

    pub(super) fn comes_later(&self) -> bool {
        let earlier = |seat: &Seat| matches!(seat.seen, Seen::Held(by) if by < self.ticket);
        self.is_held() || self.seats.iter().any(|seat| seat.vote.is_none() && earlier(seat))
    }

    /// Whether the servers that do not vote leave no quorum, with those that have not answered for `silent`.
    pub(super) fn is_unreachable(&self, now: Moment, silent: Duration) -> bool {
        let failed = |seat: &&Seat| {
            seat.vote.is_none()
                && match seat.seen {
                    Seen::Failed => true,
                    // A waiter waits for the end of a pause, too.
                    Seen::Abstains => !self.waits,
                    _ => seat.asked_at.is_some_and(|at| at + silent <= now),
                }
        };
        self.seats.iter().filter(failed).count() >= self.terms.size.blocking()
    }

    /// When a quorum may vote for us, as far as is known.
    pub(super) fn due_at(&self) -> Option<Moment> {
        let due = |seat: &Seat| match (&seat.vote, seat.asked_at) {
            (Some(_), _) => Some(Moment::from_nanos(0)),
            (None, Some(_)) => None,
            (None, None) => Some(seat.due),
        };
        let mut due: Vec<_> = self.seats.iter().filter_map(due).collect();
        due.sort_unstable();
        due.get(self.terms.size.quorum - 1).copied()
    }

    pub(super) fn is_due(&self, now: Moment) -> bool {
        self.due_at().into_iter().chain(self.poll_at).any(|at| at <= now)
    }

    /// When there may be something to do without an answer or a message.
    pub(super) fn next(&self, now: Moment) -> Moment {
        let Terms { poll, ttl, margin, .. } = self.terms;
        let seats = || self.seats.iter();
        let silent = seats().filter_map(|seat| Some(seat.asked_at? + poll)).filter(|at| *at > now);
        let expire =
            seats().filter_map(|seat| Some(seat.vote.as_ref()?.sent_at + ttl.saturating_sub(margin)));
        let may_ask = self.phase == Phase::Contending && !self.is_asking;
        let asks = self.due_at().into_iter().chain(self.poll_at).filter(|_| may_ask);
        let confirms = seats().filter(|seat| seat.vote.as_ref().is_some_and(|vote| !vote.is_confirming));
        let confirms = confirms.map(|seat| seat.due).filter(|at| *at > now);
        let is_elected = matches!(self.phase, Phase::Elected { .. });
        let recruits = seats().filter(|seat| is_elected && seat.vote.is_none() && seat.asked_at.is_none());
        let recruits = recruits.map(|seat| seat.due).filter(|at| *at > now);
        silent.chain(expire).chain(asks).chain(confirms).chain(recruits).min().unwrap_or(now + poll)
    }
}
