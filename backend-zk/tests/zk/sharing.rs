//! Locks that several hold: how they lie in the tree, and what may befall them.

use std::sync::Arc;

use leasehold_core::{Lock, LockGuard, LockManager, LockOptions, Mode as Kind};

use crate::rig::{BOUND, Beside, Rig, within};

pub(crate) const W: Kind = Kind::EXCLUSIVE;
pub(crate) const R: Kind = Kind::SHARED;

/// The lock of every test, held in some way, by a grant of its own each time.
fn lock(locks: &LockManager, mode: Kind) -> Lock {
    let mut options = LockOptions::default();
    options.mode = mode;
    locks.lock("a").unwrap().options(options).handoff_limit(0)
}

pub(crate) async fn take(locks: &LockManager, mode: Kind) -> LockGuard {
    within(BOUND, "there is room", lock(locks, mode).acquire()).await.unwrap()
}

pub(crate) async fn tries(locks: &LockManager, mode: Kind) -> Option<LockGuard> {
    within(BOUND, "an answer", lock(locks, mode).try_acquire()).await.unwrap()
}

pub(crate) fn aside(locks: &LockManager, mode: Kind) -> Beside<LockGuard> {
    let lock = lock(locks, mode);
    Beside::start(async move { lock.acquire().await.unwrap() })
}

/// Names are the format that other versions and libraries read; of those who share none says that it passes.
pub(crate) async fn nodes_say_how_their_bearers_hold(rig: Arc<Rig>) {
    let space = rig.space().await;
    let (locks, outside, directory) = (space.manager().await, space.outside().await, space.directory("a"));
    let is_uuid = |text: &str| {
        let lengths: Vec<_> = text.split('-').map(str::len).collect();
        lengths == [8, 4, 4, 4, 12]
    };
    let guards = [take(&locks, R).await, take(&locks, R).await];
    for (at, child) in outside.has(&directory, 2).await.iter().enumerate() {
        let (uuid, number) = child.strip_prefix("_c_").unwrap().split_once("-shared-lock-").unwrap();
        assert!(is_uuid(uuid) && number == format!("{at:010}"), "{child}");
        let (note, _) = outside.client.get_data(&format!("{directory}/{child}")).await.unwrap();
        assert!(!String::from_utf8_lossy(&note).contains("passes"), "{note:?}");
    }
    for guard in guards {
        guard.release().await.unwrap();
    }
    let guard = take(&locks, W).await;
    let child = outside.has(&directory, 1).await.remove(0);
    let (uuid, number) = child.strip_prefix("_c_").unwrap().split_once("-lock-").unwrap();
    assert!(is_uuid(uuid) && number == "0000000002", "{child}");
    guard.release().await.unwrap();
}
