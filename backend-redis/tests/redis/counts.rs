//! What the store costs its server, by the server's own count.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use leasehold_core::{LockGuard, LockManager};
use testbed::redis::Server;

use crate::rig::{
    LONG, NAME, Waiter, command, direct, eventually, hold, now, ok, open, open_for, proxy, server, trials,
    via, warm,
};

trials![
    a_quiet_wait_is_a_refresh_per_third,
    held_locks_are_renewed_by_the_hundred,
    a_reconnect_asks_only_for_the_inbox,
    a_manager_has_one_connection,
];

/// What the server was asked since the count began. Commands that only scripts call are not requests;
/// every other one is, whatever it is.
pub(crate) struct Requests(pub(crate) BTreeMap<String, u64>);

impl Requests {
    pub(crate) async fn begin(server: &Server) {
        ok(server, &["CONFIG", "RESETSTAT"]).await;
    }

    pub(crate) async fn since(server: &Server) -> Self {
        let mut calls = server.calls().await.unwrap();
        // The count's own.
        calls.remove("config|resetstat");
        calls.remove("info");
        calls.retain(|command, _| BY_SCRIPTS.split(' ').all(|by_scripts| by_scripts != command));
        Self(calls)
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

/// The commands that scripts of this store call and its sessions never send.
const BY_SCRIPTS: &str = "del exists get getrange hdel hget hset pexpire pttl publish set time zadd zrange zrem \
                          zrevrange zscore";

/// A waiter refreshes once per third of its ttl, and none polls. The holder's ttl is so long that no counted request is
/// its own.
async fn a_quiet_wait_is_a_refresh_per_third() {
    const THIRD: Duration = Duration::from_secs(1);
    let server = server().await;
    direct(&server).load_scripts().await.unwrap();
    let (holder, waiter) =
        (open_for(direct(&server), LONG).await, open_for(direct(&server), 3 * THIRD).await);
    let guard = hold(&holder).await;
    let waiting = Waiter::queued(&waiter, 0, &holder).await;
    let began = now();
    Requests::begin(&server).await;
    // The number of refreshes is what passes the time.
    eventually("the contender has refreshed four times", async || {
        Requests::since(&server).await.total() >= 4
    })
    .await;
    let (requests, took) = (Requests::since(&server).await, now().since(began));
    let thirds = took.as_millis() / THIRD.as_millis();
    assert!(u128::from(requests.total()) <= thirds + 1, "{:?} in {took:?}", requests.0);
    guard.release().await.unwrap();
    waiting.held().await.release().await.unwrap();
}

/// Ten thousand locks are a hundred calls per third of the ttl.
async fn held_locks_are_renewed_by_the_hundred() {
    const LOCKS: usize = 10_000;
    let ttl = Duration::from_secs(30);
    let server = server().await;
    direct(&server).load_scripts().await.unwrap();
    let locks = open_for(direct(&server), ttl).await;
    let began = now();
    let guards: Vec<LockGuard> = stream::iter(0..LOCKS)
        .map(|index| take(&locks, format!("lock/{index}")))
        .buffer_unordered(256)
        .collect()
        .await;
    let spread = now().since(began);
    let known = guards.iter().map(|guard| now() + guard.remaining()).collect::<Vec<_>>();
    let began = now();
    Requests::begin(&server).await;
    eventually("each is renewed", async || {
        let mut each = guards.iter().zip(&known);
        each.all(|(guard, known)| now() + guard.remaining() > *known + ttl / 6)
    })
    .await;
    let (requests, took) = (Requests::since(&server).await, now().since(began));
    // Renewals that are due within a twelfth of the ttl go out together; each such group may have one
    // call that is not full.
    let groups = spread.as_millis() / (ttl / 12).as_millis();
    let thirds = took.as_millis() / (ttl / 3).as_millis() + 1;
    assert!(
        u128::from(requests.total()) <= (100 + groups) * thirds,
        "{:?} in {took:?}, taken in {spread:?}",
        requests.0
    );
    for guard in &guards {
        guard.ensure_held().unwrap();
    }
    drop(guards);
    locks.shutdown().await.unwrap();
    assert!(locks.lock(NAME).unwrap().try_acquire().await.is_err());
}

async fn take(locks: &LockManager, name: String) -> LockGuard {
    locks.lock(name).unwrap().acquire().await.unwrap()
}

/// Many managers that reconnect at once send little: none loads scripts that the server has.
async fn a_reconnect_asks_only_for_the_inbox() {
    let server = server().await;
    let proxy = proxy(&server);
    let locks = warm(open_for(via(&proxy), LONG).await).await;
    Requests::begin(&server).await;
    proxy.reset().await;
    // What is sent before the reset is noticed would be sent again, and released once more.
    proxy.connected(1).await;
    hold(&locks).await.release().await.unwrap();
    let mut requests = Requests::since(&server).await.0;
    assert_eq!(requests.remove("evalsha"), Some(2));
    let asked: Vec<_> = requests.into_iter().collect();
    assert_eq!(asked, [("hello".to_owned(), 1), ("subscribe".to_owned(), 1)]);
}

/// Messages come on the connection that carries the requests.
async fn a_manager_has_one_connection() {
    let server = server().await;
    let managers = [open(direct(&server)).await, open(direct(&server)).await];
    let guard = hold(&managers[0]).await;
    let _waiting = Waiter::queued(&managers[1], 0, &managers[0]).await;
    let list = command(&server, &["CLIENT", "LIST"]).await.text().unwrap();
    // The third is the one that asks.
    assert_eq!(list.lines().count(), 3, "{list}");
    guard.release().await.unwrap();
}
