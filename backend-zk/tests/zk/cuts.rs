//! Other libraries, cut off for longer than their session. Ours reports the loss before another client holds
//! (`tests/servers`).

use std::sync::Arc;
use std::time::Duration;

use testbed::Direction;

use crate::fixture::{Fixture, TTL, cut, hold_aside, milliseconds, now, proxy};
use crate::peer::Peer;

/// kazoo suspends its client and still reports that it holds the lock, also when the next client holds.
pub(crate) async fn kazoo_is_not_told(fixture: Arc<Fixture>) {
    let server = fixture.server().await;
    let space = fixture.space().await;
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

/// Curator reports LOST, but only after another client holds.
pub(crate) async fn curator_is_told_late(fixture: Arc<Fixture>) {
    let server = fixture.server().await;
    let space = fixture.space().await;
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
