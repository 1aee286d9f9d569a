//! Requests that were applied and whose replies were lost (G5).

use testbed::{Beside, Direction, Mode, Proxy, Server, eventually, until, within};

use crate::fixture::{EARLY, LONG, NAME, Scene, hold, hold_aside, is_left_alone, queued, warm};
use crate::sharing::reader;

/// The connection breaks before the grant is received: it is requested again, found, and held once; beside a share, too.
pub(crate) async fn a_lost_grant_is_held_once<S: Server>(scene: Scene<S>) {
    for is_shared in [false, true] {
        let proxy = scene.proxy().await;
        let (a, b) = (warm(scene.behind(&proxy, LONG).await).await, scene.direct(LONG).await);
        let beside = if is_shared { Some(reader(&b).acquire().await.unwrap()) } else { None };
        let all = 1 + usize::from(is_shared);
        proxy.set(Direction::ServerToClient, Mode::Hold).await;
        let lock = if is_shared { reader(&a) } else { a.lock(NAME).unwrap() };
        let acquiring = Beside::start(async move { lock.acquire().await.unwrap() });
        let granted = async || b.inspect(NAME).await.unwrap().holders.len() == all;
        eventually("it is carried out", granted).await;
        within(EARLY, "the answer is on its way", proxy.held(Direction::ServerToClient, 1)).await;
        lose(&proxy).await;

        let guard = acquiring.end_within(EARLY, "it holds").await;
        guard.ensure_held().unwrap();
        assert!(b.lock(NAME).unwrap().try_acquire().await.unwrap().is_none());
        let state = b.inspect(NAME).await.unwrap();
        assert_eq!((state.contenders, state.holders.len()), (0, all));
        let token = guard.token();
        assert!(state.holders.iter().any(|holder| holder.token == Some(token)), "{state:?}");
        if let Some(beside) = beside {
            beside.release().await.unwrap();
        }
        guard.release().await.unwrap();
        within(EARLY, "nothing is left", until(async || is_left_alone(&b).await)).await;
        let next = hold(&b).await;
        assert!(next.token() > token);
        next.release().await.unwrap();
    }
}

/// Its acquisition was cancelled when the connection breaks: the grant is released, long before its lease ends.
pub(crate) async fn an_abandoned_grant_that_is_lost_leaves_nothing<S: Server>(scene: Scene<S>) {
    abandoned(scene, async |proxy| lose(proxy).await).await;
}

/// The same, but the reply arrives in the end.
pub(crate) async fn an_abandoned_grant_that_is_late_leaves_nothing<S: Server>(scene: Scene<S>) {
    abandoned(scene, async |proxy| proxy.set(Direction::ServerToClient, Mode::Pass).await).await;
}

async fn abandoned<S: Server>(scene: Scene<S>, heal: impl AsyncFn(&Proxy)) {
    let proxy = scene.proxy().await;
    let (a, b) = (warm(scene.behind(&proxy, LONG).await).await, scene.direct(LONG).await);
    let bystander = a.lock("another").unwrap().acquire().await.unwrap();
    proxy.set(Direction::ServerToClient, Mode::Hold).await;
    let acquiring = hold_aside(&a);
    let is_held = async || b.inspect(NAME).await.unwrap().holder().is_some();
    eventually("it is carried out", is_held).await;
    within(EARLY, "the answer is on its way", proxy.held(Direction::ServerToClient, 1)).await;
    drop(acquiring);
    heal(&proxy).await;

    within(EARLY, "it is given back", until(async || !is_held().await)).await;
    hold(&a).await.release().await.unwrap();
    // And not because the session ended.
    bystander.ensure_held().unwrap();
    bystander.release().await.unwrap();
}

/// A request that was cancelled before it arrived: the entry that it makes is removed, beside a holder and without one.
pub(crate) async fn an_abandoned_request_that_is_late_leaves_nothing<S: Server>(scene: Scene<S>) {
    let proxy = scene.proxy().await;
    let (a, b) = (warm(scene.behind(&proxy, LONG).await).await, scene.direct(LONG).await);
    let mut holder = Some(hold(&b).await);
    for held in [1, 0] {
        proxy.set(Direction::ClientToServer, Mode::Hold).await;
        let acquiring = hold_aside(&a);
        within(EARLY, "the request is on its way", proxy.held(Direction::ClientToServer, 1)).await;
        drop(acquiring);
        proxy.set(Direction::ClientToServer, Mode::Pass).await;
        // Answered on the same way, so after what was held.
        within(EARLY, "its manager is answered", until(async || a.inspect(NAME).await.is_ok())).await;
        let shown = async || {
            let state = b.inspect(NAME).await.unwrap();
            (state.holders.len(), state.contenders)
        };
        within(EARLY, "it is given back", until(async || shown().await == (held, 0))).await;
        if let Some(holder) = holder.take() {
            holder.release().await.unwrap();
        }
    }
    hold(&b).await.release().await.unwrap();
}

/// A release whose reply is lost is repeated; the next holder keeps the lock.
pub(crate) async fn a_release_that_was_not_confirmed_is_repeated<S: Server>(scene: Scene<S>) {
    let proxy = scene.proxy().await;
    let (a, b) = (warm(scene.behind(&proxy, LONG).await).await, scene.direct(LONG).await);
    let guard = hold(&a).await;
    let waiting = queued(&b, 0, &b).await;
    proxy.set(Direction::ServerToClient, Mode::Hold).await;
    let releasing = Beside::start(guard.release());
    let next = waiting.end_within(EARLY, "the next one holds").await;
    within(EARLY, "the answer is on its way", proxy.held(Direction::ServerToClient, 1)).await;
    lose(&proxy).await;

    releasing.end_within(EARLY, "the release ends").await.unwrap();
    next.renew().await.unwrap();
    assert_eq!(b.inspect(NAME).await.unwrap().holders.pop().unwrap().token, Some(next.token()));
    next.release().await.unwrap();
    within(EARLY, "nothing is left", until(async || is_left_alone(&b).await)).await;
}

/// What was held back never arrives.
async fn lose(proxy: &Proxy) {
    proxy.reset().await;
    proxy.set(Direction::ServerToClient, Mode::Pass).await;
}
