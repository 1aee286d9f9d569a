//! What a held lock costs its process, on every store: bytes that stay allocated, the client library's included. And how often
//! a free lock allocates on Redis.
//!
//! Counted on the one thread of each test, by an allocator that counts: the figures are the same in every run, but
//! for the order in which the servers answer. What the system's allocator adds is not in them.

use std::cell::RefCell;
use std::time::Duration;

use allocation_counter::{AllocationInfo, measure};
use futures_util::stream::{self, StreamExt};
use leasehold::{LockGuard, LockManager};
use tokio::runtime::{Builder, Runtime};

/// Enough that what a first lock brings along does not count.
const LOCKS: usize = 2_000;

/// How many are requested at the same time.
const AT_ONCE: usize = 64;

const TTL: Duration = Duration::from_secs(6);

static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// What one of `LOCKS` takes that have been held for longer than a third of their leases, so that they have been renewed,
/// and are watched over where that is done. Renewing them takes little more for a while.
fn bytes_per_lock(runtime: &Runtime, locks: &LockManager) -> usize {
    // A reply that another measurement delays would count as memory of a lock.
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    runtime.block_on(hold(locks, "first", AT_ONCE));
    let kept = RefCell::new(Vec::new());
    let held = measure(|| *kept.borrow_mut() = runtime.block_on(hold(locks, "held", LOCKS)));
    // Renewals come at a third of it, watches before.
    let AllocationInfo { bytes_current, bytes_max, .. } =
        measure(|| runtime.block_on(async { tokio::time::sleep(TTL / 2).await }));
    assert!(kept.borrow().iter().all(|guard| guard.ensure_held().is_ok()));
    let more = bytes_max.saturating_sub(u64::try_from(bytes_current).unwrap_or(0));
    assert!(more <= BURST * LOCKS as u64, "{more} bytes more while renewing");
    usize::try_from(held.bytes_current + bytes_current).expect("what is held takes room") / LOCKS
}

async fn hold(locks: &LockManager, what: &str, count: usize) -> Vec<LockGuard> {
    let taken = stream::iter(0..count).map(async |index| {
        let lock = locks.lock(format!("the-lock-of-something-{what}/{index:06}")).expect("the name is valid");
        lock.acquire().await.expect("it is free")
    });
    let mut held = Vec::with_capacity(count);
    let mut taken = taken.buffer_unordered(AT_ONCE);
    while let Some(guard) = taken.next().await {
        held.push(guard);
    }
    held
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime starts")
}

async fn open(url: &str) -> LockManager {
    leasehold::connect(url).await.expect("the store opens")
}

/// On memory, which is a store and its client in one.
#[test]
fn on_memory_a_held_lock_takes_at_most_a_kibibyte() {
    let runtime = runtime();
    let locks = runtime.block_on(open(&format!("memory://?ttl={}s", TTL.as_secs())));
    let bytes = bytes_per_lock(&runtime, &locks);
    assert!(bytes <= MOST, "{bytes} bytes");
}

/// On files, each open.
#[cfg(feature = "file")]
#[test]
fn on_files_a_held_lock_takes_at_most_a_kibibyte() {
    let scratch = testbed::Scratch::new("footprint").expect("there is room for a directory");
    let runtime = runtime();
    let url = format!("file://{}/locks?ttl={}s", scratch.path().display(), TTL.as_secs());
    let locks = runtime.block_on(open(&url));
    let bytes = bytes_per_lock(&runtime, &locks);
    assert!(bytes <= MOST, "{bytes} bytes");
}

/// On a server of that kind, `most` at most.
#[cfg(any(feature = "redis", feature = "etcd", feature = "zk"))]
fn on_a_server<S: testbed::Server>(most: usize) {
    let runtime = runtime();
    let server = runtime.block_on(S::start()).expect("a server starts");
    let locks =
        runtime.block_on(open(&S::url(server.addr(), "footprint", &format!("ttl={}s", TTL.as_secs()))));
    let bytes = bytes_per_lock(&runtime, &locks);
    assert!(bytes <= most, "{bytes} bytes");
}

/// On Redis, each with a lease of its own.
#[cfg(feature = "redis")]
#[test]
fn on_redis_a_held_lock_takes_at_most_a_kibibyte() {
    on_a_server::<testbed::redis::Server>(MOST);
}

/// Counted over many cycles: a lease may be renewed in between.
#[cfg(feature = "redis")]
#[test]
fn free_lock_on_redis_allocates_seldom() {
    use testbed::Server as _;
    const CYCLES: u64 = 1_000;
    let runtime = runtime();
    let server = runtime.block_on(testbed::redis::Server::start()).expect("a server starts");
    let locks = runtime.block_on(open(&server.url()));
    let lock = locks.lock("free").expect("the name is valid");
    let cycles = async |count| {
        for _ in 0..count {
            lock.acquire().await.expect("it is free").release().await.expect("it is held");
        }
    };
    runtime.block_on(cycles(10));
    let allocations = measure(|| runtime.block_on(cycles(CYCLES))).count_total;
    assert!(allocations / CYCLES <= ALLOCATIONS, "{allocations} in {CYCLES} cycles");
}

/// On three Redis servers, each with a vote of every one of them.
#[cfg(feature = "redis")]
#[test]
fn quorum_lock_takes_at_most_a_kibibyte_and_its_members() {
    use testbed::Server as _;
    let runtime = runtime();
    let start = || runtime.block_on(testbed::redis::Server::start()).expect("a server starts");
    let servers = [(); 3].map(|()| start());
    let places = servers.each_ref().map(|server| server.addr().to_string()).join(",");
    let url =
        format!("redis+quorum://{places}?prefix=footprint&pause_after_restart=0s&ttl={}s", TTL.as_secs());
    let locks = runtime.block_on(open(&url));
    let bytes = bytes_per_lock(&runtime, &locks);
    assert!(bytes <= MOST + 3 * SEAT, "{bytes} bytes");
}

/// On etcd, each with a watch on its key.
#[cfg(feature = "etcd")]
#[test]
fn on_etcd_a_held_lock_takes_at_most_a_kibibyte() {
    on_a_server::<testbed::etcd::Etcd>(MOST);
}

/// On ZooKeeper the same, but for what the client library keeps of the watch on each node.
#[cfg(feature = "zk")]
#[test]
fn zookeeper_lock_takes_at_most_a_kibibyte_and_its_watch() {
    on_a_server::<testbed::zookeeper::Server>(MOST + WATCHED_BY_THE_CLIENT);
}

/// With what the system's allocator adds to each allocation, that is a kibibyte.
const MOST: usize = 928;

/// How often a free lock allocates on Redis: thirteen times, and for the labels of two counters.
#[cfg(feature = "redis")]
const ALLOCATIONS: u64 = if cfg!(feature = "metrics") { 15 } else { 13 };

/// What renewing them takes at a time, for each.
const BURST: u64 = 256;

/// When a server was asked, what it said, and when that ends.
#[cfg(feature = "redis")]
const SEAT: usize = 96;

/// Its path, its place in two maps, room for five watchers, and a channel.
#[cfg(feature = "zk")]
const WATCHED_BY_THE_CLIENT: usize = 512;
