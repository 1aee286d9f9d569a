//! What locks cost their server, by its own count.

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
