//! The server loses what it knows while it runs.

use futures_util::future::join_all;
use leasehold_core::{FenceGate, LostReason};

use crate::rig::{
    KEY, LONG, NAME, Waiter, command, direct, hold, ok, open, open_for, server, trials_on_both,
};

trials_on_both![an_emptied_server_is_noticed, a_deleted_key_goes_to_the_next_in_line,];

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
