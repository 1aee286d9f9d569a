//! The rule on all small queues and histories, and why it is no simpler.

use std::collections::{HashMap, HashSet, VecDeque};

use super::*;

/// A store's queue, oldest first, and who of it believes to hold.
type Line = Vec<(Mode, bool)>;

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

/// mode-1, mode-2 and mode-3, and that who bars another keeps it out, on every queue of up to five.
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

/// A way to admit the entry at a place, and a way in which one who holds may change its mode.
struct Rules {
    admits: fn(&[(Mode, bool)], usize) -> bool,
    changes: Option<(Mode, Mode)>,
}

const RULE: Rules = Rules { admits: admitted, changes: None };

fn admitted(line: &[(Mode, bool)], place: usize) -> bool {
    holds(&line.iter().map(|(mode, _)| *mode).collect::<Vec<_>>(), place)
}

/// Looks at every history of at most `longest` entries at a time: who comes, goes, and begins to hold, in any
/// order. How many states there are; or the steps after which holders do not fit together (mode-4).
fn explore(rules: &Rules, longest: usize) -> Result<usize, Vec<String>> {
    let mut seen: HashSet<Line> = HashSet::new();
    let mut from: HashMap<Line, (Line, String)> = HashMap::new();
    let mut todo = VecDeque::from([Line::new()]);
    seen.insert(Line::new());
    while let Some(line) = todo.pop_front() {
        let holders: Vec<_> = line.iter().filter(|(_, holds)| *holds).map(|(mode, _)| *mode).collect();
        if !holders.is_empty() && !holds(&holders, holders.len() - 1) {
            let mut steps = Vec::new();
            let mut at = &line;
            while let Some((before, step)) = from.get(at) {
                steps.insert(0, step.clone());
                at = before;
            }
            return Err(steps);
        }
        let mut next = Vec::new();
        for place in 0..line.len() {
            let mut without = line.clone();
            let (mode, holds_now) = without.remove(place);
            next.push((format!("{mode} goes"), without));
            let with = |entry| {
                let mut with = line.clone();
                with[place] = entry;
                with
            };
            if !holds_now && (rules.admits)(&line, place) {
                next.push((format!("{mode} holds"), with((mode, true))));
            }
            if let Some((before, after)) = rules.changes
                && (mode, holds_now) == (before, true)
                && admitted(&with((after, true)), place)
            {
                next.push((format!("{before} becomes {after}"), with((after, true))));
            }
        }
        if line.len() < longest {
            for mode in modes() {
                next.push((format!("{mode} comes"), [line.as_slice(), &[(mode, false)]].concat()));
            }
        }
        for (step, state) in next {
            if seen.insert(state.clone()) {
                from.insert(state.clone(), (line.clone(), step));
                todo.push_back(state);
            }
        }
    }
    Ok(seen.len())
}

/// Who holds fits together, through every history of up to four entries at a time (mode-4).
#[test]
fn holders_fit_together_whoever_comes_and_goes() {
    let states = explore(&RULE, 4).unwrap();
    assert!(5_000 < states, "{states} states");
}

/// What somebody may hold is not a matter of its own capacity alone: the older go by theirs.
#[test]
fn the_own_capacity_alone_is_refuted() {
    let own: fn(&[(Mode, bool)], usize) -> bool = |line, place| {
        let weight: u32 = line[..=place].iter().map(|(mode, _)| mode.weight()).sum();
        weight <= line[place].0.capacity()
    };
    let steps = explore(&Rules { admits: own, ..RULE }, 3).unwrap_err();
    assert_eq!(steps.len(), 4, "{steps:?}");
}

/// Nor may the younger pass who fit beside the holders: those who wait for more would wait for ever, and what
/// each counts is not what the others do.
#[test]
fn passing_those_who_wait_is_refuted() {
    let beside: fn(&[(Mode, bool)], usize) -> bool = |line, place| {
        let held: u32 = line.iter().filter(|(_, holds)| *holds).map(|(mode, _)| mode.weight()).sum();
        held + line[place].0.weight() <= line[place].0.capacity()
    };
    let steps = explore(&Rules { admits: beside, ..RULE }, 3).unwrap_err();
    assert_eq!(steps.len(), 4, "{steps:?}");
}

/// Who shares cannot become exclusive where it stands: the younger hold already. The other way round is safe.
#[test]
fn an_upgrade_in_place_is_refuted() {
    let changes = |from, to| Rules { changes: Some((from, to)), ..RULE };
    let steps = explore(&changes(Mode::SHARED, Mode::EXCLUSIVE), 3).unwrap_err();
    assert_eq!(steps.len(), 5, "{steps:?}");
    explore(&changes(Mode::EXCLUSIVE, Mode::SHARED), 3).unwrap();
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
