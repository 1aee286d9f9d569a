//! A store of locks as a pure state machine: requests and the time go in, answers and pushes come out.
//!
//! # Invariants
//! - **memory-1** The holders of a name fit ([`Load`]), and no lease has expired when it is granted (G1).
//! - **memory-2** The counter grows with every grant, whatever was lost or deleted (G3).
//! - **memory-3** Entries are granted in order of arrival, as soon as they fit; those whose lease expired are
//!   passed over (G7).
//! - **memory-4** Release, renewal and abandoning act only on an entry of that owner (G4).
//! - **memory-5** A name without holders and waiters has no data (G5).
//!
//! Checked by the tests below and by every case of the conformance kit.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{AcquireRequest, LeaseId, Load, Mode};
use crate::clock::Moment;
use crate::words::name::LockName;
use crate::words::owner::OwnerId;

/// The client of a request: one backend instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SessionId(pub(super) u64);

/// The time at which a request acts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    /// On the store's clock, which ends leases.
    pub(super) store: Moment,
    /// On the asker's clock, from which the asker counts its deadline.
    pub(super) asker: Moment,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Engine {
    /// Boxed, since a map has room for more than it holds.
    names: BTreeMap<LockName, Box<Contest>>,
    /// Where the entry of a lease is.
    leases: BTreeMap<LeaseId, LockName>,
    counter: u64,
    leases_opened: u64,
}

/// The entries of one name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
struct Contest {
    /// The first holder.
    holder: Option<Held>,
    /// Created for the first other entry.
    company: Option<Box<Company>>,
}

/// The entries behind the first holder, each kind in order of arrival.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
struct Company {
    sharers: Vec<Held>,
    queue: VecDeque<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Held {
    entry: Entry,
    counter: u64,
    since: Moment,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Entry {
    owner: OwnerId,
    session: SessionId,
    lease: LeaseId,
    mode: Mode,
    ttl: Duration,
    expires: Moment,
    /// When its latest answered request was sent, on the asker's clock.
    sent_at: Moment,
    label: Arc<str>,
    metadata: Option<Arc<str>>,
}

/// A lease as the engine granted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Granted {
    pub(super) owner: OwnerId,
    pub(super) lease: LeaseId,
    pub(super) ttl: Duration,
    pub(super) sent_at: Moment,
    pub(super) counter: u64,
}

/// The answer to an acquisition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Granted(Granted),
    Queued { lease: LeaseId, holder: Front },
    Busy { holder: Front },
}

/// The holders of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Front {
    pub(super) label: Arc<str>,
    pub(super) metadata: Option<Arc<str>>,
    pub(super) mode: Mode,
    pub(super) counter: u64,
    pub(super) held_for: Duration,
    pub(super) ttl: Duration,
}

/// What a request causes for others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Push {
    /// A waiting entry holds now.
    Granted(Granted),
    /// A waiting entry is gone.
    Dropped(OwnerId),
}

/// Whose hold an administrator ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) session: SessionId,
    pub(super) owner: OwnerId,
    pub(super) counter: u64,
}

impl Engine {
    /// Takes the lock, or queues for it if `queue` says so.
    pub(super) fn acquire(
        &mut self,
        now: Now,
        session: SessionId,
        request: &AcquireRequest,
        queue: bool,
        pushes: &mut Vec<Push>,
    ) -> Answer {
        self.settle(&request.name, now, pushes);
        let contest = self.names.get(&request.name);
        let busy_with = contest.filter(|contest| !contest.admits(request.mode)).and_then(|contest| {
            // Without a holder there is no waiter.
            contest.holder.as_ref().map(|held| held.shown(now))
        });
        if let Some(holder) = busy_with.as_ref().filter(|_| !queue) {
            return Answer::Busy { holder: holder.clone() };
        }
        let lease = self.fresh_lease();
        let entry = Entry {
            owner: request.owner,
            session,
            lease,
            mode: request.mode,
            ttl: request.ttl,
            expires: now.store + request.ttl,
            sent_at: now.asker,
            label: Arc::clone(&request.label),
            metadata: request.metadata.clone(),
        };
        self.leases.insert(lease, request.name.clone());
        let contest = self.names.entry(request.name.clone()).or_default();
        match busy_with {
            Some(holder) => {
                contest.company.get_or_insert_default().queue.push_back(entry);
                Answer::Queued { lease, holder }
            }
            None => Answer::Granted(contest.grant(entry, now, &mut self.counter)),
        }
    }

    /// Extends a lease of `session`; whether it exists.
    pub(super) fn renew(
        &mut self,
        now: Now,
        session: SessionId,
        lease: LeaseId,
        pushes: &mut Vec<Push>,
    ) -> Option<Duration> {
        let name = self.leases.get(&lease)?.clone();
        self.settle(&name, now, pushes);
        let entry = self.names.get_mut(&name)?.entry_mut(lease)?;
        if entry.session != session {
            return None;
        }
        (entry.expires, entry.sent_at) = (now.store + entry.ttl, now.asker);
        Some(entry.ttl)
    }

    /// Ends what `owner` has of `name`, held or waiting; whether there was something.
    pub(super) fn release(
        &mut self,
        now: Now,
        name: &LockName,
        owner: OwnerId,
        pushes: &mut Vec<Push>,
    ) -> bool {
        self.settle(name, now, pushes);
        let Some(contest) = self.names.get_mut(name) else {
            return false;
        };
        let mut was_there = false;
        contest.remove(
            |entry| entry.owner == owner,
            |lease| {
                was_there = true;
                self.leases.remove(&lease);
            },
        );
        self.settle(name, now, pushes);
        was_there
    }

    /// Ends everything of a session.
    pub(super) fn close(&mut self, now: Now, session: SessionId, pushes: &mut Vec<Push>) {
        let names: Vec<_> = self.names.keys().cloned().collect();
        for name in names {
            if let Some(contest) = self.names.get_mut(&name) {
                let waiting = contest.waiting().filter(|entry| entry.session == session);
                pushes.extend(waiting.map(|entry| Push::Dropped(entry.owner)));
                let forget = |lease| _ = self.leases.remove(&lease);
                contest.remove(|entry| entry.session == session, forget);
            }
            self.settle(&name, now, pushes);
        }
    }

    /// Lets time act on one name: drops what has expired and grants the first who live while they fit.
    pub(super) fn settle(&mut self, name: &LockName, now: Now, pushes: &mut Vec<Push>) {
        let Some(contest) = self.names.get_mut(name) else {
            return;
        };
        while let Some(over) = contest.remove_holder(|entry| entry.expires <= now.store) {
            self.leases.remove(&over);
        }
        if !contest.is_waited_for() {
            if contest.holder.is_none() {
                self.names.remove(name);
            }
            return;
        }
        let mut load = contest.load();
        let stays = |entry: &Entry, load: Load| entry.expires > now.store && !load.admits(entry.mode);
        while let Some(entry) = contest.pop_if(|entry| !stays(entry, load)) {
            if entry.expires > now.store {
                load = load.and(entry.mode);
                pushes.push(Push::Granted(contest.grant(entry, now, &mut self.counter)));
            } else {
                self.leases.remove(&entry.lease);
                pushes.push(Push::Dropped(entry.owner));
            }
        }
        if contest.holder.is_none() {
            self.names.remove(name);
        }
    }

    /// When the next one expires of those who hold `name` or wait for it: that may be whom others wait for by then.
    pub(super) fn next_expiry(&self, name: &LockName, now: Now) -> Option<Moment> {
        let contest = self.names.get(name)?;
        let entries = contest.holders().map(|held| &held.entry).chain(contest.waiting());
        entries.map(|entry| entry.expires).filter(|at| now.store < *at).min()
    }

    /// The holders and the number of those who wait, as they stand.
    pub(super) fn inspect(&self, name: &LockName, now: Now) -> (Vec<Front>, usize) {
        self.names.get(name).map_or_else(Default::default, |contest| {
            (contest.holders().map(|held| held.shown(now)).collect(), contest.waiting().count())
        })
    }

    /// The names in use that begin with `prefix`.
    pub(super) fn names(&self, prefix: &str) -> Vec<LockName> {
        self.names.keys().filter(|name| name.as_str().starts_with(prefix)).cloned().collect()
    }

    /// The holders of `name`.
    pub(super) fn targets(&self, name: &LockName) -> Vec<Target> {
        let target = |held: &Held| {
            let Entry { session, owner, .. } = held.entry;
            Target { session, owner, counter: held.counter }
        };
        self.names.get(name).map_or_else(Vec::new, |contest| contest.holders().map(target).collect())
    }

    /// The id of a lease to come.
    pub(super) fn fresh_lease(&mut self) -> LeaseId {
        self.leases_opened += 1;
        LeaseId::new(self.leases_opened)
    }

    /// Every later counter is larger.
    pub(super) fn counter(&self) -> u64 {
        self.counter
    }

    /// Makes every later counter larger than `counter`.
    pub(super) fn raise_counter(&mut self, counter: u64) {
        self.counter = self.counter.max(counter);
    }

    /// Loses all data, as a server that restarts without its disk.
    pub(super) fn forget(&mut self, pushes: &mut Vec<Push>) {
        let leases_opened = self.leases_opened;
        let lost = std::mem::take(self);
        // A session's next lease must not look like one that was lost.
        self.leases_opened = leases_opened;
        let waiting =
            lost.names.into_values().filter_map(|contest| contest.company).flat_map(|company| company.queue);
        pushes.extend(waiting.map(|entry| Push::Dropped(entry.owner)));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.leases.is_empty()
    }
}

impl Contest {
    fn grant(&mut self, entry: Entry, now: Now, counter: &mut u64) -> Granted {
        *counter += 1;
        let granted = Granted {
            owner: entry.owner,
            lease: entry.lease,
            ttl: entry.ttl,
            sent_at: entry.sent_at,
            counter: *counter,
        };
        let held = Held { entry, counter: *counter, since: now.store };
        match &mut self.holder {
            nobody @ None => *nobody = Some(held),
            Some(_) => self.company.get_or_insert_default().sharers.push(held),
        }
        granted
    }

    fn holders(&self) -> impl Iterator<Item = &Held> {
        self.holder.iter().chain(self.company.iter().flat_map(|company| &company.sharers))
    }

    fn waiting(&self) -> impl Iterator<Item = &Entry> {
        self.company.iter().flat_map(|company| &company.queue)
    }

    fn is_waited_for(&self) -> bool {
        self.company.as_ref().is_some_and(|company| !company.queue.is_empty())
    }

    /// Removes the first waiter from the queue, if `goes` accepts it.
    fn pop_if(&mut self, goes: impl FnOnce(&Entry) -> bool) -> Option<Entry> {
        let queue = &mut self.company.as_mut()?.queue;
        if goes(queue.front()?) { queue.pop_front() } else { None }
    }

    /// The load of the holders.
    fn load(&self) -> Load {
        self.holders().map(|held| held.entry.mode).collect()
    }

    /// Whether a new entry holds at once.
    fn admits(&self, mode: Mode) -> bool {
        !self.is_waited_for() && self.load().admits(mode)
    }

    fn entry_mut(&mut self, lease: LeaseId) -> Option<&mut Entry> {
        let first = self.holder.as_mut().map(|held| &mut held.entry);
        let others = self.company.iter_mut().flat_map(|company| {
            company.sharers.iter_mut().map(|held| &mut held.entry).chain(&mut company.queue)
        });
        first.into_iter().chain(others).find(|entry| entry.lease == lease)
    }

    fn remove_holder(&mut self, which: impl Fn(&Entry) -> bool) -> Option<LeaseId> {
        let goes = self.holder.as_ref().map(|held| &held.entry).filter(|entry| which(entry));
        if let Some(lease) = goes.map(|entry| entry.lease) {
            let more = self.company.as_mut().filter(|company| !company.sharers.is_empty());
            self.holder = more.map(|company| company.sharers.remove(0));
            return Some(lease);
        }
        let sharers = &mut self.company.as_mut()?.sharers;
        let goes = sharers.iter().position(|held| which(&held.entry))?;
        Some(sharers.remove(goes).entry.lease)
    }

    /// Says whose leases went.
    fn remove(&mut self, which: impl Fn(&Entry) -> bool, mut gone: impl FnMut(LeaseId)) {
        while let Some(lease) = self.remove_holder(&which) {
            gone(lease);
        }
        let Some(company) = &mut self.company else {
            return;
        };
        company.queue.retain(|entry| {
            let goes = which(entry);
            if goes {
                gone(entry.lease);
            }
            !goes
        });
    }
}

impl Held {
    fn shown(&self, now: Now) -> Front {
        Front {
            label: Arc::clone(&self.entry.label),
            metadata: self.entry.metadata.clone(),
            mode: self.entry.mode,
            counter: self.counter,
            held_for: now.store.since(self.since),
            ttl: self.entry.ttl,
        }
    }
}

#[cfg(test)]
mod tests;
