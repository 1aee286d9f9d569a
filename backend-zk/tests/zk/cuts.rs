//! A client that is cut off for longer than its session: it must know that it has lost the lock
//! before anybody else holds it. Beside it, what other libraries do in the same place.

use std::sync::Arc;
use std::time::Duration;

use testbed::{Direction, Mode};

use crate::peer::Peer;
use crate::rig::{Beside, Rig, TTL, cut, hold_aside, milliseconds, now, proxy};

pub(crate) async fn the_holder_hears_nothing(rig: Arc<Rig>) {
    told_in_time(rig, &[Direction::ServerToClient]).await;
}

pub(crate) async fn the_holder_is_not_heard(rig: Arc<Rig>) {
    told_in_time(rig, &[Direction::ClientToServer]).await;
}

pub(crate) async fn the_holder_is_cut_off(rig: Arc<Rig>) {
    told_in_time(rig, &Direction::BOTH).await;
}

/// The guard is lost before the next one holds (G2), and after the cut the lock can be had again.
async fn told_in_time(rig: Arc<Rig>, directions: &[Direction]) {
    let server = rig.server().await;
    let space = rig.space().await;
    let proxy = proxy(server);
    let (locks, rival) = (space.by(proxy.addr()).manager().await, space.manager().await);
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    let waiting = hold_aside(&rival, "a");
    space.outside().await.has(&space.directory("a"), 2).await;

    let lost = guard.lost();
    let told = Beside::start(async move {
        lost.await;
        now()
    });
    cut(&proxy, directions).await;
    let began = now();
    let next = waiting.end("it holds").await;
    let granted = now();
    guard.ensure_held().expect_err("two holders");
    assert!(told.is_finished(), "nobody was told");
    let told = told.end("it is told").await;
    println!(
        "cut {directions:?} of a session of {TTL:?}: told after {} ms, the next holds after {} ms",
        told.since(began).as_millis(),
        granted.since(began).as_millis(),
    );
    assert!(next.token() > guard.token());

    proxy.set_both(Mode::Pass).await;
    let waiting = hold_aside(&locks, "a");
    let token = next.token();
    next.release().await.unwrap();
    assert!(waiting.end("it holds").await.token() > token);
    guard.release().await.expect_err("it was lost");
}

/// kazoo suspends its client and goes on saying that it holds the lock: when the next one holds,
/// and as long as the cut lasts.
pub(crate) async fn kazoo_is_not_told(rig: Arc<Rig>) {
    let server = rig.server().await;
    let space = rig.space().await;
    let proxy = proxy(server);
    let path = space.directory("a");
    let Some(mut holder) = Peer::kazoo(&proxy.addr().to_string(), TTL).await else { return };
    let Some(mut next) = Peer::kazoo(&space.hosts(), TTL).await else { return };
    assert_eq!(holder.ask(&format!("acquire {path}")).await, "held");
    next.order(&format!("acquire {path}")).await;
    space.outside().await.has(&path, 2).await;
    cut(&proxy, &Direction::BOTH).await;
    let began = now();
    assert_eq!(next.answer().await, "held");
    let state = holder.ask("state").await;
    println!(
        "kazoo, cut off from a session of {TTL:?}: after {} ms the next holds, and it says {state:?}",
        milliseconds(began)
    );
    assert!(state.starts_with("acquired"), "{state}");
    tokio::time::sleep(TTL).await; // the cut lasts
    let state = holder.ask("state").await;
    println!("kazoo after {} ms: {state:?}", milliseconds(began));
    assert!(state.starts_with("acquired"), "{state}");
}

/// Curator says LOST in the end, but not before somebody else holds.
pub(crate) async fn curator_is_told_late(rig: Arc<Rig>) {
    let server = rig.server().await;
    let space = rig.space().await;
    let proxy = proxy(server);
    let path = space.directory("a");
    let Some(mut holder) = Peer::curator(&proxy.addr().to_string(), TTL).await else { return };
    assert_eq!(holder.ask(&format!("acquire {path}")).await, "held");
    let rival = space.manager().await;
    let waiting = hold_aside(&rival, "a");
    space.outside().await.has(&path, 2).await;
    cut(&proxy, &Direction::BOTH).await;
    let began = now();
    let _next = waiting.end("it holds").await;
    let state = holder.ask("state").await;
    println!(
        "Curator, cut off from a session of {TTL:?}: after {} ms the next holds, and it says {state:?}",
        milliseconds(began)
    );
    assert!(state.starts_with("acquired") && !state.ends_with("LOST"), "{state}");
    let mut state = state;
    while !state.ends_with("LOST") && milliseconds(began) < 10 * TTL.as_millis() {
        tokio::time::sleep(Duration::from_millis(20)).await; // between two looks
        state = holder.ask("state").await;
    }
    println!("Curator after {} ms: {state:?}", milliseconds(began));
}
