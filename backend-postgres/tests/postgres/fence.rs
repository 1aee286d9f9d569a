//! `fence` in transactions of users: what commits, and for whom it waits.

use std::time::Duration;

use leasehold_core::{Effect, ErrorKind, LockGuard, LockManager, Revocation, Revoke};
use tokio_postgres::Client;

use crate::fixture::{BOUND, Beside, Fixture, NAME, TTL, eventually, hold, pass, trials, within};

trials!(
    token_that_does_not_hold_is_refused,
    nobody_holds_before_the_transaction_ends,
    renewals_and_releases_do_not_wait_for_a_transaction,
    stuck_lock_is_certainly_not_applied,
);

async fn fence(user: &Client, guard: &LockGuard) -> Result<(), String> {
    let token = guard.token().get_i64();
    let fenced = user.execute("SELECT leasehold.fence($1, $2, $3)", &[&"leasehold", &NAME, &token]).await;
    fenced.map(drop).map_err(|error| error.code().map_or("", |code| code.code()).to_owned())
}

/// That of an earlier holder, of one that was removed by force, and of one that waits.
async fn token_that_does_not_hold_is_refused() {
    let fixture = Fixture::start().await;
    let (one, other, (user, _connection)) =
        (fixture.manager().await, fixture.manager().await, fixture.user().await);
    let guard = hold(&one).await;
    fence(&user, &guard).await.unwrap();
    other.revoke(NAME, Revoke::Force).await.unwrap();
    assert_eq!(fence(&user, &guard).await.unwrap_err(), "LH002");
    let later = hold(&other).await;
    assert_eq!(fence(&user, &guard).await.unwrap_err(), "LH002");
    fence(&user, &later).await.unwrap();
}

/// The holder releases, and its session ends, while its transaction is open: the next one waits for that.
async fn nobody_holds_before_the_transaction_ends() {
    let fixture = Fixture::start().await;
    let (other, (mut user, _connection)) = (fixture.manager().await, fixture.user().await);
    for ends_its_session in [false, true] {
        let one = fixture.manager().await;
        let guard = hold(&one).await;
        let transaction = user.transaction().await.unwrap();
        let token = guard.token().get_i64();
        let fence = "SELECT leasehold.fence($1, $2, $3)";
        transaction.execute(fence, &[&"leasehold", &NAME, &token]).await.unwrap();
        if ends_its_session {
            one.shutdown().await.unwrap();
        } else {
            guard.release().await.unwrap();
        }
        let lock = other.lock(NAME).unwrap();
        let waiting = Beside::start(async move { lock.acquire().await.unwrap() });
        // A contender that has left is not shown any more.
        eventually("it is in the queue", async || other.inspect(NAME).await.unwrap().holder().is_some())
            .await;
        pass(Duration::from_millis(300)).await;
        assert!(!waiting.is_finished(), "somebody holds beside a fenced transaction");
        let removed = other.revoke(NAME, Revoke::Force).await.unwrap();
        assert_eq!(removed, Revocation::NotHeld, "a waiter is removed");
        transaction.commit().await.unwrap();
        waiting.end("it holds then").await.release().await.unwrap();
    }
}

async fn renewals_and_releases_do_not_wait_for_a_transaction() {
    let fixture = Fixture::start().await;
    let (one, (mut user, _connection)) = (fixture.manager().await, fixture.user().await);
    let guard = hold(&one).await;
    let transaction = user.transaction().await.unwrap();
    let token = guard.token().get_i64();
    transaction.execute("SELECT leasehold.fence($1, $2, $3)", &[&"leasehold", &NAME, &token]).await.unwrap();
    // An idle transaction would be ended by then.
    for _ in 0..4 {
        pass(TTL / 3).await;
        transaction.execute("SELECT 1", &[]).await.unwrap();
    }
    guard.ensure_held().unwrap();
    let other = one.lock("other").unwrap().acquire().await.unwrap();
    within(TTL / 3, "it waits for nobody", guard.release()).await.unwrap();
    transaction.commit().await.unwrap();
    // Nobody comes to that name any more.
    let rows = async || fixture.server.sql("SELECT count(*) FROM leasehold.contender").await.unwrap();
    eventually("the renewal removes what the transaction kept", async || rows().await == "1").await;
    other.release().await.unwrap();
}

/// Somebody else has the lock of the name in the database: the error comes before the client's own bound.
async fn stuck_lock_is_certainly_not_applied() {
    let fixture = Fixture::start().await;
    let (mut user, _connection) = fixture.user().await;
    for listens in [true, false] {
        let locks = LockManager::builder(fixture.config().listen(listens));
        let locks = locks.ttl(3 * OP_TIMEOUT).op_timeout(OP_TIMEOUT);
        let locks = locks.connect_timeout(BOUND).build().await.unwrap();
        // The session's own bound remains.
        fixture.server.sql("ALTER FUNCTION leasehold.acquire SET lock_timeout = '1min'").await.unwrap();
        hold(&locks).await.release().await.unwrap();
        let transaction = user.transaction().await.unwrap();
        let lock =
            "SELECT pg_advisory_xact_lock(hashtextextended(encode($1, 'hex'), id)) FROM leasehold.space";
        transaction.execute(lock, &[&NAME.as_bytes()]).await.unwrap();
        let error = locks.lock(NAME).unwrap().try_acquire().await.unwrap_err();
        assert_eq!(
            (error.kind(), error.effect()),
            (&ErrorKind::Unavailable, Effect::NotApplied),
            "{error:#}"
        );
        transaction.commit().await.unwrap();
        hold(&locks).await.release().await.unwrap();
        locks.shutdown().await.unwrap();
    }
}

/// Several times the longest wait for a lock: a busy machine answers late.
const OP_TIMEOUT: Duration = Duration::from_secs(4);
