//! Which votes a contender may still get, and when it acts again.

use std::time::Duration;

use leasehold_core::clock::Moment;

use super::{Contender, VotePhase};
use crate::quorum::protocol::Terms;
use crate::quorum::protocol::member_state::{MemberState, Seen};

impl Contender {
    pub(super) fn votes(&self) -> usize {
        self.members.iter().filter(|member| member.vote.is_some()).count()
    }

    /// redis.quorum-6: how many of the servers with a recent request may still vote for this contender.
    pub(super) fn hopes(&self, now: Moment) -> usize {
        let hopes = |member: &&MemberState| {
            member.vote.is_none() && member.asked_at.is_some_and(|at| now < at + self.terms.poll)
        };
        self.members.iter().filter(hopes).count()
    }

    /// Whether another contender has a quorum.
    pub(super) fn is_held(&self) -> bool {
        let others = || {
            self.members.iter().filter_map(|member| match member.seen {
                Seen::Held(by) if member.vote.is_none() => Some(by),
                _ => None,
            })
        };
        others().any(|by| others().filter(|other| *other == by).count() >= self.terms.size.quorum)
    }

    pub(super) fn comes_later(&self) -> bool {
        let earlier = |member: &MemberState| matches!(member.seen, Seen::Held(by) if by < self.ticket);
        self.is_held() || self.members.iter().any(|member| member.vote.is_none() && earlier(member))
    }

    /// Whether the servers that do not vote leave no quorum, counting servers that have not answered for `silent`.
    pub(super) fn is_unreachable(&self, now: Moment, silent: Duration) -> bool {
        let failed = |member: &&MemberState| {
            member.vote.is_none()
                && match member.seen {
                    Seen::Failed => true,
                    // A waiter waits for the end of a pause, too.
                    Seen::Abstains => !self.waits,
                    _ => member.asked_at.is_some_and(|at| at + silent <= now),
                }
        };
        self.members.iter().filter(failed).count() >= self.terms.size.blocking()
    }

    /// When a quorum may vote for us, as far as is known.
    pub(super) fn due_at(&self) -> Option<Moment> {
        let due = |member: &MemberState| match (&member.vote, member.asked_at) {
            (Some(_), _) => Some(Moment::from_nanos(0)),
            (None, Some(_)) => None,
            (None, None) => Some(member.due),
        };
        let mut due: Vec<_> = self.members.iter().filter_map(due).collect();
        due.sort_unstable();
        due.get(self.terms.size.quorum - 1).copied()
    }

    pub(super) fn is_due(&self, now: Moment) -> bool {
        self.due_at().into_iter().chain(self.poll_at).any(|at| at <= now)
    }

    /// When there may be something to do without an answer or a message.
    pub(super) fn next(&self, now: Moment) -> Moment {
        let Terms { poll, ttl, margin, .. } = self.terms;
        let members = || self.members.iter();
        let silent = members().filter_map(|member| Some(member.asked_at? + poll)).filter(|at| *at > now);
        let expire =
            members().filter_map(|member| Some(member.vote.as_ref()?.sent_at + ttl.saturating_sub(margin)));
        let may_ask = self.phase == VotePhase::Contending && !self.is_asking;
        let asks = self.due_at().into_iter().chain(self.poll_at).filter(|_| may_ask);
        let confirms =
            members().filter(|member| member.vote.as_ref().is_some_and(|vote| !vote.is_confirming));
        let confirms = confirms.map(|member| member.due).filter(|at| *at > now);
        let is_elected = matches!(self.phase, VotePhase::Elected { .. });
        let recruits =
            members().filter(|member| is_elected && member.vote.is_none() && member.asked_at.is_none());
        let recruits = recruits.map(|member| member.due).filter(|at| *at > now);
        silent.chain(expire).chain(asks).chain(confirms).chain(recruits).min().unwrap_or(now + poll)
    }
}
