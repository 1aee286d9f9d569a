//! One acquisition, from its first request for a vote to the end of its hold.

mod prospects;

use std::time::Duration;

use leasehold_core::LostReason;
use leasehold_core::clock::{Deadline, Moment};

use super::member_state::{MemberState, Seen, Vote};
use super::{Confirming, Step, Terms, Ticket, VoteReply, VoteRequest};

/// One owner's votes at the servers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Contender {
    terms: Terms,
    ticket: Ticket,
    /// Whether it waits for its turn.
    waits: bool,
    /// The round of the votes that count.
    pub(crate) round: u64,
    phase: VotePhase,
    members: Vec<MemberState>,
    /// Requests for votes are pending, and may still make a quorum.
    is_asking: bool,
    poll_at: Option<Moment>,
    /// redis.quorum-11: a try requests split votes once more.
    asks_again: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum VotePhase {
    /// No quorum has voted for us.
    Contending,
    /// A quorum has voted for us.
    Elected { token: u64 },
    /// The lock was taken.
    Holding {
        token: u64,
        /// redis.quorum-9: the deadline that it has had so far.
        until: Deadline,
    },
    /// Nothing counts any more.
    Over(LostReason),
}

impl Contender {
    pub(crate) fn new(terms: Terms, ticket: Ticket, waits: bool) -> Self {
        Self {
            terms,
            ticket,
            waits,
            round: FIRST,
            phase: VotePhase::Contending,
            members: vec![MemberState::new(); terms.size.servers],
            is_asking: false,
            poll_at: None,
            asks_again: false,
        }
    }

    pub(crate) fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// For how long a vote lasts without a renewal.
    pub(crate) fn ttl(&self) -> Duration {
        self.terms.ttl
    }

    /// The requests to send at `now`; each is answered once.
    pub(crate) fn requests(&mut self, now: Moment) -> Vec<(usize, VoteRequest)> {
        self.expire(now);
        let mut requests = Vec::new();
        let votes = self.votes();
        match self.phase {
            VotePhase::Contending if votes >= self.terms.size.quorum => {
                let token = self.members.iter().filter_map(|member| Some(member.vote.as_ref()?.n)).max();
                self.phase = VotePhase::Elected { token: token.unwrap_or_default() };
                self.is_asking = false;
            }
            VotePhase::Contending => self.contend(now, &mut requests),
            // Some votes were lost before the token was everywhere.
            VotePhase::Elected { .. } if votes < self.terms.size.quorum => {
                self.return_votes(now, &mut requests)
            }
            VotePhase::Elected { .. } | VotePhase::Holding { .. } | VotePhase::Over(_) => {}
        }
        if let Some(token) = self.token() {
            self.confirm(now, token, &mut requests);
            self.recruit(now, &mut requests);
        }
        requests
    }

    /// redis.quorum-7 and redis.quorum-10: requests the votes of servers that have not voted yet.
    fn recruit(&mut self, now: Moment, requests: &mut Vec<(usize, VoteRequest)>) {
        let is_safe = self.is_confirmed(now);
        for (server, member) in self.members.iter_mut().enumerate() {
            let may_vote = member.vote.is_none() && (is_safe || !matches!(member.seen, Seen::Lost(_)));
            if may_vote && member.asked_at.is_none() && member.due <= now {
                requests.push((server, member.ask(now, self.round, self.waits)));
            }
        }
    }

    fn contend(&mut self, now: Moment, requests: &mut Vec<(usize, VoteRequest)>) {
        if self.is_asking && self.votes() + self.hopes(now) < self.terms.size.quorum {
            self.is_asking = false;
            let is_held = self.is_held();
            let silent = |member: &MemberState| member.asked_at.is_some_and(|at| at + self.terms.poll <= now);
            self.asks_again = !self.waits && self.round == FIRST && self.members.iter().any(silent);
            // redis.quorum-5
            if self.comes_later() {
                self.return_votes(now, requests);
            }
            // Others return split votes; a holder releases its votes, or its lease ends.
            self.poll_at = (!is_held).then(|| now + self.terms.poll);
        }
        if !self.is_asking && self.is_due(now) {
            self.ask(now, requests);
        }
    }

    fn ask(&mut self, now: Moment, requests: &mut Vec<(usize, VoteRequest)>) {
        (self.is_asking, self.poll_at) = (true, None);
        let fresh = self.terms.ttl / 3;
        for (server, member) in self.members.iter_mut().enumerate() {
            let is_fresh = member.vote.as_ref().is_some_and(|vote| now < vote.sent_at + fresh);
            if member.asked_at.is_none() && !is_fresh {
                requests.push((server, member.ask(now, self.round, self.waits)));
            }
        }
    }

    /// redis.quorum-4: nothing of this round counts from here on.
    fn return_votes(&mut self, now: Moment, requests: &mut Vec<(usize, VoteRequest)>) {
        for (server, member) in self.members.iter_mut().enumerate() {
            let has_voted = member.vote.take().is_some();
            if has_voted || member.asked_at.is_some() {
                requests.push((server, VoteRequest::Return { round: self.round }));
                member.seen = if has_voted { Seen::Votes } else { Seen::Nothing };
                member.due = now + self.terms.poll;
            }
        }
        self.round += 1;
        (self.phase, self.is_asking, self.poll_at) =
            (VotePhase::Contending, false, Some(now + self.terms.poll));
    }

    fn confirm(&mut self, now: Moment, token: u64, requests: &mut Vec<(usize, VoteRequest)>) {
        for (server, member) in self.members.iter_mut().enumerate() {
            if let Some(vote) = &mut member.vote
                && vote.n < token
                && !vote.is_confirming
                && member.due <= now
            {
                vote.is_confirming = true;
                let confirming = Confirming { round: self.round, n: vote.n, token };
                requests.push((server, VoteRequest::Confirm(confirming)));
            }
        }
    }

    /// The caller's next step at `now`, after the requests.
    pub(crate) fn step(&mut self, now: Moment) -> Step {
        self.expire(now);
        match self.phase {
            VotePhase::Over(reason) => Step::Over(reason),
            VotePhase::Elected { token } | VotePhase::Holding { token, .. } => match self.deadline() {
                Some(deadline) if !deadline.has_passed(now) => {
                    self.phase = VotePhase::Holding { token, until: deadline };
                    Step::Take { token, deadline }
                }
                _ => Step::Wait(self.next(now)),
            },
            VotePhase::Contending if self.is_asking => Step::Wait(self.next(now)),
            VotePhase::Contending if !self.waits && self.is_held() => Step::Busy,
            VotePhase::Contending if self.is_unreachable(now, self.terms.poll) => Step::Unreachable,
            // Of the servers that are still to answer, so many may fail that there is no quorum.
            VotePhase::Contending
                if !self.waits
                    && !self.asks_again
                    && self.comes_later()
                    && !self.is_unreachable(now, Duration::ZERO) =>
            {
                Step::Busy
            }
            VotePhase::Contending => Step::Wait(self.next(now)),
        }
    }

    /// The request for a vote in `round` that was sent at `sent_at` was answered.
    pub(crate) fn answered(
        &mut self,
        now: Moment,
        server: usize,
        (round, sent_at): (u64, Moment),
        answer: VoteReply,
    ) {
        self.expire(now);
        let is_short = self.votes() < self.terms.size.quorum;
        let is_safe = self.is_confirmed(now);
        let (present, member) = (self.round, &mut self.members[server]);
        let (_, is_freed) = (member.asked_at.take(), std::mem::take(&mut member.freed));
        let lost_at = if let Seen::Lost(at) = member.seen { Some(at) } else { None };
        // redis.quorum-10
        let is_lost = lost_at.is_some_and(|at| sent_at <= at || !is_safe);
        // redis.quorum-3, redis.quorum-4
        if round != present || is_lost || matches!(self.phase, VotePhase::Over(_)) {
            // A pause concerns every round.
            if matches!((answer, member.seen), (VoteReply::Abstains { .. }, Seen::Nothing | Seen::Votes)) {
                member.seen = Seen::Abstains;
            }
            return;
        }
        let counts = |token| member.vote.as_ref().is_some_and(|vote| token <= vote.n);
        match answer {
            VoteReply::Voted { n } => self.voted(now, server, Vote { n, sent_at, is_confirming: false }),
            // It stays lost until it votes.
            VoteReply::Held { ask_in, .. } | VoteReply::Abstains { ask_in } if lost_at.is_some() => {
                member.due = now + ask_in.min(self.terms.ttl / 3);
            }
            // redis.quorum-3
            _ if matches!(self.phase, VotePhase::Holding { token, .. } if counts(token)) => {
                self.lose(now, server);
            }
            // The message may have overtaken this answer.
            VoteReply::Held { .. } if is_freed => {
                member.refused(Seen::Votes, now, self.waits);
                self.ask_soon(now);
            }
            VoteReply::Held { by, ask_in } => {
                let most = match self.phase {
                    // A waiter that has it returns it soon.
                    VotePhase::Holding { .. } if is_short => self.terms.poll,
                    _ => self.terms.ttl / 3,
                };
                member.refused(Seen::Held(by), now + ask_in.min(most), self.waits);
            }
            VoteReply::Abstains { ask_in } => {
                member.refused(Seen::Abstains, now + ask_in.min(self.terms.ttl / 3), self.waits);
            }
        }
    }

    fn voted(&mut self, now: Moment, server: usize, given: Vote) {
        let member = &mut self.members[server];
        match (&mut member.vote, self.phase) {
            // The same vote, requested again.
            (Some(vote), _) if given.n <= vote.n => vote.sent_at = vote.sent_at.max(given.sent_at),
            // redis.quorum-3
            (Some(vote), VotePhase::Holding { token, .. }) if token <= vote.n => {
                return self.lose(now, server);
            }
            _ => {
                if let VotePhase::Elected { token } = &mut self.phase {
                    // redis.quorum-8
                    *token = given.n.max(*token);
                }
                member.vote = Some(given);
            }
        }
        (member.seen, member.due) = (Seen::Nothing, now);
    }

    /// A request for a vote was not sent after all.
    pub(crate) fn unsent(&mut self, server: usize) {
        self.members[server].asked_at = None;
    }

    /// A request for a vote had no answer, or an error.
    pub(crate) fn failed(&mut self, now: Moment, server: usize) {
        let member = &mut self.members[server];
        member.asked_at = None;
        member.due = now + self.terms.poll;
        if !matches!(member.seen, Seen::Lost(_)) {
            member.seen = Seen::Failed;
        }
    }

    /// Whether the vote was still this owner's when the token was written, by the request sent at `sent_at`; `None` without an
    /// answer.
    pub(crate) fn confirmed(
        &mut self,
        now: Moment,
        server: usize,
        (Confirming { round, n, token }, sent_at): (Confirming, Moment),
        kept: Option<bool>,
    ) {
        self.expire(now);
        let is_present = self.token().is_some() && round == self.round;
        let vote = self.members[server].vote.as_mut().filter(|vote| is_present && vote.n == n);
        let Some(vote) = vote else { return };
        match kept {
            Some(true) => {
                (vote.n, vote.is_confirming) = (n.max(token), false);
                vote.sent_at = vote.sent_at.max(sent_at);
            }
            Some(false) => self.lose(now, server),
            None => {
                vote.is_confirming = false;
                self.members[server].due = now + self.terms.poll;
            }
        }
    }

    /// Whether a server still had the vote of a hold that was renewed at `sent_at`.
    pub(crate) fn renewed(&mut self, now: Moment, server: usize, sent_at: Moment, kept: bool) {
        self.expire(now);
        let VotePhase::Holding { .. } = self.phase else { return };
        match &mut self.members[server].vote {
            Some(vote) if kept => vote.sent_at = vote.sent_at.max(sent_at),
            Some(_) => self.lose(now, server),
            // redis.quorum-3
            None => {}
        }
    }

    /// A message announces that a server votes again.
    pub(crate) fn freed(&mut self, now: Moment, server: usize) {
        let member = &mut self.members[server];
        if !matches!(self.phase, VotePhase::Contending | VotePhase::Elected { .. }) || member.vote.is_some() {
            return;
        }
        // RACE: the pending answer may have been written before.
        member.freed = member.asked_at.is_some();
        (member.seen, member.due) = (Seen::Votes, now);
        self.ask_soon(now);
    }

    /// Others may send such messages soon; where a quorum votes for one owner, a single free server changes nothing.
    fn ask_soon(&mut self, now: Moment) {
        if !self.is_held() {
            let soon = now + self.terms.poll;
            self.poll_at = Some(self.poll_at.map_or(soon, |at| at.min(soon)));
        }
    }

    /// The token of the hold.
    pub(crate) fn held_as(&self) -> Option<u64> {
        if let VotePhase::Holding { token, .. } = self.phase { Some(token) } else { None }
    }

    /// Ends it, if it has not ended.
    pub(crate) fn end(&mut self, reason: LostReason) {
        if !matches!(self.phase, VotePhase::Over(_)) {
            self.phase = VotePhase::Over(reason);
        }
    }

    /// Why it has ended, if it has at `now`.
    pub(crate) fn over(&mut self, now: Moment) -> Option<LostReason> {
        self.expire(now);
        let VotePhase::Over(reason) = self.phase else { return None };
        Some(reason)
    }

    /// redis.quorum-1, redis.quorum-2: until when the hold can be trusted, if a quorum has confirmed it.
    pub(crate) fn deadline(&self) -> Option<Deadline> {
        let token = self.token()?;
        let confirmed = self.members.iter().flat_map(|member| &member.vote).filter(|vote| vote.n >= token);
        let mut sent: Vec<_> = confirmed.map(|vote| vote.sent_at).collect();
        sent.sort_unstable_by(|a, b| b.cmp(a));
        let sent_at = sent.get(self.terms.size.quorum - 1);
        let leased = sent_at.map(|at| Deadline::of_lease(*at, self.terms.ttl, self.terms.margin));
        match self.phase {
            VotePhase::Holding { until, .. } => leased.into_iter().chain([until]).max(),
            _ => leased,
        }
    }

    /// The number of a server's vote, if it counts: it is renewed by this (redis.quorum-3). A server that has still to
    /// confirm the token does not.
    pub(crate) fn number_at(&self, server: usize) -> Option<u64> {
        let n = self.members[server].vote.as_ref()?.n;
        self.token().is_none_or(|token| token <= n).then_some(n)
    }

    fn token(&self) -> Option<u64> {
        match self.phase {
            VotePhase::Elected { token } | VotePhase::Holding { token, .. } => Some(token),
            VotePhase::Contending | VotePhase::Over(_) => None,
        }
    }

    /// Whether a server may have a vote or a queue entry of this contender.
    pub(crate) fn may_be_at(&self, server: usize) -> bool {
        self.members[server].may_have
    }

    /// Whether the first request for the vote of a server is pending, and no other was sent: a vote that it has is the answer to
    /// this request.
    pub(crate) fn is_first_pending(&self, server: usize) -> bool {
        let MemberState { asked_at, vote, seen, .. } = &self.members[server];
        self.round == FIRST && asked_at.is_some() && vote.is_none() && *seen == Seen::Nothing
    }

    /// Whether it waits for its turn.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waits && self.phase == VotePhase::Contending
    }

    /// Whether a quorum has answered, with any vote or a pause, or sent a message since.
    pub(crate) fn has_quorum_of_answers(&self) -> bool {
        let heard = |member: &&MemberState| {
            member.vote.is_some() || matches!(member.seen, Seen::Held(_) | Seen::Abstains | Seen::Votes)
        };
        self.members.iter().filter(heard).count() >= self.terms.size.quorum
    }

    /// Whether a quorum still votes for the token.
    fn is_confirmed(&self, now: Moment) -> bool {
        let Terms { ttl, margin, size, .. } = self.terms;
        let VotePhase::Holding { token, .. } = self.phase else { return false };
        let lasts =
            |vote: &&Vote| token <= vote.n && !Deadline::of_lease(vote.sent_at, ttl, margin).has_passed(now);
        self.members.iter().filter_map(|member| member.vote.as_ref()).filter(lasts).count() >= size.quorum
    }

    fn lose(&mut self, now: Moment, server: usize) {
        let deadline = self.deadline();
        let member = &mut self.members[server];
        // It has answered: the next request is not the first.
        (member.vote, member.seen) = (None, Seen::Votes);
        if let (VotePhase::Holding { until, .. }, Some(deadline)) = (&mut self.phase, deadline) {
            // redis.quorum-3, redis.quorum-9
            (member.seen, member.due, *until) = (Seen::Lost(now), now + self.terms.poll, deadline);
            let lost = self.members.iter().filter(|member| matches!(member.seen, Seen::Lost(_))).count();
            if lost >= self.terms.size.blocking() {
                self.phase = VotePhase::Over(LostReason::Gone);
            }
        }
    }

    fn expire(&mut self, now: Moment) {
        match self.phase {
            VotePhase::Contending | VotePhase::Elected { .. } => {
                let Terms { ttl, margin, .. } = self.terms;
                for member in &mut self.members {
                    let over =
                        |vote: &mut Vote| Deadline::of_lease(vote.sent_at, ttl, margin).has_passed(now);
                    if member.vote.take_if(over).is_some() {
                        (member.seen, member.due) = (Seen::Votes, now);
                    }
                }
            }
            VotePhase::Holding { .. } if self.deadline().is_none_or(|deadline| deadline.has_passed(now)) => {
                self.phase = VotePhase::Over(LostReason::Expired);
            }
            VotePhase::Holding { .. } | VotePhase::Over(_) => {}
        }
    }
}

const FIRST: u64 = 1;
