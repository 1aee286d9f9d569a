//! The requests that locks cost their server, by its own count.
//!
//! At depth `soak` a lock is watched in twenty managers by a thousand streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use leasehold::clock::{BootClock, Clock, Moment};
use leasehold::{LockGuard, connect};
use testbed::{Beside, Depth, eventually, pass};

use crate::fixture::{LONG, NAME, Scene, VERY_LONG, hold, queued, quiet, warm};
use crate::store::Store;

/// As many requests as are named: cycle after cycle, and for a try of a lock that is free, and of one that is held.
pub(crate) async fn cycle<S: Store>(scene: Scene<S>) {
    const CYCLES: u64 = 100;
    let server = S::start().await.unwrap();
    let (one, other) = (warm(scene.on(&server, LONG).await).await, warm(scene.on(&server, LONG).await).await);
    let before = quiet(&server).await;
    for _ in 0..CYCLES {
        hold(&other).await.release().await.unwrap();
    }
    let cycled = quiet(&server).await;
    assert_eq!(cycled - before, S::CYCLE * CYCLES);
    let guard = one.lock(NAME).unwrap().try_acquire().await.unwrap().expect("it is free");
    let free = quiet(&server).await;
    assert!(other.lock(NAME).unwrap().try_acquire().await.unwrap().is_none());
    let held = quiet(&server).await;
    assert_eq!([free - cycled, held - free], S::TRIES);
    guard.release().await.unwrap();
}

/// In a third of the ttl a manager renews what it holds by one request, or one for so many locks.
pub(crate) async fn renewal<S: Store>(scene: Scene<S>) {
    const LOCKS: usize = 10_000;
    const TTL: Duration = Duration::from_secs(15);
    let server = S::start().await.unwrap();
    let locks = scene.on(&server, TTL).await;
    let began = now();
    let acquiring = stream::iter(0..LOCKS).map(async |index| locks.lock(format!("{index}"))?.acquire().await);
    let guards: Vec<_> = acquiring.buffer_unordered(256).try_collect().await.unwrap();
    let spread = now().since(began);
    let renewed = async || {
        let known: Vec<_> = guards.iter().map(|guard| now() + guard.remaining()).collect();
        let is_renewed = |(guard, known): (&LockGuard, &Moment)| now() + guard.remaining() > *known + TTL / 6;
        eventually("each is renewed", async || guards.iter().zip(&known).all(is_renewed)).await;
    };
    // With the first renewal, or with the second, each hold may get a watch, once.
    renewed().await;
    renewed().await;
    quiet(&server).await;
    let (began, before) = (now(), server.renewals().await);
    renewed().await;
    let (made, took) = (server.renewals().await - before, now().since(began));
    // Renewals that are due within a twelfth of the ttl go out together: the last request of a group may not be full.
    let groups = 1 + spread.as_millis() / (TTL / 12).as_millis();
    let most = (S::RENEWAL + groups) * (1 + took.as_millis() / (TTL / 3).as_millis());
    assert!(u128::from(made) <= most, "{made} requests in {took:?}, acquired in {spread:?}");
    guards.iter().for_each(|guard| guard.ensure_held().unwrap());
}

/// A waiter asks a few times in a third of its ttl, and nobody polls.
pub(crate) async fn idle_wait<S: Store>(scene: Scene<S>) {
    let server = S::start().await.unwrap();
    let (holder, waiter) = (scene.on(&server, LONG).await, scene.on(&server, S::TTL).await);
    let guard = hold(&warm(holder.clone()).await).await;
    let waiting = queued(&waiter, 0, &holder).await;
    let (began, before) = (now(), server.renewals().await);
    pass(3 * S::TTL).await;
    let (made, took) = (server.renewals().await - before, now().since(began));
    let thirds = 1 + took.as_millis() / (S::TTL / 3).as_millis();
    assert!(u128::from(made) <= S::IDLE * thirds, "{made} requests in {took:?}");
    guard.release().await.unwrap();
    waiting.end("it holds").await.release().await.unwrap();
}

pub(crate) async fn a_hand_off_costs_the_same_with_many_waiters<S: Store>(scene: Scene<S>) {
    const WAITERS: usize = 30;
    let server = S::start_patient().await;
    let observer = scene.on(&server, VERY_LONG).await;
    let mut guard = hold(&warm(scene.on(&server, VERY_LONG).await).await).await;
    let mut waiting = Vec::new();
    for ahead in 0..WAITERS {
        let locks = scene.on(&server, VERY_LONG).await;
        waiting.push((queued(&locks, ahead, &observer).await, locks));
    }
    let before = quiet(&server).await;
    for (next, _) in &mut waiting {
        guard.release().await.unwrap();
        guard = next.await;
    }
    let made = quiet(&server).await - before;
    // A client may check its place on its own account.
    let expected = S::HAND_OFF * WAITERS as u64 + WAITERS.saturating_sub(S::FEW) as u64 + 3;
    assert!(made <= expected, "{made} requests for {WAITERS} hand-offs");
    guard.release().await.unwrap();
}

/// A manager looks four times per `op_timeout`, by one request each, however many of its streams watch and however
/// many hold; a change costs nothing more, and all streams are told of it.
pub(crate) async fn a_watch_is_one_look_for_all_streams<S: Store>(scene: Scene<S>) {
    const BOUNDS: &str = "ttl=60s&op_timeout=4s&connect_timeout=30s";
    const BETWEEN: Duration = Duration::from_secs(1);
    let (streams, managers, readers) = Depth::of_run().pick((50, 5, 5), (50, 5, 5), (1_000, 20, 20));
    let server = S::start().await.unwrap();
    let mut guards = Vec::new();
    for _ in 0..readers {
        let lock = scene.on(&server, LONG).await.lock(NAME).unwrap().shared();
        guards.push(lock.acquire().await.unwrap());
    }
    let mut watching = Vec::new();
    let told: Arc<Vec<_>> = Arc::new((0..streams).map(|_| AtomicUsize::new(0)).collect());
    for manager in 0..managers {
        let locks = connect(&S::url(server.addr(), scene.namespace(), BOUNDS)).await.unwrap();
        for stream in (manager..streams).step_by(managers) {
            let (mut states, told) = (locks.watch(NAME).unwrap(), Arc::clone(&told));
            watching.push(Beside::start(async move {
                while let Some(state) = states.next().await {
                    // A starved server may answer too late for once.
                    if let Ok(state) = state {
                        told[stream].store(state.holders.len(), Ordering::SeqCst);
                    }
                }
            }));
        }
    }
    let are_told = async |holders: usize| {
        let are_told = async || told.iter().all(|told| told.load(Ordering::SeqCst) == holders);
        eventually("every stream is told", are_told).await;
    };
    are_told(readers).await;
    for remaining in [readers, readers - 1] {
        let (start, before) = (now(), server.requests().await);
        if remaining < guards.len() {
            guards.pop().unwrap().release().await.unwrap();
        }
        pass(BETWEEN * 7 / 2).await;
        are_told(remaining).await;
        let requests = server.requests().await - before;
        let looks = now().since(start).as_millis() / BETWEEN.as_millis() + 1;
        println!("{}: {requests} requests of {managers} managers in {looks} looks", S::NAME);
        // And the release, and what each holder asks of its own entry once.
        let most = looks as u64 * managers as u64 + 2 * (readers - remaining) as u64 + readers as u64;
        assert!(requests <= most, "{requests} requests in {looks} looks of {managers} managers");
    }
}

fn now() -> Moment {
    BootClock::new().now()
}
