//! Entries that are removed by hand, on a server that goes on.

use std::time::Duration;

use leasehold::LostReason;
use testbed::{BOUND, eventually, pass, within};

use crate::fixture::{LONG, NAME, Scene, hold, queued, steady};
use crate::store::{Sessions, Store};

pub(crate) async fn a_waiter_whose_entry_was_removed_waits_on<S: Store>(scene: Scene<S>) {
    let (a, b) = (scene.direct(LONG).await, scene.direct(steady::<S>()).await);
    let c = scene.direct(steady::<S>()).await;
    let guard = hold(&a).await;
    let (mut first, mut second) = (queued(&b, 0, &a).await, queued(&c, 1, &a).await);
    for _ in 0..3 {
        scene.server().await.remove(scene.namespace(), 1).await;
        let contenders = async || a.inspect(NAME).await.unwrap().contenders;
        eventually("it is in the queue again", async || contenders().await == 2).await;
        assert!(!first.is_finished() && !second.is_finished());
    }
    guard.ensure_held().unwrap();
    let token = guard.token();
    guard.release().await.unwrap();
    let (next, last) = tokio::select! {
        next = &mut first => (next, second),
        next = &mut second => (next, first),
    };
    assert!(next.token() > token);
    assert!(a.lock(NAME).unwrap().try_acquire().await.unwrap().is_none());
    assert!(!last.is_finished(), "two hold");
    let token = next.token();
    next.release().await.unwrap();
    assert!(last.end("the last one holds").await.token() > token);
}

/// A holder loses its lock when its entry is removed, whether it has held for a moment or for longer. It keeps its other
/// locks, and the next holder keeps this one.
pub(crate) async fn a_holder_whose_entry_was_removed_has_lost<S: Store>(scene: Scene<S>) {
    let (a, b) = (scene.direct(steady::<S>()).await, scene.direct(LONG).await);
    for has_held in [false, true] {
        let (guard, bystander) = (hold(&a).await, a.lock("another").unwrap().acquire().await.unwrap());
        if has_held {
            // ZooKeeper watches an entry that has held for a tenth of its lease.
            pass(steady::<S>() / 5).await;
        }
        scene.server().await.remove(scene.namespace(), 0).await;
        let next = hold(&b).await;
        assert!(next.token() > guard.token());
        assert_eq!(within(BOUND, "it is lost", guard.lost()).await, LostReason::Gone);
        guard.release().await.expect_err("it was lost");
        next.renew().await.unwrap();
        next.release().await.unwrap();
        bystander.release().await.unwrap();
    }
}

/// A session that an administrator ends loses its locks, and its holders know long before its lease would end. A waiter
/// goes on in the next session.
pub(crate) async fn ended_session_loses_holds_and_requeues_waiters<S: Sessions>(scene: Scene<S>) {
    let (a, b) = (scene.direct(LONG).await, scene.direct(LONG).await);
    let guards = [hold(&a).await, a.lock("another").unwrap().acquire().await.unwrap()];
    let waiting = queued(&b, 0, &a).await;
    let server = scene.server().await;
    let ended = server.end_session(scene.namespace(), 1).await;
    let again = async || server.sessions(scene.namespace()).await.get(1).is_some_and(|next| *next != ended);
    eventually("the waiter has queued again", again).await;
    assert!(!waiting.is_finished());

    let ended = server.end_session(scene.namespace(), 0).await;
    for guard in guards {
        let reason = within(KNOWN, "a report", guard.lost()).await;
        assert!(S::FORGOTTEN.contains(&reason) && reason != LostReason::Expired, "{reason}");
        guard.release().await.unwrap_err();
    }
    let next = waiting.end_within(KNOWN, "the waiter holds").await;
    let token = next.token();
    next.release().await.unwrap();
    let again = hold(&a).await;
    assert!(again.token() > token);
    assert_ne!(server.sessions(scene.namespace()).await, [ended]);
}

/// When the end of a session of [`LONG`] is known at the latest. ZooKeeper drops the requests of a client that reconnects while
/// its session ends, without an answer. The client tries another connection after a quarter of the timeout.
const KNOWN: Duration = Duration::from_secs(LONG.as_secs() / 2);
