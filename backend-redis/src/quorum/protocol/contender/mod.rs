//! One acquisition, from its first request for a vote to the end of its hold.

mod prospects;

use std::time::Duration;

use leasehold_core::LostReason;
use leasehold_core::clock::{Deadline, Moment};

use super::seat::{Seat, Seen, Vote};
use super::{Answer, Confirming, Errand, Step, Terms, Ticket};

/// One owner's votes at the servers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Contender {
    terms: Terms,
    ticket: Ticket,
    /// Whether it waits for its turn.
    waits: bool,
    round: u64,
    phase: Phase,
    seats: Vec<Seat>,
    /// Servers were asked, and may still make a quorum.
    is_asking: bool,
    poll_at: Option<Moment>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
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
            round: 1,
            phase: Phase::Contending,
            seats: vec![Seat::new(); terms.size.servers],
            is_asking: false,
            poll_at: None,
        }
    }

    /// The requests to send at `now`; each is answered once.
    pub(crate) fn errands(&mut self, now: Moment) -> Vec<(usize, Errand)> {
        self.expire(now);
        let mut errands = Vec::new();
        let votes = self.votes();
        match self.phase {
            Phase::Contending if votes >= self.terms.size.quorum => {
                let token = self.seats.iter().filter_map(|seat| Some(seat.vote.as_ref()?.n)).max();
                self.phase = Phase::Elected { token: token.unwrap_or_default() };
                self.is_asking = false;
            }
            Phase::Contending => self.contend(now, &mut errands),
            // Some votes were lost before the token was everywhere.
            Phase::Elected { .. } if votes < self.terms.size.quorum => self.give_back(now, &mut errands),
            Phase::Elected { .. } | Phase::Holding { .. } | Phase::Over(_) => {}
        }
        if let Some(token) = self.token() {
            self.confirm(now, token, &mut errands);
            self.recruit(now, &mut errands);
        }
        errands
    }

    /// redis.quorum-7: asks those that have not voted yet, and redis.quorum-10.
    fn recruit(&mut self, now: Moment, errands: &mut Vec<(usize, Errand)>) {
        let is_safe = self.is_confirmed(now);
        for (server, seat) in self.seats.iter_mut().enumerate() {
            let may_vote = seat.vote.is_none() && (is_safe || !matches!(seat.seen, Seen::Lost(_)));
            if may_vote && seat.asked_at.is_none() && seat.due <= now {
                errands.push((server, seat.ask(now, self.round, self.waits)));
            }
        }
    }

    fn contend(&mut self, now: Moment, errands: &mut Vec<(usize, Errand)>) {
        if self.is_asking && self.votes() + self.hopes(now) < self.terms.size.quorum {
            self.is_asking = false;
            let is_held = self.is_held();
            // redis.quorum-5
            if self.comes_later() {
                self.give_back(now, errands);
            }
            // Others return split votes; a holder releases its votes, or its lease ends.
            self.poll_at = (!is_held).then(|| now + self.terms.poll);
        }
        if !self.is_asking && self.is_due(now) {
            self.ask(now, errands);
        }
    }

    fn ask(&mut self, now: Moment, errands: &mut Vec<(usize, Errand)>) {
        (self.is_asking, self.poll_at) = (true, None);
        let fresh = self.terms.ttl / 3;
        for (server, seat) in self.seats.iter_mut().enumerate() {
            let is_fresh = seat.vote.as_ref().is_some_and(|vote| now < vote.sent_at + fresh);
            if seat.asked_at.is_none() && !is_fresh {
                errands.push((server, seat.ask(now, self.round, self.waits)));
            }
        }
    }

    /// redis.quorum-4: nothing of this round counts from here on.
    fn give_back(&mut self, now: Moment, errands: &mut Vec<(usize, Errand)>) {
        for (server, seat) in self.seats.iter_mut().enumerate() {
            if seat.vote.take().is_some() || seat.asked_at.is_some() {
                errands.push((server, Errand::GiveBack { round: self.round }));
                (seat.seen, seat.due) = (Seen::Nothing, now + self.terms.poll);
            }
        }
        self.round += 1;
        (self.phase, self.is_asking, self.poll_at) = (Phase::Contending, false, Some(now + self.terms.poll));
    }

    fn confirm(&mut self, now: Moment, token: u64, errands: &mut Vec<(usize, Errand)>) {
        for (server, seat) in self.seats.iter_mut().enumerate() {
            if let Some(vote) = &mut seat.vote
                && vote.n < token
                && !vote.is_confirming
                && seat.due <= now
            {
                vote.is_confirming = true;
                let confirming = Confirming { round: self.round, n: vote.n, token };
                errands.push((server, Errand::Confirm(confirming)));
            }
        }
    }

    /// The caller's next step at `now`, after the requests.
    pub(crate) fn step(&mut self, now: Moment) -> Step {
        self.expire(now);
        match self.phase {
            Phase::Over(reason) => Step::Over(reason),
            Phase::Elected { token } | Phase::Holding { token, .. } => match self.deadline() {
                Some(deadline) if !deadline.has_passed(now) => {
                    self.phase = Phase::Holding { token, until: deadline };
                    Step::Take { token, deadline }
                }
                _ => Step::Wait(self.next(now)),
            },
            Phase::Contending if self.is_asking => Step::Wait(self.next(now)),
            Phase::Contending if !self.waits && self.is_held() => Step::Busy,
            Phase::Contending if self.is_unreachable(now, self.terms.poll) => Step::Unreachable,
            // Of those that are still to answer, so many may fail that there is no quorum.
            Phase::Contending
                if !self.waits && self.comes_later() && !self.is_unreachable(now, Duration::ZERO) =>
            {
                Step::Busy
            }
            Phase::Contending => Step::Wait(self.next(now)),
        }
    }

    /// The request for a vote in `round` that was sent at `sent_at` was answered.
    pub(crate) fn answered(
        &mut self,
        now: Moment,
        server: usize,
        (round, sent_at): (u64, Moment),
        answer: Answer,
    ) {
        self.expire(now);
        let is_short = self.votes() < self.terms.size.quorum;
        let is_safe = self.is_confirmed(now);
        let (present, seat) = (self.round, &mut self.seats[server]);
        let (_, is_freed) = (seat.asked_at.take(), std::mem::take(&mut seat.freed));
        let lost_at = if let Seen::Lost(at) = seat.seen { Some(at) } else { None };
        // redis.quorum-10
        let is_lost = lost_at.is_some_and(|at| sent_at <= at || !is_safe);
        // redis.quorum-3, redis.quorum-4
        if round != present || is_lost || matches!(self.phase, Phase::Over(_)) {
            // A pause concerns every round.
            if matches!((answer, seat.seen), (Answer::Abstains { .. }, Seen::Nothing)) {
                seat.seen = Seen::Abstains;
            }
            return;
        }
        let counts = |token| seat.vote.as_ref().is_some_and(|vote| token <= vote.n);
        match answer {
            Answer::Voted { n } => self.voted(now, server, Vote { n, sent_at, is_confirming: false }),
            // It stays lost until it votes.
            Answer::Held { ask_in, .. } | Answer::Abstains { ask_in } if lost_at.is_some() => {
                seat.due = now + ask_in.min(self.terms.ttl / 3);
            }
            // redis.quorum-3
            _ if matches!(self.phase, Phase::Holding { token, .. } if counts(token)) => {
                self.lose(now, server);
            }
            // The message may have overtaken this answer.
            Answer::Held { .. } if is_freed => {
                seat.refused(Seen::Nothing, now, self.waits);
                self.ask_soon(now);
            }
            Answer::Held { by, ask_in } => {
                let most = match self.phase {
                    // A waiter that has it returns it soon.
                    Phase::Holding { .. } if is_short => self.terms.poll,
                    _ => self.terms.ttl / 3,
                };
                seat.refused(Seen::Held(by), now + ask_in.min(most), self.waits);
            }
            Answer::Abstains { ask_in } => {
                seat.refused(Seen::Abstains, now + ask_in.min(self.terms.ttl / 3), self.waits);
            }
        }
    }

    fn voted(&mut self, now: Moment, server: usize, given: Vote) {
        let seat = &mut self.seats[server];
        match (&mut seat.vote, self.phase) {
            // The same one, which was asked for again.
            (Some(vote), _) if given.n <= vote.n => vote.sent_at = vote.sent_at.max(given.sent_at),
            // redis.quorum-3
            (Some(vote), Phase::Holding { token, .. }) if token <= vote.n => return self.lose(now, server),
            _ => {
                if let Phase::Elected { token } = &mut self.phase {
                    // redis.quorum-8
                    *token = given.n.max(*token);
                }
                seat.vote = Some(given);
            }
        }
        (seat.seen, seat.due) = (Seen::Nothing, now);
    }

    /// A request for a vote was not sent after all.
    pub(crate) fn unsent(&mut self, server: usize) {
        self.seats[server].asked_at = None;
    }

    /// A request for a vote had no answer, or an error.
    pub(crate) fn failed(&mut self, now: Moment, server: usize) {
        let seat = &mut self.seats[server];
        seat.asked_at = None;
        seat.due = now + self.terms.poll;
        if !matches!(seat.seen, Seen::Lost(_)) {
            seat.seen = Seen::Failed;
        }
    }

    /// Whether the vote was still ours when the token was written, as was asked at `sent_at`; `None` without an answer.
    pub(crate) fn confirmed(
        &mut self,
        now: Moment,
        server: usize,
        (Confirming { round, n, token }, sent_at): (Confirming, Moment),
        kept: Option<bool>,
    ) {
        self.expire(now);
        let is_present = self.token().is_some() && round == self.round;
        let vote = self.seats[server].vote.as_mut().filter(|vote| is_present && vote.n == n);
        let Some(vote) = vote else { return };
        match kept {
            Some(true) => {
                (vote.n, vote.is_confirming) = (n.max(token), false);
                vote.sent_at = vote.sent_at.max(sent_at);
            }
            Some(false) => self.lose(now, server),
            None => {
                vote.is_confirming = false;
                self.seats[server].due = now + self.terms.poll;
            }
        }
    }

    /// Whether a server still had the vote of a hold that was renewed at `sent_at`.
    pub(crate) fn renewed(&mut self, now: Moment, server: usize, sent_at: Moment, kept: bool) {
        self.expire(now);
        let Phase::Holding { .. } = self.phase else { return };
        match &mut self.seats[server].vote {
            Some(vote) if kept => vote.sent_at = vote.sent_at.max(sent_at),
            Some(_) => self.lose(now, server),
            // redis.quorum-3
            None => {}
        }
    }

    /// A message says that a server votes again.
    pub(crate) fn freed(&mut self, now: Moment, server: usize) {
        let seat = &mut self.seats[server];
        if !matches!(self.phase, Phase::Contending | Phase::Elected { .. }) || seat.vote.is_some() {
            return;
        }
        // RACE: the pending answer may have been written before.
        seat.freed = seat.asked_at.is_some();
        (seat.seen, seat.due) = (Seen::Nothing, now);
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
        if let Phase::Holding { token, .. } = self.phase { Some(token) } else { None }
    }

    /// Ends it, if it has not ended.
    pub(crate) fn end(&mut self, reason: LostReason) {
        if !matches!(self.phase, Phase::Over(_)) {
            self.phase = Phase::Over(reason);
        }
    }

    /// Why it has ended, if it has at `now`.
    pub(crate) fn over(&mut self, now: Moment) -> Option<LostReason> {
        self.expire(now);
        let Phase::Over(reason) = self.phase else { return None };
        Some(reason)
    }

    /// redis.quorum-1, redis.quorum-2: until when the hold can be trusted, if a quorum has confirmed it.
    pub(crate) fn deadline(&self) -> Option<Deadline> {
        let token = self.token()?;
        let confirmed = self.seats.iter().flat_map(|seat| &seat.vote).filter(|vote| vote.n >= token);
        let mut sent: Vec<_> = confirmed.map(|vote| vote.sent_at).collect();
        sent.sort_unstable_by(|a, b| b.cmp(a));
        let sent_at = sent.get(self.terms.size.quorum - 1);
        let leased = sent_at.map(|at| Deadline::of_lease(*at, self.terms.ttl, self.terms.margin));
        match self.phase {
            Phase::Holding { until, .. } => leased.into_iter().chain([until]).max(),
            _ => leased,
        }
    }

    /// The round of the votes that count.
    pub(crate) fn round(&self) -> u64 {
        self.round
    }

    /// The number of a server's vote, if it counts: what it is renewed by (redis.quorum-3). One that has still to confirm
    /// the token does not.
    pub(crate) fn number_at(&self, server: usize) -> Option<u64> {
        let n = self.seats[server].vote.as_ref()?.n;
        self.token().is_none_or(|token| token <= n).then_some(n)
    }

    fn token(&self) -> Option<u64> {
        match self.phase {
            Phase::Elected { token } | Phase::Holding { token, .. } => Some(token),
            Phase::Contending | Phase::Over(_) => None,
        }
    }

    /// Whether a server may have a vote or a queue entry of this contender.
    pub(crate) fn may_be_at(&self, server: usize) -> bool {
        self.seats[server].may_have
    }

    /// Whether it waits for its turn.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waits && self.phase == Phase::Contending
    }

    /// Whether a quorum has answered, with any vote or a pause.
    pub(crate) fn has_heard_a_quorum(&self) -> bool {
        let heard = |seat: &&Seat| seat.vote.is_some() || matches!(seat.seen, Seen::Held(_) | Seen::Abstains);
        self.seats.iter().filter(heard).count() >= self.terms.size.quorum
    }

    /// Whether a quorum still votes for the token.
    fn is_confirmed(&self, now: Moment) -> bool {
        let Terms { ttl, margin, size, .. } = self.terms;
        let Phase::Holding { token, .. } = self.phase else { return false };
        let lasts =
            |vote: &&Vote| token <= vote.n && !Deadline::of_lease(vote.sent_at, ttl, margin).has_passed(now);
        self.seats.iter().filter_map(|seat| seat.vote.as_ref()).filter(lasts).count() >= size.quorum
    }

    fn lose(&mut self, now: Moment, server: usize) {
        let deadline = self.deadline();
        let seat = &mut self.seats[server];
        seat.vote = None;
        if let (Phase::Holding { until, .. }, Some(deadline)) = (&mut self.phase, deadline) {
            // redis.quorum-3, redis.quorum-9
            (seat.seen, seat.due, *until) = (Seen::Lost(now), now + self.terms.poll, deadline);
            let lost = self.seats.iter().filter(|seat| matches!(seat.seen, Seen::Lost(_))).count();
            if lost >= self.terms.size.blocking() {
                self.phase = Phase::Over(LostReason::Gone);
            }
        }
    }

    fn expire(&mut self, now: Moment) {
        match self.phase {
            Phase::Contending | Phase::Elected { .. } => {
                let Terms { ttl, margin, .. } = self.terms;
                for seat in &mut self.seats {
                    let over =
                        |vote: &mut Vote| Deadline::of_lease(vote.sent_at, ttl, margin).has_passed(now);
                    if seat.vote.take_if(over).is_some() {
                        (seat.seen, seat.due) = (Seen::Nothing, now);
                    }
                }
            }
            Phase::Holding { .. } if self.deadline().is_none_or(|deadline| deadline.has_passed(now)) => {
                self.phase = Phase::Over(LostReason::Expired);
            }
            Phase::Holding { .. } | Phase::Over(_) => {}
        }
    }
}
