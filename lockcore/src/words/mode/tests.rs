//! The rule on all small queues and histories, and why it is no simpler.

use std::hash::{Hash, Hasher};

use model::{Explored, Search, World, assert_caught, explore};

use super::*;
use crate::Guarantees;

fn permits(weight: u32, capacity: u32) -> Mode {
    Mode::permits(weight, capacity).unwrap()
}

fn modes() -> [Mode; 7] {
    let [half, both, third, two_thirds, all] =
        [(1, 2), (2, 2), (1, 3), (2, 3), (3, 3)].map(|(w, c)| permits(w, c));
    [Mode::EXCLUSIVE, Mode::SHARED, half, both, third, two_thirds, all]
}

/// The rule as it is written, for the entry at `place`.
fn holds(queue: &[Mode], place: usize) -> bool {
    let up_to = &queue[..=place];
    let weight: u64 = up_to.iter().map(|mode| u64::from(mode.weight())).sum();
    up_to.iter().all(|mode| weight <= u64::from(mode.capacity()))
}

fn queues(longest: usize) -> Vec<Vec<Mode>> {
    let mut all = vec![Vec::new()];
    let mut from = 0;
    for _ in 0..longest {
        let until = all.len();
        for at in from..until {
            all.extend(modes().map(|mode| [all[at].as_slice(), &[mode]].concat()));
        }
        from = until;
    }
    all.split_off(1)
}

/// mode-1, mode-2 and mode-3, and that an entry holds beside none that bars it, on every queue of up to five.
#[test]
fn holders_are_a_prefix_that_only_grows() {
    let queues = queues(5);
    assert_eq!(queues.len(), 19_607);
    for queue in queues {
        let admitted: Vec<_> = (0..queue.len()).map(|place| holds(&queue, place)).collect();
        let prefix = admitted.iter().take_while(|holds| **holds).count();
        assert!(!admitted[prefix..].contains(&true), "prefix: {queue:?}");
        let mut load = Load::NONE;
        let step_by_step = queue.iter().take_while(|mode| {
            let admits = load.admits(**mode);
            load = load.and(**mode);
            admits
        });
        assert_eq!(step_by_step.count(), prefix, "incremental: {queue:?}");
        for (later, &holds_now) in admitted.iter().enumerate() {
            for older in 0..later {
                let mut without = queue.clone();
                without.remove(older);
                assert!(!holds_now || holds(&without, later - 1), "monotone: {queue:?} without {older}");
                assert!(
                    !queue[older].bars(queue[later]) || !holds_now,
                    "bars: {queue:?}, {older} and {later}"
                );
            }
        }
    }
}

/// A store's queue, oldest first, each entry with whether it believes to hold; and the rule by which it does.
#[derive(Clone)]
struct Line {
    queue: Vec<(Mode, bool)>,
    longest: usize,
    admits: fn(&[(Mode, bool)], usize) -> bool,
    /// A holder may change its mode from the one to the other.
    changes: Option<(Mode, Mode)>,
}

impl Hash for Line {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.queue.hash(state);
    }
}

impl World for Line {
    type Step = String;

    fn steps(&self, found: &mut Vec<(String, Self)>) {
        let mut becomes = |label, queue| found.push((label, Self { queue, ..self.clone() }));
        for (place, (mode, is_holder)) in self.queue.iter().copied().enumerate() {
            let mut without = self.queue.clone();
            without.remove(place);
            becomes(format!("{mode} goes"), without);
            let with = |entry| {
                let mut with = self.queue.clone();
                with[place] = entry;
                with
            };
            if !is_holder && (self.admits)(&self.queue, place) {
                becomes(format!("{mode} holds"), with((mode, true)));
            }
            if let Some((before, after)) = self.changes
                && (mode, is_holder) == (before, true)
                && admitted(&with((after, true)), place)
            {
                becomes(format!("{before} becomes {after}"), with((after, true)));
            }
        }
        for mode in modes().into_iter().filter(|_| self.queue.len() < self.longest) {
            becomes(format!("{mode} comes"), [self.queue.as_slice(), &[(mode, false)]].concat());
        }
    }

    fn broken(&self) -> Option<&'static str> {
        let holders: Vec<_> = self.queue.iter().filter(|(_, holds)| *holds).map(|(mode, _)| *mode).collect();
        let fit = holders.is_empty() || holds(&holders, holders.len() - 1);
        (!fit).then_some("holders do not fit together (mode-4)")
    }
}

fn admitted(queue: &[(Mode, bool)], place: usize) -> bool {
    holds(&queue.iter().map(|(mode, _)| *mode).collect::<Vec<_>>(), place)
}

/// More states than any of them has.
const ALL: Search = Search::States(100_000);

/// Holders fit together in every history of up to four entries at a time, also where an exclusive one begins to share
/// (mode-4).
#[test]
fn holders_fit_together_in_every_history() {
    let rule = Line { queue: Vec::new(), longest: 4, admits: admitted, changes: None };
    let downgrade = Line { longest: 3, changes: Some((Mode::EXCLUSIVE, Mode::SHARED)), ..rule.clone() };
    for (line, least) in [(rule, 5_000), (downgrade, 100)] {
        let Explored { states, all, wrong } = explore(&line, ALL);
        assert!(all && wrong.is_none() && states > least, "{states} states: {wrong:?}");
    }
}

/// Simpler rules are wrong.
///
/// An entry's own capacity alone does not decide: older entries count by theirs. A younger entry that fits beside the
/// holders must not pass waiters: those that want more would wait for ever. A sharer cannot become exclusive in place:
/// younger ones hold already.
#[test]
fn simpler_rules_are_refuted() {
    let own: fn(&[(Mode, bool)], usize) -> bool = |queue, place| {
        let weight: u32 = queue[..=place].iter().map(|(mode, _)| mode.weight()).sum();
        weight <= queue[place].0.capacity()
    };
    let beside: fn(&[(Mode, bool)], usize) -> bool = |queue, place| {
        let held: u32 = queue.iter().filter(|(_, holds)| *holds).map(|(mode, _)| mode.weight()).sum();
        held + queue[place].0.weight() <= queue[place].0.capacity()
    };
    let line = |admits, changes| Line { queue: Vec::new(), longest: 3, admits, changes };
    let mutants = [
        ("own capacity", line(own, None)),
        ("passing waiters", line(beside, None)),
        ("upgrade in place", line(admitted, Some((Mode::SHARED, Mode::EXCLUSIVE)))),
    ];
    assert_caught("mode", mutants.map(|(mutant, line)| (mutant, line, ALL, "mode-4")));
}

/// What no mode can be is refused, and says why; the exclusive lock is a permit, too.
#[test]
fn a_permit_is_some_of_some() {
    for (weight, capacity) in
        [(0, 0), (0, 1), (1, 0), (2, 1), (u32::MAX, 8), (1, u32::MAX), (u32::MAX, u32::MAX)]
    {
        let error = Mode::permits(weight, capacity).unwrap_err();
        assert_eq!(*error.kind(), crate::ErrorKind::InvalidOption);
        assert!(error.to_string().contains(&format!("{weight} of {capacity} permits")), "{error}");
    }
    assert_eq!(Mode::permits(1, 1).unwrap(), Mode::default());
    let largest = permits(u32::MAX - 1, u32::MAX - 1);
    assert!(Load::NONE.admits(largest));
    assert!(!Load::from_iter([largest; 3]).admits(Mode::SHARED));
    assert_eq!(
        [Mode::EXCLUSIVE, Mode::SHARED, permits(2, 8)].map(|mode| mode.to_string()),
        ["exclusive", "shared", "2 of 8"]
    );
}

/// Every mode but the exclusive one is promised by stores that say so.
#[test]
fn a_mode_needs_its_promise() {
    assert_eq!(permits(1, 1).needs(), Guarantees::empty());
    assert_eq!(Mode::SHARED.needs(), Guarantees::SHARED);
    assert_eq!(permits(3, 3).needs(), Guarantees::PERMITS);
}
