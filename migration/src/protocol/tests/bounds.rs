//! How far the real parts are looked at: every interleaving of what is named, from every phase.
//!
//! At depth `soak` more states of each search are looked at, and the deeper searches begin.

use leasehold_core::backend::stage::{Phase, Side};
use model::{Explored, Search, explore};
use testbed::Depth;

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

/// Nothing is wrong in any state, and everything can come to rest from all of them.
fn clean<W: model::World>(what: &str, start: &W) {
    let Explored { states, all, .. } =
        sound(what, start, Search::ToRest(Depth::of_run().pick(2, 2, 5) * 1_000_000));
    assert!(all, "{what}: {states} states are not all");
}

/// Nothing is wrong in the nearest states, and on random walks.
fn nearly_clean<W: model::World>(what: &str, start: &W) {
    let depth = Depth::of_run();
    sound(what, start, Search::States(depth.pick(300_000, 300_000, 5_000_000)));
    sound(what, start, Search::Walks(depth.seeds(500, 500, 100_000), 200));
}

fn sound<W: model::World>(what: &str, start: &W, search: Search) -> Explored {
    let explored = explore(start, search);
    println!("{what}: {} states", explored.states);
    if let Some(wrong) = explored.wrong {
        panic!("{what}: {wrong}");
    }
    explored
}

fn from_every_phase<W>(what: &str, clean: fn(&str, &W), world: impl Fn(Phase, bool) -> W) {
    for (phase, barred) in STARTS {
        let barred_or_not = if barred { ", the new store not open" } else { "" };
        clean(&format!("{what}, from {phase}{barred_or_not}"), &world(phase, barred));
    }
}

/// Two processes, an administrator who takes two steps or leaves them, two acquisitions.
#[test]
fn two_processes_are_safe_through_two_steps() {
    let left = Left { transitions: 2, acquisitions: 2, ..Left::default() };
    from_every_phase("two steps", clean, |phase, barred| {
        World::<2, 0, 1>::new(phase, barred, left, []).ready()
    });
}

/// One step, and a process dies, is cut off from one store, or has an entry there that lapses.
#[test]
fn two_processes_are_safe_through_a_step_and_a_fault() {
    let left = Left { transitions: 1, acquisitions: 2, faults: 1, ..Left::default() };
    from_every_phase("a fault", clean, |phase, barred| {
        World::<2, 0, 1>::new(phase, barred, left, []).ready()
    });
}

/// The same where stores number entries when they queue: a waiter keeps its number through a step.
#[test]
fn entry_numbered_when_queued_is_safe() {
    let left = Left { transitions: 2, acquisitions: 2, ..Left::default() };
    from_every_phase("numbers of a queue", clean, |phase, barred| {
        World::<2, 0, 1>::new(phase, barred, left, []).ready().numbered()
    });
}

/// One step, and an acquisition that is given up, or does not wait.
#[test]
fn two_processes_are_safe_through_a_step_and_one_who_leaves() {
    let left = Left { transitions: 1, acquisitions: 2, impatience: 1, ..Left::default() };
    from_every_phase("one who leaves", clean, |phase, barred| {
        World::<2, 0, 1>::new(phase, barred, left, []).ready()
    });
}

/// A process that starts while another one works and a step is taken.
#[test]
fn a_process_that_starts_is_safe() {
    let left = Left { transitions: 1, acquisitions: 2, ..Left::default() };
    from_every_phase("a start", clean, |phase, barred| {
        World::<2, 0, 1>::new(phase, barred, left, []).ready().fresh(0)
    });
}

/// A session that takes no part opens beside a process that does, in the store that is left or in the other one.
#[test]
fn plain_sessions_are_safe() {
    let left = Left { transitions: 3, acquisitions: 2, openings: 1, ..Left::default() };
    for side in [Side::Old, Side::New] {
        from_every_phase(&format!("a plain session at {}", side.word()), clean, |phase, barred| {
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
        clean(&format!("an early session, from {phase}"), &world);
    }
}

/// Two administrators at once, each of whom stops anywhere.
#[test]
fn two_administrators_are_safe() {
    let left = Left { transitions: 3, ..Left::default() };
    from_every_phase("two administrators", nearly_clean, |phase, barred| {
        World::<2, 0, 2>::new(phase, barred, left, []).ready()
    });
}

/// More of everything, as far as one likes.
#[test]
fn more_of_everything_is_safe() {
    if Depth::of_run() != Depth::Soak {
        println!("only at depth soak");
        return;
    }
    let left = Left { transitions: 3, acquisitions: 2, ..Left::default() };
    from_every_phase("three steps", nearly_clean, |phase, barred| {
        World::<2, 0, 1>::new(phase, barred, left, []).ready()
    });
    let faulty = Left { transitions: 2, faults: 1, ..left };
    from_every_phase("two steps and a fault", nearly_clean, |phase, barred| {
        World::<2, 0, 1>::new(phase, barred, faulty, []).ready()
    });
    let one = Left { transitions: 2, ..left };
    from_every_phase("three processes", nearly_clean, |phase, barred| {
        World::<3, 0, 1>::new(phase, barred, one, []).ready()
    });
    from_every_phase("two administrators and locks", nearly_clean, |phase, barred| {
        World::<2, 0, 2>::new(phase, barred, left, []).ready()
    });
    let plain = Left { openings: 2, faults: 1, ..left };
    from_every_phase("plain sessions at both", nearly_clean, |phase, barred| {
        World::<1, 2, 1>::new(phase, barred, plain, [Side::Old, Side::New]).ready()
    });
}
