//! The scripts and the network, as a model. `differential` holds the scripts against it.

mod admin;
mod fault;
mod foreign;
mod message;
mod pause;
mod sharing;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold_core::backend::Mode;

use crate::protocol::ScriptReply;

pub(crate) use self::fault::Fault;
pub(crate) use self::foreign::Shared;
pub(crate) use self::message::{Asker, Connection, Message, Request};
pub(crate) use self::pause::{Origin, Reign};
pub(crate) use self::sharing::{MANY, Share, Shares};

pub(crate) type Owner = u64;

/// The keys of one name. The clock is in microseconds, the ends of keys in milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    /// The holder, and until when; without end at [`ENDLESS`]. Where several have it together, [`MANY`].
    pub(crate) lock: Option<(Owner, u64)>,
    /// The waiters and their scores.
    pub(crate) queue: Vec<(Owner, u64)>,
    pub(crate) queue_until: u64,
    pub(crate) entries: BTreeMap<Owner, Entry>,
    /// The holder whose lock was revoked, and the grace period.
    pub(crate) revoked: Option<(Owner, u64)>,
    pub(crate) entries_until: u64,
    pub(crate) grant: Option<Granted>,
    /// The holder was granted the lock by a message.
    pub(crate) handed_on: bool,
    pub(crate) fault: Fault,
    /// How many ended entries a request drops at most.
    pub(crate) sweep: usize,
    /// How many more this one may.
    pub(crate) left: usize,
    pub(crate) released: BTreeSet<Owner>,
    pub(crate) shares: Shares,
    /// Other libraries take the lock too.
    pub(crate) shared: Option<Shared>,
    /// The connection of the request: its run, and until when nothing is granted, if that is passed to scripts.
    pub(crate) over: Connection,
}

/// What an entry has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) ttl: u64,
    pub(crate) client: usize,
    /// In microseconds.
    pub(crate) live_until: u64,
    pub(crate) mode: Mode,
}

/// The last grant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted {
    pub(crate) counter: u64,
    pub(crate) owner: Owner,
    pub(crate) since: u64,
    pub(crate) client: usize,
    /// The record names its owner.
    pub(crate) named: bool,
    pub(crate) until: u64,
    /// It was released without a waiter, beside foreign clients.
    pub(crate) over: bool,
}

/// A foreign lock may have no end.
pub(crate) const ENDLESS: u64 = u64::MAX;

const DAY: u64 = 86_400_000;
/// The counters of so many microseconds have one end.
const SPAN: u64 = 1_000_000_000;
const GRACE: u64 = 500;

pub(crate) const UNSWEPT: u64 = 4;

/// Clients from here on are told by a channel of the slot.
pub(crate) const SLOT_INBOX: usize = 100;

impl Server {
    /// A request begins.
    fn begin(&mut self, now: u64) {
        self.expire(now);
        self.left = self.sweep;
    }

    /// Removes the keys that have ended. One that ends now is still there.
    pub(crate) fn expire(&mut self, now: u64) {
        let now = now / 1000;
        self.lock = self.lock.filter(|(_, until)| now <= *until);
        self.grant = self.grant.filter(|grant| now <= grant.until);
        if self.queue_until < now {
            self.queue.clear();
        }
        if self.entries_until < now {
            self.forget_entries();
        }
        self.expire_shares(now);
        self.forget_empty_keys();
    }

    pub(crate) fn forget_entries(&mut self) {
        self.entries.clear();
        (self.revoked, self.entries_until) = Default::default();
        self.forget_foreign();
        self.forget_shares();
    }

    /// A key ends with the last of what it holds.
    fn forget_empty_keys(&mut self) {
        if self.queue.is_empty() {
            self.queue_until = 0;
        }
        let is_empty = self.entries.is_empty() && self.revoked.is_none();
        if is_empty && !self.notes_foreign() && !self.notes_shares() {
            self.entries_until = 0;
        }
    }

    pub(crate) fn counter(&self) -> u64 {
        self.grant.map_or(0, |grant| grant.counter)
    }

    pub(crate) fn is_held_by(&self, owner: Owner) -> bool {
        self.lock.is_some_and(|(holder, _)| holder == owner)
    }

    pub(crate) fn has(&self, owner: Owner) -> bool {
        self.owners().any(|its| its == owner)
    }

    /// The holders.
    pub(crate) fn holders(&self) -> Vec<Owner> {
        match self.lock {
            Some((MANY, _)) => self.sharers(),
            lock => lock.iter().map(|(owner, _)| *owner).collect(),
        }
    }

    /// The holders and the waiters.
    pub(crate) fn owners(&self) -> impl Iterator<Item = Owner> {
        self.holders().into_iter().chain(self.queue.iter().map(|(owner, _)| *owner))
    }

    fn was_granted_to(&self, owner: Owner) -> bool {
        self.grant.is_some_and(|grant| grant.owner == owner && !grant.over)
    }

    fn count(&mut self, now: u64, owner: Owner, client: usize, named: bool) -> u64 {
        let counter = now.max(self.counter() + 1);
        let until = match self.grant {
            Some(last) if counter == now && last.counter / SPAN == now / SPAN => last.until,
            _ => now / 1000 + (counter - now).div_ceil(1000) + DAY + SPAN / 1000 + 1000,
        };
        self.grant = Some(Granted { counter, owner, since: now, client, named, until, over: false });
        counter
    }

    fn keep(&mut self, now: u64, ttl: u64) {
        self.queue_until = self.queue_until.max(now / 1000 + ttl);
        self.entries_until = self.entries_until.max(now / 1000 + ttl);
    }

    fn live_until(&self, owner: Owner) -> u64 {
        self.entries.get(&owner).map_or(0, |entry| entry.live_until)
    }

    fn drop_entry(&mut self, owner: Owner) -> bool {
        let Some(at) = self.queue.iter().position(|(waiting, _)| *waiting == owner) else {
            return false;
        };
        self.queue.remove(at);
        self.entries.remove(&owner);
        self.forget_empty_keys();
        true
    }

    fn first_live(&mut self, now: u64) -> First {
        loop {
            let Some((owner, _)) = self.queue.first().copied() else {
                return First::Nobody;
            };
            if self.live_until(owner) > now {
                return First::Is(owner);
            }
            if self.left == 0 {
                return First::Unknown;
            }
            self.drop_entry(owner);
            self.left -= 1;
        }
    }

    /// Until when the last entry before `score` is live; it and one more are dropped if they have ended.
    fn before(&mut self, now: u64, score: u64) -> Option<u64> {
        for _ in 0..2 {
            let (owner, _) = *self.queue.iter().rev().find(|(_, its)| *its < score)?;
            let live_until = self.live_until(owner);
            if live_until > now {
                return Some(live_until);
            }
            self.drop_entry(owner);
        }
        None
    }

    fn score(&self, owner: Owner) -> Option<u64> {
        self.queue.iter().find(|(waiting, _)| *waiting == owner).map(|(_, score)| *score)
    }

    /// In how many milliseconds an entry's turn may come without a message.
    fn due(&mut self, now: u64, score: u64) -> Option<u64> {
        let before = self.before(now, score);
        self.due_after(now, before)
    }

    /// The same, where the entry before it is live until then.
    fn due_after(&self, now: u64, before: Option<u64>) -> Option<u64> {
        let left = match (self.lock, self.poll()) {
            (Some((MANY, _)), _) => self.share_ends_in(now, before.is_none()),
            (None, _) => match self.rest(now) {
                None => return Some(0),
                Some(rest) => rest,
            },
            (Some((_, ENDLESS)), Some(poll)) if before.is_none() => poll,
            (Some((_, ENDLESS)), _) => return None,
            (Some((_, until)), Some(poll)) if before.is_none() => poll.min(until - now / 1000),
            (Some((_, until)), _) => until - now / 1000,
        };
        match (before, self.fault) {
            (None, _) | (_, Fault::AllAsk) => Some(left),
            (Some(_), Fault::OnlyTheFirstAsks) => None,
            (Some(live_until), _) => Some(left.max((live_until - now).div_ceil(1000))),
        }
    }

    /// A waiter has left.
    fn tell_next(&mut self, now: u64, score: u64, pushes: &mut Vec<Message>) {
        let Some((owner, its)) = self.queue.iter().copied().find(|(_, its)| *its > score) else {
            return;
        };
        let Some(Entry { ttl, client, live_until, .. }) = self.entries.get(&owner).copied() else {
            return;
        };
        let Some(ask_in) = self.due(now, its) else {
            return;
        };
        // Its next refresh comes a third of the ttl after its last.
        let refreshes_in = live_until as f64 / 1000.0 - now as f64 / 1000.0 - (ttl * 2) as f64 / 3.0;
        if (ask_in as f64) < refreshes_in && self.fault != Fault::LeavesSilently {
            pushes.push(Message::Due { client, owner, ask_in });
        }
    }

    /// The lock is free or shared: the first waiters have it while they fit. Whether one may still wait behind more
    /// ended entries.
    fn hand_on(&mut self, now: u64, pushes: &mut Vec<Message>) -> bool {
        loop {
            let owner = match self.first_live(now) {
                First::Is(owner) => owner,
                First::Nobody => return false,
                First::Unknown => return true,
            };
            let Entry { ttl, client, live_until, mode } = self.entries[&owner];
            if self.is_shared() && !self.fits(now, mode) {
                return self.left == 0;
            }
            self.revoked = None;
            self.drop_entry(owner);
            let (sixth, left) = (ttl.div_ceil(6), (live_until - now).div_ceil(1000));
            let lease = match self.fault {
                Fault::ShortHandOn => sixth,
                Fault::LongHandOn => left.max(sixth),
                _ => left.max(sixth.min(GRACE)).min(ttl),
            };
            let counter = self.count(now, owner, client, true);
            match mode {
                Mode::EXCLUSIVE => (self.lock, self.handed_on) = (Some((owner, now / 1000 + lease)), true),
                mode => self.join(now, Asker { owner, client, ttl: lease, mode }, counter),
            }
            pushes.push(Message::Push { client, owner, counter, reign: self.over.reign });
            self.passed(now, lease);
            if mode == Mode::EXCLUSIVE || self.fault == Fault::OneByOne {
                return false;
            }
        }
    }

    /// Whatever has changed. As above.
    fn settle(&mut self, now: u64, pushes: &mut Vec<Message>) -> bool {
        self.purge(now);
        let is_free = self.lock.is_none() && self.rest(now).is_none();
        if is_free {
            self.forget_lost();
        }
        (is_free || self.is_shared()) && self.hand_on(now, pushes)
    }

    /// The lock is extended for its holder.
    fn holds(&mut self, now: u64, Asker { owner, client, ttl, .. }: Asker, named: bool) -> ScriptReply {
        self.lock = Some((owner, now / 1000 + ttl));
        let counter =
            if self.was_granted_to(owner) { self.counter() } else { self.count(now, owner, client, named) };
        ScriptReply::Holds { counter }
    }

    fn waits(&mut self, now: u64, owner: Owner) -> ScriptReply {
        let score = self.score(owner).expect("it waits");
        let before = self.before(now, score);
        let ask_in = self.due_after(now, before).map(Duration::from_millis);
        let behind_foreign = before.is_none() && self.poll().is_some();
        ScriptReply::Waits { seen: self.counter(), ask_in, behind_foreign }
    }

    pub(crate) fn acquire(
        &mut self,
        now: u64,
        asker: Asker,
        queues: bool,
        pushes: &mut Vec<Message>,
    ) -> ScriptReply {
        self.begin(now);
        let Asker { owner, mode, .. } = asker;
        if mode != Mode::EXCLUSIVE {
            return self.share(now, asker, queues, pushes);
        }
        self.purge(now);
        if self.is_shared() {
            self.hand_on(now, pushes);
        }
        if self.is_held_by(owner) && self.is_short(now, owner) {
            self.lock = None;
        }
        let is_free = self.lock.is_none() && self.pause(now).is_none();
        let resting = self.lock.is_none() && self.rest(now).is_some();
        if self.queue.is_empty() && is_free && !resting {
            return self.taken(now, asker);
        }
        if is_free {
            self.forget_lost();
            match self.first_live(now) {
                First::Unknown => {}
                _ if resting => {}
                First::Is(first) if first != owner => _ = self.hand_on(now, pushes),
                First::Is(_) | First::Nobody => {
                    self.drop_entry(owner);
                    return self.taken(now, asker);
                }
            }
        }
        if self.is_held_by(owner) {
            return self.holds(now, asker, true);
        }
        self.enqueue(now, asker, queues)
    }

    fn enqueue(&mut self, now: u64, Asker { owner, client, ttl, mode }: Asker, queues: bool) -> ScriptReply {
        if !queues {
            self.foreign_had_a_turn();
            let ask_in = (self.left == 0).then_some(Duration::ZERO);
            return ScriptReply::Waits { seen: self.counter(), ask_in, behind_foreign: false };
        }
        if self.score(owner).is_none() {
            let score = self.queue.last().map_or(now, |(_, last)| now.max(last + 1));
            self.queue.push((owner, score));
        }
        self.entries.insert(owner, Entry { ttl, client, live_until: now + ttl * 1000, mode });
        self.foreign_had_a_turn();
        self.keep(now, ttl);
        let answer = self.waits(now, owner);
        self.before(now, now.saturating_sub(ttl * 1000));
        answer
    }

    pub(crate) fn refresh(&mut self, now: u64, asker: Asker, pushes: &mut Vec<Message>) -> ScriptReply {
        self.refresh_all(now, &[asker], pushes).remove(0)
    }

    pub(crate) fn refresh_all(
        &mut self,
        now: u64,
        askers: &[Asker],
        pushes: &mut Vec<Message>,
    ) -> Vec<ScriptReply> {
        self.begin(now);
        askers.iter().map(|asker| self.refresh_one(now, *asker, pushes)).collect()
    }

    fn refresh_one(&mut self, now: u64, asker: Asker, pushes: &mut Vec<Message>) -> ScriptReply {
        let Asker { owner, ttl, .. } = asker;
        if self.fault == Fault::TakesOver && self.poll().is_some() {
            self.hand_on(now, pushes);
        } else if self.fault != Fault::RefreshUnsettled || !self.is_shared() {
            self.settle(now, pushes);
        }
        if self.is_short(now, owner) {
            return ScriptReply::HoldsOn;
        }
        if self.is_held_by(owner) {
            let was_granted = self.was_granted_to(owner);
            let ScriptReply::Holds { counter } = self.holds(now, asker, false) else { unreachable!() };
            if was_granted {
                self.outlive(now, counter, ttl);
            }
            if let Some((_, grace)) = self.revoked.filter(|(asked, _)| *asked == owner) {
                self.entries_until = self.entries_until.max(now / 1000 + ttl);
                return ScriptReply::Revoked { counter, grace: Duration::from_millis(grace) };
            }
            return ScriptReply::Holds { counter };
        }
        if let Some(counter) = self.renew(now, asker) {
            self.outlive(now, counter, ttl);
            let grace = self.shares.asked.get(&owner).map(|grace| Duration::from_millis(*grace));
            return grace
                .map_or(ScriptReply::Holds { counter }, |grace| ScriptReply::Revoked { counter, grace });
        }
        if self.score(owner).is_none() {
            return ScriptReply::Gone;
        }
        if self.live_until(owner) <= now {
            self.drop_entry(owner);
            return ScriptReply::Gone;
        }
        let entry = self.entries.get_mut(&owner).unwrap();
        entry.live_until = now + ttl * 1000;
        if asker.client >= SLOT_INBOX {
            entry.client = asker.client;
        }
        self.keep(now, ttl);
        self.waits(now, owner)
    }

    /// 1 if it held, 2 if it waited, 0 if it had nothing; [`UNSWEPT`] more if it has left the lock free
    /// before more ended entries.
    pub(crate) fn release(&mut self, now: u64, owner: Owner, pushes: &mut Vec<Message>) -> u64 {
        self.begin(now);
        self.released.insert(owner);
        if self.is_held_by(owner) || self.lock.is_some() && self.fault == Fault::ReleasesAnybodys {
            // A waiter has an entry.
            if self.entries_until == 0 {
                self.free(now, pushes);
                self.keep_turns(now);
                return 1;
            }
            return if self.let_go(now, pushes) { 1 + UNSWEPT } else { 1 };
        }
        if self.leave(now, owner) {
            return if self.settle(now, pushes) { 1 + UNSWEPT } else { 1 };
        }
        let score = self.score(owner);
        self.drop_entry(owner);
        let is_free = self.lock.is_none() && self.rest(now).is_none();
        let settles = self.fault != Fault::LeavesUnsettled || !self.is_shared();
        let more = if settles && self.settle(now, pushes) { UNSWEPT } else { 0 };
        if let Some(score) = score.filter(|_| !is_free) {
            self.tell_next(now, score, pushes);
        }
        if score.is_some() { 2 + more } else { more }
    }
}

/// The next entry to be granted.
enum First {
    Is(Owner),
    Nobody,
    /// There are more ended entries before it than a script drops.
    Unknown,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            lock: None,
            queue: Vec::new(),
            queue_until: 0,
            entries: BTreeMap::new(),
            revoked: None,
            entries_until: 0,
            grant: None,
            handed_on: false,
            fault: Fault::None,
            sweep: 500,
            left: 500,
            released: BTreeSet::new(),
            shares: Shares::default(),
            shared: None,
            over: Connection::default(),
        }
    }
}
