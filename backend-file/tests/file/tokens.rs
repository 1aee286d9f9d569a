//! What the directory adds to its counters, raised.

use std::sync::Arc;

use futures_util::future::join_all;
use leasehold_core::{Effect, ErrorKind, FencingToken, LockManager};

use crate::rig::{Manager, Rig};

/// The base goes up only, and sweeps keep it.
#[tokio::test]
async fn a_base_is_raised_and_never_lowered() {
    let rig = Rig::new();
    let manager = rig.open().await;
    let store = &manager.backend;
    let first = store.token_base().await.unwrap();
    assert_eq!((first.base, first.floor, first.sessions), (0, 0, Some(0)));
    for (at_least, base) in [(9, 9), (7, 9), (10, 10), (0, 10), (FencingToken::MAX_COUNTER, (1 << 53) - 1)] {
        store.raise_token_base(at_least).await.unwrap();
        manager.cycle("a").await;
        rig.config().sweep().await.unwrap();
        assert_eq!(store.token_base().await.unwrap().base, base);
    }
}

/// Many raises, from two sessions: none takes another's back.
#[tokio::test]
async fn of_raises_at_once_the_highest_stays() {
    let rig = Rig::new();
    let open = async || Manager::open_patient(&rig.config()).await.unwrap();
    let managers = [open().await, open().await];
    let raises = (1..=16).map(|base| {
        let store = Arc::clone(&managers[base % 2].backend);
        async move { store.raise_token_base((base * 37 % 16) as u64).await }
    });
    join_all(raises).await.into_iter().collect::<Result<Vec<_>, _>>().unwrap();
    assert_eq!(managers[0].backend.token_base().await.unwrap().base, 15);
}

/// Nobody reads or raises the floor meanwhile: it has its lock for itself. To look, others may have it, too.
#[tokio::test]
async fn a_raise_has_the_floor_for_itself() {
    let rig = Rig::new();
    let manager = rig.open().await;
    let floor = std::fs::File::open(rig.file(".leasehold/floor")).unwrap();
    floor.lock_shared().unwrap();
    let refused = manager.backend.raise_token_base(9).await.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.effect()),
        (&ErrorKind::Unavailable, Effect::NotApplied),
        "{refused}"
    );
    assert_eq!(manager.backend.token_base().await.unwrap().base, 0);
    floor.unlock().unwrap();
    manager.backend.raise_token_base(9).await.unwrap();
}

/// Whoever begins after the raise grants tokens above the one it was measured by, of names old and new;
/// whoever was there before goes on with the base that was.
#[tokio::test]
async fn later_sessions_grant_larger_tokens() {
    let rig = Rig::new();
    let open = async || LockManager::builder(rig.config()).build().await.unwrap();
    let token = async |locks: &LockManager, name: &str| {
        let guard = locks.lock(name).unwrap().acquire().await.unwrap();
        let token = guard.token();
        guard.release().await.unwrap();
        token
    };
    let earlier = open().await;
    let seen = FencingToken::new(1 << 50, 7).unwrap();
    earlier.raise_token_base(seen).await.unwrap();
    assert!(token(&earlier, "a").await < seen);
    let later = open().await;
    assert!(token(&later, "a").await > seen);
    assert!(token(&later, "b").await > seen);
    // Once more with the same: the base is large enough already.
    let base = later.token_base().await.unwrap().base;
    later.raise_token_base(seen).await.unwrap();
    assert_eq!(later.token_base().await.unwrap().base, base);
}

/// Others are counted while they live: not this one, and not what the dead left behind.
#[tokio::test]
async fn sessions_that_live_are_counted() {
    let rig = Rig::new();
    let (a, b, c) = (rig.open().await, rig.open().await, rig.open().await);
    std::fs::write(rig.file(".leasehold/sessions/0123456789abcdef"), "").unwrap();
    std::fs::write(rig.file(".leasehold/sessions/stranger"), "").unwrap();
    let sessions = async || a.backend.token_base().await.unwrap().sessions;
    assert_eq!(sessions().await, Some(2));
    b.backend.close().await.unwrap();
    assert_eq!(sessions().await, Some(1));
    drop(c);
    assert_eq!(sessions().await, Some(0));
}

/// A floor that is damaged is not written over, and one in a directory that was moved away is not raised.
#[tokio::test]
async fn what_cannot_be_read_is_refused_and_stays() {
    let rig = Rig::new();
    let (a, b) = (rig.open().await, rig.open().await);
    let floor = rig.file(".leasehold/floor");
    let whole = std::fs::read(&floor).unwrap();
    let mut damaged = whole.clone();
    damaged[64] ^= 1;
    std::fs::write(&floor, &damaged).unwrap();
    assert!(a.backend.raise_token_base(9).await.is_err());
    assert!(a.backend.token_base().await.is_err());
    assert_eq!(std::fs::read(&floor).unwrap(), damaged);

    std::fs::write(&floor, &whole).unwrap();
    std::fs::rename(rig.path(), rig.path().with_extension("moved")).unwrap();
    assert!(b.backend.raise_token_base(9).await.is_err());
    let moved = rig.path().with_extension("moved").join(".leasehold/floor");
    assert_eq!(std::fs::read(moved).unwrap(), whole);
}
