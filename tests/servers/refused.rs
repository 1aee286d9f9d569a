//! Who may not: `Denied`, at once, before waiting and while it does.

use leasehold::{Error, ErrorKind, LockManager, connect};
use testbed::{BOUND, Beside, Server, eventually, within};

use crate::rig::{LONG, NAME, Scene, hold, options};
use crate::store::Store;

async fn open<S: Server>(server: &S, user: &str, ttl: std::time::Duration) -> leasehold::Result<LockManager> {
    connect(&S::url(format!("{user}@{}", server.addr()), "billing", &options(ttl))).await
}

pub(crate) async fn a_wrong_password_is_denied<S: Store>(_scene: Scene<S>) {
    let server = S::start_guarded().await.unwrap();
    let guard = hold(&open(&server, "billing:secret", LONG).await.unwrap()).await;
    for user in ["billing:guessed", "nobody:secret"] {
        let asking = async {
            let locks = open(&server, user, LONG).await?;
            locks.lock(NAME)?.try_acquire().await.map(drop)
        };
        let refused = within(BOUND, "an answer", asking).await.expect_err(user);
        assert_eq!(*refused.kind(), ErrorKind::Denied, "{user}: {refused:?}");
        let password = user.split(':').nth(1).unwrap();
        assert!(!format!("{refused} {refused:?} {refused:#}").contains(password), "{refused:?}");
    }
    guard.ensure_held().unwrap();
}

/// Rights that are gone are missed by whoever asks and by whoever waits; with them back, all goes on, and
/// what was held meanwhile is held.
pub(crate) async fn without_the_right_nobody_waits<S: Store>(_scene: Scene<S>) {
    let server = S::start_guarded().await.unwrap();
    let guard = hold(&open(&server, "billing:secret", LONG).await.unwrap()).await;
    let locks = open(&server, "billing:secret", S::TTL).await.unwrap();
    let lock = locks.lock(NAME).unwrap();
    let waiting = Beside::start(async move { lock.acquire().await.map(drop) });
    let contenders = async || locks.inspect(NAME).await.unwrap().contenders;
    eventually("it is in the queue", async || contenders().await == 1).await;

    server.take_rights().await;
    is_denied(waiting.end("who waits is told").await);
    let lock = locks.lock(NAME).unwrap();
    is_denied(within(BOUND, "an answer", lock.acquire()).await.map(drop));
    is_denied(within(BOUND, "an answer", lock.try_acquire()).await.map(drop));
    guard.ensure_held().unwrap();

    server.give_rights_back().await;
    eventually("what is held is renewed", async || guard.renew().await.is_ok()).await;
    guard.release().await.unwrap();
    drop(hold(&locks).await);
}

fn is_denied(answer: Result<(), Error>) {
    let refused = answer.expect_err("nobody may");
    assert_eq!(*refused.kind(), ErrorKind::Denied, "{refused:?}");
}
