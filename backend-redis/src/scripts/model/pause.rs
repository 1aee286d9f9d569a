//! The scripts of a server that may have forgotten holders: it has restarted, or was promoted.

use super::{Entry, Fault, First, Message, Owner, Server};

/// What a server tells of itself: its process, and an id that each promotion draws anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reign {
    pub(crate) run: u64,
    pub(crate) replid: u64,
}

/// The reign in which the key was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) reign: Reign,
    /// When a manager first connected to it, in microseconds.
    pub(crate) since: u64,
}

impl Origin {
    /// A manager connects to that reign, where `known` is written; returns since when the reign is known, which is `since` if
    /// nothing is written of it.
    pub(crate) fn admit(known: &mut Option<Self>, reign: Reign, now: u64, since: u64) -> u64 {
        let written = known.filter(|known| known.reign == reign && known.since <= now);
        known.insert(written.unwrap_or(Self { reign, since })).since
    }
}

impl Server {
    /// For how many milliseconds nothing is granted.
    pub(super) fn pause(&self, now: u64) -> Option<u64> {
        let left = self.over.paused_until?.saturating_sub(now).div_ceil(1000);
        (left > 0).then_some(left)
    }

    /// Whether the lock of `owner` is not renewed: its lease may end at the primary before, which may grant the lock to another.
    pub(super) fn is_short(&self, now: u64, owner: Owner) -> bool {
        let left = match self.lock {
            Some((holder, until)) if holder == owner => until.saturating_sub(now / 1000).saturating_mul(1000),
            _ if !self.has_share(now, owner) || !self.shares.grants.contains_key(&owner) => return false,
            _ => self.shares.holders[&owner] - now,
        };
        left < self.over.lag_until.saturating_sub(now) && self.fault != Fault::RenewsInLag
    }

    /// The holder releases while nothing is granted: the first waiter gets a message when that is over.
    pub(super) fn free_for_a_while(&mut self, now: u64, left: u64, pushes: &mut Vec<Message>) {
        self.free(now, pushes);
        self.revoked = None;
        self.forget_empty_keys();
        if let First::Is(owner) = self.first_live(now) {
            let Entry { client, .. } = self.entries[&owner];
            pushes.push(Message::Due { client, owner, ask_in: left });
        }
    }
}
