//! The local queues of a manager, by name.
//!
//! A queue is looked for when a [`Lock`](crate::Lock) is made, and whoever has to do with it keeps it: what follows
//! locks the queue alone. Those of all names are sharded, so that a search seldom waits for another. A queue
//! that is idle stays for a while: it remembers the last counter of its name, so that a store
//! whose counter went back is found out (G3).
//!
//! Idle names are forgotten when a shard is full, and once a ttl; what they took is given back then.
//! Not promised: that memory reaches beyond the few thousand idle names that stay, nor which they are.
//!
//! # Invariants
//! - **names-1** A name has one queue at a time: one that anybody has is never forgotten.
//!
//! A shard's mutex is taken before those of its queues, never after.
//!
//! Checked by the tests below.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher, RandomState};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::backend::Holder;
use crate::clock::Moment;
use crate::core::acquire::Turn;
use crate::core::ownership::Ownership;
use crate::core::queue::{Counted, NameQueue};
use crate::core::request::Handle;
use crate::words::error::Error;
use crate::words::loss::LostReason;
use crate::words::name::LockName;

#[derive(Debug)]
pub(crate) struct Names {
    shards: Box<[Mutex<Shard>]>,
}

#[derive(Debug)]
struct Shard {
    queues: HashSet<ByName, RandomState>,
    /// The size at which idle queues are forgotten.
    full: usize,
}

/// The queue of one name.
pub(crate) struct Name {
    name: LockName,
    state: Mutex<NameState>,
}

/// A queue that is found by its name.
#[derive(Debug)]
struct ByName(Arc<Name>);

/// What this process knows of one name.
#[derive(Debug)]
pub(crate) struct NameState {
    pub(crate) queue: NameQueue<Arc<Ownership>, Waiter>,
    /// What was told of a request; nothing, as a rule.
    news: Option<Box<StoreNews>>,
    /// What is on its way to the store, polled by its caller: the acquisition, or else a release.
    pub(crate) request: Option<Weak<dyn Handle>>,
}

/// What the store told of the request that is under way, or of the last one.
#[derive(Debug, Default)]
pub(crate) struct StoreNews {
    /// Whom the store named as holder while we queued.
    pub(crate) heard: Option<Holder>,
    /// Whoever asks the store had a place in its queue.
    pub(crate) queued: bool,
    /// A loss that was told before its grant had arrived here: counter and reason.
    pub(crate) lost_early: Option<(u64, LostReason)>,
    /// In the same way, that somebody wants it: counter and until when.
    pub(crate) asked_early: Option<(u64, Moment)>,
    /// What the store said last, if that was no grant and no place in its queue.
    pub(crate) refused: Option<Error>,
}

/// Somebody of this process who waits for a name.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) turn: oneshot::Sender<Turn>,
    /// The round of [`warn_of_self_deadlock`](crate::core::Core::warn_of_self_deadlock) in which the wait began.
    pub(crate) since_round: u32,
}

impl Counted for Arc<Ownership> {
    fn counter(&self) -> u64 {
        self.grant().counter
    }
}

impl Names {
    #[expect(clippy::mutable_key_type, reason = "a queue is found by its name, which stays")]
    pub(crate) fn new() -> Self {
        let hasher = RandomState::default();
        let shard = || {
            let queues = HashSet::with_hasher(hasher.clone());
            Mutex::new(Shard { queues, full: KEPT_PER_SHARD })
        };
        Self { shards: std::iter::repeat_with(shard).take(SHARDS).collect() }
    }

    /// The queue of `name`.
    pub(crate) fn of(&self, name: &LockName) -> Arc<Name> {
        let mut shard = self.shard(name).lock();
        if let Some(ByName(queue)) = shard.queues.get(name.as_str()) {
            return Arc::clone(queue);
        }
        shard.make_room();
        let queue = Arc::new(Name::new(name));
        shard.queues.insert(ByName(Arc::clone(&queue)));
        queue
    }

    /// The queue of `name` if this process knows the name.
    pub(crate) fn known(&self, name: &LockName) -> Option<Arc<Name>> {
        self.shard(name).lock().queues.get(name.as_str()).map(|ByName(queue)| Arc::clone(queue))
    }

    /// Collects from every name, in order of names.
    pub(crate) fn collect<R>(&self, mut pick: impl FnMut(&LockName, &mut NameState) -> Vec<R>) -> Vec<R> {
        let mut picked = Vec::new();
        for shard in &self.shards {
            for ByName(queue) in &shard.lock().queues {
                let found = queue.with(|state| pick(&queue.name, state));
                if !found.is_empty() {
                    picked.push((queue.name.clone(), found));
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

    /// Which names share a mutex. Nothing depends on their being spread well, so the name is not hashed for it.
    fn shard(&self, name: &LockName) -> &Mutex<Shard> {
        let spread = |sum: u32, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        let spread = name.as_str().bytes().fold(0x811c_9dc5, spread);
        &self.shards[(spread >> 16) as usize % SHARDS]
    }
}

impl Shard {
    /// Forgets idle names once the shard is full. The bound doubles with the live ones, so that the cost
    /// stays constant per name.
    fn make_room(&mut self) {
        if self.full <= self.queues.len() {
            self.forget();
        }
    }

    fn trim(&mut self) {
        if KEPT_PER_SHARD < self.queues.len() {
            self.forget();
        }
        // As large as it was while it was full, and no larger; half of that is no reason to move all.
        if self.full * 2 < self.queues.capacity() {
            self.queues.shrink_to(self.full);
        }
    }

    fn forget(&mut self) {
        // RACE: whoever has it has it from here, with the shard locked, or from another who has it. So nobody
        // comes to have one that nobody has (names-1).
        self.queues.retain(|ByName(queue)| {
            Arc::strong_count(queue) > 1 || !queue.with(|state| state.queue.is_idle())
        });
        self.full = KEPT_PER_SHARD.max(self.queues.len() * 2);
    }
}

impl Name {
    fn new(name: &LockName) -> Self {
        let state = NameState { queue: NameQueue::new(), news: None, request: None };
        Self { name: name.clone(), state: Mutex::new(state) }
    }

    pub(crate) fn name(&self) -> &LockName {
        &self.name
    }

    /// Calls `act` under the queue's mutex: no waking, no dropping of guards in there.
    #[inline]
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut NameState) -> R) -> R {
        act(&mut self.state.lock())
    }
}

impl fmt::Debug for Name {
    /// What is held names its queue.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Name").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Borrow<str> for ByName {
    fn borrow(&self) -> &str {
        self.0.name.as_str()
    }
}

impl Hash for ByName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name.as_str().hash(state);
    }
}

impl PartialEq for ByName {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for ByName {}

impl NameState {
    /// What was told, to add to it.
    pub(crate) fn news(&mut self) -> &mut StoreNews {
        self.news.get_or_insert_default()
    }

    /// What was told, if anything was.
    pub(crate) fn told(&mut self) -> Option<&mut StoreNews> {
        self.news.as_deref_mut()
    }

    /// What was told is over.
    pub(crate) fn forget_news(&mut self) {
        self.news = None;
    }

    /// The acquisition has ended, and the store keeps nothing of it.
    pub(crate) fn not_granted(&mut self) {
        self.ready();
        self.queue.not_granted();
    }

    /// What the store has granted nobody will hold, or nobody does any more: it is being released.
    pub(crate) fn give_back(&mut self, ownership: &Arc<Ownership>) {
        if !self.queue.is_releasing(|held| Arc::ptr_eq(held, ownership)) {
            self.ready();
            self.queue.give_back(Arc::clone(ownership));
        }
    }

    /// The store has nothing of it any more.
    pub(crate) fn released(&mut self, ownership: &Arc<Ownership>) {
        self.queue.released(|held| Arc::ptr_eq(held, ownership));
        if !self.queue.waits_for_store() {
            self.request = None;
        }
    }

    fn ready(&mut self) {
        self.request = None;
        if let Some(news) = self.told() {
            news.queued = false;
        }
    }

    /// The hold of the grant with this counter.
    pub(crate) fn held_by(&self, counter: u64) -> Option<Arc<Ownership>> {
        let (ownership, _) = self.queue.held().find(|(held, _)| held.counter() == counter)?;
        Some(Arc::clone(ownership))
    }

    /// `request` sets out, and is found by those who will wait for it. What must go on as a task: itself, if
    /// somebody waits already or the place is an acquisition's; and whatever had it before.
    pub(crate) fn sets_out(
        &mut self,
        request: &Arc<dyn Handle>,
        is_release: bool,
    ) -> (bool, Option<Arc<dyn Handle>>) {
        if is_release && self.queue.is_acquiring() {
            return (true, None);
        }
        let before = self.request.replace(Arc::downgrade(request));
        (self.queue.is_waited_for(), before.and_then(|before| before.upgrade()))
    }

    /// What those who wait here may have to wait for.
    pub(crate) fn under_way(&self) -> Option<Arc<dyn Handle>> {
        self.request.as_ref()?.upgrade()
    }
}

const SHARDS: usize = 16;
const KEPT_PER_SHARD: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::queue::{Reply, Wish};
    use crate::words::mode::Mode;

    const MANY: usize = 100_000;

    fn name(n: usize) -> LockName {
        LockName::new(format!("{n}")).unwrap()
    }

    fn known(queues: &Names) -> usize {
        queues.shards.iter().map(|shard| shard.lock().queues.len()).sum()
    }

    fn room(queues: &Names) -> usize {
        queues.shards.iter().map(|shard| shard.lock().queues.capacity()).sum()
    }

    fn claimed(queues: &Names, n: usize) {
        let wish = Wish { mode: Mode::EXCLUSIVE, alone: false };
        let claim = queues.of(&name(n)).with(|state| state.queue.claim(wish, |_, _| false));
        assert!(matches!(claim, Reply::Lead));
    }

    fn idle(queues: &Names, n: usize) {
        queues.of(&name(n)).with(NameState::not_granted);
    }

    /// Names that come and go leave a bounded number behind, however many there were.
    #[test]
    fn idle_names_are_forgotten() {
        let queues = Names::new();
        for n in 0..MANY {
            claimed(&queues, n);
            idle(&queues, n);
        }
        assert!(known(&queues) <= SHARDS * KEPT_PER_SHARD, "{} names are kept", known(&queues));
    }

    /// A release that begins while the store is asked goes on by itself, also before that request has set out:
    /// the place is that one's, and who lands gives it up.
    #[test]
    fn a_release_leaves_the_place_to_an_acquisition() {
        #[derive(Debug)]
        struct Release;
        impl Handle for Release {
            fn move_to_task(self: Arc<Self>) {}
        }
        let queues = Names::new();
        claimed(&queues, 0);
        let release: Arc<dyn Handle> = Arc::new(Release);
        let (goes_on, before) = queues.of(&name(0)).with(|state| state.sets_out(&release, true));
        assert!(goes_on && before.is_none());
        assert!(queues.of(&name(0)).with(|state| state.under_way()).is_none());
    }

    /// Names in use are never forgotten.
    #[test]
    fn names_in_use_stay() {
        let queues = Names::new();
        (0..MANY).for_each(|n| claimed(&queues, n));
        queues.trim();
        assert_eq!(known(&queues), MANY);
    }

    /// Whoever looks for a name finds the queue that others have in hand, idle as it may be (names-1).
    #[test]
    fn a_name_has_one_queue() {
        let queues = Names::new();
        let in_hand = queues.of(&name(0));
        for n in 1..MANY {
            claimed(&queues, n);
            idle(&queues, n);
        }
        queues.trim();
        assert!(Arc::ptr_eq(&in_hand, &queues.of(&name(0))));
        assert!(queues.known(&name(1)).is_none_or(|other| !Arc::ptr_eq(&in_hand, &other)));
    }

    /// What many locks held at once took is given back when they are gone.
    #[test]
    fn the_room_of_many_names_is_given_back() {
        let queues = Names::new();
        (0..MANY).for_each(|n| claimed(&queues, n));
        (0..MANY).for_each(|n| idle(&queues, n));
        queues.trim();
        assert!(room(&queues) <= SHARDS * KEPT_PER_SHARD * 4, "room for {} names", room(&queues));
        assert!(known(&queues) <= SHARDS * KEPT_PER_SHARD);
    }

    /// A few idle names are remembered with their last counters, trimmed or not.
    #[test]
    fn a_few_idle_names_are_remembered() {
        let queues = Names::new();
        for n in 0..100 {
            claimed(&queues, n);
            idle(&queues, n);
        }
        queues.trim();
        assert_eq!(known(&queues), 100);
    }
}
