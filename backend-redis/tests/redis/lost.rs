//! An acquisition whose entry is over says so, and is released.

use futures_util::StreamExt;
use futures_util::future::join_all;
use leasehold_core::backend::{AcquireRequest, Grant, StoreConfig, StoreEvent};
use leasehold_core::{Effect, Env, ErrorKind, LostReason, OwnerId, Result, Timing};
use testbed::redis::Server;
use testbed::{Direction, Mode};

use crate::fixture::{
    BOUND, KEY, LONG, NAME, TTL, command, direct, eventually, ok, proxy, server, store, trials, via,
};

trials![
    an_entry_that_nobody_keeps_is_over_and_released,
    lost_hold_is_released_before_closing_ends,
    closing_waits_for_requests_in_flight,
];

pub(crate) fn request(id: u8) -> AcquireRequest {
    AcquireRequest::new(NAME.parse().unwrap(), OwnerId::from_random([id; 16]), TTL)
}

/// A server where another client has the lock for long.
async fn busy() -> Server {
    let server = server().await;
    ok(&server, &["SET", KEY, &"7".repeat(32), "PX", &LONG.as_millis().to_string()]).await;
    server
}

async fn waiting(server: &Server) -> i64 {
    command(server, &["ZCARD", &format!("{KEY}:q")]).await.integer().unwrap()
}

fn assert_lost(outcome: Result<Grant>, reason: LostReason) {
    let lost = outcome.unwrap_err();
    assert_eq!((lost.lost_reason(), lost.effect()), (Some(reason), Effect::NotApplied), "{lost}");
}

/// Its lease ends, although the server, which counts from later, would keep the entry for long: that is
/// released, and blocks no waiter.
async fn an_entry_that_nobody_keeps_is_over_and_released() {
    let server = busy().await;
    let store = store(direct(&server)).await;
    let request = request(1);
    let (outcome, ()) = tokio::join!(store.acquire(&request), async {
        eventually("it is in the queue", async || waiting(&server).await == 1).await;
        let (queue, entries) = (format!("{KEY}:q"), format!("{KEY}:e"));
        let until = format!("u:{}", request.owner.to_hex());
        command(&server, &["HSET", &entries, &until, "9000000000000000"]).await;
        for key in [queue, entries] {
            command(&server, &["PEXPIRE", &key, &LONG.as_millis().to_string()]).await;
        }
    });
    assert_lost(outcome, LostReason::Expired);
    eventually("it is released", async || waiting(&server).await == 0).await;
}

async fn lost_hold_is_released_before_closing_ends() {
    let server = busy().await;
    let proxy = proxy(&server);
    let store = store(via(&proxy)).await;
    let mut events = store.events();
    let request = request(1);
    let (outcome, ()) = tokio::join!(store.acquire(&request), async {
        assert!(matches!(events.next().await, Some(StoreEvent::LeaseOpened(_))));
        proxy.set_both(Mode::Blackhole).await;
    });
    assert_lost(outcome, LostReason::Expired);
    let unconfirmed = store.close().await.unwrap_err();
    assert_eq!((unconfirmed.kind(), unconfirmed.effect()), (&ErrorKind::Unavailable, Effect::Unknown));
}

/// The releases of all holds leave without an answer to earlier requests. Closing waits for those, and ends the acquisition.
async fn closing_waits_for_requests_in_flight() {
    let server = server().await;
    let proxy = proxy(&server);
    let mut timing = Timing::for_ttl(LONG);
    timing.connect_timeout = BOUND;
    let store = via(&proxy).open(Env::new(timing).unwrap()).await.unwrap();
    let requests: Vec<_> = (0..300_u16)
        .map(|id| {
            let owner =
                OwnerId::from_random([[0; 14].as_slice(), &id.to_be_bytes()].concat().try_into().unwrap());
            AcquireRequest::new(format!("lock/{id}").parse().unwrap(), owner, LONG)
        })
        .collect();
    let (last, held) = requests.split_last().unwrap();
    let grants = join_all(held.iter().map(|request| store.acquire(request))).await;
    proxy.set(Direction::ServerToClient, Mode::Hold).await;
    let first = grants[0].as_ref().unwrap();
    let (acquired, released, closed, ()) =
        tokio::join!(store.acquire(last), store.release(first), store.close(), async {
            eventually("all are released", async || {
                command(&server, &["KEYS", "leasehold:{lock/*}"]).await.elements().is_empty()
            })
            .await;
            proxy.set(Direction::ServerToClient, Mode::Pass).await;
        });
    assert_eq!(*acquired.unwrap_err().kind(), ErrorKind::Closed);
    released.unwrap();
    closed.unwrap();
}
