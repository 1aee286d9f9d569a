//! The server's wall clock steps, by which it ends its keys (A3): what breaks then, and what does not.

use leasehold_core::{FenceGate, LockManager, LostReason};
use testbed::redis::{Server, Settings, WallClock};

use crate::fixture::{
    KEY, LONG, NAME, TTL, Waiter, command, direct, hold, ok, open, open_for, pass, start, trials,
};

trials![
    a_step_forward_frees_a_held_lock,
    a_step_back_changes_nothing,
    a_step_back_lengthens_no_lease_that_is_handed_on,
    a_step_back_lengthens_no_later_pause,
    a_clock_that_was_ahead_leaves_tokens_growing,
];

const HOUR: i64 = 3600;

const DAY: i64 = 24 * HOUR;

async fn server() -> (Server, WallClock) {
    let clock = WallClock::new().unwrap();
    (start(Settings::new().clock(&clock)).await, clock)
}

async fn cycle(locks: &LockManager) -> leasehold_core::FencingToken {
    let guard = hold(locks).await;
    let token = guard.token();
    guard.release().await.unwrap();
    token
}

/// Without A3 there are two holders: shown here. Their tokens differ, and the former holder's next renewal reports the
/// loss.
async fn a_step_forward_frees_a_held_lock() {
    let (server, clock) = server().await;
    let (a, b) = (open_for(direct(&server), LONG).await, open(direct(&server)).await);
    let guard = hold(&a).await;

    clock.shift_by(HOUR).unwrap();
    let next = hold(&b).await;
    guard.ensure_held().expect("it cannot know yet");
    next.ensure_held().unwrap();
    let gate = FenceGate::new();
    gate.admit(next.token()).unwrap();
    gate.admit(guard.token()).unwrap_err();

    let lost = guard.renew().await.unwrap_err();
    assert_eq!(lost.lost_reason(), Some(LostReason::Gone), "{lost}");
    next.release().await.unwrap();

    // A replica whose clock is ahead takes over.
    let guard = hold(&a).await;
    let ahead = WallClock::new().unwrap();
    ahead.shift_by(2 * HOUR).unwrap();
    let replica = start(Settings::new().clock(&ahead).replica_of(server.addr())).await;
    replica.follows().await.unwrap();
    ok(&replica, &["REPLICAOF", "NO", "ONE"]).await;
    hold(&open(direct(&replica)).await).await.release().await.unwrap();
    guard.ensure_held().expect("it cannot know");
}

/// Holders and waiters renew from the new time on, tokens do not follow the clock back, and the queue goes on.
async fn a_step_back_changes_nothing() {
    let (server, clock) = server().await;
    let ttl = 3 * TTL;
    let (a, b) = (open_for(direct(&server), ttl).await, open_for(direct(&server), ttl).await);
    let before = cycle(&b).await;
    let guard = hold(&a).await;
    let waiting = Waiter::queued(&b, 0, &a).await;
    // The lock of a process that died.
    ok(&server, &["SET", "leasehold:{dead}", "it", "PX", &ttl.as_millis().to_string()]).await;

    clock.shift_by(-HOUR).unwrap();
    pass(ttl).await;
    guard.ensure_held().unwrap();
    assert!(waiting.is_waiting());
    let token = guard.token();
    assert!(token > before);
    guard.release().await.unwrap();
    let next = waiting.held().await;
    assert!(next.token() > token);
    next.release().await.unwrap();
    assert!(cycle(&a).await > token);
    assert!(a.lock("dead").unwrap().try_acquire().await.unwrap().is_none(), "it stays for an hour more");
}

/// An entry that would live for an hour more, by the clock that was set back, is granted for its ttl.
async fn a_step_back_lengthens_no_lease_that_is_handed_on() {
    let (server, clock) = server().await;
    let (a, b) = (open_for(direct(&server), LONG).await, open_for(direct(&server), LONG).await);
    let guard = hold(&a).await;
    let waiting = Waiter::queued(&b, 0, &a).await;
    clock.shift_by(-HOUR).unwrap();
    guard.release().await.unwrap();
    let next = waiting.held().await;
    let left = command(&server, &["PTTL", KEY]).await.integer().unwrap();
    assert!((1..=LONG.as_millis().try_into().unwrap()).contains(&left), "{left} ms");
    next.release().await.unwrap();
}

/// A pause that began by a clock that was ahead lasts no longer for a manager that comes when the clock is set right. For
/// one that came before, it lasts until the clock is ahead again.
async fn a_step_back_lengthens_no_later_pause() {
    let (server, clock) = server().await;
    clock.shift_by(HOUR).unwrap();
    let pausing = || direct(&server).pause_after_restart(TTL);
    let first = open(pausing()).await;
    clock.shift_by(0).unwrap();
    let later = open(pausing()).await;
    let guard = hold(&later).await;
    guard.release().await.unwrap();
    assert!(first.lock(NAME).unwrap().try_acquire().await.unwrap().is_none());
    clock.shift_by(2 * HOUR).unwrap();
    assert!(first.lock(NAME).unwrap().try_acquire().await.unwrap().is_some(), "a step forward ends it");
}

/// The counter outlives the time it was taken from, so a clock that is set right does not bring
/// small tokens back; and when the counter has ended, the time is beyond it.
async fn a_clock_that_was_ahead_leaves_tokens_growing() {
    let (server, clock) = server().await;
    let locks = open(direct(&server)).await;
    clock.shift_by(10 * DAY).unwrap();
    let ahead = cycle(&locks).await;
    clock.shift_by(0).unwrap();
    let right = cycle(&locks).await;
    assert!(right > ahead, "{right:?} after {ahead:?}");
    let mut last = right;
    // While the counter must be there, and when it has ended.
    for days in [5, 12] {
        clock.shift_by(days * DAY).unwrap();
        let later = cycle(&locks).await;
        assert!(later > last, "{later:?} after {last:?} on day {days}");
        last = later;
    }
}
