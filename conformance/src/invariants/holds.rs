//! The holds of a history, each from its grant to its end.
//!
//! A hold begins when its caller has the guard. It ends when the caller releases, its loss is
//! reported, or the process dies, and at its last deadline.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use leasehold_core::clock::{Deadline, Moment};
use leasehold_core::{FencingToken, LockName, Mode};

use crate::history::{Attempt, Event, History, What};

/// One hold.
#[derive(Debug)]
pub(super) struct Hold<'a> {
    pub(super) attempt: Attempt,
    pub(super) token: FencingToken,
    /// As it was requested.
    pub(super) mode: Mode,
    /// Its grant.
    pub(super) granted: &'a Event,
    /// When it was released or reported as lost.
    ended: Option<Moment>,
    /// The last promise.
    pub(super) deadline: Deadline,
    /// Whether the world broke the promises about it (A2, force).
    pub(super) overruled: bool,
}

impl Hold<'_> {
    pub(super) fn begins(&self) -> Moment {
        self.granted.at
    }

    pub(super) fn ends(&self) -> Deadline {
        self.ended.map_or(self.deadline, |ended| self.deadline.min(Deadline::At(ended)))
    }

    pub(super) fn name(&self) -> Option<&LockName> {
        self.granted.name.as_ref()
    }

    /// As violations call it.
    pub(super) fn describe(&self) -> String {
        format!("{} of {} (grant {})", self.attempt, self.granted.actor, self.token.counter())
    }
}

/// The holds of `history`, in order of their beginning.
pub(super) fn holds(history: &History) -> Vec<Hold<'_>> {
    let overruled = overruled(history);
    let mut holds: Vec<Hold<'_>> = Vec::new();
    let mut places: BTreeMap<Attempt, usize> = BTreeMap::new();
    let mut of_actor: BTreeMap<&Arc<str>, Vec<usize>> = BTreeMap::new();
    let mut modes: BTreeMap<Attempt, Mode> = BTreeMap::new();
    for event in history.events() {
        match &event.what {
            What::Invoked { attempt, mode, .. } => {
                modes.insert(*attempt, *mode);
            }
            What::Granted { attempt, token, deadline } => {
                places.insert(*attempt, holds.len());
                of_actor.entry(&event.actor).or_default().push(holds.len());
                holds.push(Hold {
                    attempt: *attempt,
                    token: *token,
                    mode: modes.get(attempt).copied().unwrap_or_default(),
                    granted: event,
                    ended: None,
                    deadline: *deadline,
                    overruled: overruled.contains(&(event.name.as_ref(), token.counter())),
                });
            }
            What::HeldSeen { attempt, deadline } => {
                if let Some(place) = places.get(attempt) {
                    holds[*place].deadline = holds[*place].deadline.max(*deadline);
                }
            }
            What::LostTold { attempt, .. } | What::ReleaseInvoked { attempt } => {
                if let Some(place) = places.get(attempt) {
                    holds[*place].ended.get_or_insert(event.at);
                }
            }
            What::Crashed => {
                for place in of_actor.remove(&event.actor).unwrap_or_default() {
                    holds[place].ended.get_or_insert(event.at);
                }
            }
            _ => {}
        }
    }
    holds
}

/// Grants about which the world broke the promises.
pub(super) type Overruled<'a> = BTreeSet<(Option<&'a LockName>, u64)>;

pub(super) fn overruled(history: &History) -> Overruled<'_> {
    let overruled = history.events().iter().filter_map(|event| match event.what {
        What::Overruled { counter } => Some((event.name.as_ref(), counter)),
        _ => None,
    });
    overruled.collect()
}

/// The largest of each mode.
pub type Largest<T> = BTreeMap<Mode, T>;

pub(super) fn add<T: Copy + Ord>(largest: &mut Largest<T>, mode: Mode, value: T) {
    let of_mode = largest.entry(mode).or_insert(value);
    *of_mode = value.max(*of_mode);
}

/// A hold in `mode` begins; returns whether its token is larger than all of those that it excludes.
pub fn grows<T: Copy + Ord>(granted: &mut Largest<T>, mode: Mode, token: T) -> bool {
    let last = excluded_by(granted, mode);
    add(granted, mode, token);
    last < Some(token)
}

/// The largest of those that a hold in `mode` excludes.
pub(super) fn excluded_by<T: Copy + Ord>(largest: &Largest<T>, mode: Mode) -> Option<T> {
    largest.iter().filter(|(other, _)| other.bars(mode)).map(|(_, value)| *value).max()
}
