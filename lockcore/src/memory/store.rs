//! The state that managers share, and the faults that a test can cause in it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::book::Book;
use super::engine::{Engine, Granted, Now, Push, SessionId, Target};
use crate::backend::panic::waking;
use crate::backend::{Events, Inbox, StoreEvent};
use crate::clock::Clock;
use crate::words::loss::LostReason;
use crate::words::name::LockName;
use crate::words::owner::OwnerId;

/// An instance of the in-memory store; clones are the same instance.
///
/// The methods do what servers do when they fail, to test how a program reacts. None of them keeps A2, the assumption that a
/// store loses nothing.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    pub(super) shared: Arc<Shared>,
}

#[derive(Debug, Default)]
pub(super) struct Shared {
    state: Mutex<StoreState>,
    /// The store's own clock, if it is not its users'.
    pub(super) clock: Option<Arc<dyn Clock>>,
}

#[derive(Debug, Default)]
pub(super) struct StoreState {
    pub(super) engine: Engine,
    pub(super) book: Book,
    /// Added by sessions to the engine's counters, from when they are opened.
    pub(super) token_base: u64,
    sessions_opened: u64,
    pub(super) waiting: HashMap<OwnerId, oneshot::Sender<Granted>>,
    sessions: BTreeMap<SessionId, Open>,
}

/// A session that lives.
#[derive(Debug)]
struct Open {
    events: Events,
    token_base: u64,
    /// It takes part in a move.
    moves: bool,
}

impl MemoryStore {
    /// An empty store on its users' clock.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty store with a clock of its own, to test clocks that drift apart.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self { shared: Arc::new(Shared { clock: Some(clock), ..Shared::default() }) }
    }

    /// Returns whether there is no holder and no waiter.
    pub fn is_empty(&self) -> bool {
        self.shared.state.lock().engine.is_empty()
    }

    /// Ends the first hold of `name` too early, as a server with a lease bug; the holder is notified only if
    /// `told`. Returns whether there was a holder.
    pub fn evict(&self, name: &LockName, now: &dyn Clock, told: bool) -> bool {
        self.act(now, |state, now, pushes| {
            let Some(&target) = state.engine.targets(name).first() else {
                return false;
            };
            state.engine.release(now, name, target.owner, pushes);
            if told {
                state.tell_lost(name, target, LostReason::Gone);
            }
            true
        })
    }

    /// Loses all data, counters and ledger included, as a server that restarts without its disk. No session is
    /// notified.
    pub fn forget(&self, now: &dyn Clock) {
        self.act(now, |state, _, pushes| {
            state.engine.forget(pushes);
            (state.book, state.token_base) = Default::default();
        });
    }

    /// Makes every later counter larger than `counter`, also for sessions that live.
    pub fn raise_counter(&self, counter: u64) {
        self.shared.state.lock().engine.raise_counter(counter);
    }

    /// Changes the state at the store's time and delivers the consequences.
    pub(super) fn act<R>(
        &self,
        clock: &dyn Clock,
        act: impl FnOnce(&mut StoreState, Now, &mut Vec<Push>) -> R,
    ) -> R {
        let asker = clock.now();
        let store = self.shared.clock.as_deref().map_or(asker, Clock::now);
        let now = Now { store, asker };
        let mut pushes = Vec::new();
        let (result, letters) = {
            let mut state = self.shared.state.lock();
            let result = act(&mut state, now, &mut pushes);
            (result, pushes.into_iter().filter_map(|push| state.letter(push)).collect::<Vec<_>>())
        };
        for (waiter, granted) in letters {
            waking(|| match granted {
                // A waiter that has left cancels its entry, granted or not.
                Some(granted) => drop(waiter.send(granted)),
                // Without its sender the waiter has lost its place.
                None => drop(waiter),
            });
        }
        result
    }
}

impl StoreState {
    /// A session that adds `token_base`, or takes part in a move.
    pub(super) fn open_session(&mut self, token_base: u64, moves: bool) -> (SessionId, Inbox) {
        self.sessions_opened += 1;
        let session = SessionId(self.sessions_opened);
        let (events, inbox) = Events::new();
        self.sessions.insert(session, Open { events, token_base, moves });
        (session, inbox)
    }

    pub(super) fn close_session(&mut self, session: SessionId) {
        self.sessions.remove(&session);
    }

    pub(super) fn raise_token_base(&mut self, at_least: u64) {
        self.token_base = self.token_base.max(at_least);
    }

    /// How many sessions but `session` are open that take no part in a move.
    pub(super) fn others(&self, session: SessionId) -> usize {
        self.sessions.iter().filter(|(other, open)| **other != session && !open.moves).count()
    }

    pub(super) fn wait_for(&mut self, owner: OwnerId) -> oneshot::Receiver<Granted> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.insert(owner, sender);
        receiver
    }

    pub(super) fn tell(&self, session: SessionId, event: StoreEvent) {
        if let Some(open) = self.sessions.get(&session) {
            open.events.tell(event);
        }
    }

    /// The counter of a hold as its session has it.
    pub(super) fn counter_of(&self, target: Target) -> u64 {
        let base = self.sessions.get(&target.session).map_or(0, |open| open.token_base);
        target.counter.saturating_add(base)
    }

    pub(super) fn tell_lost(&self, name: &LockName, target: Target, reason: LostReason) {
        let counter = self.counter_of(target);
        self.tell(target.session, StoreEvent::GrantLost { name: name.clone(), counter, reason });
    }

    /// The receiver of a push, and its content.
    fn letter(&mut self, push: Push) -> Option<(oneshot::Sender<Granted>, Option<Granted>)> {
        let (owner, granted) = match push {
            Push::Granted(granted) => (granted.owner, Some(granted)),
            Push::Dropped(owner) => (owner, None),
        };
        Some((self.waiting.remove(&owner)?, granted))
    }
}
