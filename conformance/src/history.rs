//! What happened, in order: the requests of every actor, their results, and what the store did.
//!
//! Actors write through a [`Recorder`]; a [`Journal`] joins them on one clock into a [`History`],
//! which [`crate::invariants`] judge. What failed or timed out is recorded as that, never as
//! "certainly did not happen".
//!
//! # Invariants
//! - **history-1** Events are in the order in which they were recorded, so among events of one instant the
//!   order counts.
//! - **history-2** Every time is on the journal's clock, deadlines too; a recorder that has a deadline of
//!   another clock converts it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_core::clock::{Clock, Deadline, Moment};
use leasehold_core::{FencingToken, LockName, LostReason, Mode};
use parking_lot::Mutex;

/// Events in the order of their recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    events: Vec<Event>,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "tests plant histories")]
pub struct Event {
    /// When.
    pub at: Moment,
    /// Which process, or the world.
    pub actor: Arc<str>,
    /// With which lock, if with one.
    pub name: Option<LockName>,
    /// What.
    pub what: What,
}

/// An acquisition by a caller, and the hold it leads to; unique within a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(u64);

/// What an actor has in a store, from the request to the end; unique within a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry(u64);

/// What happened, and to which acquisition or hold, entry, or grant of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "fields say what they are, or their variant does")]
pub enum What {
    /// A caller began to acquire the lock; `waits` unless it only tries.
    Invoked { attempt: Attempt, mode: Mode, waits: bool },
    /// It has the lock, until `deadline` as promised so far.
    Granted { attempt: Attempt, token: FencingToken, deadline: Deadline },
    /// The acquisition returned an error, or that the lock is busy.
    Refused { attempt: Attempt, reason: String },
    /// It stopped asking.
    Cancelled { attempt: Attempt },
    /// It is to hold the lock for `span` at most.
    Bounded { attempt: Attempt, span: Duration },
    /// `ensure_held` said yes, until `deadline` as promised now.
    HeldSeen { attempt: Attempt, deadline: Deadline },
    /// Somebody waits for `lost` from here on.
    Listens { attempt: Attempt },
    /// `lost` said that the hold is over.
    LostTold { attempt: Attempt, reason: LostReason },
    /// The holder begins to release.
    ReleaseInvoked { attempt: Attempt },
    /// `release` answered.
    ReleaseEnded { attempt: Attempt, outcome: Outcome },
    /// The holder, or a client that believes to be it, wrote to the resource, which `accepted` that or not.
    Wrote { attempt: Attempt, token: FencingToken, accepted: bool },
    /// The process is dead: nothing of it acts any more.
    Crashed,
    /// The timers of the process stand still.
    Stopped,
    /// They fire again.
    Resumed,
    /// From here on network or store misbehave.
    Disturbed(&'static str),
    /// From here on nothing misbehaves.
    Healed,
    /// The world ended the store's grant `counter` of the lock without its holder, or told its
    /// holder a lie; nothing is promised about that grant but its token.
    Overruled { counter: u64 },
    /// Nobody wants anything any more, and whoever is dead has been so for longer than a lease; what
    /// the store still knows.
    AtRest { left: Vec<LockName> },
    /// An operation hangs that should not.
    Stuck { waits_for: String },
    /// A request for the lock reached the store; whether it queues there.
    StoreAsked { entry: Entry, mode: Mode, waits: bool },
    /// The store granted the lock; `requeued` if the entry had lost its place and queued again.
    StoreGranted { entry: Entry, counter: u64, requeued: bool },
    /// The request ended without a grant.
    StoreLeft { entry: Entry },
    /// The store was asked to end a grant, and says whether it did.
    StoreReleased { counter: u64, done: bool },
    /// Something that no invariant uses, for the reader of the history.
    Noted(String),
    /// The core has something in the store, or wants to.
    EntryBegan { entry: Entry, mode: Mode },
    /// The core has the grant.
    EntryGranted { entry: Entry },
    /// The core may count on its being over.
    EntryEnded { entry: Entry },
}

/// What a release returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "a release is certain, too late, or neither")]
pub enum Outcome {
    /// Released, certainly.
    Released,
    /// The lock was gone before.
    Lost,
    /// Not known.
    Unknown,
}

/// Joins what actors record.
#[derive(Clone, Debug)]
pub struct Journal {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    clock: Arc<dyn Clock>,
    log: Mutex<Log>,
}

#[derive(Debug, Default)]
struct Log {
    events: Vec<Event>,
    numbers: u64,
}

/// Records for one actor; clones record for the same.
#[derive(Clone, Debug)]
pub struct Recorder {
    journal: Journal,
    actor: Arc<str>,
    dead: Arc<AtomicBool>,
}

impl Journal {
    /// An empty journal on `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { shared: Arc::new(Shared { clock, log: Mutex::default() }) }
    }

    /// Records for `actor`.
    pub fn actor(&self, actor: impl Into<Arc<str>>) -> Recorder {
        Recorder { journal: self.clone(), actor: actor.into(), dead: Arc::default() }
    }

    /// What has happened so far.
    pub fn history(&self) -> History {
        History { events: self.shared.log.lock().events.clone() }
    }

    fn number(&self) -> u64 {
        let mut log = self.shared.log.lock();
        log.numbers += 1;
        log.numbers
    }
}

impl Recorder {
    /// A number for a new acquisition.
    pub fn attempt(&self) -> Attempt {
        Attempt(self.journal.number())
    }

    /// A number for a new entry.
    pub fn entry(&self) -> Entry {
        Entry(self.journal.number())
    }

    /// Records what happened with `name`, now.
    pub fn on(&self, name: &LockName, what: What) {
        self.record(Some(name.clone()), what);
    }

    /// Records what happened with no lock in particular, now.
    pub fn note(&self, what: What) {
        self.record(None, what);
    }

    /// Records the death of the actor; nothing it seems to do after that counts.
    pub fn crash(&self) {
        self.note(What::Crashed);
        self.dead.store(true, Ordering::Relaxed);
    }

    /// The time on the journal's clock.
    pub fn now(&self) -> Moment {
        self.journal.shared.clock.now()
    }

    fn record(&self, name: Option<LockName>, what: What) {
        if self.dead.load(Ordering::Relaxed) {
            return;
        }
        let at = self.now();
        let actor = Arc::clone(&self.actor);
        self.journal.shared.log.lock().events.push(Event { at, actor, name, what });
    }
}

impl History {
    /// What happened, in order.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Whether anything misbehaved.
    pub fn is_disturbed(&self) -> bool {
        self.events.iter().any(|event| {
            matches!(event.what, What::Disturbed(_) | What::Stopped | What::Crashed | What::Overruled { .. })
        })
    }
}

impl FromIterator<Event> for History {
    /// A history of events that are in order.
    fn from_iter<I: IntoIterator<Item = Event>>(events: I) -> Self {
        Self { events: events.into_iter().collect() }
    }
}

impl Attempt {
    /// The acquisition that a history calls `number`.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }
}

impl Entry {
    /// The entry that a history calls `number`.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.events.iter().try_for_each(|event| writeln!(f, "{event}"))
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = Duration::from_nanos(self.at.as_nanos()).as_secs_f64();
        let name = self.name.as_ref().map_or("", LockName::as_str);
        write!(f, "{at:>10.4} {:<6} {name:<4} {}", self.actor, self.what)
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "entry {}", self.0)
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invoked { attempt, mode, waits: true } => write!(f, "{attempt} acquires, {mode}"),
            Self::Invoked { attempt, mode, waits: false } => write!(f, "{attempt} tries, {mode}"),
            Self::Granted { attempt, token, deadline } => {
                write!(f, "{attempt} holds with token {} until {}", Token(*token), Until(*deadline))
            }
            Self::Refused { attempt, reason } => write!(f, "{attempt} refused: {reason}"),
            Self::Cancelled { attempt } => write!(f, "{attempt} cancelled"),
            Self::Bounded { attempt, span } => write!(f, "{attempt} holds for {span:?} at most"),
            Self::HeldSeen { attempt, deadline } => {
                write!(f, "{attempt} is held until {}", Until(*deadline))
            }
            Self::Listens { attempt } => write!(f, "{attempt} listens"),
            Self::LostTold { attempt, reason } => write!(f, "{attempt} lost: {reason}"),
            Self::ReleaseInvoked { attempt } => write!(f, "{attempt} releases"),
            Self::ReleaseEnded { attempt, outcome } => {
                write!(f, "{attempt} release answered {outcome:?}")
            }
            Self::Wrote { attempt, token, accepted } => {
                let taken = if *accepted { "taken" } else { "refused" };
                write!(f, "{attempt} writes with token {}, {taken}", Token(*token))
            }
            Self::Crashed => f.write_str("crashed"),
            Self::Stopped => f.write_str("its timers stop"),
            Self::Resumed => f.write_str("its timers fire again"),
            Self::Disturbed(how) => write!(f, "disturbed: {how}"),
            Self::Healed => f.write_str("healed"),
            Self::Overruled { counter } => write!(f, "grant {counter} overruled"),
            Self::AtRest { left } => write!(f, "at rest; the store knows {left:?}"),
            Self::Stuck { waits_for } => write!(f, "stuck: {waits_for}"),
            Self::StoreAsked { entry, mode, waits: true } => {
                write!(f, "store: asked to queue, {entry}, {mode}")
            }
            Self::StoreAsked { entry, mode, waits: false } => write!(f, "store: asked, {entry}, {mode}"),
            Self::StoreGranted { entry, counter, requeued } => {
                let again = if *requeued { ", queued again" } else { "" };
                write!(f, "store: grant {counter} to {entry}{again}")
            }
            Self::StoreLeft { entry } => write!(f, "store: {entry} gone"),
            Self::StoreReleased { counter, done: true } => write!(f, "store: released grant {counter}"),
            Self::StoreReleased { counter, done: false } => {
                write!(f, "store: did not release grant {counter}")
            }
            Self::Noted(what) => f.write_str(what),
            Self::EntryBegan { entry, mode } => write!(f, "core: {entry} begins, {mode}"),
            Self::EntryGranted { entry } => write!(f, "core: {entry} is granted"),
            Self::EntryEnded { entry } => write!(f, "core: {entry} ends"),
        }
    }
}

struct Token(FencingToken);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let index = self.0.get() - (self.0.counter() << FencingToken::INDEX_BITS);
        write!(f, "{}.{index}", self.0.counter())
    }
}

struct Until(Deadline);

impl fmt::Display for Until {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Deadline::At(at) => write!(f, "{:.4}", Duration::from_nanos(at.as_nanos()).as_secs_f64()),
            Deadline::Never => f.write_str("its end"),
        }
    }
}
