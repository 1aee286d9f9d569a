//! One acquisition at several independent servers, as a pure state machine: answers, messages and the time go in, the next
//! requests come out.
//!
//! A contender requests every server's vote, and holds once a quorum has confirmed one token. A server votes for one owner at a
//! time, for as long as a lease, and counts each vote: its number is above all it has counted. The token is the largest number
//! of a quorum's votes, written to each of them while they are the contender's; any two quorums share a server, so the next
//! one's votes are above it, whatever clocks do. If votes split, the later contenders return theirs. `recovery` decides when a
//! server that may have forgotten votes again, `release` when a lock is released, and `proposal_bound` which number to propose
//! so that servers agree at once.
//!
//! # Invariants
//! - **redis.quorum-1** A hold needs a quorum of servers that have confirmed its token while they had its vote (G1, G3).
//! - **redis.quorum-2** Its deadline is that of the quorum's last lease: of all confirmed, the q-th to end, counted from
//!   the sending of the request (G2).
//! - **redis.quorum-3** A server that has lost the vote of a hold no longer belongs to it, whatever it answers to earlier
//!   requests: it may have voted for others in between (G1, G3). A late request may bring back the vote with a larger number,
//!   which renewing compares. Confirming accepts one that is no larger than the token: any vote in between had a smaller one.
//! - **redis.quorum-4** Votes that were returned are of an earlier round. A server keeps the latest round of an owner, and
//!   a release names its round: a late request neither ends a vote that was counted nor counts (G1).
//! - **redis.quorum-5** Of contenders that share the votes, all but the first return theirs as soon as they see an earlier
//!   one (G6).
//! - **redis.quorum-6** Servers that are silent for a moment are not waited for.
//! - **redis.quorum-7** A contender that is elected or holds requests the votes of servers that have not voted, so that it
//!   outlasts the loss of some that have. As it holds meanwhile, no other was elected in between.
//! - **redis.quorum-8** Until the lock is acquired, no vote counts whose number is above the token: a larger one becomes the
//!   token, and is confirmed (G3).
//! - **redis.quorum-9** A hold that has lost a server lasts until the deadline that it had, while the others may make it a
//!   quorum again: a server that has forgotten its vote pauses for as long. It is lost once they cannot.
//! - **redis.quorum-10** The vote of a server that has lost that of a hold is requested again while a quorum of the others
//!   confirms the token, at the request and at the answer: so no other was elected in between, and the hold outlasts the next
//!   loss.
//! - **redis.quorum-11** A try that finds split votes while a server is silent requests them once more before it is busy: the
//!   earlier contender may be a lock that was just released, whose vote one server still counts.
//!
//! Not promised: an order among contenders; that a ticket is right, which costs a turn and no more. Checked by
//! `protocol/tests`, against a model of the servers.

mod contender;
mod member_state;
mod proposal_bound;
mod recovery;
mod release;

use std::time::Duration;

use leasehold_core::clock::Deadline;
use leasehold_core::{LostReason, OwnerId};

pub(crate) use self::contender::Contender;
pub(crate) use self::proposal_bound::ProposalBound;
pub(crate) use self::recovery::{
    Blank, Clock, Met, Recovered, Standing, look_again, met, pause_left, recovered, who_differs,
};
pub(crate) use self::release::{Outcome, Releasing};

/// How many servers there are, and how many make a quorum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Size {
    pub(crate) servers: usize,
    pub(crate) quorum: usize,
}

impl Size {
    /// A quorum is a majority at least, or there are none.
    pub(crate) const fn majority(servers: usize) -> usize {
        servers / 2 + 1
    }

    /// So many servers that every quorum has one of them.
    pub(crate) const fn blocking(self) -> usize {
        self.servers - self.quorum + 1
    }
}

/// The parameters of an acquisition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Terms {
    pub(crate) size: Size,
    pub(crate) ttl: Duration,
    pub(crate) margin: Duration,
    /// How long a silent server is waited for, and the pause before split votes are requested again.
    pub(crate) poll: Duration,
}

/// The order of contenders: the smaller goes first. The time only makes it fair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ticket {
    /// By the servers' clocks, in microseconds.
    pub(crate) time: u64,
    pub(crate) owner: OwnerId,
}

/// A request to one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum VoteRequest {
    /// Its vote; `again` if the contender may have a place in the server's queue.
    Vote { round: u64, again: bool },
    /// Write the token, if the vote is still this owner's.
    Confirm(Confirming),
    /// Returns votes up to that round.
    Return { round: u64 },
}

/// The vote of a round, as the server's n-th, is to become that of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Confirming {
    pub(crate) round: u64,
    pub(crate) n: u64,
    pub(crate) token: u64,
}

/// A server's answer to a request for its vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum VoteReply {
    /// It has voted for the contender, with that number.
    Voted { n: u64 },
    /// It has voted for another; when that may have ended without a message.
    Held { by: Ticket, ask_in: Duration },
    /// It may have forgotten votes, and gives none for so long.
    Abstains { ask_in: Duration },
}

/// The next step of an acquisition's caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// Wait for an answer, a message or that moment; then there may be requests.
    Wait(leasehold_core::clock::Moment),
    /// The lock is acquired.
    Take { token: u64, deadline: Deadline },
    /// Another has the lock, or comes first.
    Busy,
    /// Too many servers do not vote.
    Unreachable,
    /// It has ended, and all that it had is to be released.
    Over(LostReason),
}

#[cfg(test)]
mod tests;
