//! A contender's state at one server.

use leasehold_core::clock::Moment;

use super::{Ticket, VoteRequest};

/// The state of one server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct MemberState {
    /// When its vote was requested, while no answer has arrived, in any round.
    pub(super) asked_at: Option<Moment>,
    pub(super) vote: Option<Vote>,
    pub(super) seen: Seen,
    /// It may have a vote or a queue entry of this contender.
    pub(super) may_have: bool,
    /// A message announced that it votes again while a request was pending, whose answer may be older.
    pub(super) freed: bool,
    /// When the next request may be sent.
    pub(super) due: Moment,
}

/// A vote for the contender, of the present round.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Vote {
    pub(super) n: u64,
    pub(super) sent_at: Moment,
    pub(super) is_confirming: bool,
}

impl MemberState {
    pub(super) fn new() -> Self {
        let due = Moment::from_nanos(0);
        Self { asked_at: None, vote: None, seen: Seen::Nothing, may_have: false, freed: false, due }
    }

    /// Requests its vote.
    pub(super) fn ask(&mut self, now: Moment, round: u64, waits: bool) -> VoteRequest {
        let again = waits && self.may_have;
        (self.asked_at, self.may_have, self.freed) = (Some(now), true, false);
        VoteRequest::Vote { round, again }
    }

    pub(super) fn refused(&mut self, seen: Seen, due: Moment, waits: bool) {
        // A waiter has an entry in its queue.
        (self.vote, self.may_have) = (None, waits);
        (self.seen, self.due) = (seen, due);
    }
}

/// Why a server has not voted for the contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Seen {
    Nothing,
    Held(Ticket),
    Abstains,
    /// It has said by a vote that is over, or by a message, that it votes.
    Votes,
    /// It does not answer, or refuses.
    Failed,
    /// It lost the vote then, and may have voted for others since.
    Lost(Moment),
}
