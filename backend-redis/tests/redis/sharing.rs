//! Locks that several hold together: their requests, and clients that do not know of shares.

use futures_util::future::join_all;
use leasehold_core::backend::{AcquireRequest, Mode, Renewal, StoreConfig};
use leasehold_core::{ErrorKind, Lock, LockManager};
use leasehold_redis::Format;
use testbed::redis::Reply;

use crate::counts::Requests;
use crate::fixture::{
    BOUND, Beside, KEY, LONG, NAME, Waiter, command, direct, eventually, open_for, server, trials_on_both,
};

trials_on_both![
    a_cycle_of_64_writers_is_two_requests = || cycles(64, [Mode::EXCLUSIVE]),
    a_cycle_of_readers_is_two_requests = || cycles(16, [Mode::SHARED]),
    a_cycle_of_permits_is_two_requests = || cycles(16, [some(1, 3), some(2, 3)]),
    a_cycle_in_any_mode_is_two_requests =
        || cycles(16, [Mode::EXCLUSIVE, Mode::SHARED, Mode::SHARED, some(1, 2), some(2, 5)]),
    releases_and_renewals_are_the_same_beside_2_and_200_sharers,
    exclusive_client_waits_for_all_shares,
    where_one_holds_alone_sharing_is_refused_before_any_request,
];

fn some(weight: u32, capacity: u32) -> Mode {
    Mode::permits(weight, capacity).unwrap()
}

fn in_mode(locks: &LockManager, mode: Mode) -> Lock {
    let lock = locks.lock(NAME).unwrap().wait(BOUND);
    match mode {
        Mode::EXCLUSIVE => lock,
        Mode::SHARED => lock.shared(),
        mode => lock.permits(mode.weight(), mode.capacity()),
    }
}

fn reader(locks: &LockManager) -> Lock {
    in_mode(locks, Mode::SHARED)
}

/// However many contend, whether they hold together or one after the other.
async fn cycles<const N: usize>(contenders: usize, modes: [Mode; N]) {
    const CYCLES: usize = 20;
    let server = server().await;
    direct(&server).load_scripts().await.unwrap();
    let managers = join_all((0..contenders).map(|_| open_for(direct(&server), LONG))).await;
    Requests::begin(&server).await;
    let work = managers.iter().zip(modes.iter().cycle()).map(async |(locks, mode)| {
        for _ in 0..CYCLES {
            let guard = in_mode(locks, *mode).acquire().await.unwrap();
            tokio::task::yield_now().await;
            guard.release().await.unwrap();
        }
    });
    join_all(work).await;
    let requests = Requests::since(&server).await;
    assert_eq!(requests.total(), (2 * contenders * CYCLES) as u64, "{:?}", requests.0);
}

/// With a waiter: one request each, in which the server does the same.
async fn releases_and_renewals_are_the_same_beside_2_and_200_sharers() {
    let server = server().await;
    direct(&server).load_scripts().await.unwrap();
    let env = crate::ledger::env(LONG);
    let sharers = direct(&server).open(env.clone()).await.unwrap();
    let writer = open_for(direct(&server), LONG).await;
    let mut done = Vec::new();
    for others in [2, 200] {
        let mut shares = Vec::new();
        for _ in 0..=others {
            let mut share = AcquireRequest::new(NAME.parse().unwrap(), env.owner_id(), LONG);
            share.mode = Mode::SHARED;
            shares.push(sharers.acquire(&share).await.unwrap());
        }
        let waiting = Waiter::queued(&writer, 0, &writer).await;
        let last = shares.pop().unwrap();
        Requests::begin(&server).await;
        sharers.release(&last).await.unwrap();
        let renewed = sharers.renew(&[shares[0].lease.id]).await;
        assert!(matches!(*renewed, [Renewal::Until(_)]), "{renewed:?}");
        let mut calls = server.calls().await.unwrap();
        assert_eq!(calls.get("evalsha"), Some(&2), "{calls:?}");
        calls.retain(|call, _| !["info", "config|resetstat"].contains(&call.as_str()));
        done.push(calls);
        for share in shares {
            sharers.release(&share).await.unwrap();
        }
        waiting.held().await.release().await.unwrap();
    }
    assert_eq!(done[0], done[1]);
}

/// Another library on the key of a lock finds it taken until the last share has ended, or its lease.
async fn exclusive_client_waits_for_all_shares() {
    let server = server().await;
    let (a, b) = (open_for(direct(&server), LONG).await, open_for(direct(&server), LONG).await);
    let set = ["SET", KEY, "theirs", "NX", "PX", "60000"];
    let shorter = reader(&b).ttl(LONG / 2);
    let (first, second) = (reader(&a).acquire().await.unwrap(), shorter.acquire().await.unwrap());
    assert_eq!(command(&server, &set).await, Reply::Nil);
    first.release().await.unwrap();
    assert_eq!(command(&server, &set).await, Reply::Nil);
    let left = command(&server, &["PTTL", KEY]).await.integer().unwrap();
    assert!(left <= (LONG / 2).as_millis().try_into().unwrap(), "{left} ms");
    second.release().await.unwrap();
    assert_eq!(command(&server, &set).await, Reply::Simple("OK".to_owned()));
    assert!(reader(&a).try_acquire().await.unwrap().is_none());
    let lock = reader(&a);
    let waiting = Beside::start(async move { lock.acquire().await });
    eventually("it waits", async || b.inspect(NAME).await.unwrap().contenders == 1).await;
    command(&server, &["DEL", KEY]).await;
    // The next request lets it in.
    reader(&b).acquire().await.unwrap().release().await.unwrap();
    waiting.end("it holds").await.unwrap().release().await.unwrap();
}

/// Where another library's locks have one holder.
async fn where_one_holds_alone_sharing_is_refused_before_any_request() {
    let server = server().await;
    for format in [Format::string(), Format::redisson()] {
        let locks = open_for(direct(&server).format(format), LONG).await;
        Requests::begin(&server).await;
        for mode in [Mode::SHARED, some(1, 2)] {
            let refused = in_mode(&locks, mode).try_acquire().await.unwrap_err();
            assert_eq!(*refused.kind(), ErrorKind::Unsupported, "{refused}");
        }
        assert_eq!(Requests::since(&server).await.total(), 0);
    }
}
