//! The scripts of a server that grants nothing for a while after it has restarted or was promoted.

use leasehold_core::backend::Mode;

use super::mutants::{Mutant, each_is_told_apart};
use super::real::Real;
use super::{Operation, compare, hex, search, tries};

#[test]
fn the_scripts_that_pause_do_what_the_model_does() {
    search(&mut Real::start_pausing(), 3 * tries().cases).unwrap();
}

/// What could be wrong while nothing is granted: each script forgets it, one after the other.
const PAUSES: [Mutant; 10] = [
    // acquire
    ("if pause_until and pause_until - clock() > 0 then", "if false then"),
    // shares beside others, and when to ask
    ("    if rest and rest(entries) then\n      return false\n    end\n", ""),
    ("    if resting then\n      return resting\n    end\n", ""),
    // what is not renewed: by a repeated request, by a renewal, and of shares
    ("    redis.call('DEL', lock)\n    holder = 0\n", ""),
    (
        "if holder == me and is_short and is_short(redis.call('PTTL', lock) * 1000, now) then\n      return",
        "if false then return",
    ),
    (
        "if counter and is_short and is_short(redis.call('ZSCORE', holders, owner) - now, now) then",
        "if false then",
    ),
    // refresh
    ("if holder or rest and rest(entries, now) then", "if holder then"),
    // release and revoke of what is held, and of what is free
    ("if stand_back and stand_back(lock, queue, entries, grants, channels) then", "if false then"),
    // revoke of a holder, with or without its grant
    ("elseif not (foreign and foreign.hold(holder, grants)) then", "elseif false then"),
    // when to ask
    ("left = rest and rest(entries, now) or left", "left = left"),
];

#[test]
fn scripts_that_forget_the_pause_are_told_from_the_model() {
    each_is_told_apart(&mut Real::start_pausing(), 500, &PAUSES);
}

/// The shares are lost during the pause: whichever call finds that, the lock is granted after the pause.
#[test]
fn shares_lost_in_a_pause_grant_nothing() {
    let acquire = |owner, mode| Operation::Acquire { owner, ttl: 9_000, queues: true, mode };
    let refresh = || Operation::Refresh { owners: vec![2], ttl: 9_000, client: 0 };
    let finds = |call: &Operation| {
        let begin = [acquire(1, Mode::SHARED), acquire(2, Mode::EXCLUSIVE), Operation::Pause(900_000, 0)];
        let end = [Operation::Pass(1_000_000), refresh()];
        begin.into_iter().chain([Operation::Lose(4), call.clone()]).chain(end).collect::<Vec<_>>()
    };
    let mut real = Real::start_pausing();
    let calls =
        [refresh(), Operation::Release { owner: 3 }, Operation::Revoke(Some(7)), acquire(3, Mode::EXCLUSIVE)];
    for call in &calls {
        compare(&mut real, &finds(call)).unwrap();
        assert_eq!(real.state()[0][0], hex(2), "after {call:?}");
    }
    let guard = "if not holder and rest and rest(entries, now) then\n      return holder";
    real.load(500, Some((guard, "if false then\n      return holder")));
    for call in &calls[..2] {
        compare(&mut real, &finds(call)).unwrap_err();
    }
}

/// A share that is requested in the pause is granted after it, without another request for a share.
#[test]
fn free_lock_is_not_shared_in_a_pause() {
    let share = Operation::Acquire { owner: 1, ttl: 2_000, queues: true, mode: Mode::SHARED };
    let mut real = Real::start_pausing();
    compare(&mut real, &[Operation::Pause(500_000, 0), share]).unwrap();
    assert_eq!(real.state()[0][0], "none");
}

/// A release while nothing is granted leaves the lock free, and the waiter has it after that.
#[test]
fn released_lock_is_granted_after_the_pause() {
    let acquire = |owner| Operation::Acquire { owner, ttl: 2_000, queues: true, mode: Mode::EXCLUSIVE };
    let mut real = Real::start_pausing();
    let scene = [acquire(1), acquire(2), Operation::Pause(500_000, 0), Operation::Release { owner: 1 }];
    compare(&mut real, &scene).unwrap();
    assert_eq!(real.state()[0][0], "none");
    real.pass(500_001);
    assert!(real.acquire(2).is_some());
}
