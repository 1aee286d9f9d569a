//! The local queues of a manager, by name.
//!
//! Sharded, so that names that have nothing to do with each other seldom share a mutex. A queue
//! that is idle stays for a while: it remembers the last counter of its name, so that a store
//! whose counter went back is found out (G3).
//!
//! Idle names are forgotten when a shard is full, and once a ttl; what they took is given back then.
//! Not promised: that memory reaches beyond the few thousand idle names that stay, nor which they are.
//!
//! Checked by the tests below.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::backend::Holder;
use crate::clock::Moment;
use crate::core::acquire::Turn;
use crate::core::flight::Detach;
use crate::core::queue::LocalQueue;
use crate::core::tenure::Tenure;
use crate::words::error::Error;
use crate::words::loss::LostReason;
use crate::words::name::LockName;

#[derive(Debug)]
pub(crate) struct Queues {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
}

#[derive(Debug)]
struct Shard {
    entries: HashMap<LockName, Entry, RandomState>,
    /// The size at which idle entries are forgotten.
    full: usize,
}

/// What this process knows of one name.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) queue: LocalQueue<Arc<Tenure>, Waiter>,
    /// Whom the store named as holder while we queued.
    pub(crate) heard: Option<Box<Holder>>,
    /// Whoever asks the store had a place in its queue.
    pub(crate) queued: bool,
    /// A loss that was told before its grant had arrived here: counter and reason.
    pub(crate) lost_early: Option<(u64, LostReason)>,
    /// In the same way, that somebody wants it: counter and until when.
    pub(crate) asked_early: Option<(u64, Moment)>,
    /// What the store said last, if that was no grant and no place in its queue.
    pub(crate) refused: Option<Error>,
    /// The acquisition or release that is on its way to the store, polled by its caller.
    pub(crate) flight: Option<Weak<dyn Detach>>,
}

/// Somebody of this process who waits for a name.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) turn: oneshot::Sender<Turn>,
    /// The round of [`warn_of_self_deadlock`](crate::core::Core::warn_of_self_deadlock) in which the wait began.
    pub(crate) since_round: u32,
}

impl Queues {
    pub(crate) fn new() -> Self {
        let hasher = RandomState::default();
        let shard = || {
            let entries = HashMap::with_hasher(hasher.clone());
            Mutex::new(Shard { entries, full: KEPT_PER_SHARD })
        };
        Self { shards: std::iter::repeat_with(shard).take(SHARDS).collect(), hasher }
    }

    /// Calls `act` with the queue of `name`, under its mutex: no waking, no dropping of guards in
    /// there.
    pub(crate) fn with<R>(&self, name: &LockName, act: impl FnOnce(&mut Entry) -> R) -> R {
        let mut shard = self.shard(name).lock();
        if let Some(entry) = shard.entries.get_mut(name) {
            return act(entry);
        }
        shard.make_room();
        act(shard.entries.entry(name.clone()).or_insert_with(Entry::new))
    }

    /// Calls `act` with the queue of `name` if this process knows the name.
    pub(crate) fn with_known<R>(&self, name: &LockName, act: impl FnOnce(&mut Entry) -> R) -> Option<R> {
        self.shard(name).lock().entries.get_mut(name).map(act)
    }

    /// Collects from every name, in order of names.
    pub(crate) fn collect<R>(&self, mut pick: impl FnMut(&LockName, &mut Entry) -> Vec<R>) -> Vec<R> {
        let mut picked = Vec::new();
        for shard in &self.shards {
            for (name, entry) in &mut shard.lock().entries {
                let found = pick(name, entry);
                if !found.is_empty() {
                    picked.push((name.clone(), found));
                }
            }
        }
        picked.sort_by(|(a, _), (b, _)| a.cmp(b));
        picked.into_iter().flat_map(|(_, found)| found).collect()
    }

    /// Forgets idle names where there are many, and gives their memory back.
    pub(crate) fn trim(&self) {
        for shard in &self.shards {
            shard.lock().trim();
        }
    }

    fn shard(&self, name: &LockName) -> &Mutex<Shard> {
        let hash = self.hasher.hash_one(name);
        // The map takes the low and the highest bits.
        &self.shards[(hash >> 32) as usize % SHARDS]
    }
}

impl Shard {
    /// Forgets idle names once the shard is full. The bound doubles with the live ones, so that the cost
    /// stays constant per name.
    fn make_room(&mut self) {
        if self.full <= self.entries.len() {
            self.forget();
        }
    }

    fn trim(&mut self) {
        if KEPT_PER_SHARD < self.entries.len() {
            self.forget();
        }
        // As large as it was while it was full, and no larger; half of that is no reason to move all.
        if self.full * 2 < self.entries.capacity() {
            self.entries.shrink_to(self.full);
        }
    }

    fn forget(&mut self) {
        self.entries.retain(|_, entry| !entry.queue.is_idle());
        self.full = KEPT_PER_SHARD.max(self.entries.len() * 2);
    }
}

impl Entry {
    fn new() -> Self {
        Self {
            queue: LocalQueue::new(),
            heard: None,
            queued: false,
            lost_early: None,
            asked_early: None,
            refused: None,
            flight: None,
        }
    }

    /// Calls for the next waiter: what was under way at the store is over.
    pub(crate) fn next(&mut self) -> Option<Waiter> {
        (self.flight, self.queued) = (None, false);
        self.queue.next()
    }

    /// What the store has granted nobody will hold: it is being released.
    pub(crate) fn give_back(&mut self) {
        self.flight = None;
        self.queue.give_back();
    }

    /// The hold of the grant with this counter.
    pub(crate) fn held_by(&self, counter: u64) -> Option<Arc<Tenure>> {
        let (tenure, _) = self.queue.held()?;
        (tenure.grant().counter == counter).then(|| Arc::clone(tenure))
    }

    /// What those who wait here may have to wait for.
    pub(crate) fn under_way(&self) -> Option<Arc<dyn Detach>> {
        self.flight.as_ref()?.upgrade()
    }
}

const SHARDS: usize = 16;
const KEPT_PER_SHARD: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::queue::Reply;

    const MANY: usize = 100_000;

    fn name(n: usize) -> LockName {
        LockName::new(format!("{n}")).unwrap()
    }

    fn known(queues: &Queues) -> usize {
        queues.shards.iter().map(|shard| shard.lock().entries.len()).sum()
    }

    fn room(queues: &Queues) -> usize {
        queues.shards.iter().map(|shard| shard.lock().entries.capacity()).sum()
    }

    fn claimed(queues: &Queues, n: usize) {
        let claim = queues.with(&name(n), |entry| entry.queue.claim());
        assert!(matches!(claim, Reply::Drive));
    }

    fn idle(queues: &Queues, n: usize) {
        queues.with(&name(n), |entry| assert!(entry.queue.next().is_none()));
    }

    /// Queues that come and go leave a bounded number behind, however many there were.
    #[test]
    fn idle_names_are_forgotten() {
        let queues = Queues::new();
        for n in 0..MANY {
            claimed(&queues, n);
            idle(&queues, n);
        }
        assert!(known(&queues) <= SHARDS * KEPT_PER_SHARD, "{} names are kept", known(&queues));
    }

    /// Queues in use are never forgotten.
    #[test]
    fn names_in_use_stay() {
        let queues = Queues::new();
        (0..MANY).for_each(|n| claimed(&queues, n));
        queues.trim();
        assert_eq!(known(&queues), MANY);
    }

    /// What many locks held at once took is given back when they are gone.
    #[test]
    fn the_room_of_many_names_is_given_back() {
        let queues = Queues::new();
        (0..MANY).for_each(|n| claimed(&queues, n));
        (0..MANY).for_each(|n| idle(&queues, n));
        queues.trim();
        assert!(room(&queues) <= SHARDS * KEPT_PER_SHARD * 4, "room for {} names", room(&queues));
        assert!(known(&queues) <= SHARDS * KEPT_PER_SHARD);
    }

    /// A few idle names are remembered with their last counters, trimmed or not.
    #[test]
    fn a_few_idle_names_are_remembered() {
        let queues = Queues::new();
        for n in 0..100 {
            claimed(&queues, n);
            idle(&queues, n);
        }
        queues.trim();
        assert_eq!(known(&queues), 100);
    }
}
