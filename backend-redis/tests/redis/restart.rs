//! The server is away for long, or loses what it knows while it runs.

use futures_util::future::join_all;
use leasehold_core::{FenceGate, LostReason};
use testbed::redis::Settings;

use crate::rig::{
    KEY, LONG, NAME, TTL, Waiter, command, direct, exists, hold, ok, open, open_for, pass, server, start,
    trials_on_both,
};

trials_on_both![
    a_long_absence_ends_the_hold_first,
    an_emptied_server_is_noticed,
    a_deleted_key_goes_to_the_next_in_line,
    evicted_keys_are_noticed,
];

/// A server that is away for longer than the ttl: the hold is over before it can grant again.
async fn a_long_absence_ends_the_hold_first() {
    let mut server = start(Settings::new().append_only()).await;
    let (a, b) = (open(direct(&server)).await, open(direct(&server)).await);
    let guard = hold(&a).await;
    let waiting = Waiter::queued(&b, 0, &a).await;

    server.kill().await.unwrap();
    assert_eq!(guard.lost().await, LostReason::Expired);
    pass(TTL).await;
    server.start_again().await.unwrap();
    let next = waiting.held().await;
    assert!(next.token() > guard.token());
    next.release().await.unwrap();
}

/// FLUSHALL takes lock, queue and counter: the holder is told, who waits waits on, and the next
/// token is larger all the same.
async fn an_emptied_server_is_noticed() {
    let server = server().await;
    let (a, b, c) = (open(direct(&server)).await, open(direct(&server)).await, open(direct(&server)).await);
    let guard = hold(&a).await;
    let waiting = Waiter::queued(&b, 0, &c).await;

    ok(&server, &["FLUSHALL"]).await;
    let next = waiting.held().await;
    assert!(next.token() > guard.token());
    assert_eq!(guard.lost().await, LostReason::Gone);
    let gate = FenceGate::new();
    gate.admit(next.token()).unwrap();
    gate.admit(guard.token()).unwrap_err();
    next.release().await.unwrap();
    let after = hold(&c).await;
    assert!(gate.admit(after.token()).is_ok());
    after.release().await.unwrap();
}

/// A lock that was taken away is free, and yet it goes to who waits: a newcomer, who finds it so, grants
/// it to them. Their own refreshes are minutes away.
async fn a_deleted_key_goes_to_the_next_in_line() {
    let server = server().await;
    let managers = [(); 3].map(|()| open_for(direct(&server), LONG));
    let [a, b, c] = join_all(managers).await.try_into().unwrap();
    let guard = hold(&a).await;
    let waiting = Waiter::queued(&b, 0, &a).await;
    command(&server, &["DEL", KEY]).await;
    assert!(c.lock(NAME).unwrap().try_acquire().await.unwrap().is_none());
    let next = waiting.held().await;
    guard.release().await.unwrap_err();

    let waiting = Waiter::queued(&a, 0, &b).await;
    command(&server, &["DEL", KEY]).await;
    let newcomer = Waiter::start(&c);
    let last = waiting.held().await;
    assert!(newcomer.is_waiting() && last.token() > next.token());
    last.release().await.unwrap();
    newcomer.held().await.release().await.unwrap();
}

/// A server that evicts what it should keep breaks the promise; the holder is told at its next
/// renewal, the next token is larger.
async fn evicted_keys_are_noticed() {
    let server = start(Settings::new().memory(2 << 20, "allkeys-lru")).await;
    let (a, b) = (open(direct(&server)).await, open(direct(&server)).await);
    let guard = hold(&a).await;
    let mut writes = server.client().await.unwrap();
    let ballast = "x".repeat(4096);
    let mut written = 0_u32;
    while exists(&server, KEY).await {
        written += 1;
        writes.command(&["SET", &format!("ballast/{written}"), &ballast]).await.unwrap();
        assert!(written < 1_000_000, "nothing was evicted");
    }
    // What is written to a full server may be evicted at once.
    writes.command(&["CONFIG", "SET", "maxmemory", "0"]).await.unwrap();
    assert_eq!(guard.lost().await, LostReason::Gone);
    let next = hold(&b).await;
    assert!(next.token() > guard.token());
    next.release().await.unwrap();
}
