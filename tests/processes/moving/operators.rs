//! What operators do wrong, and what is left of a move at its end.

use std::time::Duration;

use leasehold::backend::stage::{Phase, Side};
use leasehold::migrate::{Migration, Steps};
use leasehold::{Error, ErrorKind, LockManager};
use libtest_mimic::Trial;
use testbed::{eventually, trial};

use super::pair::{Pair, Space, admin, hold, walk};

pub(crate) fn trials(pair: &Pair) -> Vec<Trial> {
    let (wrong, finished) = (pair.clone(), pair.clone());
    let name = |name: &str| format!("{}::operators::{name}", pair.name);
    vec![
        trial(name("wrong_url_is_refused"), move || wrong_url_is_refused(wrong.fresh())),
        trial(name("finished_move_stays_finished"), move || finished_move_stays_finished(finished.fresh())),
    ]
}

fn is_refused<T>(answer: Result<T, Error>, when: &str) {
    let kind = answer.map(drop).map_err(|error| error.kind().clone());
    assert_eq!(kind, Err(ErrorKind::Misuse), "{when}");
}

async fn opens(migration: Migration) -> Result<(), Error> {
    LockManager::builder(migration).build().await?.shutdown().await
}

/// With another new store, or other locks that move to the same one, a URL opens nothing, and administers nothing.
async fn wrong_url_is_refused(space: Space) {
    let (locks, right) = (space.manager().await, space.admin().await);
    for phase in [Phase::Old, Phase::Drain, Phase::New] {
        walk(&right, phase).await;
        for side in [Side::Old, Side::New] {
            let (wrong, when) = (space.mistyped(side), format!("{phase}, {side:?}"));
            is_refused(opens(wrong.clone()).await, &when);
            let wrong = admin(&wrong, space.ttl()).await;
            is_refused(wrong.status().await, &when);
            is_refused(wrong.advance(&Steps::one(), &mut |_| {}).await, &when);
            is_refused(wrong.repair(Duration::ZERO).await, &when);
            is_refused(wrong.clean(false).await, &when);
            wrong.close().await.unwrap();
        }
        hold(&locks).await.release().await.unwrap();
    }
}

/// A process that was forgotten does not begin it again, whichever namespace is used for other locks by then.
async fn finished_move_stays_finished(space: Space) {
    let (locks, admin) = (space.manager().await, space.admin().await);
    let guard = hold(&locks).await;
    let token = guard.token();
    guard.release().await.unwrap();
    walk(&admin, Phase::New).await;
    locks.shutdown().await.unwrap();
    eventually("nobody takes part", async || admin.clean(false).await.is_ok()).await;
    is_refused(opens(space.migration()).await, "cleaned up");
    admin.clean(true).await.unwrap();
    is_refused(opens(space.migration()).await, "the old namespace is free");
    for side in [Side::Old, Side::New] {
        let plain = LockManager::builder(space.plain(side)).ttl(space.ttl()).build().await.unwrap();
        let guard = hold(&plain).await;
        assert!(side == Side::Old || guard.token() > token, "{token} and {}", guard.token());
        guard.release().await.unwrap();
    }
}
