//! How far the real parts are looked at: every interleaving of what is named, from every phase.
//!
//! At depth `soak` more states of each search are looked at, and the deeper searches begin.

use leasehold_core::backend::stage::{Phase, Side};
use testbed::Depth;

use super::search::{Graph, Shown, search, search_deep, search_to_rest};
use super::world::{Left, World};

/// The phases to begin with, and the bar that an administrator has left halfway.
const STARTS: [(Phase, bool); 6] = [
    (Phase::Old, false),
    (Phase::Shadow, false),
    (Phase::Both, false),
    (Phase::Drain, true),
    (Phase::Drain, false),
    (Phase::New, false),
];

/// At depth `soak`, how many states of each search are looked at.
fn states() -> Option<usize> {
    (Depth::of_run() == Depth::Soak).then_some(5_000_000)
}

/// Nothing is wrong in any state that is looked at; `exhausted` if none within the bounds is to be left out, and
/// everything can come to rest from all of them.
fn clean<G: Graph>(what: &str, start: G, exhausted: bool) {
    let limit = states().unwrap_or(300_000).max(if exhausted { 2_000_000 } else { 0 });
    if exhausted {
        return shown(what, search_to_rest(start, limit), true);
    }
    shown(what, search(start.clone(), limit), false);
    if states().is_some() {
        shown(what, search_deep(start, limit), false);
    }
}

fn shown(what: &str, found: Shown, exhausted: bool) {
    let Shown { states, exhausted: all, wrong } = found;
    println!("{what}: {states} states{}", if all { ", which are all" } else { "" });
    if let Some((wrong, way)) = wrong {
        panic!("{what}: {wrong}\n  {}", way.join("\n  "));
    }
    assert!(all || !exhausted, "{what}: {states} states are not all");
}

fn from_every_phase<G: Graph>(what: &str, exhausted: bool, world: impl Fn(Phase, bool) -> G) {
    for (phase, barred) in STARTS {
        let barred_or_not = if barred { ", the new store not open" } else { "" };
        clean(&format!("{what}, from {phase}{barred_or_not}"), world(phase, barred), exhausted);
    }
}

/// Two processes, an administrator who takes two steps or leaves them, two acquisitions.
#[test]
fn two_processes_are_safe_through_two_steps() {
    let left = Left { transitions: 2, acquisitions: 2, ..Left::default() };
    from_every_phase("two steps", true, |phase, barred| {
        World::<2, 0, 1>::new(phase, barred, left, []).ready()
    });
}

/// One step, and a process dies, is cut off from one store, or has an entry there that lapses.
#[test]
fn two_processes_are_safe_through_a_step_and_a_fault() {
    let left = Left { transitions: 1, acquisitions: 2, faults: 1, ..Left::default() };
    from_every_phase("a fault", true, |phase, barred| World::<2, 0, 1>::new(phase, barred, left, []).ready());
}

/// The same where stores number whoever queues: who waits through a step has a number from before it.
#[test]
fn entry_numbered_when_queued_is_safe() {
    let left = Left { transitions: 2, acquisitions: 2, ..Left::default() };
    from_every_phase("numbers of a queue", true, |phase, barred| {
        World::<2, 0, 1>::new(phase, barred, left, []).ready().numbered()
    });
}

/// One step, and an acquisition that is given up, or does not wait.
#[test]
fn two_processes_are_safe_through_a_step_and_one_who_leaves() {
    let left = Left { transitions: 1, acquisitions: 2, impatience: 1, ..Left::default() };
    from_every_phase("one who leaves", true, |phase, barred| {
        World::<2, 0, 1>::new(phase, barred, left, []).ready()
    });
}

/// A process that starts while another one works and a step is taken.
#[test]
fn a_process_that_starts_is_safe() {
    let left = Left { transitions: 1, acquisitions: 2, ..Left::default() };
    from_every_phase("a start", true, |phase, barred| {
        World::<2, 0, 1>::new(phase, barred, left, []).ready().fresh(0)
    });
}

/// A session that takes no part opens beside a process that does, in the store that is left or in the other one.
#[test]
fn plain_sessions_are_safe() {
    let left = Left { transitions: 3, acquisitions: 2, openings: 1, ..Left::default() };
    for side in [Side::Old, Side::New] {
        from_every_phase(&format!("a plain session at {}", side.word()), true, |phase, barred| {
            World::<1, 1, 1>::new(phase, barred, left, [side]).ready()
        });
    }
}

/// The store moved to has a session from before there was a record, whose locks are others' until the move comes there.
#[test]
fn sessions_from_before_the_move_are_safe() {
    let left = Left { transitions: 3, acquisitions: 2, ..Left::default() };
    for phase in [Phase::Old, Phase::Shadow] {
        let world = World::<1, 1, 1>::new(phase, false, left, [Side::New]).ready().early();
        clean(&format!("an early session, from {phase}"), world, true);
    }
}

/// Two administrators at once, each of whom stops anywhere.
#[test]
fn two_administrators_are_safe() {
    let left = Left { transitions: 3, ..Left::default() };
    from_every_phase("two administrators", false, |phase, barred| {
        World::<2, 0, 2>::new(phase, barred, left, []).ready()
    });
}

/// More of everything, as far as one likes.
#[test]
fn more_of_everything_is_safe() {
    if states().is_none() {
        println!("only at depth soak");
        return;
    }
    let left = Left { transitions: 3, acquisitions: 2, ..Left::default() };
    from_every_phase("three steps", false, |phase, barred| {
        World::<2, 0, 1>::new(phase, barred, left, []).ready()
    });
    let faulty = Left { transitions: 2, faults: 1, ..left };
    from_every_phase("two steps and a fault", false, |phase, barred| {
        World::<2, 0, 1>::new(phase, barred, faulty, []).ready()
    });
    let one = Left { transitions: 2, ..left };
    from_every_phase("three processes", false, |phase, barred| {
        World::<3, 0, 1>::new(phase, barred, one, []).ready()
    });
    from_every_phase("two administrators and locks", false, |phase, barred| {
        World::<2, 0, 2>::new(phase, barred, left, []).ready()
    });
    let strangers = Left { openings: 2, faults: 1, ..left };
    from_every_phase("plain sessions at both", false, |phase, barred| {
        World::<1, 2, 1>::new(phase, barred, strangers, [Side::Old, Side::New]).ready()
    });
}
