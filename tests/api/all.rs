//! Several locks, all of them or none.

#![allow(clippy::unwrap_used, reason = "test binary")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use leasehold::backend::Grant;
use leasehold::clock::{Clock, ManualClock, TokioClock};
use leasehold::memory::{MemoryConfig, MemoryStore};
use leasehold::{Error, ErrorKind, Lock, LockManager, LostReason, Revoke, all};
use leasehold_conformance::layer::{Below, Layer, shared};
use tokio::task::JoinSet;

const TTL: Duration = Duration::from_secs(6);

async fn manager(store: &MemoryStore) -> LockManager {
    let builder = LockManager::builder(MemoryConfig::on(store.clone())).ttl(TTL);
    builder.clock(Arc::new(TokioClock::new())).build().await.unwrap()
}

fn named(locks: &LockManager, names: &[&str]) -> Vec<Lock> {
    names.iter().map(|name| locks.lock(*name).unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn all_are_held_and_released() {
    let store = MemoryStore::new();
    let (here, there) = (manager(&store).await, manager(&store).await);
    let both = all([here.lock("b").unwrap().shared(), here.lock("a").unwrap()]).acquire().await.unwrap();
    both.ensure_held().unwrap();
    assert!(Duration::ZERO < both.remaining() && both.remaining() <= TTL);
    let names: Vec<_> = both.guards().iter().map(|guard| guard.name().as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(both.token("b"), Some(both.guards()[1].token()));
    assert_eq!(both.token("c"), None);
    assert!(all(named(&there, &["a", "c"])).try_acquire().await.unwrap().is_none());
    let beside = all([there.lock("b").unwrap().shared(), there.lock("c").unwrap()]);
    drop(beside.try_acquire().await.unwrap().expect("it shares the one, and the other is free"));
    both.release().await.unwrap();
    assert!(store.is_empty());
}

/// Processes that acquire several locks never deadlock, in whatever order they name them, also beside others that
/// acquire one.
#[tokio::test(start_paused = true)]
async fn takers_of_several_never_wait_in_a_circle() {
    let store = MemoryStore::new();
    let mut tasks = JoinSet::new();
    for names in [["a", "b", "c"], ["c", "a", "b"], ["b", "c", "a"], ["c", "b", "a"]] {
        let locks = manager(&store).await;
        tasks.spawn(async move {
            for _ in 0..50 {
                let held = all(named(&locks, &names)).acquire().await.unwrap();
                tokio::task::yield_now().await;
                held.release().await.unwrap();
                locks.lock(names[0]).unwrap().acquire().await.unwrap().release().await.unwrap();
            }
        });
    }
    tokio::time::timeout(TTL, tasks.join_all()).await.expect("they wait for each other");
    assert!(store.is_empty());
}

/// When one is not granted in time, is refused, or is not waited for any more, none is held; the budget is one
/// for all.
#[tokio::test(start_paused = true)]
async fn none_is_held_unless_all_are() {
    let store = MemoryStore::new();
    let (here, there) = (manager(&store).await, manager(&store).await);
    let clock = TokioClock::new();
    let blocks = there.lock("b").unwrap().acquire().await.unwrap();
    let wanted = all(named(&here, &["c", "b", "a"]));
    assert!(wanted.try_acquire().await.unwrap().is_none());
    is_free(&there, &["a", "c"]).await;

    let holds_a = there.lock("a").unwrap().acquire().await.unwrap();
    let began = clock.now();
    let in_time = wanted.clone().wait(Duration::from_secs(2));
    let (refused, ()) = tokio::join!(in_time.acquire(), async {
        tokio::time::sleep(Duration::from_secs(1)).await; // of virtual time, a part of the bound
        holds_a.release().await.unwrap();
    });
    let refused = refused.unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Timeout { .. }), "{refused}");
    assert!(refused.to_string().contains("\"b\"") || refused.to_string().contains("lock: b"), "{refused}");
    assert_eq!(clock.now().since(began).as_secs(), 2, "what was waited for the first is taken off");
    is_free(&there, &["a", "c"]).await;

    let mut waiting = Box::pin(wanted.acquire());
    assert!((&mut waiting).now_or_never().is_none());
    assert!(there.lock("a").unwrap().try_acquire().await.unwrap().is_none(), "it is taken before it waits");
    drop(waiting);
    is_free(&there, &["a", "c"]).await;

    let sooner = all([here.lock("a").unwrap(), here.lock("b").unwrap().wait(Duration::from_secs(1))]);
    let began = clock.now();
    sooner.wait(Duration::from_secs(9)).acquire().await.unwrap_err();
    assert_eq!(clock.now().since(began).as_secs(), 1, "a lock's own bound");
    blocks.release().await.unwrap();
    assert!(store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn refused_try_has_released_all_it_took() {
    let store = MemoryStore::new();
    let there = manager(&store).await;
    let slow = Arc::new(Slow::default());
    let slowly = shared(Arc::<Slow>::clone(&slow))(Box::new(MemoryConfig::on(store.clone())));
    let here =
        LockManager::builder(slowly).ttl(TTL).clock(Arc::new(TokioClock::new())).build().await.unwrap();
    let blocks = there.lock("c").unwrap().acquire().await.unwrap();
    let wanted = all(named(&here, &["a", "b", "c"]));
    assert!(wanted.try_acquire().await.unwrap().is_none());
    is_free(&there, &["a", "b"]).await;
    slow.refuses.store(true, Ordering::Relaxed);
    assert_eq!(*wanted.try_acquire().await.unwrap_err().kind(), ErrorKind::Closed, "they are not released");
    drop(blocks);
}

/// Each release takes a second.
#[derive(Debug, Default)]
struct Slow {
    refuses: AtomicBool,
}

#[async_trait]
impl Layer for Slow {
    async fn release(&self, below: &Below, grant: &Grant) -> leasehold::Result<()> {
        below.env.sleep(Duration::from_secs(1)).await;
        match self.refuses.load(Ordering::Relaxed) {
            true => Err(Error::not_applied(ErrorKind::Closed, "refused")),
            false => below.backend.release(grant).await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_lost_is_named() {
    let store = MemoryStore::new();
    let (here, there) = (manager(&store).await, manager(&store).await);
    let both = all(named(&here, &["a", "b"])).acquire().await.unwrap();
    let mut lost = Box::pin(both.lost());
    assert!((&mut lost).now_or_never().is_none());
    there.revoke("b", Revoke::Force).await.unwrap();
    let (name, reason) = tokio::time::timeout(TTL, lost).await.expect("it is told");
    assert_eq!((name.as_str(), reason), ("b", LostReason::Revoked));
    assert_eq!(both.ensure_held().unwrap_err().lost_reason(), Some(LostReason::Revoked));
    assert_eq!(both.release().await.unwrap_err().lost_reason(), Some(LostReason::Revoked));
    assert!(store.is_empty(), "the other is released all the same");
}

#[tokio::test(start_paused = true)]
async fn a_loss_ends_the_wait_for_the_others() {
    let store = MemoryStore::new();
    let (here, there) = (manager(&store).await, manager(&store).await);
    let blocks = there.lock("b").unwrap().acquire().await.unwrap();
    let wanted = all(named(&here, &["a", "b"]));
    let mut waiting = Box::pin(wanted.acquire());
    assert!((&mut waiting).now_or_never().is_none());
    there.revoke("a", Revoke::Force).await.unwrap();
    let error = tokio::time::timeout(TTL, waiting).await.expect("nobody waits on").unwrap_err();
    assert_eq!(error.lost_reason(), Some(LostReason::Revoked));
    assert!(error.to_string().contains("lock: a"), "{error}");
    blocks.release().await.unwrap();
    drop(there.lock("b").unwrap().try_acquire().await.unwrap().expect("nobody waits for it"));
}

#[tokio::test(start_paused = true)]
async fn a_loss_in_a_suspend_is_told() {
    let (store, clock) = (MemoryStore::with_clock(Arc::new(TokioClock::new())), ManualClock::new());
    let there = manager(&store).await;
    let here = LockManager::builder(MemoryConfig::on(store.clone())).ttl(TTL).op_timeout(TTL / 6);
    let here = here.clock(Arc::new(clock.clone())).build().await.unwrap();
    let blocks = there.lock("b").unwrap().acquire().await.unwrap();
    let wanted = all([here.lock("a").unwrap().ttl(TTL / 2), here.lock("b").unwrap()]);
    let mut waiting = Box::pin(wanted.acquire());
    assert!((&mut waiting).now_or_never().is_none());
    clock.suspend(TTL / 2);
    blocks.release().await.unwrap();
    let answer = (&mut waiting).now_or_never().expect("both are granted by now");
    let error = answer.map(|held| held.ensure_held()).expect_err("one of them is lost");
    assert_eq!(error.lost_reason(), Some(LostReason::Expired));
    assert!(error.to_string().contains("lock: a"), "{error}");
}

#[tokio::test]
async fn invalid_set_of_locks_is_refused() {
    let store = MemoryStore::new();
    let (here, there) = (manager(&store).await, manager(&store).await);
    let mixed = vec![here.lock("a").unwrap(), there.lock("b").unwrap()];
    let too_many = vec![here.lock("a").unwrap(), here.lock("b").unwrap().permits(3, 2)];
    let wrong = [
        (Vec::new(), "at least one lock"),
        (named(&here, &["a", "b", "a"]), "\"a\""),
        (mixed, "locks of one manager"),
        (too_many, "lock: b"),
    ];
    for (locks, rule) in wrong {
        let told = |error: Error| {
            assert_eq!(*error.kind(), ErrorKind::InvalidOption);
            assert!(error.to_string().contains(rule), "{error}");
        };
        let wanted = all(locks);
        told(wanted.acquire().now_or_never().expect("nobody is asked").unwrap_err());
        told(wanted.try_acquire().now_or_never().expect("nobody is asked").unwrap_err());
    }
    assert!(store.is_empty());
}

async fn is_free(locks: &LockManager, names: &[&str]) {
    for name in names {
        let guard = locks.lock(*name).unwrap().try_acquire().await.unwrap();
        guard.unwrap_or_else(|| panic!("{name} is held")).release().await.unwrap();
    }
}
