//! The server goes away and comes back: with its data, or without them.

use leasehold::{ErrorKind, FenceGate, LostReason};
use testbed::{BOUND, eventually, pass, within};

use crate::fixture::{NAME, Scene, hold, queued, steady};
use crate::store::Store;

/// A server is restarted with all its data within the ttl: the holder keeps the lock, the waiter is next, and tokens grow.
pub(crate) async fn with_its_data_everybody_keeps_their_place<S: Store>(scene: Scene<S>) {
    let mut server = S::start().await.unwrap();
    let (a, b) = (scene.on(&server, S::RESTART).await, scene.on(&server, S::RESTART).await);
    let guard = hold(&a).await;
    let waiting = queued(&b, 0, &a).await;

    server.restart().await.unwrap();
    eventually("the lease is served again", async || guard.renew().await.is_ok()).await;
    pass(2 * S::TTL).await;
    guard.ensure_held().unwrap();
    assert!(!waiting.is_finished());

    let token = guard.token();
    guard.release().await.unwrap();
    let next = waiting.end("the next in line holds").await;
    assert!(next.token() > token);
    next.release().await.unwrap();
}

/// A server that has forgotten everything grants again: every hold is over, and says so; by a token that
/// tells them apart, where tokens do not depend on what the server remembers.
pub(crate) async fn without_its_data_every_hold_is_over<S: Store>(scene: Scene<S>) {
    let mut server = S::start().await.unwrap();
    // The hold does not run out while the server is away.
    let (a, b) = (scene.on(&server, steady::<S>()).await, scene.on(&server, S::TTL).await);
    let (guard, bystander) = (hold(&a).await, a.lock("another").unwrap().acquire().await.unwrap());

    server.restart_empty().await.unwrap();
    for guard in [&guard, &bystander] {
        let reason = within(BOUND, "it is lost", guard.lost()).await;
        assert!(S::FORGOTTEN.contains(&reason), "{reason:?}");
    }
    // The others' sessions are gone, too; they notice by themselves.
    let next = hold(&b).await;
    guard.ensure_held().unwrap_err();
    if S::TOKENS_OUTLAST_DATA {
        let gate = FenceGate::new();
        gate.admit(next.token()).unwrap();
        gate.admit(guard.token()).unwrap_err();
    }
    drop(next);
    guard.release().await.expect_err("it was lost");
    // Where numbers begin anew, those that its manager has seen larger ones of are refused.
    eventually("the former holder's manager holds", async || match a.lock(NAME).unwrap().acquire().await {
        Ok(guard) => guard.release().await.is_ok(),
        Err(error) => {
            assert!(*error.kind() == ErrorKind::Protocol && !S::TOKENS_OUTLAST_DATA, "{error:#}");
            false
        }
    })
    .await;
    drop(hold(&b).await);
}

pub(crate) async fn without_its_data_a_waiter_waits_on<S: Store>(scene: Scene<S>) {
    let mut server = S::start().await.unwrap();
    let (a, b) = (scene.on(&server, S::TTL).await, scene.on(&server, steady::<S>()).await);
    let guard = hold(&a).await;
    let waiting = queued(&b, 0, &a).await;

    server.restart_empty().await.unwrap();
    let next = waiting.end("it holds").await;
    within(BOUND, "the former hold is lost", guard.lost()).await;
    assert!(next.token() > guard.token() || !S::TOKENS_OUTLAST_DATA);
}

/// A stopped server sends no replies: the hold ends by the holder's own clock, before another can begin. When the server
/// continues, locks are granted again.
pub(crate) async fn a_stopped_server_ends_the_hold<S: Store>(scene: Scene<S>) {
    let mut server = S::start().await.unwrap();
    let (a, b) = (scene.on(&server, S::TTL).await, scene.on(&server, S::TTL).await);
    let guard = hold(&a).await;
    let waiting = queued(&b, 0, &a).await;

    server.stop().await.unwrap();
    assert_eq!(within(BOUND, "it is lost", guard.lost()).await, LostReason::Expired);
    server.cont().unwrap();
    let next = waiting.end("the next one holds").await;
    guard.ensure_held().expect_err("two hold");
    assert!(next.token() > guard.token());
    drop(next);
    eventually("the former holder's manager works", async || {
        a.lock(NAME).unwrap().try_acquire().await.is_ok_and(|guard| guard.is_some())
    })
    .await;
}
