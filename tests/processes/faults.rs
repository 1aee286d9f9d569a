//! Holders and waiters that are killed, stopped, revoked.

use std::process::Command;

use crate::fixture::Fixture;
use leasehold::connect;
use leasehold::{Revocation, Revoke};

/// The kernel frees the lock of a process that dies: no lease has to run out (G6).
pub(crate) async fn a_killed_holder_frees_the_lock_at_once(fixture: Fixture) {
    let (mut holder, mut next) = (fixture.holder().await, fixture.holder().await);
    let token = holder.acquire("a").await;
    assert_eq!(next.ask("try a").await, "busy");
    next.order("acquire a").await;
    holder.process.kill().await.unwrap();
    assert!(next.token().await > token);
}

/// A process that is stopped holds on, however long: there is no lease that could run out.
pub(crate) async fn a_stopped_holder_keeps_the_lock(fixture: Fixture) {
    let (mut holder, mut next) = (fixture.holder().await, fixture.holder().await);
    holder.acquire("a").await;
    holder.process.stop().await.unwrap();
    // Asking costs the asked nothing, and a revocation it cannot answer takes a whole ttl.
    let admin = connect(fixture.url()).await.unwrap();
    assert_eq!(admin.revoke("a", Revoke::AT_ONCE).await.unwrap(), Revocation::Unanswered);
    assert_eq!(next.ask("try a").await, "busy");
    // What was asked stays asked.
    next.order("acquire a").await;
    holder.process.cont().unwrap();
    next.token().await;
    assert_eq!(holder.ask("state").await, "lost Revoked");
}

/// A child that was started under the lock does not inherit it.
pub(crate) async fn a_child_of_the_holder_does_not_keep_the_lock(fixture: Fixture) {
    let (mut holder, mut next) = (fixture.holder().await, fixture.holder().await);
    holder.acquire("a").await;
    let child = holder.ask("child").await;
    let child = child.strip_prefix("child ").unwrap().to_owned();
    holder.process.kill().await.unwrap();
    next.acquire("a").await;
    let ended = Command::new("kill").arg(&child).status().unwrap();
    assert!(ended.success(), "the child was gone before the lock was taken, which shows nothing");
}

pub(crate) async fn another_process_is_seen_and_revoked(fixture: Fixture) {
    let mut holder = fixture.holder().await;
    let (token, _) = (holder.acquire("a").await, fixture.holder().await);
    let admin = connect(fixture.url()).await.unwrap();
    let seen = admin.inspect("a").await.unwrap().holders.pop().expect("it is held");
    assert_eq!(seen.token.map(|token| token.get()), Some(token));
    assert!(seen.label.ends_with(&format!("/{}", holder.process.pid())), "{}", seen.label);
    let names: Vec<_> =
        admin.list("").await.unwrap().into_iter().map(|state| state.name.to_string()).collect();
    assert_eq!(names, ["a"]);
    assert_eq!(admin.revoke("a", Revoke::AT_ONCE).await.unwrap(), Revocation::Released);
    assert_eq!(holder.ask("state").await, "lost Revoked");
    assert_eq!(admin.inspect("a").await.unwrap().holders.pop(), None);
    assert_eq!(admin.revoke("a", Revoke::AT_ONCE).await.unwrap(), Revocation::NotHeld);
}
