//! The lock of a test, in some mode.

use leasehold_core::{Lock, LockGuard, LockManager, LockOptions, Mode as Kind};

use crate::fixture::{BOUND, Beside, within};

pub(crate) const W: Kind = Kind::EXCLUSIVE;
pub(crate) const R: Kind = Kind::SHARED;

/// The lock of every test, with its own grant each time.
fn lock(locks: &LockManager, mode: Kind) -> Lock {
    let options = LockOptions::default().mode(mode);
    locks.lock("a").unwrap().options(options).handoff_limit(0)
}

pub(crate) async fn take(locks: &LockManager, mode: Kind) -> LockGuard {
    within(BOUND, "there is room", lock(locks, mode).acquire()).await.unwrap()
}

pub(crate) fn aside(locks: &LockManager, mode: Kind) -> Beside<LockGuard> {
    let lock = lock(locks, mode);
    Beside::start(async move { lock.acquire().await.unwrap() })
}
