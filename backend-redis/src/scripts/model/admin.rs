//! What the scripts do for administrators.

use super::{ENDLESS, Granted, Message, Server};

/// Of each holder that was found, under which counter it holds, if it is ours, and how long its lease lasts; and whether the
/// lock is free before more ended entries.
pub(super) type Found = (Vec<(Option<u64>, Option<u64>)>, bool);

impl Server {
    /// Asks with a grace, or forces without one.
    pub(crate) fn revoke(&mut self, now: u64, mut grace: Option<u64>, pushes: &mut Vec<Message>) -> Found {
        self.begin(now);
        self.purge(now);
        if self.is_shared() {
            return self.revoke_shares(now, grace, pushes);
        }
        let Some((holder, until)) = self.lock else {
            self.settle(now, pushes);
            return Default::default();
        };
        let left = (until != ENDLESS).then(|| until - now / 1000);
        let granted = self.grant.filter(|grant| grant.owner == holder);
        let mut unswept = false;
        if let Some(asked) = &mut grace {
            if self.poll().is_none() {
                let noted = self.revoked.filter(|(asked, _)| *asked == holder);
                *asked = noted.map_or(*asked, |(_, noted)| noted.min(*asked));
                self.revoked = Some((holder, *asked));
                self.entries_until = self.entries_until.max(now / 1000 + left.unwrap_or(1).max(1));
            }
        } else {
            unswept = self.let_go(now, pushes);
        }
        if let Some(Granted { client, .. }) = granted {
            pushes.push(Message::Revoked { client, owner: holder, grace: grace.unwrap_or(0) });
        }
        (vec![(granted.map(|grant| grant.counter), left)], unswept)
    }

    /// How many wait, and under which counter each holds, if it is ours.
    pub(crate) fn inspect(&mut self, now: u64) -> (usize, Vec<Option<u64>>) {
        self.expire(now);
        let live = self.queue.iter().filter(|(owner, _)| self.live_until(*owner) > now).count();
        if self.is_shared() {
            return (live, self.shares_at(now));
        }
        let granted = self.grant.filter(|grant| self.is_held_by(grant.owner));
        (live, self.lock.iter().map(|_| granted.map(|grant| grant.counter)).collect())
    }
}
