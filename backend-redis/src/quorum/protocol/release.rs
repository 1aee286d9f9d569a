//! When a lock is let go, as the servers answer one by one.
//!
//! # Invariants
//! - **redis.quorum.release-1** It is let go once a quorum has answered: each of these has no vote of ours any more, so others
//!   find a quorum (G4). That it was held is said unless too few of its servers had the vote.

use super::Size;

/// What the answers to a release mean so far.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Releasing {
    size: Size,
    /// Whether the server was one of the hold's.
    was_ours: Vec<bool>,
    /// Whether it had the vote.
    had: Vec<Option<bool>>,
    failed: usize,
}

/// What a release has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    /// Nothing yet.
    Open,
    Released,
    /// The hold was over before.
    Lost,
    /// Too few have answered.
    Unconfirmed,
}

impl Releasing {
    /// A hold of the servers that `was_ours` says, or one of which nothing is known.
    pub(crate) fn new(size: Size, was_ours: Option<Vec<bool>>) -> Self {
        let was_ours = was_ours.unwrap_or_else(|| vec![true; size.servers]);
        Self { size, was_ours, had: vec![None; size.servers], failed: 0 }
    }

    pub(crate) fn answered(&mut self, server: usize, had: bool) -> Outcome {
        self.had[server] = Some(had);
        self.outcome()
    }

    /// A server does not answer in time.
    pub(crate) fn failed(&mut self) -> Outcome {
        self.failed += 1;
        self.outcome()
    }

    /// Who has not answered by now is not waited for.
    pub(crate) fn given_up(&mut self) -> Outcome {
        self.failed = self.had.iter().filter(|had| had.is_none()).count();
        self.outcome()
    }

    /// What the answers so far mean.
    pub(crate) fn outcome(&self) -> Outcome {
        let answered = self.had.iter().flatten().count();
        let had = self.had.iter().flatten().filter(|had| **had).count();
        let ours = self.was_ours.iter().filter(|ours| **ours).count();
        // redis.quorum-9: fewer are a hold, too, until its deadline.
        let ours = ours.max(self.size.quorum);
        let pairs = self.had.iter().zip(&self.was_ours);
        let lost = pairs.filter(|(had, ours)| **had == Some(false) && **ours).count();
        let is_last = answered + self.failed == self.size.servers;
        if answered >= self.size.quorum && lost + self.size.quorum > ours {
            Outcome::Lost
        } else if answered >= self.size.quorum && (lost == 0 || had >= self.size.quorum || is_last) {
            Outcome::Released
        } else if is_last {
            Outcome::Unconfirmed
        } else {
            Outcome::Open
        }
    }
}
