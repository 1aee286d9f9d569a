//! Full servers: new entries are `Unavailable`, and no hold is lost.

use leasehold::{ErrorKind, LockManager};
use testbed::{BOUND, Beside, eventually, pass, within};

use crate::fixture::{LONG, NAME, Scene, hold, queued, quiet, steady};
use crate::store::Store;

/// A server that has no room for new entries refuses them at once. Locks that are held are renewed, passed on and
/// released, and waiters leave. A waiter whose entry was removed waits until there is room, and holds when it is its turn.
pub(crate) async fn queued_waiter_stays_and_newcomer_is_refused<S: Store>(scene: Scene<S>) {
    let server = S::start_small().await;
    let (a, b) = (scene.on(&server, LONG).await, scene.on(&server, steady::<S>()).await);
    let (newcomer, c) = (scene.on(&server, LONG).await, scene.on(&server, steady::<S>()).await);
    let leaving = scene.on(&server, LONG).await;
    let guard = hold(&a).await;
    let waiting = queued(&b, 0, &a).await;
    let left = queued(&leaving, 1, &a).await;
    let kept = b.lock("kept").unwrap().acquire().await.unwrap();
    // Its entry is refreshed while the server is full.
    let next = c.lock("kept").unwrap();
    let next = Beside::start(async move { next.acquire().await.unwrap() });
    let reader = |locks: &LockManager| locks.lock("shared").unwrap().shared();
    let shares = [reader(&a).acquire().await.unwrap(), reader(&b).acquire().await.unwrap()];
    let waits = async || newcomer.inspect("kept").await.unwrap().contenders == 1;
    eventually("it is in the queue", waits).await;
    // It knows whom it waits for.
    quiet(&server).await;

    server.refuse(scene.namespace()).await;
    for lock in [newcomer.lock("another").unwrap(), reader(&newcomer)] {
        let tried = within(BOUND, "an answer", lock.try_acquire()).await.map(drop);
        let asked = within(BOUND, "an answer", lock.acquire()).await.map(drop);
        for refused in [tried.unwrap_err(), asked.unwrap_err()] {
            assert_eq!(*refused.kind(), ErrorKind::Unavailable, "{refused:?}");
            assert!(format!("{refused:#}").contains(S::FULL), "{refused:#}");
        }
    }
    let tried = within(BOUND, "an answer", newcomer.lock("shared").unwrap().try_acquire()).await;
    assert_eq!(matches!(tried, Ok(None)), S::TRIES_WHEN_FULL, "{tried:?}");
    let contenders = async || a.inspect(NAME).await.unwrap().contenders;
    drop(left);
    eventually("the waiter has left the queue", async || contenders().await == 1).await;
    server.remove(scene.namespace(), 1).await;
    // It is refused, again and again; what it holds outlasts its lease.
    pass(steady::<S>() + S::TTL).await;
    assert!(!waiting.is_finished());
    assert_eq!(contenders().await, 0);
    guard.ensure_held().unwrap();
    kept.release().await.unwrap();
    next.end("the next one holds").await.release().await.unwrap();
    for share in shares {
        share.renew().await.unwrap();
        share.release().await.unwrap();
    }
    assert_eq!(a.list("").await.unwrap().len(), 1);

    server.accept(scene.namespace()).await;
    eventually("it is in the queue again", async || contenders().await == 1).await;
    let token = guard.token();
    guard.release().await.unwrap();
    let next = waiting.end("it holds").await;
    assert!(next.token() > token);
    next.release().await.unwrap();
    hold(&newcomer).await.release().await.unwrap();
}
