//! The queue of one name within this process, as a pure state machine.
//!
//! Callers of a manager meet here before the store: one of them at a time leads and sends requests to the store, and the others
//! wait. A released lock passes to the next waiter without a request, and a shared one is joined, for as long as the hand-off
//! budget lasts.
//!
//! Every change of the queue is followed by [`call_next`](NameQueue::call_next), which names the waiters whose turn it
//! is: any change may make it a waiter's turn, also one in front that leaves.
//!
//! `T` is a grant, of which only the counter is read; `W` is the handle of a waiter, which is not read.
//!
//! # Invariants
//! - **queue-1** At most one acquisition exists, and it fits the process's grants and unconfirmed releases (B1).
//! - **queue-2** Tokens are unique, and later grants have larger ones; a counter that does not grow is refused (G3).
//! - **queue-3** Callers are served in the order they came (G7): no caller passes a waiter or the leader. No waiter waits while
//!   its turn may have come: every wait ends in a change of the queue (G6).
//! - **queue-4** A grant passes on or is joined at most `limit` times, and not after its window (G7).
//!
//! Checked by the tests below, and by the model on all schedules of four callers.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Moment;
use crate::words::mode::{Load, Mode};
use crate::words::token::FencingToken;

/// The queue of one name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NameQueue<T, W> {
    /// The mode of the acquisition in flight.
    acquiring: Option<Mode>,
    /// A grant, if there is any; most names never have two at a time.
    grant: Option<LocalGrant<T>>,
    /// Made at the first wait or share, and kept.
    others: Option<Box<Others<T, W>>>,
    /// The smallest counter that the next grant may have.
    next_counter: u64,
}

/// The callers besides the first grant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Others<T, W> {
    /// Further grants, in no order.
    grants: Vec<LocalGrant<T>>,
    waiters: VecDeque<Queued<W>>,
}

/// One grant of the store, its local hand-offs, and the callers that joined it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct LocalGrant<T> {
    held: T,
    mode: Mode,
    /// No other caller may join it. Apart from the mode: a `Wish` would take room for four bytes.
    alone: bool,
    until: Moment,
    index: u16,
    limit: u16,
    /// The number of its guards; zero once its release is sent to the store.
    guards: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Queued<W> {
    id: WaiterId,
    wish: Wish,
    waiter: W,
}

/// How a caller wants to hold the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Wish {
    pub(crate) mode: Mode,
    /// A share, but not on a grant that others of this process hold, too.
    pub(crate) alone: bool,
}

/// A waiter: unique within its manager, so that a late leave takes no other out of a queue that was forgotten and made again.
/// Later waiters have larger ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct WaiterId(pub(crate) u64);

/// How long a lock may pass on locally.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HandoffBudget {
    pub(crate) limit: u16,
    pub(crate) window: Duration,
}

/// A grant of the store, as the queue knows it.
pub(crate) trait Counted: Clone {
    /// The store's number of it.
    fn counter(&self) -> u64;
}

/// The answer to a claim; a waiter that is called later gets one of the first two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim<T> {
    /// It is held: together with others, or as passed on by its last holder.
    Hold(T, FencingToken),
    /// Ask the store; then call `adopt`, `give_back` or `not_granted`.
    Lead,
    /// Wait, by `enqueue`.
    Wait,
    /// Another caller of this process is ahead, and a `try` does not wait for it.
    Busy,
}

/// A waiter whose turn it is, and the answer to its claim.
pub(crate) type Call<T, W> = (Claim<T>, W);

/// The fate of a released hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Released {
    /// The process keeps the grant: others share it, or a waiter is called, which has it now.
    Stays,
    /// The store must release it; then call `released`.
    Store,
    /// It was not held any more.
    NotHeld,
}

impl<T: Counted, W> NameQueue<T, W> {
    pub(crate) fn new() -> Self {
        Self { acquiring: None, grant: None, others: None, next_counter: 0 }
    }

    /// Claims the lock for a caller that waits. `joins` decides whether a grant may be joined, which is
    /// so until the given moment.
    pub(crate) fn claim(&mut self, wish: Wish, joins: impl FnMut(&T, Moment) -> bool) -> Claim<T> {
        let claim = if self.is_waited_for() { None } else { self.join_or_lead(wish, joins) };
        claim.unwrap_or(Claim::Wait)
    }

    /// Claims the lock for a caller that does not wait for a holder; `Wait` means for the confirmation
    /// of a release.
    pub(crate) fn try_claim(&mut self, wish: Wish, joins: impl FnMut(&T, Moment) -> bool) -> Claim<T> {
        let claim = self.claim(wish, joins);
        let held = || self.grants().filter(|grant| grant.is_held()).map(|grant| grant.mode);
        let is_busy =
            || self.is_waited_for() || self.acquiring.is_some() || !Load::from_iter(held()).admits(wish.mode);
        if matches!(claim, Claim::Wait) && is_busy() { Claim::Busy } else { claim }
    }

    /// Puts a waiter at the end.
    #[inline]
    pub(crate) fn enqueue(&mut self, id: WaiterId, wish: Wish, waiter: W) {
        debug_assert!(!self.is_idle(), "queue-3: no change would call this waiter");
        let waiters = &mut self.others().waiters;
        debug_assert!(waiters.back().is_none_or(|last| last.id < id), "ids grow");
        waiters.push_back(Queued { id, wish, waiter });
    }

    /// Takes a waiter out; `None` if it was called already.
    pub(crate) fn leave(&mut self, id: WaiterId) -> Option<W> {
        let waiters = &mut self.others.as_mut()?.waiters;
        let place = waiters.binary_search_by_key(&id, |place| place.id).ok()?;
        waiters.remove(place).map(|place| place.waiter)
    }

    /// Calls the first waiter if it is its turn; to be repeated until it is not.
    pub(crate) fn call_next(&mut self, joins: impl FnMut(&T, Moment) -> bool) -> Option<Call<T, W>> {
        let claim = self.join_or_lead(self.first()?, joins)?;
        self.pop().map(|waiter| (claim, waiter))
    }

    /// The leader leaves: the first waiter goes on with its request if it wants the same.
    pub(crate) fn inherit(&mut self, wish: Wish) -> Option<W> {
        debug_assert_eq!(self.acquiring, Some(wish.mode), "queue-1");
        if self.first()? == wish { self.pop() } else { None }
    }

    /// The store has granted the request: returns the first token.
    ///
    /// A counter that has not grown is refused with the last one, and the grant must be released; then call `released`.
    pub(crate) fn adopt(
        &mut self,
        held: T,
        wish: Wish,
        now: Moment,
        budget: HandoffBudget,
    ) -> Result<FencingToken, u64> {
        debug_assert_eq!(self.acquiring, Some(wish.mode), "queue-1");
        self.acquiring = None;
        let (counter, until) = (held.counter(), now + budget.window);
        let Wish { mode, alone } = wish;
        let grant = LocalGrant { held, mode, alone, until, index: 0, limit: budget.limit, guards: 1 };
        match FencingToken::new(counter, 0).filter(|_| self.next_counter <= counter) {
            Some(token) => {
                self.next_counter = counter + 1;
                self.keep(grant);
                Ok(token)
            }
            None => {
                self.keep(LocalGrant { guards: 0, ..grant });
                Err(self.next_counter.checked_sub(1).unwrap_or(FencingToken::MAX_COUNTER))
            }
        }
    }

    /// The store has granted the request too late: the grant must be released; then call `released`.
    pub(crate) fn give_back(&mut self, held: T) {
        debug_assert!(self.acquiring.is_some(), "queue-1");
        let Some(mode) = self.acquiring.take() else {
            return;
        };
        let until = Moment::from_nanos(0);
        self.keep(LocalGrant { held, mode, alone: true, until, index: 0, limit: 0, guards: 0 });
    }

    /// The acquisition has ended, and the store keeps nothing of it.
    pub(crate) fn not_granted(&mut self) {
        debug_assert!(self.acquiring.is_some(), "queue-1");
        self.acquiring = None;
    }

    /// A guard of the grant `counter` is released. If it was the last one, the first waiter wants the same and the
    /// budget allows, `passes` decides whether the lock passes on: to the waiter that is called then.
    pub(crate) fn release(
        &mut self,
        counter: u64,
        now: Moment,
        passes: impl FnOnce() -> bool,
    ) -> (Released, Option<Call<T, W>>) {
        let is_asked = self.acquiring.is_some();
        let (mut grants, waiters) = self.parts();
        let Some(grant) = grants.find(|grant| grant.is_held() && grant.held.counter() == counter) else {
            return (Released::NotHeld, None);
        };
        grant.guards -= 1;
        if grant.guards > 0 {
            return (Released::Stays, None);
        }
        if let Some(waiters) = waiters
            && waiters.front().is_some_and(|first| first.wish.mode == grant.mode)
            && !is_asked
            && grant.index < grant.limit
            && now < grant.until
            && passes()
            && let Some(Queued { wish, waiter, .. }) = waiters.pop_front()
        {
            grant.alone = wish.alone;
            let (held, token) = grant.pass();
            return (Released::Stays, Some((Claim::Hold(held, token), waiter)));
        }
        (Released::Store, None)
    }

    /// The store has confirmed the release of the grant that is `it`.
    pub(crate) fn released(&mut self, it: impl Fn(&T) -> bool) {
        let is_over = |grant: &LocalGrant<T>| grant.is_releasing(&it);
        let more = self.others.as_mut().map(|others| &mut others.grants);
        if self.grant.as_ref().is_some_and(is_over) {
            self.grant = more.and_then(Vec::pop);
        } else if let Some(more) = more
            && let Some(at) = more.iter().position(is_over)
        {
            more.swap_remove(at);
        }
    }

    /// Whether the release of the grant that is `it` is pending at the store.
    pub(crate) fn is_releasing(&self, it: impl Fn(&T) -> bool) -> bool {
        self.grants().any(|grant| grant.is_releasing(&it))
    }

    /// The grant that is `it` is lost, for all its guards. Returns whether the caller has to clean up; then call
    /// `released`.
    pub(crate) fn lose(&mut self, it: impl Fn(&T) -> bool) -> bool {
        let held = self.parts().0.find(|grant| grant.is_held() && it(&grant.held));
        held.map(|grant| grant.guards = 0).is_some()
    }

    /// Takes all waiters out.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = W> {
        let waiters = self.others.as_mut().map(|others| std::mem::take(&mut others.waiters));
        waiters.into_iter().flatten().map(|place| place.waiter)
    }

    /// Whether the store has something to answer.
    pub(crate) fn waits_for_store(&self) -> bool {
        self.acquiring.is_some() || self.grants().any(|grant| !grant.is_held())
    }

    /// Returns the held grants, in no order, with their latest tokens.
    pub(crate) fn held(&self) -> impl Iterator<Item = (&T, FencingToken)> {
        self.grants().filter(|grant| grant.is_held()).map(|grant| (&grant.held, grant.token()))
    }

    pub(crate) fn is_acquiring(&self) -> bool {
        self.acquiring.is_some()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.acquiring.is_none() && self.grant.is_none()
    }

    /// Whether it may be the first waiter's turn: if not, there is nothing to [`call_next`](Self::call_next).
    pub(crate) fn may_call(&self) -> bool {
        let fits = |wish: Wish| wish.mode == Mode::SHARED || self.load().admits(wish.mode);
        self.acquiring.is_none() && self.first().is_some_and(fits)
    }

    pub(crate) fn is_waited_for(&self) -> bool {
        self.first().is_some()
    }

    pub(crate) fn waiters(&self) -> impl Iterator<Item = &W> {
        self.others.iter().flat_map(|others| &others.waiters).map(|place| &place.waiter)
    }

    /// Returns the wish of the first waiter.
    fn first(&self) -> Option<Wish> {
        self.others.as_ref()?.waiters.front().map(|first| first.wish)
    }

    fn grants(&self) -> impl Iterator<Item = &LocalGrant<T>> {
        self.grant.iter().chain(self.others.iter().flat_map(|others| &others.grants))
    }

    /// Its grants and its waiters.
    fn parts(&mut self) -> (impl Iterator<Item = &mut LocalGrant<T>>, Option<&mut VecDeque<Queued<W>>>) {
        let (more, waiters) = match self.others.as_deref_mut() {
            Some(Others { grants, waiters }) => (grants.as_mut_slice(), Some(waiters)),
            None => (Default::default(), None),
        };
        (self.grant.iter_mut().chain(more), waiters)
    }

    fn others(&mut self) -> &mut Others<T, W> {
        self.others.get_or_insert_with(|| Box::new(Others { grants: Vec::new(), waiters: VecDeque::new() }))
    }

    fn keep(&mut self, grant: LocalGrant<T>) {
        match &mut self.grant {
            none @ None => *none = Some(grant),
            Some(_) => self.others().grants.push(grant),
        }
    }

    /// Of everything that this process has at the store.
    fn load(&self) -> Load {
        self.grants().map(|grant| grant.mode).collect()
    }

    fn join_or_lead(&mut self, wish: Wish, joins: impl FnMut(&T, Moment) -> bool) -> Option<Claim<T>> {
        if let Some((held, token)) = self.join(wish, joins) {
            return Some(Claim::Hold(held, token));
        }
        if self.acquiring.is_some() || !self.load().admits(wish.mode) {
            return None;
        }
        self.acquiring = Some(wish.mode);
        Some(Claim::Lead)
    }

    fn join(&mut self, wish: Wish, mut joins: impl FnMut(&T, Moment) -> bool) -> Option<(T, FencingToken)> {
        if wish.mode != Mode::SHARED || wish.alone || self.acquiring.is_some() {
            return None;
        }
        let grant = self.parts().0.find(|grant| grant.is_open() && joins(&grant.held, grant.until))?;
        Some(grant.pass())
    }

    fn pop(&mut self) -> Option<W> {
        self.others.as_mut()?.waiters.pop_front().map(|place| place.waiter)
    }
}

impl<T: Counted> LocalGrant<T> {
    fn is_held(&self) -> bool {
        self.guards > 0
    }

    fn is_releasing(&self, it: impl Fn(&T) -> bool) -> bool {
        !self.is_held() && it(&self.held)
    }

    /// Whether one more guard may have it.
    fn is_open(&self) -> bool {
        self.is_held() && self.mode == Mode::SHARED && !self.alone && self.index < self.limit
    }

    /// To one more guard.
    fn pass(&mut self) -> (T, FencingToken) {
        (self.index, self.guards) = (self.index + 1, self.guards + 1);
        (self.held.clone(), self.token())
    }

    fn token(&self) -> FencingToken {
        FencingToken::new(self.held.counter(), self.index)
            .expect("`adopt` checked the counter, `limit` the index")
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
