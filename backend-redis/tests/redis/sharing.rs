//! Locks that several hold together: what they cost, where one of the keys is lost, where the server refuses, and beside
//! those who know of no shares.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::backend::{AcquireRequest, Attempt, Grant, LockBackend, Mode, Renewal, StoreConfig};
use leasehold_core::{Env, ErrorKind, Lock, LockManager, LostReason, OwnerId, Result, Timing};
use leasehold_redis::{Format, RedisConfig};
use testbed::redis::{Reply, Server, Settings};

use crate::access::{documented_rights, refusals, user};
use crate::counts::Requests;
use crate::rig::{
    BOUND, Beside, KEY, LONG, NAME, TTL, Waiter, command, direct, eventually, exists, hold, open_for, pass,
    server, start, trials_on_both,
};

trials_on_both![
    a_cycle_of_64_writers_is_two_requests = || cycles(64, [Mode::EXCLUSIVE]),
    a_cycle_of_readers_is_two_requests = || cycles(16, [Mode::SHARED]),
    a_cycle_of_permits_is_two_requests = || cycles(16, [some(1, 3), some(2, 3)]),
    a_cycle_in_any_mode_is_two_requests =
        || cycles(16, [Mode::EXCLUSIVE, Mode::SHARED, Mode::SHARED, some(1, 2), some(2, 5)]),
    releases_and_renewals_are_the_same_beside_2_and_200_sharers,
    shares_end_with_the_key_of_the_lock = || shares_end_with(KEY),
    shares_end_with_the_key_of_their_own = || shares_end_with("leasehold:{invoice/42}:h"),
    shares_end_with_the_entries = || shares_end_with("leasehold:{invoice/42}:e"),
    exclusive_client_waits_for_all_shares,
    the_key_ends_with_the_last_of_the_leases_that_are_left,
    nothing_stays_of_a_reader_that_died_while_others_contend,
    a_try_looks_past_more_dead_sharers_than_a_call_ends,
    replicas_confirm_shares,
    the_documented_rights_are_enough_for_shares,
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

/// The store itself with leases that nobody renews; whoever asks has an owner id of its own.
struct Store {
    backend: Arc<dyn LockBackend>,
    env: Env,
    ttl: Duration,
}

impl Store {
    async fn open(server: &Server, ttl: Duration) -> Self {
        let mut timing = Timing::for_ttl(ttl);
        timing.connect_timeout = BOUND;
        let env = Env::new(timing).unwrap();
        Self { backend: direct(server).open(env.clone()).await.unwrap(), env, ttl }
    }

    fn request(&self, owner: OwnerId, mode: Mode) -> AcquireRequest {
        let mut request = AcquireRequest::new(NAME.parse().unwrap(), owner, self.ttl);
        request.mode = mode;
        request
    }

    async fn acquire(&self, mode: Mode) -> Result<Grant> {
        self.backend.acquire(&self.request(self.env.owner_id(), mode)).await
    }
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

/// Whoever waits and whoever goes on sharing: one request each, in which the server does the same.
async fn releases_and_renewals_are_the_same_beside_2_and_200_sharers() {
    let server = server().await;
    direct(&server).load_scripts().await.unwrap();
    let (sharers, writer) = (Store::open(&server, LONG).await, open_for(direct(&server), LONG).await);
    let mut done = Vec::new();
    for others in [2, 200] {
        let mut shares = Vec::new();
        for _ in 0..=others {
            shares.push(sharers.acquire(Mode::SHARED).await.unwrap());
        }
        let waiting = Waiter::queued(&writer, 0, &writer).await;
        let last = shares.pop().unwrap();
        Requests::begin(&server).await;
        sharers.backend.release(&last).await.unwrap();
        let renewed = sharers.backend.renew(&[shares[0].lease.id]).await;
        assert!(matches!(*renewed, [Renewal::Until(_)]), "{renewed:?}");
        let mut calls = server.calls().await.unwrap();
        assert_eq!(calls.get("evalsha"), Some(&2), "{calls:?}");
        calls.retain(|call, _| !["info", "config|resetstat"].contains(&call.as_str()));
        done.push(calls);
        for share in shares {
            sharers.backend.release(&share).await.unwrap();
        }
        waiting.held().await.release().await.unwrap();
    }
    assert_eq!(done[0], done[1]);
}

/// As after an eviction, or a `DEL` by hand: who shared it is told with its next renewal, the lock is free at the latest then,
/// and nothing is left.
async fn shares_end_with(key: &str) {
    let server = server().await;
    let (a, b) = (open_for(direct(&server), LONG).await, open_for(direct(&server), LONG).await);
    let shares = [reader(&a).acquire().await.unwrap(), reader(&b).acquire().await.unwrap()];
    assert_eq!(command(&server, &["DEL", key]).await, Reply::Integer(1));
    for share in &shares {
        let lost = share.renew().await.unwrap_err();
        assert_eq!(lost.lost_reason(), Some(LostReason::Gone), "{lost}");
    }
    let guard = hold(&a).await;
    assert!(guard.token() > shares[1].token());
    guard.release().await.unwrap();
    let again = reader(&b).acquire().await.unwrap();
    again.renew().await.unwrap();
    again.release().await.unwrap();
    drop(shares);
    for part in ["", ":q", ":h"] {
        eventually("nothing is left", async || !exists(&server, &format!("{KEY}{part}")).await).await;
    }
}

/// Another library on the key of a lock finds it taken until the last share has ended.
async fn exclusive_client_waits_for_all_shares() {
    let server = server().await;
    let (a, b) = (open_for(direct(&server), LONG).await, open_for(direct(&server), LONG).await);
    let set = ["SET", KEY, "theirs", "NX", "PX", "60000"];
    let (first, second) = (reader(&a).acquire().await.unwrap(), reader(&b).acquire().await.unwrap());
    assert_eq!(command(&server, &set).await, Reply::Nil);
    first.release().await.unwrap();
    assert_eq!(command(&server, &set).await, Reply::Nil);
    second.release().await.unwrap();
    assert_eq!(command(&server, &set).await, Reply::Simple("OK".to_owned()));
    assert!(reader(&a).try_acquire().await.unwrap().is_none());
    let lock = reader(&a);
    let waiting = Beside::start(async move { lock.acquire().await });
    eventually("it waits", async || b.inspect(NAME).await.unwrap().contenders == 1).await;
    command(&server, &["DEL", KEY]).await;
    // Whoever comes next lets it in.
    reader(&b).acquire().await.unwrap().release().await.unwrap();
    waiting.end("it holds").await.unwrap().release().await.unwrap();
}

/// Whoever goes by the key alone, as other libraries do, does not wait for who has let go.
async fn the_key_ends_with_the_last_of_the_leases_that_are_left() {
    let server = server().await;
    let (long, short) = (Store::open(&server, LONG).await, Store::open(&server, TTL).await);
    let gone = long.acquire(Mode::SHARED).await.unwrap();
    short.acquire(Mode::SHARED).await.unwrap();
    long.backend.release(&gone).await.unwrap();
    let Reply::Integer(left) = command(&server, &["PTTL", KEY]).await else { panic!("no number") };
    assert!(u128::try_from(left).is_ok_and(|left| left <= TTL.as_millis()), "{left} ms");
    pass(TTL).await;
    eventually("the key is gone", async || !exists(&server, KEY).await).await;
}

/// Although the lock's key has ended with its lease before anybody asked, and the entries of who waits go on.
async fn nothing_stays_of_a_reader_that_died_while_others_contend() {
    let server = server().await;
    let dead = Store::open(&server, TTL).await;
    let (a, b) = (open_for(direct(&server), 3 * TTL).await, open_for(direct(&server), 3 * TTL).await);
    dead.acquire(Mode::SHARED).await.unwrap();
    let first = Waiter::queued(&a, 0, &b).await.held().await;
    let second = Waiter::queued(&b, 0, &a).await;
    first.release().await.unwrap();
    let second = second.held().await;
    for part in [":q", ":e", ":h"] {
        assert!(!exists(&server, &format!("{KEY}{part}")).await, "{part}");
    }
    second.release().await.unwrap();
}

/// Those whose leases are over keep nobody out, however many they are.
async fn a_try_looks_past_more_dead_sharers_than_a_call_ends() {
    const DEAD: u32 = 501;
    let server = server().await;
    direct(&server).load_scripts().await.unwrap();
    let (dead, living) = (Store::open(&server, 2 * TTL).await, Store::open(&server, LONG).await);
    living.acquire(some(1, DEAD + 1)).await.unwrap();
    join_all((0..DEAD).map(|_| dead.acquire(some(1, DEAD + 1)))).await;
    let sharers = async || command(&server, &["ZCARD", "leasehold:{invoice/42}:h"]).await;
    assert_eq!(sharers().await, Reply::Integer(i64::from(DEAD) + 1));
    pass(2 * TTL).await;
    let all_others = living.request(living.env.owner_id(), some(DEAD, DEAD + 1));
    let tried = living.backend.try_acquire(&all_others).await.unwrap();
    assert!(matches!(tried, Attempt::Granted(_)), "{tried:?}");
    assert_eq!(sharers().await, Reply::Integer(2));
}

/// A grant counts when the replica has it.
async fn replicas_confirm_shares() {
    let server = server().await;
    let replica = start(Settings::new().replica_of(server.addr())).await;
    replica.follows().await.unwrap();
    let open = || open_for(direct(&server).wait_replicas(1), LONG);
    let (a, b) = (open().await, open().await);
    let shares = [reader(&a).acquire().await.unwrap(), reader(&b).acquire().await.unwrap()];
    let held = replica.command(&["ZCARD", "leasehold:{invoice/42}:h"]).await.unwrap();
    assert_eq!(held, Reply::Integer(2));
    for share in shares {
        share.renew().await.unwrap();
        share.release().await.unwrap();
    }
}

/// No right is needed that exclusive locks do not need.
async fn the_documented_rights_are_enough_for_shares() {
    let server = server().await;
    direct(&server).load_scripts().await.unwrap();
    let config = user(&server, &documented_rights()).await;
    let managers = join_all((0..3).map(|_| open_for(config.clone(), LONG))).await;
    let shares =
        [reader(&managers[0]).acquire().await.unwrap(), reader(&managers[1]).acquire().await.unwrap()];
    let waiting = Waiter::queued(&managers[2], 0, &managers[0]).await;
    for share in shares {
        share.renew().await.unwrap();
        share.release().await.unwrap();
    }
    waiting.held().await.release().await.unwrap();
    let permits = in_mode(&managers[0], some(2, 3)).acquire().await.unwrap();
    assert_eq!(managers[1].inspect(NAME).await.unwrap().holders[0].mode, some(2, 3));
    permits.release().await.unwrap();
    assert_eq!(refusals(&server).await, Vec::<String>::new());
}

/// Where another library's locks have one holder, and where a restart pauses grants.
async fn where_one_holds_alone_sharing_is_refused_before_any_request() {
    let server = server().await;
    let kinds: [fn(RedisConfig) -> RedisConfig; 3] = [
        |config| config.format(Format::string()),
        |config| config.format(Format::redisson()),
        |config| config.pause_after_restart(LONG).prefix("pausing"),
    ];
    for kind in kinds {
        let locks = open_for(kind(direct(&server)), LONG).await;
        Requests::begin(&server).await;
        for mode in [Mode::SHARED, some(1, 2)] {
            let refused = in_mode(&locks, mode).try_acquire().await.unwrap_err();
            assert_eq!(*refused.kind(), ErrorKind::Unsupported, "{refused}");
        }
        assert_eq!(Requests::since(&server).await.total(), 0);
    }
}
