//! The names in use by a manager, sharded, and of each: its queue, its pending request, and the store's news.
//!
//! A name is looked up when a [`Lock`](crate::Lock) is made and kept: all that follows
//! locks the name alone. An idle name stays for a while: it remembers its last counter, so that a store whose
//! counter went back is found out (G3). Idle names are forgotten when a shard is full, and once a ttl.
//!
//! The caller decides how a waiter is called: `W` is opaque here.
//!
//! Not promised: that memory reaches beyond the few thousand idle names that stay, nor which they are.
//!
//! # Invariants
//! - **names-1** A name exists once at a time: a name that is referenced, or has a grant, is never forgotten.
//! - **names-2** A request is found by every waiter behind it until it is answered, and is polled by a task as soon
//!   as there is one.
//!
//! A shard's mutex is taken before those of its names, never after. Checked by the tests below.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::future::poll_fn;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Weak};
use std::task::Poll;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use crate::backend::Holder;
use crate::clock::Moment;
use crate::core::context::Context;
use crate::core::ownership::Ownership;
use crate::core::queue::{Counted, NameQueue};
use crate::core::request::{Handle, Request};
use crate::words::error::Error;
use crate::words::loss::LostReason;
use crate::words::name::LockName;

pub(crate) struct Names<W> {
    shards: Box<[Mutex<Shard<W>>]>,
}

struct Shard<W> {
    /// By their names, of which there is no second copy here.
    names: HashSet<Arc<Name<W>>>,
    /// The size at which idle names are forgotten.
    full: usize,
}

pub(crate) struct Name<W> {
    pub(crate) lock_name: LockName,
    state: Mutex<NameState<W>>,
}

/// The state of one name in this process.
pub(crate) struct NameState<W> {
    pub(crate) queue: NameQueue<Arc<Ownership>, W>,
    /// The store's news of a request; usually none.
    pub(crate) news: Option<Box<StoreNews>>,
    /// The request in flight: the acquisition, or else a release.
    request: Option<Weak<dyn Handle>>,
}

/// The store's news of the pending request, or of the last one.
#[derive(Default)]
pub(crate) struct StoreNews {
    /// The holder that the store named when it queued the request.
    pub(crate) holder: Option<Holder>,
    /// The request has, or had, a place in the store's queue.
    pub(crate) queued: bool,
    pub(crate) early: Early,
    /// The store's last answer, if that was no grant and no place in its queue.
    pub(crate) refused: Option<Error>,
}

/// The store's news of a grant that has not arrived.
#[derive(Default)]
pub(crate) struct Early {
    /// The largest counter that was named: the grant to come has a larger one than any before.
    pub(crate) counter: u64,
    pub(crate) lost: Option<LostReason>,
    /// The earliest deadline of a requested revocation.
    pub(crate) ends_at: Option<Moment>,
}

impl Counted for Arc<Ownership> {
    fn counter(&self) -> u64 {
        self.grant.counter
    }
}

impl<W> Names<W> {
    pub(crate) fn new() -> Self {
        let shard = || Mutex::new(Shard { names: HashSet::default(), full: KEPT_PER_SHARD });
        Self { shards: std::iter::repeat_with(shard).take(SHARDS).collect() }
    }

    pub(crate) fn of(&self, name: &LockName) -> Arc<Name<W>> {
        let mut shard = self.shard(name).lock();
        if let Some(found) = shard.names.get(name) {
            return Arc::clone(found);
        }
        // The bound doubles with the live names, so that the cost stays constant per name.
        if shard.full <= shard.names.len() {
            shard.forget();
        }
        let state = NameState { queue: NameQueue::new(), news: None, request: None };
        let new = Arc::new(Name { lock_name: name.clone(), state: Mutex::new(state) });
        shard.names.insert(Arc::clone(&new));
        new
    }

    /// The same, if this process knows the name.
    pub(crate) fn known(&self, name: &LockName) -> Option<Arc<Name<W>>> {
        self.shard(name).lock().names.get(name).map(Arc::clone)
    }

    /// Collects from every name, in order of names.
    pub(crate) fn collect<R>(&self, mut pick: impl FnMut(&LockName, &mut NameState<W>) -> Vec<R>) -> Vec<R> {
        let mut picked = Vec::new();
        for shard in &self.shards {
            for name in &shard.lock().names {
                let found = name.with(|state| pick(&name.lock_name, state));
                if !found.is_empty() {
                    picked.push((name.lock_name.clone(), found));
                }
            }
        }
        picked.sort_by(|(a, _), (b, _)| a.cmp(b));
        picked.into_iter().flat_map(|(_, found)| found).collect()
    }

    /// Forgets idle names where there are many, and frees their memory.
    pub(crate) fn trim(&self) {
        for shard in &self.shards {
            shard.lock().trim();
        }
    }

    /// Which names share a mutex. Nothing depends on their being spread well, so the name is not hashed for it.
    fn shard(&self, name: &LockName) -> &Mutex<Shard<W>> {
        let spread = |sum: u32, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        let spread = name.as_str().bytes().fold(0x811c_9dc5, spread);
        &self.shards[(spread >> 16) as usize % SHARDS]
    }
}

impl<W> Shard<W> {
    fn trim(&mut self) {
        if KEPT_PER_SHARD < self.names.len() {
            self.forget();
        }
        // As large as it was while it was full, and no larger; half of that is no reason to move all.
        if self.full * 2 < self.names.capacity() {
            self.names.shrink_to(self.full);
        }
    }

    fn forget(&mut self) {
        // RACE: a name is shared by `of` and `known`, with the shard locked, and otherwise cloned. So one of
        // which there is no clone here gets none (names-1).
        self.names.retain(|name| Arc::strong_count(name) > 1 || !name.with(|state| state.queue.is_idle()));
        self.full = KEPT_PER_SHARD.max(self.names.len() * 2);
    }
}

/// A name exists once, so its text stands for it.
impl<W> PartialEq for Name<W> {
    fn eq(&self, other: &Self) -> bool {
        self.lock_name == other.lock_name
    }
}

impl<W> Eq for Name<W> {}

impl<W> Hash for Name<W> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.lock_name.hash(state);
    }
}

impl<W> Borrow<LockName> for Arc<Name<W>> {
    fn borrow(&self) -> &LockName {
        &self.lock_name
    }
}

impl<W> Name<W> {
    /// Calls `act` under the name's mutex: nothing is woken, and no guard dropped, in there.
    #[inline]
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut NameState<W>) -> R) -> R {
        act(&mut self.state.lock())
    }

    /// Calls `act` under the name's mutex. If it returns that its caller will wait for the store, a task polls the pending
    /// request from here on (names-2).
    pub(crate) fn wait<R>(&self, act: impl FnOnce(&mut NameState<W>) -> (R, bool)) -> R {
        let (result, ahead) = self.with(|state| {
            let (result, waits) = act(state);
            (result, if waits { state.in_flight() } else { None })
        });
        if let Some(ahead) = ahead {
            ahead.move_to_task();
        }
        result
    }

    /// Polls `future` once in place: its output if that is enough, or else a request that is found by all waiters
    /// of the name (names-2). With `unheard` the request goes on when its caller leaves; without, it is dropped.
    pub(crate) async fn begin<T: Send + 'static>(
        &self,
        context: &Context,
        mut future: BoxFuture<'static, T>,
        unheard: Option<fn(T)>,
    ) -> Result<T, Request<T>> {
        let polled = poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending => Poll::Ready(Err(cx.waker().clone())),
        });
        let waker = match polled.await {
            Ok(output) => return Ok(output),
            Err(waker) => waker,
        };
        let request = Request::new(&context.env, future, unheard, Some(waker));
        let handle = request.handle();
        let (is_waited_for, before) = self.with(|state| state.register(&handle, unheard.is_some()));
        if let Some(before) = before {
            before.move_to_task();
        }
        if is_waited_for || context.is_closed() {
            handle.move_to_task();
        }
        Err(request)
    }
}

impl<W> NameState<W> {
    /// An acquisition begins, without news of the store.
    pub(crate) fn begin(&mut self) {
        if let Some(news) = &mut self.news {
            (news.holder, news.early) = Default::default();
        }
    }

    /// The acquisition has ended with a grant that is held.
    pub(crate) fn granted(&mut self) {
        (self.request, self.news) = (None, None);
    }

    /// The acquisition has ended, and the store keeps nothing of it.
    pub(crate) fn not_granted(&mut self) {
        self.answered();
        self.queue.not_granted();
    }

    /// A grant that is not held, or no more: its release is pending.
    pub(crate) fn give_back(&mut self, ownership: &Arc<Ownership>) {
        if !self.queue.is_releasing(|held| Arc::ptr_eq(held, ownership)) {
            self.answered();
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

    /// The acquisition has ended.
    fn answered(&mut self) {
        self.request = None;
        if let Some(news) = &mut self.news {
            news.queued = false;
        }
    }

    /// Whether `handle` is the acquisition in flight, and not answered yet.
    pub(crate) fn is_in_flight(&self, handle: &Arc<dyn Handle>) -> bool {
        self.request.as_ref().is_some_and(|request| std::ptr::addr_eq(request.as_ptr(), Arc::as_ptr(handle)))
    }

    /// The request that the waiters may have to wait for.
    pub(crate) fn in_flight(&self) -> Option<Arc<dyn Handle>> {
        self.request.as_ref()?.upgrade()
    }

    /// Adds a request, unless it is a release during an acquisition, which keeps the place. A task is to poll it if the first
    /// is true, and the request that had the place before.
    fn register(&mut self, request: &Arc<dyn Handle>, is_release: bool) -> (bool, Option<Arc<dyn Handle>>) {
        if is_release && self.queue.is_acquiring() {
            return (true, None);
        }
        let before = self.request.replace(Arc::downgrade(request));
        (self.queue.is_waited_for(), before.and_then(|before| before.upgrade()))
    }
}

const SHARDS: usize = 16;
const KEPT_PER_SHARD: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::queue::{Claim, Wish};
    use crate::words::mode::Mode;

    const MANY: usize = 100_000;

    fn name(n: usize) -> LockName {
        LockName::new(format!("{n}")).unwrap()
    }

    fn known(names: &Names<()>) -> usize {
        names.shards.iter().map(|shard| shard.lock().names.len()).sum()
    }

    fn room(names: &Names<()>) -> usize {
        names.shards.iter().map(|shard| shard.lock().names.capacity()).sum()
    }

    fn claimed(names: &Names<()>, n: usize) {
        let wish = Wish { mode: Mode::EXCLUSIVE, alone: false };
        let claim = names.of(&name(n)).with(|state| state.queue.claim(wish, |_, _| false));
        assert!(matches!(claim, Claim::Lead));
    }

    fn idle(names: &Names<()>, n: usize) {
        names.of(&name(n)).with(NameState::not_granted);
    }

    /// Names that come and go leave a bounded number behind, however many there were.
    #[test]
    fn idle_names_are_forgotten() {
        let names = Names::<()>::new();
        for n in 0..MANY {
            claimed(&names, n);
            idle(&names, n);
        }
        assert!(known(&names) <= SHARDS * KEPT_PER_SHARD, "{} names are kept", known(&names));
    }

    /// A release that begins while the store is asked is polled by a task, also before that request is registered:
    /// the acquisition has the place.
    #[test]
    fn a_release_leaves_the_place_to_an_acquisition() {
        #[derive(Debug)]
        struct Release;
        impl Handle for Release {
            fn move_to_task(self: Arc<Self>) {}
        }
        let names = Names::<()>::new();
        claimed(&names, 0);
        let release: Arc<dyn Handle> = Arc::new(Release);
        let (goes_on, before) = names.of(&name(0)).with(|state| state.register(&release, true));
        assert!(goes_on && before.is_none());
        assert!(names.of(&name(0)).with(|state| state.in_flight()).is_none());
    }

    /// Names in use are never forgotten.
    #[test]
    fn names_in_use_stay() {
        let names = Names::<()>::new();
        (0..MANY).for_each(|n| claimed(&names, n));
        names.trim();
        assert_eq!(known(&names), MANY);
    }

    /// A look-up finds the name that others have in hand, idle as it may be (names-1).
    #[test]
    fn a_name_exists_once() {
        let names = Names::<()>::new();
        let in_hand = names.of(&name(0));
        for n in 1..MANY {
            claimed(&names, n);
            idle(&names, n);
        }
        names.trim();
        assert!(Arc::ptr_eq(&in_hand, &names.of(&name(0))));
        assert!(names.known(&name(1)).is_none_or(|other| !Arc::ptr_eq(&in_hand, &other)));
    }

    /// The memory of many names is freed when they are idle.
    #[test]
    fn memory_of_many_names_is_freed() {
        let names = Names::<()>::new();
        (0..MANY).for_each(|n| claimed(&names, n));
        (0..MANY).for_each(|n| idle(&names, n));
        names.trim();
        assert!(room(&names) <= SHARDS * KEPT_PER_SHARD * 4, "room for {} names", room(&names));
        assert!(known(&names) <= SHARDS * KEPT_PER_SHARD);
    }

    /// A few idle names are remembered with their last counters, trimmed or not.
    #[test]
    fn a_few_idle_names_are_remembered() {
        let names = Names::<()>::new();
        for n in 0..100 {
            claimed(&names, n);
            idle(&names, n);
        }
        names.trim();
        assert_eq!(known(&names), 100);
    }
}
