//! What the scripts do where several hold a lock together.

use std::collections::BTreeMap;

use leasehold_core::backend::{Load, Mode};

use super::admin::Found;
use super::{Asker, DAY, Fault, Message, Owner, Server};
use crate::protocol::ScriptReply;

/// The holder of a shared lock.
pub(crate) const MANY: Owner = Owner::MAX;

/// What is kept of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shares {
    /// Until when each holds, in microseconds.
    pub(crate) holders: BTreeMap<Owner, u64>,
    pub(crate) holders_until: u64,
    /// Of holders, and of former ones.
    pub(crate) grants: BTreeMap<Owner, Share>,
    /// With which grace.
    pub(crate) asked: BTreeMap<Owner, u64>,
    /// What all weigh, the smallest capacity, and whether that may be larger.
    pub(crate) load: Option<(u64, u32, bool)>,
}

/// One grant of several.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    pub(crate) mode: Mode,
    pub(crate) counter: u64,
    pub(crate) since: u64,
    pub(crate) client: usize,
}

impl Server {
    pub(super) fn is_shared(&self) -> bool {
        self.is_held_by(MANY)
    }

    /// In the order in which their leases end.
    pub(crate) fn sharers(&self) -> Vec<Owner> {
        let mut sharers: Vec<_> = self.shares.holders.iter().map(|(owner, until)| (*until, *owner)).collect();
        sharers.sort_unstable();
        sharers.into_iter().map(|(_, owner)| owner).collect()
    }

    pub(super) fn has_share(&self, now: u64, owner: Owner) -> bool {
        self.is_shared() && self.shares.holders.get(&owner).is_some_and(|until| *until > now)
    }

    /// Whether it holds, before a script removes shares that have ended.
    pub(crate) fn holds_at(&self, now: u64, owner: Owner) -> bool {
        self.is_held_by(owner) || self.has_share(now, owner)
    }

    pub(super) fn expire_shares(&mut self, now_millis: u64) {
        if self.shares.holders_until < now_millis {
            self.shares.holders.clear();
        }
        if self.shares.holders.is_empty() {
            self.shares.holders_until = 0;
        }
    }

    pub(super) fn forget_shares(&mut self) {
        let Shares { holders, holders_until, .. } = std::mem::take(&mut self.shares);
        self.shares = Shares { holders, holders_until, ..Shares::default() };
    }

    pub(super) fn notes_shares(&self) -> bool {
        let Shares { grants, asked, load, .. } = &self.shares;
        !grants.is_empty() || !asked.is_empty() || load.is_some()
    }

    fn lasts(&mut self, now: u64, millis: u64) {
        let until = now / 1000 + millis;
        self.shares.holders_until = self.shares.holders_until.max(until + millis);
        self.entries_until = self.entries_until.max(until);
    }

    fn load(&mut self, now: u64) -> (u64, u32, bool) {
        self.shares.load.unwrap_or_else(|| self.weigh(now))
    }

    fn weigh(&mut self, now: u64) -> (u64, u32, bool) {
        let Shares { holders, grants, .. } = &self.shares;
        let modes = holders.keys().map(|owner| grants.get(owner).map_or(Mode::EXCLUSIVE, |share| share.mode));
        let (weight, capacity) = modes.fold((0, u32::MAX), |(weight, capacity), mode| {
            (weight + u64::from(mode.weight()), mode.capacity().min(capacity))
        });
        self.shares.load = Some((weight, capacity, false));
        if let Some((_, until)) = self.lock {
            self.entries_until = self.entries_until.max(until.max(now / 1000 + 1));
        }
        (weight, capacity, false)
    }

    pub(super) fn fits(&mut self, now: u64, mode: Mode) -> bool {
        if self.lock.is_none() || !self.is_shared() {
            return self.lock.is_none();
        }
        if self.joins_pause(now) {
            return false;
        }
        let (mut held, mut most, unsure) = self.load(now);
        let weighs = u64::from(mode.weight());
        if self.fault == Fault::OwnCapacity {
            return held + weighs <= u64::from(mode.capacity());
        }
        if unsure && held + weighs > u64::from(most) && held + weighs <= u64::from(mode.capacity()) {
            (held, most, _) = self.weigh(now);
        }
        held + weighs <= u64::from(most.min(mode.capacity()))
    }

    /// Whether no share is granted, because the lock may have holders that the server has forgotten.
    fn joins_pause(&self, now: u64) -> bool {
        let joins = self.fault == Fault::SharesInPause && self.is_shared();
        self.pause(now).is_some() && !joins
    }

    /// The caller has a share from now on, for its ttl.
    pub(super) fn join(&mut self, now: u64, Asker { owner, client, ttl, mode }: Asker, counter: u64) {
        let mut until = now + ttl * 1000;
        let weighs = u64::from(mode.weight());
        if self.is_shared() {
            let (held, most, unsure) = self.load(now);
            if self.fault == Fault::OneExpiry {
                until = self.shares.holders.values().copied().min().unwrap_or(until);
            }
            self.shares.load = Some((held + weighs, most.min(mode.capacity()), unsure));
        } else {
            self.forget();
            self.shares.load = Some((weighs, mode.capacity(), false));
            self.lock = Some((MANY, 0));
        }
        self.lock = self.lock.map(|(_, ends)| (MANY, ends.max(now / 1000 + ttl)));
        self.handed_on = false;
        self.shares.holders.insert(owner, until);
        self.shares.grants.insert(owner, Share { mode, counter, since: now, client });
        self.lasts(now, ttl);
    }

    fn part(&mut self, owner: Owner) {
        self.shares.holders.remove(&owner);
        let share = self.shares.grants.remove(&owner);
        self.shares.asked.remove(&owner);
        self.shares.load =
            self.shares.load.zip(share).and_then(|((held, most, unsure), Share { mode, .. })| {
                let left = held.checked_sub(u64::from(mode.weight())).filter(|left| *left > 0)?;
                Some((left, most, unsure || mode.capacity() <= most))
            });
        self.end_empty();
    }

    fn end_empty(&mut self) {
        if self.shares.holders.is_empty() {
            self.shares.holders_until = 0;
        }
        self.forget_empty_keys();
    }

    /// Shares end that were lost with the lock.
    fn forget(&mut self) {
        self.sharers().into_iter().for_each(|owner| self.part(owner));
        self.shares.load = None;
        self.end_empty();
    }

    /// The same, before a free lock goes to the first waiter.
    pub(super) fn forget_lost(&mut self) {
        if self.lock.is_none() && self.shares.load.is_some() {
            self.forget();
        }
    }

    /// Those end whose leases are over.
    pub(super) fn purge(&mut self, now: u64) {
        if !self.is_shared() {
            return;
        }
        let load = self.shares.load;
        for owner in self.sharers() {
            if self.left > 0 && self.shares.holders[&owner] <= now {
                self.part(owner);
                self.left -= 1;
            }
        }
        if self.fault == Fault::ExpiredStays {
            self.shares.load = load;
        }
        if self.shares.holders.is_empty() {
            (self.lock, self.shares.load) = (None, None);
            self.end_empty();
        }
    }

    pub(super) fn renew(&mut self, now: u64, Asker { owner, ttl, .. }: Asker) -> Option<u64> {
        let share = self.shares.grants.get(&owner).copied().filter(|_| self.has_share(now, owner))?;
        if self.is_short(now, owner) {
            return None;
        }
        let until = now + ttl * 1000;
        match self.fault {
            Fault::OneExpiry if self.shares.holders.len() > 1 => {}
            Fault::RenewsAll => self.shares.holders.values_mut().for_each(|its| *its = until),
            _ => _ = self.shares.holders.insert(owner, until),
        }
        self.lock = self.lock.map(|(many, ends)| (many, ends.max(now / 1000 + ttl)));
        self.lasts(now, ttl);
        Some(share.counter)
    }

    /// A counter that is held for a day is still known after it.
    pub(super) fn outlive(&mut self, now: u64, counter: u64, ttl: u64) {
        if let Some(grant) = self.grant.as_mut().filter(|_| now + 2000 * ttl > counter + 1000 * DAY) {
            grant.until = grant.until.max(now / 1000 + DAY);
        }
    }

    /// Ends the share of `owner`; whether it had one.
    pub(super) fn leave(&mut self, now: u64, owner: Owner) -> bool {
        let had = self.has_share(now, owner);
        if had && self.fault == Fault::ReleasesAll {
            self.sharers().into_iter().for_each(|owner| self.part(owner));
        } else if had {
            self.part(owner);
            if let Some(last) = self.shares.holders.values().max() {
                self.lock = Some((MANY, now / 1000 + last.saturating_sub(now).div_ceil(1000).max(1)));
            }
        }
        had
    }

    /// Takes a share, or queues for it.
    pub(super) fn share(
        &mut self,
        now: u64,
        asker: Asker,
        queues: bool,
        pushes: &mut Vec<Message>,
    ) -> ScriptReply {
        let Asker { owner, client, mode, .. } = asker;
        self.settle(now, pushes);
        if let Some(counter) = self.renew(now, asker) {
            return ScriptReply::Holds { counter };
        }
        let may_be_granted = !self.joins_pause(now);
        let is_next = self.queue.is_empty() || self.fault == Fault::Overtakes;
        if may_be_granted && is_next && self.fits(now, mode) {
            let counter = self.count(now, owner, client, true);
            self.join(now, asker, counter);
            return ScriptReply::Holds { counter };
        }
        self.enqueue(now, asker, queues)
    }

    /// In how many milliseconds shares may be granted again, or a share ends or, for a later waiter, the entry of the first one.
    pub(super) fn share_ends_in(&self, now: u64, first: bool) -> u64 {
        if let Some(left) = self.pause(now) {
            return left;
        }
        let ends = self.shares.holders.values().copied().min().unwrap_or(now);
        let head = self
            .queue
            .first()
            .filter(|_| !first && self.fault != Fault::OnlySharesEnd)
            .map(|(head, _)| self.live_until(*head));
        ends.min(head.unwrap_or(ends)).saturating_sub(now).div_ceil(1000)
    }

    pub(super) fn revoke_shares(&mut self, now: u64, grace: Option<u64>, pushes: &mut Vec<Message>) -> Found {
        let mut found = Vec::new();
        for owner in self.sharers() {
            let (share, until) = (self.shares.grants.get(&owner).copied(), self.shares.holders[&owner]);
            let its = match grace {
                Some(grace) => {
                    let noted = self.shares.asked.entry(owner).or_insert(grace);
                    *noted = grace.min(*noted);
                    *noted
                }
                None => {
                    self.part(owner);
                    0
                }
            };
            if let Some(Share { client, .. }) = share {
                pushes.push(Message::Revoked { client, owner, grace: its });
            }
            found.push((share.map(|share| share.counter), Some(until.saturating_sub(now).div_ceil(1000))));
        }
        if let Some((_, until)) = self.lock.filter(|_| grace.is_some()) {
            self.entries_until = self.entries_until.max(until.max(now / 1000 + 1));
        }
        found.sort_unstable();
        (found, self.settle(now, pushes))
    }

    /// Under which counter each holds, as far as that is known.
    pub(super) fn shares_at(&self, now: u64) -> Vec<Option<u64>> {
        let live = self.shares.holders.iter().filter(|(_, until)| **until > now);
        let counter = |owner: &Owner| self.shares.grants.get(owner).map(|share| share.counter);
        let mut counters: Vec<_> = live.map(|(owner, _)| counter(owner)).collect();
        counters.sort_unstable();
        counters
    }

    /// Where it stands in the queue; before all if it holds.
    pub(crate) fn place(&mut self, now: u64, owner: Owner) -> Option<u64> {
        self.expire(now);
        if self.holds_at(now, owner) { Some(0) } else { self.score(owner) }
    }

    /// By the rule alone: the first live waiter, if all holders admit it.
    pub(crate) fn keeps_out(&self, now: u64, mode: impl Fn(Owner) -> Mode) -> Option<Owner> {
        let held: Load =
            self.holders().into_iter().filter(|owner| self.holds_at(now, *owner)).map(&mode).collect();
        let (head, _) = self.queue.iter().find(|(owner, _)| self.live_until(*owner) > now)?;
        held.admits(mode(*head)).then_some(*head)
    }
}
