//! What goes along with a move: a hold, a waiter, a stopped process.

use leasehold::LockGuard;
use leasehold::backend::stage::Phase;
use leasehold::migrate::Admin;
use libtest_mimic::Trial;
use testbed::{Beside, Scratch, eventually, pass, trial};

use super::pair::{NAME, Pair, Space, hold, walk};
use crate::child::Holder;

pub(crate) fn trials(pair: &Pair) -> Vec<Trial> {
    macro_rules! trials {
        ($($name:ident)*) => {
            vec![$({
                let pair = pair.clone();
                trial(format!("{}::along::{}", pair.name, stringify!($name)), move || $name(pair.fresh()))
            }),*]
        };
    }
    trials![a_hold_and_a_waiter_last_through_every_phase a_process_that_stood_still_has_lost]
}

/// To the new store: the guard is held all the time, renewed by the store that decides; a waiter waits, and has it at last,
/// with a larger token. And back, and forth again.
async fn a_hold_and_a_waiter_last_through_every_phase(space: Space) {
    let (holder, waiter) = (space.manager().await, space.manager().await);
    let admin = space.admin().await;
    let guard = hold(&holder).await;
    let lock = waiter.lock(NAME).unwrap();
    let waiting = Beside::start(async move { lock.acquire().await.unwrap() });
    for to in [Phase::Shadow, Phase::Both, Phase::Drain, Phase::New] {
        lasts(&admin, &guard, to).await;
        assert!(!waiting.is_finished(), "two hold in {to}");
    }
    let token = guard.token();
    guard.release().await.unwrap();
    let next = waiting.end("the waiter holds").await;
    assert!(next.token() > token);
    for to in [Phase::Both, Phase::Old, Phase::New] {
        lasts(&admin, &next, to).await;
    }
    next.release().await.unwrap();
    eventually("nothing is left", async || holder.list("").await.is_ok_and(|locks| locks.is_empty())).await;
    admin.close().await.unwrap();
}

/// It is held on the way there, and after the lease that it has there would be over.
async fn lasts(admin: &Admin, guard: &LockGuard, to: Phase) {
    walk(admin, to).await;
    pass(guard.remaining()).await;
    guard.ensure_held().unwrap_or_else(|error| panic!("in {to}: {error}"));
}

/// A process holds in the old store alone and is stopped for longer than its lease, while an administrator leads the move to the
/// new one: that waits, as the process may still hold, and then as it may be one that takes no part. It has lost when
/// it looks, the next holder goes along, and the move goes on.
async fn a_process_that_stood_still_has_lost(space: Space) {
    let scratch = Scratch::new("moving").unwrap();
    let [_, moving, _] = space.urls();
    let (mut stopped, other) = (Holder::start(&scratch, &moving).await, space.manager().await);
    let admin = space.admin().await;
    walk(&admin, Phase::Shadow).await;
    let token = stopped.acquire(NAME).await;
    stopped.process.stop().await.unwrap();
    let moved = Beside::start(async move {
        walk(&admin, Phase::New).await;
        admin.close().await.unwrap();
    });
    let next = hold(&other).await;
    assert!(next.token().get() > token);
    stopped.process.cont().unwrap();
    let state = stopped.ask("state").await;
    assert!(state.starts_with("lost "), "{state}");
    moved.end("the move goes on").await;
    next.ensure_held().unwrap();
    let released = stopped.ask("release").await;
    assert!(released.starts_with("error "), "{released}");
    let token = next.token().get();
    next.release().await.unwrap();
    assert!(stopped.acquire(NAME).await > token, "it takes part again");
}
