//! What is refused: `Denied` to a client without the right, at once, before waiting and while it does; and a namespace that
//! says what this version does not understand.

use leasehold::{Effect, Env, Error, ErrorKind, LockManager, LostReason, Timing, connect, registry};
use testbed::{BOUND, Beside, Server, eventually, within};

use crate::fixture::{LONG, NAME, Scene, hold, options};
use crate::store::{Sessions, Store};

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

pub(crate) async fn denied_release_ends_session_and_frees<S: Sessions>(_scene: Scene<S>) {
    let server = S::start_guarded().await.unwrap();
    let open = async || open(&server, "billing:secret", S::TTL).await.unwrap();
    let (locks, others) = (open().await, open().await);
    let (guard, bystander) = (hold(&locks).await, locks.lock("bystander").unwrap().acquire().await.unwrap());
    let lock = others.lock(NAME).unwrap();
    let waiting = Beside::start(async move { lock.acquire().await.map(drop) });
    eventually("it is in the queue", async || others.inspect(NAME).await.unwrap().contenders == 1).await;

    server.take_rights().await;
    is_denied(waiting.end("the waiter is denied").await);
    is_denied(within(BOUND, "the release ends", guard.release()).await);
    let reason = within(BOUND, "the other hold is lost", bystander.lost()).await;
    assert_eq!(reason, LostReason::SessionLost);

    server.give_rights_back().await;
    // The next acquisition has another session.
    for locks in [others, locks] {
        hold(&locks).await.release().await.unwrap();
    }
}

/// It is not written over either.
pub(crate) async fn malformed_token_base_is_refused_and_kept<S: Store>(scene: Scene<S>) {
    let (server, namespace) = (scene.server().await, scene.namespace());
    let url = S::url(server.addr(), namespace, "");
    // The store without the manager, which reads the base before it raises it; nor with the manager's options.
    let env = Env::new(Timing::for_ttl(LONG)).unwrap();
    let store = registry().store(url.trim_end_matches(['?', '&'])).unwrap().open(env).await.unwrap();
    store.raise_token_base(7).await.unwrap();
    assert_eq!(server.token_base(namespace).await, "7");
    for malformed in ["seven", "", "-3", "1e3", "0x7", "99999999999999999999"] {
        server.write_token_base(namespace, malformed).await;
        for refused in
            [store.token_base().await.map(drop).unwrap_err(), store.raise_token_base(9).await.unwrap_err()]
        {
            assert_eq!(*refused.kind(), ErrorKind::Protocol, "{malformed:?}: {refused}");
            assert!(refused.to_string().contains("token_base"), "{refused}");
        }
        assert_eq!(server.token_base(namespace).await, malformed);
    }
}

/// At opening, and to an open manager that has to come back. What is open goes on.
pub(crate) async fn another_format_is_refused_by_name<S: Store>(scene: Scene<S>) {
    let (server, namespace) = (S::start().await.unwrap(), scene.namespace());
    let early = scene.on(&server, S::TTL).await;
    server.write_format(namespace, "1").await;
    let late = scene.on(&server, S::TTL).await;
    server.write_format(namespace, "2").await;
    let url = S::url(server.addr(), namespace, &options(S::TTL));
    let is_named = |answer: leasehold::Result<()>| {
        let refused = answer.expect_err("it is another format");
        let known = (refused.kind(), refused.effect());
        assert_eq!(known, (&ErrorKind::Unsupported, Effect::NotApplied), "{refused:?}");
        let words = "the namespace has format \"2\", but this version reads format 1";
        assert!(refused.to_string().contains(words), "{refused}");
    };
    is_named(within(BOUND, "an answer", connect(&url)).await.map(drop));
    hold(&early).await.release().await.unwrap();

    let _guard = hold(&late).await;
    server.disconnect_holder(namespace).await;
    let lock = late.lock("another").unwrap();
    eventually("it is refused", async || {
        lock.try_acquire().await.is_err_and(|refused| *refused.kind() == ErrorKind::Unsupported)
    })
    .await;
    is_named(lock.try_acquire().await.map(drop));
}
