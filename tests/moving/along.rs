//! Those who go along with a move: a hold, a waiter, a process that stands still.

use leasehold::backend::stage::Phase;
use libtest_mimic::Trial;
use testbed::{BOUND, Beside, Scratch, eventually, pass, trial, within};

use crate::child::Holder;
use crate::pair::{NAME, Pair, Space, hold, walk};

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

/// To the new store and back: the guard is held all the time, renewed by whoever decides; who waits for it waits, and
/// has it at last, with a larger token.
async fn a_hold_and_a_waiter_last_through_every_phase(space: Space) {
    let (holder, waiter) = (space.manager().await, space.manager().await);
    let admin = space.admin().await;
    let guard = hold(&holder).await;
    let lock = waiter.lock(NAME).unwrap();
    let waiting = Beside::start(async move { lock.acquire().await.unwrap() });
    for to in [Phase::Shadow, Phase::Both, Phase::Drain, Phase::New, Phase::Both, Phase::Old, Phase::New] {
        walk(&admin, to).await;
        // Until the lease that it has now would be over.
        pass(guard.remaining()).await;
        guard.ensure_held().unwrap_or_else(|error| panic!("in {to}: {error}"));
        assert!(!waiting.is_finished(), "two hold in {to}");
    }
    let token = guard.token();
    guard.release().await.unwrap();
    let next = waiting.end("the waiter holds").await;
    assert!(next.token() > token);
    next.release().await.unwrap();
    eventually("nothing is left", async || holder.list("").await.is_ok_and(|locks| locks.is_empty())).await;
    admin.close().await.unwrap();
}

/// A process holds in the old store alone and is stopped for longer than its lease, while the move goes on to the new
/// one: that waits until it cannot hold any more, and it has lost when it looks.
async fn a_process_that_stood_still_has_lost(space: Space) {
    let scratch = Scratch::new("moving").unwrap();
    let [_, moving, _] = space.urls();
    let (mut stopped, other) = (Holder::start(&scratch, &moving).await, space.manager().await);
    let admin = space.admin().await;
    walk(&admin, Phase::Shadow).await;
    let token = stopped.acquire(NAME).await;
    stopped.process.stop().await.unwrap();
    let lock = other.lock(NAME).unwrap();
    let waiting = Beside::start(async move { lock.acquire().await.unwrap() });
    within(BOUND, "the move goes on without it", walk(&admin, Phase::New)).await;
    let next = waiting.end("the other holds").await;
    assert!(next.token().get() > token);
    stopped.process.cont().unwrap();
    let state = stopped.ask("state").await;
    assert!(state.starts_with("lost "), "{state}");
    next.ensure_held().unwrap();
    let released = stopped.ask("release").await;
    assert!(released.starts_with("error "), "{released}");
    let token = next.token().get();
    next.release().await.unwrap();
    assert!(stopped.acquire(NAME).await > token, "it takes part again");
    admin.close().await.unwrap();
}
