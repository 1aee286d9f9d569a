//! A store of locks as a pure state machine: requests and the time go in, answers and pushes come out.
//!
//! # Invariants
//! - **memory-1** The holders of a name fit ([`Load`]), and no lease has expired when it is granted (G1).
//! - **memory-2** The counter grows with every grant, even after a loss or a deletion (G3).
//! - **memory-3** Entries are granted in order of arrival, as soon as they fit; expired ones are skipped (G7).
//! - **memory-4** Release, renewal and abandoning act only on an entry of that owner (G4).
//! - **memory-5** A name without holders and waiters has no data (G5).
//!
//! Checked by the tests below and by every case of the conformance kit.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

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
    /// Every later counter is larger.
    pub(super) counter: u64,
    leases_opened: u64,
}

/// The entries of one name, each kind in order of arrival.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
struct Contest {
    holders: SmallVec<[Held; 1]>,
    queue: VecDeque<QueueEntry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Held {
    entry: QueueEntry,
    counter: u64,
    since: Moment,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct QueueEntry {
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
pub(super) enum EngineReply {
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

/// The effect of a request on another entry.
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
    /// Acquires the lock, or queues for it if `queue` is set.
    pub(super) fn acquire(
        &mut self,
        now: Now,
        session: SessionId,
        request: &AcquireRequest,
        queue: bool,
        pushes: &mut Vec<Push>,
    ) -> EngineReply {
        self.settle(&request.name, now, pushes);
        let contest = self.names.get(&request.name);
        let busy_with = contest.filter(|contest| !contest.admits(request.mode)).and_then(|contest| {
            // Without a holder there is no waiter.
            contest.holders.first().map(|held| held.shown(now))
        });
        if let Some(holder) = busy_with.as_ref().filter(|_| !queue) {
            return EngineReply::Busy { holder: holder.clone() };
        }
        let lease = self.fresh_lease();
        let entry = QueueEntry {
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
                contest.queue.push_back(entry);
                EngineReply::Queued { lease, holder }
            }
            None => EngineReply::Granted(contest.grant(entry, now, &mut self.counter)),
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

    /// Ends the entry of `owner` at `name`, held or waiting; returns whether there was one.
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
        let gone = contest.remove(|entry| entry.owner == owner);
        gone.iter().for_each(|lease| _ = self.leases.remove(lease));
        self.settle(name, now, pushes);
        !gone.is_empty()
    }

    /// Ends everything of a session.
    pub(super) fn close(&mut self, now: Now, session: SessionId, pushes: &mut Vec<Push>) {
        let names: Vec<_> = self.names.keys().cloned().collect();
        for name in names {
            if let Some(contest) = self.names.get_mut(&name) {
                let waiting = contest.queue.iter().filter(|entry| entry.session == session);
                pushes.extend(waiting.map(|entry| Push::Dropped(entry.owner)));
                let gone = contest.remove(|entry| entry.session == session);
                gone.iter().for_each(|lease| _ = self.leases.remove(lease));
            }
            self.settle(&name, now, pushes);
        }
    }

    /// Lets time act on one name: drops expired entries, and grants the first live ones while they fit.
    pub(super) fn settle(&mut self, name: &LockName, now: Now, pushes: &mut Vec<Push>) {
        let Some(contest) = self.names.get_mut(name) else {
            return;
        };
        contest.holders.retain(|held| {
            let lives = held.entry.expires > now.store;
            if !lives {
                self.leases.remove(&held.entry.lease);
            }
            lives
        });
        let mut load = contest.load();
        while let Some(first) = contest.queue.front() {
            let lives = first.expires > now.store;
            if lives && !load.admits(first.mode) {
                break;
            }
            let Some(entry) = contest.queue.pop_front() else {
                break;
            };
            if lives {
                load = load.and(entry.mode);
                pushes.push(Push::Granted(contest.grant(entry, now, &mut self.counter)));
            } else {
                self.leases.remove(&entry.lease);
                pushes.push(Push::Dropped(entry.owner));
            }
        }
        if contest.holders.is_empty() {
            self.names.remove(name);
        }
    }

    /// Returns when the next holder or waiter of `name` expires: others may wait for it by then.
    pub(super) fn next_expiry(&self, name: &LockName, now: Now) -> Option<Moment> {
        let contest = self.names.get(name)?;
        let entries = contest.holders.iter().map(|held| &held.entry).chain(&contest.queue);
        entries.map(|entry| entry.expires).filter(|at| now.store < *at).min()
    }

    /// Returns the present holders, and the number of waiters.
    pub(super) fn inspect(&self, name: &LockName, now: Now) -> (Vec<Front>, usize) {
        self.names.get(name).map_or_else(Default::default, |contest| {
            (contest.holders.iter().map(|held| held.shown(now)).collect(), contest.queue.len())
        })
    }

    /// The names in use that begin with `prefix`.
    pub(super) fn names(&self, prefix: &str) -> Vec<LockName> {
        self.names.keys().filter(|name| name.as_str().starts_with(prefix)).cloned().collect()
    }

    /// The holders of `name`.
    pub(super) fn targets(&self, name: &LockName) -> Vec<Target> {
        let target = |held: &Held| {
            let QueueEntry { session, owner, .. } = held.entry;
            Target { session, owner, counter: held.counter }
        };
        self.names.get(name).map_or_else(Vec::new, |contest| contest.holders.iter().map(target).collect())
    }

    /// The id of a lease to come.
    pub(super) fn fresh_lease(&mut self) -> LeaseId {
        self.leases_opened += 1;
        LeaseId::new(self.leases_opened)
    }

    /// Makes every later counter larger than `counter`.
    pub(super) fn raise_counter(&mut self, counter: u64) {
        self.counter = self.counter.max(counter);
    }

    /// Loses all data, as a server that restarts without its disk.
    pub(super) fn forget(&mut self, pushes: &mut Vec<Push>) {
        let leases_opened = self.leases_opened;
        let lost = std::mem::take(self);
        // A session's next lease must not have the id of a lost one.
        self.leases_opened = leases_opened;
        let waiting = lost.names.into_values().flat_map(|contest| contest.queue);
        pushes.extend(waiting.map(|entry| Push::Dropped(entry.owner)));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.leases.is_empty()
    }
}

impl Contest {
    fn grant(&mut self, entry: QueueEntry, now: Now, counter: &mut u64) -> Granted {
        *counter += 1;
        let granted = Granted {
            owner: entry.owner,
            lease: entry.lease,
            ttl: entry.ttl,
            sent_at: entry.sent_at,
            counter: *counter,
        };
        self.holders.push(Held { entry, counter: *counter, since: now.store });
        granted
    }

    /// The load of the holders.
    fn load(&self) -> Load {
        self.holders.iter().map(|held| held.entry.mode).collect()
    }

    /// Whether a new entry holds at once.
    fn admits(&self, mode: Mode) -> bool {
        self.queue.is_empty() && self.load().admits(mode)
    }

    fn entry_mut(&mut self, lease: LeaseId) -> Option<&mut QueueEntry> {
        let holders = self.holders.iter_mut().map(|held| &mut held.entry);
        holders.chain(&mut self.queue).find(|entry| entry.lease == lease)
    }

    /// Returns the leases of the removed entries.
    fn remove(&mut self, which: impl Fn(&QueueEntry) -> bool) -> SmallVec<[LeaseId; 1]> {
        let entries = self.holders.iter().map(|held| &held.entry).chain(&self.queue);
        let gone = entries.filter(|entry| which(entry)).map(|entry| entry.lease).collect();
        self.holders.retain(|held| !which(&held.entry));
        self.queue.retain(|entry| !which(entry));
        gone
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
