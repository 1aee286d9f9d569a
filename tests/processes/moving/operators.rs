//! What operators do wrong, and what is left of a move at its end.

use std::time::Duration;

use leasehold::backend::ledger::Written;
use leasehold::backend::stage::{Phase, Side};
use leasehold::migrate::{Migration, Steps};
use leasehold::{Error, ErrorKind, LockManager};
use libtest_mimic::Trial;
use testbed::{BOUND, eventually, trial};

use super::pair::{Pair, Space, admin, env, hold, walk};

pub(crate) fn trials(pair: &Pair) -> Vec<Trial> {
    let (wrong, half, finished) = (pair.clone(), pair.clone(), pair.clone());
    let name = |name: &str| format!("{}::operators::{name}", pair.name);
    vec![
        trial(name("wrong_url_is_refused"), move || wrong_url_is_refused(wrong.fresh())),
        trial(name("half_written_records_end_nothing"), move || {
            half_written_records_end_nothing(half.fresh())
        }),
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

/// Replaces the old store's record, which is returned.
async fn replace(space: &Space, with: &[u8]) -> Vec<u8> {
    let env = env(space.ttl(), BOUND).without_token_base();
    let session = space.plain(Side::Old).open(env).await.unwrap();
    let ledger = session.ledger().unwrap();
    let before = ledger.read().await.unwrap().unwrap();
    let written = ledger.write(Some(before.version), with).await.unwrap();
    assert!(matches!(written, Written::Done(_)), "{written:?}");
    session.close().await.unwrap();
    before.value
}

/// A record of a later version is no store that has died, and an end that was left between its two writes is none.
async fn half_written_records_end_nothing(space: Space) {
    let (locks, admin) = (space.manager().await, space.admin().await);
    let before = replace(&space, b"2 old shadow\n{}").await;
    let refused = admin.repair(Duration::ZERO).await.unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Unsupported, "{refused}");
    replace(&space, &before).await;
    locks.shutdown().await.unwrap();
    eventually("nobody takes part", async || admin.clean(false).await.is_ok()).await;
    replace(&space, &before).await;
    let locks = space.manager().await;
    hold(&locks).await.release().await.unwrap();
    walk(&admin, Phase::New).await;
    hold(&locks).await.release().await.unwrap();
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
