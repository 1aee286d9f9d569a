//! Locks that several hold: rights, requests and failures.

use etcd_client::CompactionOptions;
use leasehold_core::{ErrorKind, Lock, LockGuard, LockManager, LockOptions, Mode as Kind};
use leasehold_etcd::EtcdConfig;

use crate::fixture::{BOUND, Beside, Fixture, PREFIX, TTL, hold, open, open_with_ttl, trials, within};

trials![
    a_cut_and_a_compaction_cost_nobody_who_shares_their_turn,
    share_needs_the_right_on_shared_keys,
    many_permits_are_counted_or_read,
];

/// The kinds of locks that are tried together.
fn kinds() -> [Kind; 3] {
    [Kind::SHARED, some(1, 2), Kind::EXCLUSIVE]
}

fn some(weight: u32, capacity: u32) -> Kind {
    Kind::permits(weight, capacity).unwrap()
}

/// A lock that is held in some way, by a grant of its own each time.
fn lock(manager: &LockManager, mode: Kind) -> Lock {
    let options = LockOptions::default().mode(mode);
    manager.lock("n").unwrap().options(options).handoff_limit(0)
}

async fn take(manager: &LockManager, mode: Kind) -> LockGuard {
    within(BOUND, "there is room", lock(manager, mode).acquire()).await.unwrap()
}

fn aside(manager: &LockManager, mode: Kind) -> Beside<LockGuard> {
    let lock = lock(manager, mode);
    Beside::start(async move { lock.acquire().await.unwrap() })
}

async fn tries(manager: &LockManager, mode: Kind) -> Option<LockGuard> {
    within(BOUND, "an answer", lock(manager, mode).try_acquire()).await.unwrap()
}

/// A waiter behind a writer, in every mode, is cut off during the release, and the missed changes are compacted.
async fn a_cut_and_a_compaction_cost_nobody_who_shares_their_turn() {
    for mode in kinds() {
        let fixture = Fixture::start().await;
        let proxy = fixture.proxy(0);
        let (holder, waiter) = (fixture.manager().await, fixture.manager_behind(&proxy).await);
        let second = fixture.manager_behind(&proxy).await;
        for is_cut in [false, true] {
            let guard = take(&holder, Kind::EXCLUSIVE).await;
            let waiting = aside(&waiter, mode);
            fixture.store.queued("n", 2).await;
            let beside = (mode != Kind::EXCLUSIVE).then(|| aside(&second, mode));
            fixture.store.queued("n", if beside.is_some() { 3 } else { 2 }).await;
            if is_cut {
                proxy.refuse_new().await.unwrap();
                proxy.reset().await;
            }
            guard.release().await.unwrap();
            let mut client = fixture.store.client.kv_client();
            let revision = client.put("history", "", None).await.unwrap().header().unwrap().revision();
            client.compact(revision, Some(CompactionOptions::new().with_physical())).await.unwrap();
            if is_cut {
                proxy.accept_new().await.unwrap();
            }
            let guard = waiting.end("it holds").await;
            if let Some(beside) = beside {
                beside.end("so does the other").await.release().await.unwrap();
            }
            guard.release().await.unwrap();
        }
    }
}

async fn share_needs_the_right_on_shared_keys() {
    let mut fixture = Fixture::start().await;
    fixture.etcd.enable_auth("alice", "secret", "locks/").await.unwrap();
    for command in [
        "role add exclusive",
        "role grant-permission exclusive --prefix=true read locks/",
        "role grant-permission exclusive --prefix=true readwrite locks/%session/",
        "role grant-permission exclusive readwrite locks/m/0 locks/m/g",
        "role grant-permission exclusive readwrite locks/n/0 locks/n/g",
        "user add bob:secret",
        "user grant-role bob exclusive",
    ] {
        fixture.etcd.ctl(command.split(' ')).await.unwrap();
    }
    let user =
        |name: &str| EtcdConfig::new(fixture.etcd.endpoints()).prefix(PREFIX).credentials(name, "secret");
    let (alice, bob) = (open(user("alice")).await, open(user("bob")).await);
    let outside = open_with_ttl(user("alice").prefix("elsewhere"), TTL).await.unwrap_err();
    assert_eq!(*outside.kind(), ErrorKind::Denied, "{outside}");
    for mode in kinds() {
        take(&alice, mode).await.release().await.unwrap();
    }
    let (other, mine) = (hold(&bob, "m").await, take(&bob, Kind::EXCLUSIVE).await);
    mine.release().await.unwrap();
    for mode in [Kind::SHARED, some(1, 2)] {
        for refused in [
            within(BOUND, "an answer", lock(&bob, mode).try_acquire()).await.map(drop),
            within(BOUND, "an answer", lock(&bob, mode).acquire()).await.map(drop),
        ] {
            let refused = refused.unwrap_err();
            assert_eq!(*refused.kind(), ErrorKind::Denied, "{mode}: {refused}");
        }
        take(&alice, mode).await.release().await.unwrap();
    }
    other.renew().await.unwrap();
    other.release().await.unwrap();
}

/// Many permits of one kind are counted by the request itself; if there are others, too, or none is left, they are read.
async fn many_permits_are_counted_or_read() {
    const CAPACITY: u32 = 40;
    let fixture = Fixture::start().await;
    let (many, one, other) = (fixture.patient().await, fixture.patient().await, fixture.patient().await);
    let mut guards = Vec::new();
    for _ in 0..CAPACITY - 5 {
        guards.push(take(&many, some(1, CAPACITY)).await);
    }
    let mut asks = async |manager: &LockManager, weight, capacity, requests, is_granted| {
        let before = fixture.etcd.requests().await.unwrap();
        let guard = tries(manager, some(weight, capacity)).await;
        let made = (fixture.etcd.requests().await.unwrap() - &before).of("Txn");
        assert_eq!((made, guard.is_some()), (requests, is_granted), "{weight} of {capacity}");
        guards.extend(guard);
    };
    // Read, and put; among different ones all are read in between.
    asks(&one, 1, CAPACITY, 2, true).await;
    asks(&one, 1, CAPACITY + 1, 3, true).await;
    asks(&other, 2, CAPACITY, 3, true).await;
    asks(&one, 2, CAPACITY, 2, false).await;
    asks(&one, 1, 8, 1, false).await;

    let waiting = aside(&one, some(3, CAPACITY));
    fixture.store.queued("n", guards.len() + 1).await;
    for _ in 0..2 {
        assert!(!waiting.is_finished());
        guards.remove(0).release().await.unwrap();
    }
    let last = waiting.end("there is room").await;
    last.release().await.unwrap();
    for guard in guards {
        guard.release().await.unwrap();
    }
    assert_eq!(fixture.store.queue("n").await, []);
}
