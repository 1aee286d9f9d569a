//! The scripts of a server that grants nothing for a while after it has restarted.

use leasehold_core::backend::Mode;

use super::mutants::{Mutant, each_is_told_apart};
use super::real::{Real, texts};
use super::{Operation, compare, search, tries};
use crate::scripts::OWN;

/// Whatever is asked for in whatever order, while nothing is granted and after that.
#[test]
fn the_scripts_that_pause_do_what_the_model_does() {
    search(&mut Real::start_pausing(), 2 * tries().cases).unwrap();
}

/// What could be wrong while nothing is granted: each script forgets it, one after the other.
const PAUSES: [Mutant; 5] = [
    // acquire
    ("if ARGV[#ARGV] - clock() > 0 then", "if false then"),
    // refresh
    ("if holder or strangers and strangers.rest(entries, now or clock()) then", "if holder then"),
    // release and revoke of what is held, and of what is free
    (
        "if strangers and strangers.have_their_turn(lock, queue, entries, channels, grants) then",
        "if false then",
    ),
    // who is asked to let go, whatever is known of its grant
    ("function strangers.hold() end", "function strangers.hold() return true end"),
    // when to ask
    ("return left == -2 and strangers.rest(entries, now) or left", "return left"),
];

/// A script that forgets the pause is found.
#[test]
fn scripts_that_forget_the_pause_are_told_from_the_model() {
    each_is_told_apart(&mut Real::start_pausing(), 500, &PAUSES);
}

/// Nobody has to know of it who does not ask for it: the scripts are those that were there before.
#[test]
fn without_a_pause_no_script_knows_of_one() {
    assert!(texts(&OWN).iter().all(|text| !text.contains("ARGV[#ARGV]")));
}

/// A release while nothing is granted leaves the lock free, and who waits has it after that.
#[test]
fn what_is_released_is_granted_when_the_pause_is_over() {
    let acquire = |owner| Operation::Acquire { owner, ttl: 2_000, queues: true, mode: Mode::EXCLUSIVE };
    let mut real = Real::start_pausing();
    let scene = [acquire(1), acquire(2), Operation::Pause(500_000), Operation::Release { owner: 1 }];
    compare(&mut real, &scene).unwrap();
    assert_eq!(real.state()[0][0], "none");
    real.pass(500_001);
    assert!(real.acquire(2).is_some());
}
