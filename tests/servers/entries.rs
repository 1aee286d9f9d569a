//! Entries that somebody removes by hand, on a server that goes on.

use leasehold::LostReason;
use testbed::{BOUND, eventually, within};

use crate::rig::{LONG, NAME, Scene, hold, queued, steady};
use crate::store::Store;

/// Whoever waits and has lost its entry is in the queue again, by itself, and holds when it is its turn.
pub(crate) async fn a_waiter_whose_entry_was_removed_waits_on<S: Store>(scene: Scene<S>) {
    let (a, b) = (scene.direct(LONG).await, scene.direct(steady::<S>()).await);
    let guard = hold(&a).await;
    let waiting = queued(&b, 0, &a).await;
    for _ in 0..2 {
        scene.server().await.remove(scene.namespace(), 1).await;
        let contenders = async || a.inspect(NAME).await.unwrap().contenders;
        eventually("it is in the queue again", async || contenders().await == 1).await;
        assert!(!waiting.is_finished());
    }
    guard.ensure_held().unwrap();
    let token = guard.token();
    guard.release().await.unwrap();
    let next = waiting.end("it holds").await;
    assert!(next.token() > token);
    next.release().await.unwrap();
}

/// Whoever holds and has lost its entry is told, and nothing else that it holds is lost for that; whoever
/// holds next is left alone.
pub(crate) async fn a_holder_whose_entry_was_removed_has_lost<S: Store>(scene: Scene<S>) {
    let (a, b) = (scene.direct(steady::<S>()).await, scene.direct(LONG).await);
    let (guard, bystander) = (hold(&a).await, a.lock("another").unwrap().acquire().await.unwrap());
    scene.server().await.remove(scene.namespace(), 0).await;
    let next = hold(&b).await;
    assert!(next.token() > guard.token());
    assert_eq!(within(BOUND, "it is lost", guard.lost()).await, LostReason::Gone);
    guard.release().await.expect_err("it was lost");
    next.renew().await.unwrap();
    next.release().await.unwrap();
    bystander.release().await.unwrap();
}
