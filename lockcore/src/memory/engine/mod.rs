//! What a store of locks is, as a pure state machine: requests and the time go in, answers and
//! pushes come out.
//!
//! # Invariants
//! - **memory-1** At most one entry of a name is the holder, and its lease has not expired when it is
//!   granted (G1).
//! - **memory-2** The counter grows with every grant, whatever was lost or deleted (G3).
//! - **memory-3** Entries are granted in order of arrival; those whose lease expired are passed over (G7).
//! - **memory-4** Release, renewal and abandoning act only on an entry of that owner (G4).
//! - **memory-5** A name that nobody holds or waits for leaves nothing behind (G5).
//!
//! Checked by the tests below and by every case of the conformance kit.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{AcquireRequest, LeaseId};
use crate::clock::Moment;
use crate::words::name::LockName;
use crate::words::owner::OwnerId;

/// Who asked: one backend instance.
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
    holder: Option<Held>,
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

/// Who holds a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Front {
    pub(super) label: Arc<str>,
    pub(super) metadata: Option<Arc<str>>,
    pub(super) counter: u64,
    pub(super) held_for: Duration,
    pub(super) ttl: Duration,
}

/// What a request causes for others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Push {
    /// A waiting entry is the holder now.
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
        let busy_with = self.names.get(&request.name).and_then(|contest| contest.in_front(now));
        if let Some(holder) = busy_with.as_ref().filter(|_| !queue) {
            return Answer::Busy { holder: holder.clone() };
        }
        let lease = self.fresh_lease();
        let entry = Entry {
            owner: request.owner,
            session,
            lease,
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
                contest.queue.push_back(entry);
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
        let leases = contest.remove(|entry| entry.owner == owner);
        for lease in &leases {
            self.leases.remove(lease);
        }
        self.settle(name, now, pushes);
        !leases.is_empty()
    }

    /// Ends everything of a session.
    pub(super) fn close(&mut self, now: Now, session: SessionId, pushes: &mut Vec<Push>) {
        let names: Vec<_> = self.names.keys().cloned().collect();
        for name in names {
            if let Some(contest) = self.names.get_mut(&name) {
                let waiting = contest.queue.iter().filter(|entry| entry.session == session);
                pushes.extend(waiting.map(|entry| Push::Dropped(entry.owner)));
                for lease in contest.remove(|entry| entry.session == session) {
                    self.leases.remove(&lease);
                }
            }
            self.settle(&name, now, pushes);
        }
    }

    /// Lets time act on one name: drops what has expired and grants the first who lives.
    pub(super) fn settle(&mut self, name: &LockName, now: Now, pushes: &mut Vec<Push>) {
        let Some(contest) = self.names.get_mut(name) else {
            return;
        };
        if contest.holder.as_ref().is_some_and(|held| held.entry.expires > now.store) {
            return;
        }
        if let Some(held) = contest.holder.take() {
            self.leases.remove(&held.entry.lease);
        }
        while let Some(entry) = contest.queue.pop_front() {
            if entry.expires > now.store {
                pushes.push(Push::Granted(contest.grant(entry, now, &mut self.counter)));
                return;
            }
            self.leases.remove(&entry.lease);
            pushes.push(Push::Dropped(entry.owner));
        }
        self.names.remove(name);
    }

    /// When the holder of `name` expires.
    pub(super) fn holder_expires(&self, name: &LockName) -> Option<Moment> {
        let held = self.names.get(name)?.holder.as_ref()?;
        Some(held.entry.expires)
    }

    /// The holder and the number of those who wait, as they stand.
    pub(super) fn inspect(&self, name: &LockName, now: Now) -> (Option<Front>, usize) {
        self.names.get(name).map_or((None, 0), |contest| (contest.in_front(now), contest.queue.len()))
    }

    /// The names in use that begin with `prefix`.
    pub(super) fn names(&self, prefix: &str) -> Vec<LockName> {
        self.names.keys().filter(|name| name.as_str().starts_with(prefix)).cloned().collect()
    }

    /// Who holds `name`.
    pub(super) fn target(&self, name: &LockName) -> Option<Target> {
        let held = self.names.get(name)?.holder.as_ref()?;
        let Entry { session, owner, .. } = held.entry;
        Some(Target { session, owner, counter: held.counter })
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
        let waiting = lost.names.into_values().flat_map(|contest| contest.queue);
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
        self.holder = Some(Held { entry, counter: *counter, since: now.store });
        granted
    }

    fn in_front(&self, now: Now) -> Option<Front> {
        let held = self.holder.as_ref()?;
        Some(Front {
            label: Arc::clone(&held.entry.label),
            metadata: held.entry.metadata.clone(),
            counter: held.counter,
            held_for: now.store.since(held.since),
            ttl: held.entry.ttl,
        })
    }

    fn entry_mut(&mut self, lease: LeaseId) -> Option<&mut Entry> {
        let holder = self.holder.iter_mut().map(|held| &mut held.entry);
        holder.chain(&mut self.queue).find(|entry| entry.lease == lease)
    }

    fn remove(&mut self, which: impl Fn(&Entry) -> bool) -> Vec<LeaseId> {
        let mut removed = Vec::new();
        if let Some(held) = self.holder.take_if(|held| which(&held.entry)) {
            removed.push(held.entry.lease);
        }
        self.queue.retain(|entry| {
            let goes = which(entry);
            if goes {
                removed.push(entry.lease);
            }
            !goes
        });
        removed
    }
}

#[cfg(test)]
mod tests;
