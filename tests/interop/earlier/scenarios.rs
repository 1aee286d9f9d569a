//! What holds between processes of the earlier version and managers of today, on every store.

use leasehold::{GuardState, LostReason, Revocation, Revoke};
use testbed::{BOUND, eventually, within};

use crate::ours::{GRACE, Holder, LONG, is_busy, manager, queued, revoke, take};
use crate::played::{NAME, Process, Store};

/// Exclusion, hand-off in both directions, and in order of arrival where there is one; tokens grow, whoever
/// made what the two share.
pub(crate) async fn each_waits_for_the_other_in_turn<S: Store>() {
    for ours_first in [false, true] {
        let store = S::start().await;
        let ours = [manager(&store).await, manager(&store).await];
        let mut theirs = [store.process(LONG).await, store.process(LONG).await];
        let mut last = 0;
        let mut grows = |counter: u64| {
            assert!(last < counter, "{counter} after {last}");
            last = counter;
        };
        if ours_first {
            // So often that we may know how to take it more cheaply.
            for _ in 0..3 {
                let guard = take(&ours[0]).await;
                grows(guard.token().counter());
                guard.release().await.unwrap();
            }
        }

        grows(theirs[0].enters().await.expect("it is free"));
        assert!(is_busy(&ours[0]).await);
        let shown = ours[0].inspect(NAME).await.unwrap().holders.pop().expect("it is held");
        assert_eq!((&*shown.label, shown.metadata.as_deref()), (S::LABEL, S::METADATA));
        assert!(S::NOTED.is_none() || shown.ttl == S::NOTED, "{shown:?}");
        let first = queued(&ours[0], 0, &ours[1]).await;
        if S::ORDERED {
            assert_eq!(theirs[1].enters().await, None);
        }
        theirs[0].leaves().await;
        let guard = first.end("we hold after it").await;
        grows(guard.token().counter());
        if !S::ORDERED {
            assert_eq!(theirs[1].enters().await, None);
        }
        let third = match S::ORDERED {
            true => Some(queued(&ours[1], 1, &ours[0]).await),
            false => None,
        };
        assert!(theirs[1].sees_a_holder().await);
        guard.release().await.unwrap();
        grows(theirs[1].is_next().await);
        assert!(is_busy(&ours[0]).await);
        assert!(third.as_ref().is_none_or(|third| !third.is_finished()));
        theirs[1].leaves().await;
        let guard = match third {
            Some(third) => third.end("we hold after it").await,
            None => take(&ours[1]).await,
        };
        grows(guard.token().counter());
        guard.release().await.unwrap();
    }
}

/// A holder, and whoever is next in line, are never heard of again; the other version holds after them.
pub(crate) async fn each_passes_over_the_others_dead<S: Store>() {
    let store = S::start().await;
    let locks = manager(&store).await;
    let mut dead = [store.process(S::TTL).await, store.process(S::TTL).await];
    let counter = dead[0].enters().await.expect("it is free");
    assert_eq!(dead[1].enters().await, None);
    drop(dead);
    let guard = take(&locks).await;
    assert!(guard.token().counter() > counter);
    guard.release().await.unwrap();

    let (mut holder, counter) = Holder::start(&store).await;
    let mut theirs = store.process(LONG).await;
    assert_eq!(theirs.enters().await, None);
    holder.process.kill().await.unwrap();
    assert!(theirs.outlasts().await > counter);
    assert!(is_busy(&locks).await);
    theirs.leaves().await;
    take(&locks).await.release().await.unwrap();
}

/// It hears what it has always heard, a grace or not, and gives up at once.
pub(crate) async fn a_holder_that_knows_no_grace_is_asked<S: Store>() {
    let store = S::start().await;
    let locks = manager(&store).await;
    for how in [Revoke::AT_ONCE, GRACE] {
        let mut theirs = store.process(LONG).await;
        theirs.enters().await.expect("it is free");
        let revoked = revoke(&locks, how);
        theirs.is_asked().await;
        theirs.leaves().await;
        assert_eq!(revoked.end("it has answered").await, Revocation::Released, "{how:?}");
        take(&locks).await.release().await.unwrap();
        theirs.ends().await;
        eventually("nothing is left of that", async || store.messages().await == 0).await;
    }
}

/// It is understood as one that gives no time: also by whom another has given some, heard or not.
pub(crate) async fn a_holder_is_asked_by_one_that_knows_no_grace<S: Store>() {
    let store = S::start().await;
    let (locks, admin) = (manager(&store).await, manager(&store).await);
    let mut theirs = store.process(LONG).await;
    for (is_asked, is_heard) in [(false, false), (true, false), (true, true)] {
        let guard = take(&locks).await;
        let first = is_asked.then(|| revoke(&admin, GRACE));
        if is_heard {
            within(BOUND, "it hears", guard.until_asked()).await.expect("it is held");
            assert_eq!(guard.state(), GuardState::Held);
        } else if is_asked {
            eventually("it is asked", async || store.messages().await > 0 || guard.asked().is_some()).await;
        }
        let asked = theirs.asks().await;
        assert!(asked.is_none_or(|counter| counter == guard.token().counter()), "{asked:?}");
        assert_eq!(within(BOUND, "it is lost", guard.lost()).await, LostReason::Revoked);
        if let Some(first) = first {
            assert_eq!(first.end("it has let go").await, Revocation::Released);
        }
        eventually("nothing is left of that", async || store.messages().await == 0).await;
        take(&locks).await.release().await.unwrap();
    }
}
