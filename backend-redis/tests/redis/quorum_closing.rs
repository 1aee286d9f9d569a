//! Sessions with several servers that are closed while requests are pending.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, poll};
use leasehold_core::backend::{AcquireRequest, LockBackend, StoreConfig};
use leasehold_core::{Env, ErrorKind, OwnerId, Timing};
use leasehold_redis::{QuorumConfig, RedisConfig};
use testbed::redis::Server;
use testbed::{Direction, Mode, Proxy};

use crate::fixture::{BOUND, LONG, NAME, TTL, command, direct, eventually, exists, ok, proxy, trials, via};
use crate::lost::request;
use crate::quorum::three;

trials![
    closing_ends_who_waits,
    closing_waits_for_a_release_under_way,
    closing_leaves_nothing_of_a_caller_whom_nobody_polls,
    a_vote_that_arrives_after_its_release_is_ended,
];

const VOTE: &str = "leasehold:{invoice/42}:vote";
const WAITS: &str = "leasehold:{invoice/42}:waits";

/// The store itself, whose servers vote at once.
async fn store(servers: impl IntoIterator<Item = RedisConfig>) -> Arc<dyn LockBackend> {
    store_for(servers, TTL).await
}

async fn store_for(servers: impl IntoIterator<Item = RedisConfig>, ttl: Duration) -> Arc<dyn LockBackend> {
    let mut timing = Timing::for_ttl(ttl);
    timing.connect_timeout = BOUND;
    // Waiters read their queue again after that.
    timing.op_timeout = timing.op_timeout.max(ttl / 4);
    let config = QuorumConfig::new(servers).pause_after_restart(Duration::ZERO);
    config.open(Env::new(timing).unwrap()).await.unwrap()
}

/// From here on the servers keep the scripts.
async fn warm(store: &Arc<dyn LockBackend>, servers: &[Server]) {
    let grant = store.acquire(&request(1)).await.unwrap();
    store.release(&grant).await.unwrap();
    nowhere(servers, VOTE).await;
}

async fn keep(proxies: &[Proxy], mode: Mode) {
    for proxy in proxies {
        proxy.set(Direction::ServerToClient, mode.clone()).await;
    }
}

async fn nowhere(servers: &[Server], key: &str) {
    eventually("it is gone from every server", async || {
        for server in servers {
            if exists(server, key).await {
                return false;
            }
        }
        true
    })
    .await;
}

/// Long before it would ask again; its queue entries are removed.
async fn closing_ends_who_waits() {
    let servers = three().await;
    let long = async || store_for(servers.iter().map(direct), LONG).await;
    let (a, b) = (long().await, long().await);
    let asks = |id| AcquireRequest::new(NAME.parse().unwrap(), OwnerId::from_random([id; 16]), LONG);
    let grant = a.acquire(&asks(1)).await.unwrap();
    let asked = asks(2);
    let (waited, ()) = tokio::join!(tokio::time::timeout(BOUND, b.acquire(&asked)), async {
        eventually("it waits", async || a.inspect(&grant.name).await.unwrap().contenders > 0).await;
        b.close().await.unwrap();
    });
    assert_eq!(*waited.expect("it is told at once").unwrap_err().kind(), ErrorKind::Closed);
    nowhere(&servers, WAITS).await;
    a.release(&grant).await.unwrap();
}

async fn closing_waits_for_a_release_under_way() {
    let servers = three().await;
    let proxies: Vec<_> = servers.iter().map(proxy).collect();
    let store = store(proxies.iter().map(via)).await;
    warm(&store, &servers).await;
    let grant = store.acquire(&request(2)).await.unwrap();
    keep(&proxies, Mode::Hold).await;
    let (released, closed, ()) = tokio::join!(store.release(&grant), store.close(), async {
        nowhere(&servers, VOTE).await;
        keep(&proxies, Mode::Pass).await;
    });
    closed.unwrap();
    released.unwrap();
}

async fn closing_leaves_nothing_of_a_caller_whom_nobody_polls() {
    let servers = three().await;
    let proxies: Vec<_> = servers.iter().map(proxy).collect();
    let store = store(proxies.iter().map(via)).await;
    warm(&store, &servers).await;
    keep(&proxies, Mode::Hold).await;
    let asked = request(2);
    let mut asking = store.acquire(&asked).boxed();
    assert!(poll!(&mut asking).is_pending());
    eventually("a server has voted", async || exists(&servers[0], VOTE).await).await;
    keep(&proxies, Mode::Pass).await;
    store.close().await.unwrap();
    for server in &servers {
        assert!(!exists(server, VOTE).await, "a vote is left");
    }
    assert_eq!(*asking.await.unwrap_err().kind(), ErrorKind::Closed);
}

/// Its connection broke while the request was pending.
async fn a_vote_that_arrives_after_its_release_is_ended() {
    let servers = three().await;
    let last = proxy(&servers[2]);
    let store = store([direct(&servers[0]), direct(&servers[1]), via(&last)]).await;
    warm(&store, &servers).await;
    last.set(Direction::ClientToServer, Mode::Blackhole).await;
    let grant = store.acquire(&request(2)).await.unwrap();
    let voted = command(&servers[0], &["GET", VOTE]).await.text().unwrap();
    last.close().await;
    last.set(Direction::ClientToServer, Mode::Pass).await;
    let releases = async || servers[2].calls().await.unwrap().get("zrem").copied();
    let before = releases().await;
    store.release(&grant).await.unwrap();
    eventually("the last one is released, too", async || releases().await > before).await;
    let lease = LONG.as_millis().to_string();
    ok(&servers[2], &["SET", VOTE, &voted, "PX", &lease]).await;
    eventually("it is ended", async || !exists(&servers[2], VOTE).await).await;
}
