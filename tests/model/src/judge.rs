//! Judges who holds what in a model, by the invariants of the conformance kit and by no rule besides: of a state that its
//! holds fit together and that their tokens grow (G1, G3); and of the way there, by its history.

use std::hash::BuildHasher;

use leasehold_conformance::history::{Attempt, Event, History, What};
use leasehold_conformance::invariants::{Largest, Violation, grows, overlap, tokens};
use leasehold_core::clock::{Deadline, Moment};
use leasehold_core::{FencingToken, LockName, Mode};

use crate::World;

/// Holds that do not fit together.
pub const OVERLAP: &str = "G1 overlap";
/// A token that does not grow.
pub const TOKENS: &str = "G3 tokens";

/// A hold, as its holder believes in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    /// The holder.
    pub actor: usize,
    /// How it is held.
    pub mode: Mode,
    /// Its number at the store.
    pub counter: u64,
    /// Its store's grant was ended for it, by force or with the store's data: others may hold, and it may be late.
    pub is_overruled: bool,
}

impl Held {
    fn is(&self, other: &Self) -> bool {
        (self.actor, self.counter) == (other.actor, other.counter)
    }
}

/// The holds of the state before, and the tokens so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Judge {
    held: Vec<Held>,
    granted: Largest<u64>,
    broken: Option<&'static str>,
}

impl Judge {
    /// These are the holds after the next step; returns the rule that the step breaks.
    pub fn see(&mut self, held: Vec<Held>) -> Option<&'static str> {
        let mut grow = true;
        for hold in held.iter().filter(|hold| !self.held.iter().any(|other| other.is(hold))) {
            grow &= grows(&mut self.granted, hold.mode, hold.counter) || hold.is_overruled;
        }
        self.held = held;
        let counts = self.held.iter().filter(|hold| !hold.is_overruled);
        let fit = overlap::fit(counts.map(|hold| hold.mode));
        self.broken = (!fit).then_some(OVERLAP).or_else(|| (!grow).then_some(TOKENS));
        self.broken
    }

    /// The judge who has seen that state next, and which rule it breaks.
    pub(crate) fn then<W: World>(&self, next: &W) -> (Self, Option<&'static str>) {
        let mut judge = self.clone();
        let broken = judge.see(next.held()).or_else(|| next.broken());
        (judge, broken)
    }

    /// The key of a state after the steps that this judge has seen: two ways to one state may differ in the tokens that were
    /// granted, and in whether the last step broke a rule.
    pub(crate) fn key<W: World>(&self, state: &W, hasher: &impl BuildHasher) -> u64 {
        hasher.hash_one((state.key(hasher), &self.granted, self.broken))
    }
}

/// Steps, and who holds after each, a second for each step.
pub(crate) fn history(way: Vec<(String, Vec<Held>)>) -> History {
    let (mut events, mut held, mut attempts) = (Vec::new(), Vec::<(Held, Attempt)>::new(), 0);
    for (second, (step, now)) in (1_u64..).zip(way) {
        let mut write = |actor: String, what| {
            let (at, name) = (Moment::from_nanos(second * 1_000_000_000), LockName::new("a").ok());
            events.push(Event { at, actor: actor.into(), name, what });
        };
        write(String::new(), What::Noted(step));
        for (hold, attempt) in held.extract_if(.., |(hold, _)| !now.contains(hold)) {
            write(hold.actor.to_string(), What::ReleaseInvoked { attempt });
        }
        for hold in now {
            if held.iter().all(|(other, _)| *other != hold) {
                attempts += 1;
                let (attempt, Held { actor, mode, counter, .. }) = (Attempt::new(attempts), hold);
                let token = FencingToken::new(counter, 0).expect("models count from zero");
                write(actor.to_string(), What::Invoked { attempt, mode, waits: true });
                write(actor.to_string(), What::Granted { attempt, token, deadline: Deadline::Never });
                held.push((hold, attempt));
            }
        }
    }
    events.into_iter().collect()
}

/// What a history breaks of the rules by which states are judged.
pub(crate) fn violations(history: &History) -> Vec<Violation> {
    [overlap::check(history), tokens::check(history)].concat()
}
