//! Holders that stand still, where a lock belongs to a lease.

use crate::fixture::Fixture;
use crate::store::{STEADY, TTL};

/// A holder that is stopped for longer than its lease finds out at its first look, and the next
/// holder has the larger token (G2, G3).
pub(crate) async fn a_stopped_holder_has_lost_before_another_holds(fixture: Fixture) {
    let (mut holder, mut next) = (fixture.holder().await, fixture.holder().await);
    let token = holder.acquire("a").await;
    holder.process.stop().await.unwrap();
    assert!(next.acquire("a").await > token);
    holder.process.cont().unwrap();
    let state = holder.ask("state").await;
    assert!(state.starts_with("lost "), "{state}");
    // The loss was the hold's, not the manager's: it can hold again, after the other.
    let released = holder.ask("release").await;
    assert!(released.starts_with("error "), "{released}");
    assert_eq!(next.ask("state").await, "held");
    assert_eq!(next.ask("release").await, "released");
    holder.acquire("a").await;
}

/// A stop that the lease outlives is survived, and the renewals go on.
pub(crate) async fn a_short_stop_loses_nothing(fixture: Fixture) {
    let fixture = fixture.steady();
    let (mut holder, mut next) = (fixture.holder().await, fixture.holder().await);
    holder.acquire("a").await;
    next.order("acquire a").await;
    for _ in 0..3 {
        holder.process.stop().await.unwrap();
        tokio::time::sleep(TTL / 5).await; // the fault's own length
        holder.process.cont().unwrap();
        assert_eq!(holder.ask("state").await, "held");
        tokio::time::sleep(STEADY / 3).await; // a renewal is due in between
        assert_eq!(holder.ask("state").await, "held");
    }
    assert_eq!(holder.ask("release").await, "released");
    next.token().await;
}
