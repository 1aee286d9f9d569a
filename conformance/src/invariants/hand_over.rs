//! G6, liveness: a lock that has waiters is free only for a bounded time.
//!
//! Judged from the last `Healed` on, or throughout if nothing was disturbed: while messages get
//! lost, nothing is promised about when. A request that was sent before and then granted may have its
//! answer lost all the same: its sender notices, and releases the lock, one time-out later.
//! Callers that only try do not wait, and a dead process wants nothing. What the run itself found stuck
//! is a violation as well.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::LockName;
use leasehold_core::clock::{Deadline, Moment};

use super::Bounds;
use super::holds::holds;
use super::violation::{Property, Violation};
use crate::history::{Attempt, Event, History, What};

/// Waits during which the lock was free for too long.
pub fn check(history: &History, bounds: &Bounds) -> Vec<Violation> {
    let mut found: Vec<_> = history.events().iter().filter_map(stuck).collect();
    let Some(calm) = calm_since(history) else {
        return found;
    };
    let mut lines: BTreeMap<Option<&LockName>, Vec<Step<'_>>> = BTreeMap::new();
    for step in waits(history, calm, bounds.answer).into_iter().chain(held(history)) {
        lines.entry(step.name).or_default().push(step);
    }
    let end = history.events().last().map_or(calm, |event| event.at);
    for (name, mut steps) in lines {
        // RACE: what begins in an instant counts before what ends in it.
        steps.sort_by_key(|step| (step.at, step.waits < 0 || step.holds < 0));
        let (mut waiting, mut holding, mut idle_since) = (0_i64, 0_i64, None::<Moment>);
        let who = "the end of the history".to_owned();
        let over = Step { at: end, name, waits: -1, holds: 0, grace: Duration::ZERO, who };
        for step in steps.iter().chain([&over]) {
            let idle = idle_since.map_or(step.at, |since| since.max(calm));
            if step.at.since(idle) > bounds.hand_over + step.grace {
                let detail = format!(
                    "wanted and free for {:?}, until {} (at most {:?})",
                    step.at.since(idle),
                    step.who,
                    bounds.hand_over
                );
                let name = name.cloned();
                found.push(Violation { property: Property::HandOver, at: step.at, name, detail });
                idle_since = Some(step.at);
            }
            (waiting, holding) = (waiting + step.waits, holding + step.holds);
            idle_since = match (waiting > 0, holding > 0) {
                // Until then it was held for a client that had not received the grant.
                (true, false) if !step.grace.is_zero() => Some(step.at),
                (true, false) => Some(idle_since.unwrap_or(step.at)),
                _ => None,
            };
        }
    }
    found
}

/// One change of the waiters or the holders.
struct Step<'a> {
    at: Moment,
    name: Option<&'a LockName>,
    waits: i64,
    holds: i64,
    /// How much later than the bound it may come.
    grace: Duration,
    who: String,
}

fn stuck(event: &Event) -> Option<Violation> {
    match &event.what {
        What::Stuck { waits_for } => {
            Some(Violation::of(Property::HandOver, event, format!("stuck: {waits_for}")))
        }
        _ => None,
    }
}

/// When the last disturbance was over; `None` while one lasts.
fn calm_since(history: &History) -> Option<Moment> {
    let last = history.events().iter().rev().find_map(|event| match event.what {
        What::Healed => Some(Some(event.at)),
        What::Disturbed(_) => Some(None),
        _ => None,
    });
    last.unwrap_or_else(|| history.events().first().map(|event| event.at))
}

fn waits(history: &History, calm: Moment, answer: Duration) -> Vec<Step<'_>> {
    let mut steps = Vec::new();
    let mut open: BTreeMap<Attempt, &Event> = BTreeMap::new();
    let mut of_actor: BTreeMap<&Arc<str>, Vec<Attempt>> = BTreeMap::new();
    let step = |event: &Event, name, waits, attempt: Attempt| {
        let who = format!("{attempt} of {}", event.actor);
        Step { at: event.at, name, waits, holds: 0, grace: Duration::ZERO, who }
    };
    for event in history.events() {
        match &event.what {
            What::Invoked { attempt, waits: true, .. } => {
                open.insert(*attempt, event);
                of_actor.entry(&event.actor).or_default().push(*attempt);
                steps.push(step(event, event.name.as_ref(), 1, *attempt));
            }
            What::Granted { attempt, .. } | What::Refused { attempt, .. } | What::Cancelled { attempt } => {
                if let Some(asked) = open.remove(attempt) {
                    let unanswered = matches!(event.what, What::Refused { .. }) && asked.at < calm;
                    let grace = if unanswered { answer } else { Duration::ZERO };
                    steps.push(Step { grace, ..step(event, asked.name.as_ref(), -1, *attempt) });
                }
            }
            What::Crashed => {
                for attempt in of_actor.remove(&event.actor).unwrap_or_default() {
                    if let Some(asked) = open.remove(&attempt) {
                        steps.push(step(event, asked.name.as_ref(), -1, attempt));
                    }
                }
            }
            _ => {}
        }
    }
    steps
}

fn held(history: &History) -> Vec<Step<'_>> {
    let mut steps = Vec::new();
    for hold in holds(history) {
        let (begins, name, who) = (hold.begins(), hold.granted.name.as_ref(), hold.describe());
        let ends = match hold.ends() {
            Deadline::At(at) => at.max(begins),
            Deadline::Never => Moment::from_nanos(u64::MAX),
        };
        let grace = Duration::ZERO;
        steps.push(Step { at: begins, name, waits: 0, holds: 1, grace, who: who.clone() });
        steps.push(Step { at: ends, name, waits: 0, holds: -1, grace, who });
    }
    steps
}
