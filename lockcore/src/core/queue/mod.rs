//! The queue of one name within this process, as a pure state machine.
//!
//! Callers of a manager meet here before the store sees them: at most one of them asks the store,
//! the others wait their turn, and a lock that is released passes to the next one without a
//! request, for as long as the hand-off budget lasts.
//!
//! `T` is what is held, `W` how a waiter is told; neither is looked at.
//!
//! # Invariants
//! - **queue-1** At most one of {acquisition, hold, unconfirmed release} exists (B1).
//! - **queue-2** Tokens grow strictly; a counter that does not is refused (G3).
//! - **queue-3** Waiters leave in the order they came (G7), and never while idle: a queue with waiters
//!   always has somebody who will call for the next one (G6).
//! - **queue-4** A lock passes locally at most `limit` times, and not after its window (G7).
//!
//! Checked by the tests below, which include random schedules.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Moment;
use crate::words::token::FencingToken;

/// The queue of one name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LocalQueue<T, W> {
    phase: Phase<T>,
    waiters: VecDeque<(WaiterId, W)>,
    last_counter: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase<T> {
    /// Nothing of ours is at the store.
    Idle,
    /// Somebody asks the store.
    Acquiring,
    /// A hold lives in this process.
    Held(Run<T>),
    /// Released here; the store is being told.
    Releasing,
}

/// One grant of the store and its local hand-offs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Run<T> {
    held: T,
    counter: u64,
    index: u16,
    limit: u16,
    until: Moment,
}

/// A waiter: unique within its manager, so that one who leaves late takes nobody else out of a queue
/// that was forgotten and made again. Later waiters have larger ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct WaiterId(pub(crate) u64);

/// How long a lock may pass on locally.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HandoffBudget {
    pub(crate) limit: u16,
    pub(crate) window: Duration,
}

/// The answer to somebody who wants the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// Ask the store; then call `adopt` or `next`.
    Drive,
    /// Wait, by `enqueue`.
    Wait,
    /// Somebody of this process is ahead, and a `try` does not wait for them.
    Busy,
}

/// What becomes of a released lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Release<T, W> {
    /// It passes to this waiter.
    HandOn(T, FencingToken, W),
    /// The store must be told; then call `next`.
    Store,
    /// It was not held any more.
    NotHeld,
}

/// A grant was refused: its counter is not larger than `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Regressed {
    pub(crate) last: u64,
}

impl<T: Clone, W> LocalQueue<T, W> {
    pub(crate) fn new() -> Self {
        Self { phase: Phase::Idle, waiters: VecDeque::new(), last_counter: None }
    }

    /// Somebody wants the lock and would wait for it.
    pub(crate) fn claim(&mut self) -> Reply {
        if self.is_idle() {
            self.phase = Phase::Acquiring;
            Reply::Drive
        } else {
            Reply::Wait
        }
    }

    /// Somebody wants the lock and would not wait for a holder; `Wait` means for the confirmation
    /// of a release.
    pub(crate) fn try_claim(&mut self) -> Reply {
        match self.phase {
            Phase::Acquiring | Phase::Held(_) => Reply::Busy,
            Phase::Releasing if !self.waiters.is_empty() => Reply::Busy,
            Phase::Idle | Phase::Releasing => self.claim(),
        }
    }

    /// Puts a waiter at the end.
    pub(crate) fn enqueue(&mut self, id: WaiterId, waiter: W) {
        debug_assert!(!self.is_idle(), "queue-3: nobody would call this waiter");
        debug_assert!(self.waiters.back().is_none_or(|(last, _)| *last < id), "ids grow");
        self.waiters.push_back((id, waiter));
    }

    /// Takes a waiter out; `None` if it was called already.
    pub(crate) fn leave(&mut self, id: WaiterId) -> Option<W> {
        let place = self.waiters.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        self.waiters.remove(place).map(|(_, waiter)| waiter)
    }

    /// The store granted the lock: its first token.
    ///
    /// When the counter is refused, the grant must be released; then call `next`.
    pub(crate) fn adopt(
        &mut self,
        held: T,
        counter: u64,
        now: Moment,
        budget: HandoffBudget,
    ) -> Result<FencingToken, Regressed> {
        debug_assert!(matches!(self.phase, Phase::Acquiring), "queue-1");
        let token = FencingToken::new(counter, 0).filter(|_| self.last_counter < Some(counter));
        let Some(token) = token else {
            self.phase = Phase::Releasing;
            return Err(Regressed { last: self.last_counter.unwrap_or(FencingToken::MAX_COUNTER) });
        };
        self.last_counter = Some(counter);
        let until = now + budget.window;
        self.phase = Phase::Held(Run { held, counter, index: 0, limit: budget.limit, until });
        Ok(token)
    }

    /// The store granted the lock, which nobody wants so: the grant must be released; then call `next`.
    pub(crate) fn give_back(&mut self) {
        debug_assert!(matches!(self.phase, Phase::Acquiring | Phase::Releasing), "queue-1");
        self.phase = Phase::Releasing;
    }

    /// The acquisition has ended without a hold, or the store has confirmed a release: the next
    /// waiter, who is to ask the store.
    pub(crate) fn next(&mut self) -> Option<W> {
        debug_assert!(matches!(self.phase, Phase::Acquiring | Phase::Releasing), "queue-1");
        let next = self.waiters.pop_front();
        self.phase = if next.is_some() { Phase::Acquiring } else { Phase::Idle };
        next.map(|(_, waiter)| waiter)
    }

    /// The holder lets go. If somebody waits and the budget allows, `passes` decides whether the lock passes
    /// on.
    pub(crate) fn release(&mut self, now: Moment, passes: impl FnOnce() -> bool) -> Release<T, W> {
        let Phase::Held(run) = &mut self.phase else {
            return Release::NotHeld;
        };
        let is_wanted = run.may_pass(now) && !self.waiters.is_empty();
        if is_wanted
            && passes()
            && let Some((_, waiter)) = self.waiters.pop_front()
        {
            let token = run.pass();
            return Release::HandOn(run.held.clone(), token, waiter);
        }
        self.phase = Phase::Releasing;
        Release::Store
    }

    /// The hold of `counter` is lost: whether it was still ours to clean up. If so, call `next`
    /// when that is done.
    pub(crate) fn forfeit(&mut self, counter: u64) -> bool {
        match &self.phase {
            Phase::Held(run) if run.counter == counter => {
                self.phase = Phase::Releasing;
                true
            }
            _ => false,
        }
    }

    /// Ends the queue for everybody who waits.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = W> {
        std::mem::take(&mut self.waiters).into_iter().map(|(_, waiter)| waiter)
    }

    /// What is held, and the token of the hold.
    pub(crate) fn held(&self) -> Option<(&T, FencingToken)> {
        match &self.phase {
            Phase::Held(run) => Some((&run.held, run.token())),
            _ => None,
        }
    }

    pub(crate) fn is_acquiring(&self) -> bool {
        matches!(self.phase, Phase::Acquiring)
    }

    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle)
    }

    pub(crate) fn waiters(&self) -> impl Iterator<Item = &W> {
        self.waiters.iter().map(|(_, waiter)| waiter)
    }
}

impl<T> Run<T> {
    fn may_pass(&self, now: Moment) -> bool {
        self.index < self.limit && now < self.until
    }

    fn pass(&mut self) -> FencingToken {
        self.index += 1;
        self.token()
    }

    fn token(&self) -> FencingToken {
        FencingToken::new(self.counter, self.index).expect("adopt checked the counter, may_pass the index")
    }
}

#[cfg(test)]
mod tests;
