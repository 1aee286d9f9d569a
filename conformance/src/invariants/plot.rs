//! Histories made by hand, for the tests of the judges.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::clock::{Deadline, Moment};
use leasehold_core::{FencingToken, LockName, LostReason, Mode};

use super::Bounds;
use crate::history::{Attempt, Entry, Event, History, Outcome, What};

/// Events by the millisecond, all of lock `a` unless said otherwise.
#[derive(Default)]
pub(super) struct Plot {
    events: Vec<Event>,
}

pub(super) const BOUNDS: Bounds = Bounds {
    hand_over: Duration::from_millis(2_000),
    answer: Duration::from_millis(300),
    handoff_limit: 2,
    handoff_window: Duration::from_millis(100),
};

impl Plot {
    pub(super) fn add(mut self, millis: u64, actor: &str, what: What) -> Self {
        self.push(millis, actor, "a", what);
        self
    }

    pub(super) fn push(&mut self, millis: u64, actor: &str, name: &str, what: What) {
        self.events.push(Event {
            at: at(millis),
            actor: actor.into(),
            name: Some(LockName::new(name).unwrap()),
            what,
        });
    }

    pub(super) fn asks(self, millis: u64, actor: &str, attempt: u64) -> Self {
        self.wants(millis, actor, attempt, Mode::EXCLUSIVE)
    }

    pub(super) fn wants(self, millis: u64, actor: &str, attempt: u64, mode: Mode) -> Self {
        self.add(millis, actor, What::Invoked { attempt: Attempt::new(attempt), mode, waits: true })
    }

    pub(super) fn bounded(self, millis: u64, actor: &str, attempt: u64, span: u64) -> Self {
        let (attempt, span) = (Attempt::new(attempt), Duration::from_millis(span));
        self.add(millis, actor, What::Bounded { attempt, span })
    }

    pub(super) fn hears_no(self, millis: u64, actor: &str, attempt: u64) -> Self {
        self.add(
            millis,
            actor,
            What::Refused { attempt: Attempt::new(attempt), reason: "planted".to_owned() },
        )
    }

    /// `grant` is a counter and an index.
    pub(super) fn holds(self, millis: u64, actor: &str, attempt: u64, grant: (u64, u16), until: u64) -> Self {
        let (attempt, deadline) = (Attempt::new(attempt), deadline(until));
        self.add(millis, actor, What::Granted { attempt, token: token(grant), deadline })
    }

    pub(super) fn sees(self, millis: u64, actor: &str, attempt: u64, until: u64) -> Self {
        let (attempt, deadline) = (Attempt::new(attempt), deadline(until));
        self.add(millis, actor, What::HeldSeen { attempt, deadline })
    }

    pub(super) fn loses(self, millis: u64, actor: &str, attempt: u64, reason: LostReason) -> Self {
        self.add(millis, actor, What::LostTold { attempt: Attempt::new(attempt), reason })
    }

    pub(super) fn lets_go(self, millis: u64, actor: &str, attempt: u64) -> Self {
        self.add(millis, actor, What::ReleaseInvoked { attempt: Attempt::new(attempt) })
    }

    pub(super) fn asks_store(self, millis: u64, actor: &str, entry: u64) -> Self {
        let (entry, mode) = (Entry::new(entry), Mode::EXCLUSIVE);
        self.add(millis, actor, What::StoreAsked { entry, mode, waits: true })
    }

    pub(super) fn store_grants(self, millis: u64, actor: &str, entry: u64, counter: u64) -> Self {
        let entry = Entry::new(entry);
        self.add(millis, actor, What::StoreGranted { entry, counter, requeued: false })
    }

    pub(super) fn store_releases(self, millis: u64, actor: &str, counter: u64) -> Self {
        self.add(millis, actor, What::StoreReleased { counter, done: true })
    }

    pub(super) fn overrules(self, millis: u64, counter: u64) -> Self {
        self.add(millis, "world", What::Overruled { counter })
    }

    pub(super) fn history(self) -> History {
        self.events.into_iter().collect()
    }

    /// Many well-behaved rounds of two processes on one lock, ten events each.
    pub(super) fn rounds(rounds: u64) -> Self {
        let mut plot = Self::default();
        for round in 0..rounds {
            let (start, counter) = (round * 10, round + 1);
            let actor = if round % 2 == 0 { "p1" } else { "p2" };
            let (attempt, entry) = (Attempt::new(counter), Entry::new(counter));
            let (deadline, mode) = (deadline(start + 500), Mode::EXCLUSIVE);
            let story = [
                (0, What::Invoked { attempt, mode, waits: true }),
                (0, What::EntryBegan { entry, mode }),
                (1, What::StoreAsked { entry, mode, waits: true }),
                (1, What::StoreGranted { entry, counter, requeued: false }),
                (2, What::Granted { attempt, token: token((counter, 0)), deadline }),
                (3, What::HeldSeen { attempt, deadline }),
                (4, What::Wrote { attempt, token: token((counter, 0)), accepted: true }),
                (5, What::ReleaseInvoked { attempt }),
                (6, What::StoreReleased { counter, done: true }),
                (6, What::EntryEnded { entry }),
                (7, What::ReleaseEnded { attempt, outcome: Outcome::Released }),
            ];
            for (after, what) in story {
                plot.push(start + after, actor, "a", what);
            }
        }
        plot
    }

    /// Two processes that hand over, locally and through the store, lose and die, as they may.
    pub(super) fn clean() -> Self {
        let deadline_passes = 1_200;
        Self::rounds(3)
            .asks(100, "p1", 10)
            .asks_store(100, "p1", 10)
            .store_grants(101, "p1", 10, 10)
            .holds(102, "p1", 10, (10, 0), 900)
            .asks(103, "p1", 11)
            .asks(104, "p2", 12)
            .asks_store(104, "p2", 12)
            .lets_go(150, "p1", 10)
            .holds(150, "p1", 11, (10, 1), 900)
            .sees(151, "p1", 11, deadline_passes)
            .loses(1_200, "p1", 11, LostReason::Expired)
            .store_grants(1_201, "p2", 12, 12)
            .holds(1_201, "p2", 12, (12, 0), 2_000)
            .asks(1_202, "p1", 13)
            .asks_store(1_202, "p1", 13)
            .crash(1_300, "p2")
            .store_grants(2_300, "p1", 13, 13)
            .holds(2_300, "p1", 13, (13, 0), 3_000)
            .lets_go(2_400, "p1", 13)
            .store_releases(2_400, "p1", 13)
            .add(9_000, "world", What::AtRest { left: Vec::new() })
    }

    pub(super) fn crash(mut self, millis: u64, actor: &str) -> Self {
        let actor: Arc<str> = actor.into();
        self.events.push(Event { at: at(millis), actor, name: None, what: What::Crashed });
        self
    }
}

pub(super) fn at(millis: u64) -> Moment {
    Moment::from_nanos(millis * 1_000_000)
}

pub(super) fn deadline(millis: u64) -> Deadline {
    Deadline::At(at(millis))
}

pub(super) fn token((counter, index): (u64, u16)) -> FencingToken {
    FencingToken::new(counter, index).unwrap()
}
