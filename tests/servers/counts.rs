//! What locks cost their server, by its own count.
//!
//! At depth `soak` a lock is watched in twenty managers by a thousand streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use leasehold::clock::{BootClock, Clock};
use leasehold::connect;
use testbed::{Beside, Depth, eventually, pass};

use crate::rig::{LONG, NAME, Scene, hold, queued, quiet, warm};
use crate::store::Store;

/// As many requests as are named, cycle after cycle.
pub(crate) async fn an_uncontended_cycle_is_a_few_requests<S: Store>(scene: Scene<S>) {
    const CYCLES: u64 = 100;
    let server = S::start().await.unwrap();
    let locks = warm(scene.on(&server, LONG).await).await;
    let before = quiet(&server).await;
    for _ in 0..CYCLES {
        hold(&locks).await.release().await.unwrap();
    }
    assert_eq!(quiet(&server).await - before, S::CYCLE * CYCLES);
}

/// For a lock that is free, and for one that is held.
pub(crate) async fn a_try_is_a_few_requests<S: Store>(scene: Scene<S>) {
    let server = S::start().await.unwrap();
    let (one, other) = (warm(scene.on(&server, LONG).await).await, warm(scene.on(&server, LONG).await).await);
    let before = quiet(&server).await;
    let guard = one.lock(NAME).unwrap().try_acquire().await.unwrap().expect("it is free");
    let free = quiet(&server).await;
    assert!(other.lock(NAME).unwrap().try_acquire().await.unwrap().is_none());
    let held = quiet(&server).await;
    assert_eq!([free - before, held - free], S::TRIES);
    guard.release().await.unwrap();
}

/// One release, with many waiters behind it as with few.
pub(crate) async fn a_hand_off_costs_the_same_with_many_waiters<S: Store>(scene: Scene<S>) {
    const WAITERS: usize = 30;
    let server = S::start().await.unwrap();
    let observer = scene.on(&server, LONG).await;
    let mut guard = hold(&warm(scene.on(&server, LONG).await).await).await;
    let mut waiting = Vec::new();
    for ahead in 0..WAITERS {
        let locks = scene.on(&server, LONG).await;
        waiting.push((queued(&locks, ahead, &observer).await, locks));
    }
    let before = quiet(&server).await;
    for (next, _) in &mut waiting {
        guard.release().await.unwrap();
        guard = next.await;
    }
    let made = quiet(&server).await - before;
    // Somebody may look around on its own account.
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
        let (start, before) = (BootClock::new().now(), server.requests().await);
        if remaining < guards.len() {
            guards.pop().unwrap().release().await.unwrap();
        }
        pass(BETWEEN * 7 / 2).await;
        are_told(remaining).await;
        let requests = server.requests().await - before;
        let looks = BootClock::new().now().since(start).as_millis() / BETWEEN.as_millis() + 1;
        println!("{}: {requests} requests of {managers} managers in {looks} looks", S::NAME);
        // And the release, and what each holder asks of its own entry once.
        let most = looks as u64 * managers as u64 + 2 * (readers - remaining) as u64 + readers as u64;
        assert!(requests <= most, "{requests} requests in {looks} looks of {managers} managers");
    }
}
