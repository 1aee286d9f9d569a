//! What a contender knows of one server.

use leasehold_core::clock::Moment;

use super::{Errand, Ticket};

/// What is known of one server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Seat {
    /// When it was asked for its vote, while there is no answer, of whatever round.
    pub(super) asked_at: Option<Moment>,
    pub(super) vote: Option<Vote>,
    pub(super) seen: Seen,
    /// It may have something of ours.
    pub(super) may_have: bool,
    /// It said that it votes again, while it was being asked: its answer may be older.
    pub(super) freed: bool,
    /// From when on asking it makes sense.
    pub(super) due: Moment,
}

/// A vote for us, of the present round.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Vote {
    pub(super) n: u64,
    pub(super) sent_at: Moment,
    pub(super) is_confirming: bool,
}

impl Seat {
    /// Of a server that was asked for nothing.
    pub(super) fn new() -> Self {
        let due = Moment::from_nanos(0);
        Self { asked_at: None, vote: None, seen: Seen::Nothing, may_have: false, freed: false, due }
    }

    /// It is asked for its vote, by one that waits or does not.
    pub(super) fn ask(&mut self, now: Moment, round: u64, waits: bool) -> Errand {
        let again = waits && self.may_have;
        (self.asked_at, self.may_have, self.freed) = (Some(now), true, false);
        Errand::Vote { round, again }
    }

    pub(super) fn refused(&mut self, seen: Seen, due: Moment, waits: bool) {
        // Who waits has a place there.
        (self.vote, self.may_have) = (None, waits);
        (self.seen, self.due) = (seen, due);
    }
}

/// Why a server has not voted for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Seen {
    Nothing,
    Held(Ticket),
    Abstains,
    /// It does not answer, or refuses.
    Failed,
    /// It had, until then, and may have voted for others since.
    Lost(Moment),
}
