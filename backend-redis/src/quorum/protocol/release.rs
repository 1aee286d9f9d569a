//! When a lock is released, as the servers answer one by one.
//!
//! # Invariants
//! - **redis.quorum.release-1** It is released once a quorum has answered: none of these has its vote any more, so others
//!   find a quorum (G4). It was held unless too few of its servers had the vote.

use super::Size;

/// The answers to a release so far.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Releasing {
    size: Size,
    /// Whether the server was one of the hold's.
    was_ours: Vec<bool>,
    /// Whether it had the vote.
    had: Vec<Option<bool>>,
    /// How many have neither answered nor failed.
    pending: usize,
}

/// The outcome of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    Open,
    Released,
    /// The hold was lost before.
    Lost,
    /// Too few servers have answered.
    Unconfirmed,
}

impl Releasing {
    /// Of a hold whose servers are known, or not.
    pub(crate) fn new(size: Size, was_ours: Option<Vec<bool>>) -> Self {
        let was_ours = was_ours.unwrap_or_else(|| vec![true; size.servers]);
        Self { size, was_ours, had: vec![None; size.servers], pending: size.servers }
    }

    /// Whether a server had the vote; `None` if it does not answer in time.
    pub(crate) fn answered(&mut self, server: usize, had: Option<bool>) {
        self.had[server] = had;
        self.pending -= 1;
    }

    /// The outcome by the answers so far; `is_late` if no more are waited for.
    pub(crate) fn outcome(&self, is_late: bool) -> Outcome {
        let answered = self.had.iter().flatten().count();
        let had = self.had.iter().flatten().filter(|had| **had).count();
        let ours = self.was_ours.iter().filter(|ours| **ours).count();
        // redis.quorum-9: fewer are a hold, too, until its deadline.
        let ours = ours.max(self.size.quorum);
        let pairs = self.had.iter().zip(&self.was_ours);
        let lost = pairs.filter(|(had, ours)| **had == Some(false) && **ours).count();
        let is_last = is_late || self.pending == 0;
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
