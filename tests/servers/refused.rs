//! Refused requests: `Denied` to a client without the right, at once, also while it waits; and a namespace whose format or
//! token base this version does not understand.

use futures_util::future::join_all;
use leasehold::backend::Env;
use leasehold::{
    Effect, Error, ErrorKind, FencingToken, LockManager, Revocation, Revoke, Timing, connect, registry,
};
use testbed::{BOUND, Beside, Server, eventually, within};

use crate::fixture::{LONG, NAME, Scene, hold, options, queued, steady};
use crate::store::{Several, Store, Written};

async fn open<S: Server>(server: &S, user: &str, ttl: std::time::Duration) -> leasehold::Result<LockManager> {
    connect(&S::url(format!("{user}{}", server.addr()), "billing", &options(ttl))).await
}

fn is_denied(answer: Result<(), Error>) {
    let refused = answer.expect_err("nobody may");
    assert_eq!(*refused.kind(), ErrorKind::Denied, "{refused:?}");
}

/// The release says why it is refused. Its lock is free when the session has ended, or the lease, and the other locks of
/// its session are lost. Waiters and new requests are denied. Other users go on, and so do holds if the rights are back in
/// time.
pub(crate) async fn denied_release_frees<S: Store>(_scene: Scene<S>) {
    for change in S::CHANGES {
        join_all(S::start_each_guarded().await.into_iter().map(|server| changed(server, change))).await;
    }
}

async fn changed<S: Store>(server: S, change: &str) {
    let own = async || open(&server, "billing:secret@", S::TTL).await.unwrap();
    let (locks, waiter) = (own().await, own().await);
    let other = open(&server, S::ADMIN, S::TTL).await.unwrap();
    let (guard, bystander) = (hold(&locks).await, locks.lock("bystander").unwrap().acquire().await.unwrap());
    let patient = open(&server, "billing:secret@", LONG).await.unwrap();
    let kept = patient.lock("kept").unwrap().acquire().await.unwrap();
    let lock = waiter.lock(NAME).unwrap();
    let waiting = Beside::start(async move { lock.acquire().await.map(drop) });
    eventually("it is in the queue", async || other.inspect(NAME).await.unwrap().contenders == 1).await;
    let next = queued(&other, 1, &other).await;

    server.change_user(change).await;
    let token = guard.token();
    is_denied(within(BOUND, "the release ends", guard.release()).await);
    is_denied(waiting.end("the waiter is denied").await);
    assert_eq!(within(BOUND, "the other hold is lost", bystander.lost()).await, S::DENIED, "{change}");
    let next = next.end("the other user holds").await;
    bystander.ensure_held().unwrap_err();
    assert!(next.token() > token);
    next.release().await.unwrap();
    for locks in [&locks, &waiter] {
        let lock = locks.lock(NAME).unwrap();
        let tried = within(BOUND, "an answer", lock.try_acquire()).await.map(drop);
        assert!(!format!("{tried:?}").contains("secret"), "{tried:?}");
        is_denied(tried);
        is_denied(within(BOUND, "an answer", lock.acquire()).await.map(drop));
    }
    if change == S::CHANGES[0] {
        kept.ensure_held().unwrap();
        server.give_rights_back().await;
        eventually("what is held is renewed", async || kept.renew().await.is_ok()).await;
        kept.release().await.unwrap();
        // The next acquisition has another session.
        for locks in [&waiter, &locks] {
            hold(locks).await.release().await.unwrap();
        }
    }
    for locks in [locks, waiter] {
        // Whether an entry is left to release differs.
        drop(within(BOUND, "closing ends", locks.shutdown()).await);
    }
}

/// A waiter learns that its right is gone while the lock is held, and loses its other locks if the right was for them, too.
/// With the right back, what the holder has is renewed.
pub(crate) async fn waiter_without_right_is_refused<S: Store>(_scene: Scene<S>) {
    let server = S::start_guarded().await.unwrap();
    let guard = hold(&open(&server, "billing:secret@", LONG).await.unwrap()).await;
    let locks = open(&server, "billing:secret@", S::TTL).await.unwrap();
    let bystander = locks.lock("bystander").unwrap().acquire().await.unwrap();
    let lock = locks.lock(NAME).unwrap();
    let waiting = Beside::start(async move { lock.acquire().await.map(drop) });
    let contenders = async || locks.inspect(NAME).await.unwrap().contenders;
    eventually("it is in the queue", async || contenders().await == 1).await;

    server.change_user(S::CHANGES[0]).await;
    is_denied(waiting.end("the waiter is denied").await);
    guard.ensure_held().unwrap();
    if S::DENIES_ALL_NAMES {
        assert_eq!(within(BOUND, "the other hold is lost", bystander.lost()).await, S::DENIED);
    }
    server.give_rights_back().await;
    eventually("what is held is renewed", async || guard.renew().await.is_ok()).await;
    guard.release().await.unwrap();
    hold(&locks).await.release().await.unwrap();
}

/// A program and an administrator need no other rights.
pub(crate) async fn documented_rights_suffice<S: Several>(_scene: Scene<S>) {
    let server = S::start_guarded().await.unwrap();
    let options = server.leave_documented_rights().await.to_owned() + &options(steady::<S>());
    let url = S::url(format!("billing:secret@{}", server.addr()), "billing", &options);
    let (one, other) = (connect(&url).await.unwrap(), connect(&url).await.unwrap());
    let guard = hold(&one).await;
    let next = queued(&other, 0, &one).await;
    guard.renew().await.unwrap();
    assert_eq!(one.list("").await.unwrap().len(), 1);
    one.diagnose().await.unwrap();
    let (asks, grace) = (other.clone(), LONG);
    let revoked = Beside::start(async move { asks.revoke(NAME, Revoke::Ask { grace }).await.unwrap() });
    within(BOUND, "it is requested", guard.revocation_requested()).await.expect("it holds");
    guard.release().await.unwrap();
    assert_eq!(revoked.end("an answer").await, Revocation::Released);
    next.end("the other holds").await.release().await.unwrap();
    for how in [Revoke::AT_ONCE, Revoke::Force] {
        let guard = hold(&one).await;
        assert_eq!(other.revoke(NAME, how).await.unwrap(), Revocation::Released);
        within(BOUND, "it is lost", guard.lost()).await;
    }
    let seen = FencingToken::new(1 << 50, 0).unwrap();
    one.raise_token_base(seen).await.unwrap();
    assert_eq!(one.token_base().await.unwrap().sessions, Some(1));
    for locks in [one, other] {
        locks.shutdown().await.unwrap();
    }
    assert!(hold(&connect(&url).await.unwrap()).await.token() > seen);
}

/// It is not written over either.
pub(crate) async fn malformed_token_base_is_refused_and_kept<S: Written>(scene: Scene<S>) {
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
pub(crate) async fn another_format_is_refused_by_name<S: Written>(scene: Scene<S>) {
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
