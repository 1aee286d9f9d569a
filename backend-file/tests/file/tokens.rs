//! What the directory adds to its counters, raised.

use leasehold_core::{Effect, ErrorKind};

use crate::fixture::Fixture;

/// Nobody reads or raises the floor meanwhile: it has its lock for itself. To look, others may have it, too.
#[tokio::test]
async fn a_raise_has_the_floor_for_itself() {
    let fixture = Fixture::new();
    let manager = fixture.open().await;
    let floor = std::fs::File::open(fixture.file(".leasehold/floor")).unwrap();
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
    fixture.config().sweep().await.unwrap();
    assert_eq!(manager.backend.token_base().await.unwrap().base, 9, "a sweep keeps it");
}

#[tokio::test]
async fn leftover_files_are_not_counted_as_sessions() {
    let fixture = Fixture::new();
    let (a, _b) = (fixture.open().await, fixture.open().await);
    for leftover in ["0123456789abcdef", "stranger"] {
        std::fs::write(fixture.file(".leasehold/sessions").join(leftover), "").unwrap();
    }
    assert_eq!(a.backend.token_base().await.unwrap().sessions, Some(1));
}

/// A floor that is damaged is not written over, and one in a directory that was moved away is not raised.
#[tokio::test]
async fn unreadable_value_is_refused_and_kept() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.open().await, fixture.open().await);
    let floor = fixture.file(".leasehold/floor");
    let whole = std::fs::read(&floor).unwrap();
    let mut damaged = whole.clone();
    damaged[64] ^= 1;
    std::fs::write(&floor, &damaged).unwrap();
    assert!(a.backend.raise_token_base(9).await.is_err());
    assert!(a.backend.token_base().await.is_err());
    assert_eq!(std::fs::read(&floor).unwrap(), damaged);

    std::fs::write(&floor, &whole).unwrap();
    std::fs::rename(fixture.path(), fixture.path().with_extension("moved")).unwrap();
    assert!(b.backend.raise_token_base(9).await.is_err());
    let moved = fixture.path().with_extension("moved").join(".leasehold/floor");
    assert_eq!(std::fs::read(moved).unwrap(), whole);
}
